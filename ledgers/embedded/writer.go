package embedded

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"weir/ledgers"
)

const (
	// groupEvents bounds the events and ids that are applied and synced together; one request more
	// may pass it.
	groupEvents = ledgers.MaxEvents
	// answersWaiting is how many groups may wait for their sync while the next is applied.
	answersWaiting = 1
	// tickEvery is how often the writer looks at the clock when nothing is asked of it.
	tickEvery = time.Second
)

// request is one call on its way through the writer.
type request struct {
	batch    batch        // events to create, or nil
	ids      []ledgers.ID // accounts to look up
	accounts []ledgers.Account
	deletes  *pebble.Batch // what retention deletes, or nil
	events   int
	done     chan struct{}
}

// group is requests that are applied, written and synced together.
type group struct {
	requests []*request
	written  *pebble.Batch
	synced   bool   // written has to be waited for
	last     uint64 // the newest timestamp in it
}

// queue holds the requests that wait for the writer.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	limit   int
	closed  error
	wake    chan struct{}
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, wake: make(chan struct{}, 1)}
}

func (q *queue) push(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return q.closed
	case len(q.waiting) >= q.limit:
		return ledgers.ErrBusy
	}
	q.waiting = append(q.waiting, r)
	if len(q.waiting) == 1 {
		q.signal()
	}
	return nil
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close lets no more requests in; they get err. What waits is still taken.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil || errors.Is(err, ledgers.ErrClosed) {
		q.closed = err
	}
	q.signal()
}

// take appends the requests of the next group to into, and reports whether more may come.
func (q *queue) take(into []*request) (requests []*request, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	events, n := 0, 0
	for n < len(q.waiting) && events < groupEvents {
		events += q.waiting[n].events
		n++
	}
	into = append(into, q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return into, q.closed == nil || rest > 0
}

// write is the writer: the only goroutine that touches the machine and the store.
func (l *Ledger) write() {
	defer close(l.answers)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for open := true; open; {
		g := &group{}
		g.requests, open = l.queue.take(nil)
		if len(g.requests) == 0 && open {
			select {
			case <-l.queue.wake:
				continue
			case <-tick.C:
			case <-l.failed:
				return
			}
		}
		err := l.applyMeasured(g, !open)
		if err != nil {
			l.fail(err)
			return
		}
		l.answers <- g
	}
}

func (l *Ledger) applyMeasured(g *group, last bool) error {
	start := time.Now()
	err := l.apply(g, last)
	m := l.metrics
	m.addExpired(l.machine.changes.expired)
	m.cached.Set(float64(len(l.store.cache.ring)))
	m.waiting.Set(float64(len(l.store.waiting)))
	m.live.Set(float64(len(l.machine.live.queue)))
	if len(g.requests) > 0 {
		m.groupSeconds.Observe(time.Since(start).Seconds())
	}
	return err
}

// apply carries out a group and writes it; the last one of all also stores everything that waits.
func (l *Ledger) apply(g *group, last bool) (err error) {
	defer func() {
		problem := recover()
		if problem != nil {
			err = fmt.Errorf("applying a group: %v", problem)
		}
	}()
	m := l.machine
	m.begin()
	now := l.clock.read()
	err = l.catchUp(now)
	if err != nil {
		return err
	}
	shown, events := false, 0
	for _, r := range g.requests {
		events += r.events
		switch {
		case r.events == 0:
		case r.batch != nil:
			m.execute(r.batch, max(now, m.last+1))
		case r.deletes == nil:
			shown = true
		}
	}
	l.metrics.groupEvents.Observe(float64(events))
	m.last = max(m.last, now)
	m.finish()
	g.last = m.last
	l.lookUp(g)
	b := l.db.NewBatch()
	g.synced = l.store.save(b, m, shown) && !l.options.Volatile
	if last {
		l.store.saveAll(b, m.last)
	}
	for _, r := range g.requests {
		if r.deletes != nil {
			l.store.fail(b.Apply(r.deletes, nil))
		}
	}
	if l.store.err != nil {
		return l.store.err
	}
	l.reflected.Store(l.store.reflected)
	g.written = b
	if b.Empty() {
		return nil
	}
	if g.synced {
		return l.db.ApplyNoSyncWait(b, pebble.Sync)
	}
	return l.db.Apply(b, pebble.NoSync)
}

// lookUp answers the group's look-ups of accounts, as of the end of the group.
func (l *Ledger) lookUp(g *group) {
	for _, r := range g.requests {
		if r.batch != nil {
			continue
		}
		r.accounts = make([]ledgers.Account, 0, len(r.ids))
		for _, id := range r.ids {
			a := l.machine.account(id)
			if a != nil {
				r.accounts = append(r.accounts, a.Account)
			}
		}
	}
}

// answer waits for the sync of each group in turn and then answers its requests.
func (l *Ledger) answer() {
	defer close(l.stopped)
	for g := range l.answers {
		if g.synced {
			start := time.Now()
			err := g.written.SyncWait()
			l.metrics.syncSeconds.Observe(time.Since(start).Seconds())
			if err != nil {
				l.fail(err)
				continue
			}
		}
		_ = g.written.Close()
		select {
		case <-l.failed:
			continue // a sync before this one has failed
		default:
		}
		l.durable.Store(g.last)
		for _, r := range g.requests {
			close(r.done)
		}
	}
}
