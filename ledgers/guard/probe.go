package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/ledgers"
)

const (
	// remindEvery is how often the log says that the ledger is still down.
	remindEvery = 10 * time.Second
	// probePatience bounds the wait for the answer to a probe. It begins at the deadline and
	// doubles, as a driver may keep in its queue what was given up: a long outage must not fill it
	// with probes.
	probePatience = 5 * time.Second
)

// Probe asks the ledger once, if the breaker is open, and closes it if the answer comes within the
// deadline. It is for the start: New probes in the background, and who must not begin before that
// has succeeded calls Probe. It waits for as long as ctx lets it; the error is the ledger's or the
// context's.
func (g *Guard) Probe(ctx context.Context) error {
	select {
	case g.probing <- struct{}{}:
		defer func() { <-g.probing }()
	case <-ctx.Done():
		return fmt.Errorf("another probe is under way: %w", ctx.Err())
	}
	if g.Up() {
		return nil
	}
	start := time.Now()
	_, err := g.driver.LookupAccounts(ctx, []ledgers.ID{{Lo: 1}}) // there or not
	took := time.Since(start)
	if err != nil {
		return fmt.Errorf("probe of the ledger: %w", err)
	}
	if took > g.options.Deadline {
		return fmt.Errorf("%w: after %v", errSlow, took)
	}
	down, first := g.breaker.mend()
	down = down.Round(time.Millisecond)
	if first {
		g.options.Logger.Info("the ledger is reached", "after", down)
	} else {
		g.options.Logger.Info("the ledger is back", "after", down)
	}
	return nil
}

// watch probes whenever the breaker is open, until the guard is closed.
func (g *Guard) watch() {
	defer close(g.watched)
	for {
		select {
		case <-g.running.Done():
			return
		case <-g.breaker.opened:
			g.awaitLedger()
		}
	}
}

// awaitLedger probes until the breaker is closed, and keeps the log. At the start it probes at
// once; where the breaker has just opened it gives the ledger time.
func (g *Guard) awaitLedger() {
	state := g.breaker.read()
	if state.up {
		return
	}
	patience, last := g.options.Deadline, state.cause
	var answer <-chan error // nil while no probe is under way
	if state.reached {
		g.options.Logger.Warn("the ledger is down: nothing is sent to it", "cause", last)
	} else {
		answer = g.probeApart(patience)
	}
	probes, reminders := time.NewTicker(g.options.ProbeEvery), time.NewTicker(remindEvery)
	defer probes.Stop()
	defer reminders.Stop()
	for {
		select {
		case <-g.running.Done():
			return
		case <-reminders.C:
			g.options.Logger.Warn("the ledger is still down",
				"for", g.Down().Round(time.Millisecond), "cause", last)
		case <-probes.C:
			if answer == nil {
				answer = g.probeApart(patience)
			}
		case err := <-answer:
			if err == nil || g.running.Err() != nil {
				return
			}
			if last == nil {
				g.options.Logger.Warn("the ledger is not reached yet", "cause", err)
			}
			answer, last = nil, err
			switch {
			case errors.Is(err, errSlow): // it is there again: how quick is it?
				answer = g.probeApart(patience)
			case errors.Is(err, context.DeadlineExceeded):
				patience = min(2*patience, max(probePatience, g.options.Deadline))
			}
		}
	}
}

// probeApart probes in a goroutine of its own, so that a driver that does not come back holds up
// neither the log nor Close.
func (g *Guard) probeApart(patience time.Duration) <-chan error {
	answer := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(g.running, patience)
		defer cancel()
		answer <- g.Probe(ctx)
	}()
	return answer
}
