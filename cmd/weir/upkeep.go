package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
	"weir/limiter"
)

const (
	// upkeepEvery is how often the ledger is asked whether it is gone for good and, where other
	// nodes share it, for what they have changed.
	upkeepEvery = time.Second
	// startWait bounds the wait for the ledger before weir serves all the same.
	startWait = 2 * time.Second
	// startPause is the least time between two tries.
	startPause = 100 * time.Millisecond
	// refreshTimeout bounds the reading of what other nodes have changed.
	refreshTimeout = 5 * time.Second
	// refreshMargin is for the difference in pace between this node's clock and the ledger's.
	refreshMargin = time.Second
)

// reachLedger waits a moment for the ledger, so that the first calls are decided by it.
func (s *service) reachLedger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	pause := time.NewTicker(startPause)
	defer pause.Stop()
	var err error
	for !s.ledger.Ready() && ctx.Err() == nil {
		err = s.ledger.Probe(ctx)
		if err == nil {
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	if !s.ledger.Ready() {
		s.log.Warn("serving without the ledger: /readyz is 503, and until it is reached each limit's "+
			"on_failure decides", "ledger", s.config.Driver.describe(s.config), "waited", startWait,
			"cause", err)
	}
}

// watchLedger returns the ledger's error once it has stopped for good, as after a failure of the
// disk: to go on, it has to be opened anew. It asks the driver itself, as a guard would not: that
// stops asking a ledger that fails. Nor can weir go on with a ledger that has other money than the
// config says, which one that was away at the start says only now. It returns nil when the context
// ends.
func (s *service) watchLedger(ctx context.Context) error {
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		_, err := s.driver.LookupTransfers(ctx, nil)
		if err != nil && s.config.Driver.gone(err) {
			return err
		}
		if s.assetsChecked.Load() {
			continue
		}
		err = s.checkAssets(ctx, s.limiter.Limits())
		if err != nil {
			return err
		}
	}
}

// checkFirstAssets is checkAssets for the start, when nobody has asked the ledger yet. One that
// does not answer at once does not hold it up.
func (s *service) checkFirstAssets(ctx context.Context) error {
	if len(s.config.Limits.Assets()) > 0 {
		probing, cancel := context.WithTimeout(ctx, s.deadline)
		_ = s.ledger.Probe(probing) // checkAssets finds out
		cancel()
	}
	return s.checkAssets(ctx, s.config.Limits)
}

// checkAssets refuses limits whose assets are not those that the ledger has money of. Where it does
// not answer it cannot tell; watchLedger asks again.
func (s *service) checkAssets(ctx context.Context, limits *limiter.Limits) error {
	err := s.limiter.CheckAssets(ctx, limits)
	if errors.Is(err, accounts.ErrAsset) {
		return fmt.Errorf("assets: %w: the config has to say the same, or name another asset", err)
	}
	s.assetsChecked.Store(err == nil)
	return nil
}

// upkeep does what has to be done again and again while the ledger is up, until the context ends.
func (s *service) upkeep(ctx context.Context) {
	ticker := time.NewTicker(upkeepEvery)
	defer ticker.Stop()
	chores := []*chore{{
		name: "requests that were let through are not booked yet", do: s.bookSpool,
	}}
	if s.config.Driver.shared {
		chores = append(chores, &chore{
			name: "changed quotas of other nodes are not read", do: s.newRefresh(),
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.ledger.Back():
		}
		for _, c := range chores {
			if s.ledger.Up() {
				c.run(ctx, s.log)
			}
		}
	}
}

// chore is one of the things to do. That it fails is logged once, until it succeeds again.
type chore struct {
	name   string // what is the matter when it fails
	do     func(context.Context) error
	failed bool
}

func (c *chore) run(ctx context.Context, logger *slog.Logger) {
	err := c.do(ctx)
	switch {
	case ctx.Err() != nil: // it was stopped
	case err != nil && !c.failed:
		logger.Error("upkeep failed, and is tried again", "effect", c.name, "error", err)
		c.failed = true
	case err == nil && c.failed:
		logger.Info("upkeep works again", "no more", c.name)
		c.failed = false
	}
}

// bookSpool books what was let through, and says how much that was.
func (s *service) bookSpool(ctx context.Context) error {
	before, err := spooledUnits(s.spooled)
	if err != nil {
		return err
	}
	booking := s.limiter.BookSpool(ctx)
	after, err := spooledUnits(s.spooled)
	if err != nil {
		return errors.Join(booking, err)
	}
	var changes []any
	for _, result := range []string{"booked", "overage", "dropped"} {
		if after[result] > before[result] {
			changes = append(changes, result, after[result]-before[result])
		}
	}
	if len(changes) > 0 {
		s.log.Info("units that were let through without the ledger are accounted for", changes...)
	}
	return booking
}

// spooledUnits reads from the limiter's metrics what became of the units that went to the spool.
func spooledUnits(registry *prometheus.Registry) (map[string]float64, error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("read the spool's metrics: %w", err)
	}
	units := make(map[string]float64)
	for _, family := range families {
		if family.GetName() != "weir_spooled_units_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "result" {
					units[label.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return units, nil
}

// newRefresh returns what reads the quotas that other nodes have changed since it was last called,
// or since this node could first have seen an account.
func (s *service) newRefresh() func(context.Context) error {
	started := time.Now()
	var first uint64
	since := make(map[string]uint64)
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
		if first == 0 {
			now, err := s.book.Time(ctx)
			if err != nil {
				return err
			}
			first = now - uint64(time.Since(started)+refreshMargin)
		}
		for _, l := range s.limiter.Limits().All() {
			from, err := s.book.Refresh(ctx, accounts.Limit{Name: l.Name}, max(first, since[l.Name]))
			since[l.Name] = from
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// newDiffers returns what counts the charges that find another quota than the config's at the same
// revision, and warns once of each such quota.
func (s *service) newDiffers() func(accounts.Limit, uint64) {
	charges := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_quota_differs_total",
		Help: "Charges that found another quota than the config's at the same revision, by limit.",
	}, []string{"limit"})
	s.registry.MustRegister(charges)
	var warned sync.Map // of accounts.Limit: no more than configs were read
	return func(limit accounts.Limit, target uint64) {
		charges.WithLabelValues(limit.Name).Inc()
		_, before := warned.LoadOrStore(limit, true)
		if !before {
			s.log.Warn("another node has another quota at the same revision, and its stands: raise "+
				"the revision of the config that is right", "limit", limit.Name,
				"revision", limit.Revision, "quota", limit.Quota, "stands", target)
		}
	}
}

// closeLedger closes the ledger at the end. That a cluster is away does not fail the end: callers
// have been told that the outcome is unknown, and the same ids will tell it.
func closeLedger(ledger ledgers.Driver, logger *slog.Logger) error {
	err := ledger.Close()
	if errors.Is(err, tigerbeetle.ErrUnanswered) {
		logger.Warn("the ledger did not answer to the end: what was sent last may be applied",
			"cause", err)
		return nil
	}
	return err
}
