package credit

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// Gate answers, for one limit, whether a subject's credits are known to be exhausted. It is safe
// for concurrent use.
//
// Decide is for hot paths. It reads what is remembered and returns: it never asks the source, takes
// no lock that is held while something waits, and waits for nothing but a Cache that is not in
// memory, and for that no longer than the read budget. There is no error: whatever is missing,
// slow or down lets pass, in four layers that do not rely on each other:
//
//   - a missing enforcement flag is not enforced;
//   - an unknown balance is not exhausted;
//   - a fetch that fails changes nothing but for one warning: what was known stays known;
//   - a read of the cache that fails or takes too long knows nothing.
//
// After a decision the balance is refreshed in the background if it is missing or stale, and also
// if the decision was to block, as there may have been a top-up; at most once per subject and
// Debounce. After a read that failed nothing is refreshed: the source is not to be asked by all for
// the sake of a cache that is down. A stale balance counts like a fresh one until it is replaced or
// BalanceTTL is over.
//
// Balance is for all other places: it waits for the source where nothing is known.
type Gate struct {
	source    Source
	options   Options
	store     store
	flights   singleflight.Group
	fetches   chan struct{} // slots for the fetches of cold misses
	refreshes *refreshes
	metrics   metrics
	limit     string
	// ctx ends when the gate is closed; sources and caches get contexts derived from it.
	ctx    context.Context
	cancel context.CancelFunc
}

// New returns a gate for a limit whose balances come from a source. Options may be nil. The limit's
// name is for logs and metrics. Gates of several limits may share a registerer.
func New(limit string, source Source, options *Options) (*Gate, error) {
	g := &Gate{source: source, limit: limit, options: options.withDefaults()}
	g.fetches = make(chan struct{}, g.options.MaxFetches)
	refreshes, err := newRefreshes(&g.options)
	if err != nil {
		return nil, err
	}
	g.refreshes = refreshes
	if g.options.Cache != nil {
		g.store = newBounded(g.options.Cache, &g.options)
	} else {
		g.store, err = newMemory(g.options.MaxSubjects)
		if err != nil {
			return nil, err
		}
	}
	g.metrics, err = newMetrics(limit, g.options.Registerer)
	if err != nil {
		return nil, err
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Close ends the fetches under way, returns when they have ended, and takes the metrics off the
// registerer. A closed gate still decides by what it knows, and learns nothing more.
func (g *Gate) Close() {
	g.refreshes.close()
	g.cancel()
	g.refreshes.running.Wait()
	g.metrics.unregister()
}

// Decide says whether a subject is blocked. See [Gate].
func (g *Gate) Decide(subject string) Decision {
	v := g.recall(subject)
	g.metrics.decided(&v.Decision)
	if v.refresh {
		g.refresh(subject)
	}
	return v.Decision
}

// recall judges what is remembered of a subject. This is where failing open is decided.
func (g *Gate) recall(subject string) verdict {
	if subject == "" || len(subject) > MaxSubject {
		return g.unknown()
	}
	entry, err := g.store.read(subject)
	if err != nil {
		g.metrics.unread(err)
		v := g.unknown()
		v.Unread = true
		return v
	}
	return g.options.judge(entry, g.options.Now())
}

// unknown is the verdict on a subject of which nothing can be known, and for which nothing is to be
// done about it.
func (g *Gate) unknown() verdict {
	return verdict{Decision: Compute(Balance{}, g.options.AlwaysEnforced)}
}

// Balance is Decide for what can wait, such as a page that shows the balance: where nothing is
// known of a subject, it waits for a fetch, at most ColdWait. Concurrent calls for one subject
// share a fetch. A balance that is known, stale or not, is returned at once, and so is the recent
// word of the source that there is none. A fetch that fails, or is not awaited because the context
// is done, leaves the balance unknown; after a cache read that failed there is no fetch.
func (g *Gate) Balance(ctx context.Context, subject string) Decision {
	v := g.recall(subject)
	if v.missing {
		return g.fetchCold(ctx, subject, v).Decision
	}
	if v.refresh {
		g.refresh(subject)
	}
	return v.Decision
}
