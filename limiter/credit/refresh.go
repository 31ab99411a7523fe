package credit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// refreshes decides which subjects are fetched in the background, and when. All it holds is
// bounded: the queue, the workers, and the times of the last fetches, of which one is forgotten
// only when it is older than the debounce.
type refreshes struct {
	options *Options
	// running counts workers and fetches of cold misses.
	running sync.WaitGroup

	mu sync.Mutex // held for look-ups only
	// begun has the time of each subject's last fetch, in the order of these times.
	begun *simplelru.LRU[string, time.Time]
	// pending has the subjects that are queued or being fetched.
	pending map[string]struct{}
	queue   chan string
	workers int
	closed  bool
}

func newRefreshes(options *Options) (*refreshes, error) {
	begun, err := simplelru.NewLRU[string, time.Time](options.MaxSubjects, nil)
	if err != nil {
		return nil, fmt.Errorf("remember %d fetches: %w", options.MaxSubjects, err)
	}
	return &refreshes{
		options: options, begun: begun, pending: map[string]struct{}{},
		queue: make(chan string, options.MaxQueued),
	}, nil
}

// scheduled is what became of a refresh that was asked for.
type scheduled int

const (
	// notDue: the subject is queued or was fetched just now.
	notDue scheduled = iota
	// queued: a worker that is there will come to it.
	queued
	// hired: a worker is to be started for it.
	hired
	// dropped: there is no room. The next decision asks again.
	dropped
)

// schedule queues a refresh of a subject if one is due.
func (r *refreshes) schedule(subject string, now time.Time) scheduled {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, waits := r.pending[subject]
	if waits || r.closed || !r.due(subject, now) {
		return notDue
	}
	if len(r.queue) == cap(r.queue) {
		return dropped
	}
	subject = strings.Clone(subject) // as a cold miss does
	r.queue <- subject               // has room: all who send hold the lock
	r.pending[subject] = struct{}{}
	if r.workers == r.options.MaxRefreshes {
		return queued
	}
	r.workers++
	r.running.Add(1)
	return hired
}

// next returns the subject to be fetched next, or false, with which the worker is gone.
func (r *refreshes) next() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case subject := <-r.queue:
		return subject, true
	default:
		r.workers--
		r.running.Done()
		return "", false
	}
}

// begin notes that a queued subject is fetched now, unless that is not due any more: somebody may
// have fetched it while it was queued.
func (r *refreshes) begin(subject string, now time.Time) scheduled {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed, !r.due(subject, now):
		return notDue
	case !r.note(subject, now):
		return dropped
	}
	return queued
}

// end lets a subject be queued again.
func (r *refreshes) end(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, subject)
}

// enter counts and notes a fetch of a cold miss, which is always due. It returns false if the gate
// is closed; otherwise running is to be told when the fetch has ended.
func (r *refreshes) enter(subject string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.note(subject, now) // without room refreshes wait, also those of this subject
	r.running.Add(1)
	return true
}

// close lets nothing begin any more.
func (r *refreshes) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// due reports whether the last fetch of a subject is long enough ago. The lock is held.
func (r *refreshes) due(subject string, now time.Time) bool {
	at, ok := r.begun.Peek(subject)
	return !ok || !r.young(at, now)
}

// note remembers that a subject is fetched now, if there is room: no fetch is forgotten that could
// still stand in the way of another. The lock is held.
func (r *refreshes) note(subject string, now time.Time) bool {
	if r.begun.Len() >= r.options.MaxSubjects && !r.begun.Contains(subject) {
		_, oldest, _ := r.begun.GetOldest()
		if r.young(oldest, now) {
			return false
		}
	}
	r.begun.Add(subject, now)
	return true
}

// young reports whether a fetch at that time stands in the way of a refresh. A time that has not
// come yet is from before the clock was set back.
func (r *refreshes) young(at, now time.Time) bool {
	age := now.Sub(at)
	return age >= 0 && age < r.options.Debounce
}

// refresh fetches a subject in the background, if that is due and there is room.
func (g *Gate) refresh(subject string) {
	switch g.refreshes.schedule(subject, g.options.Now()) {
	case hired:
		go g.work()
	case dropped:
		g.metrics.refreshes.dropped.Inc()
	}
}

// work fetches what is queued and returns when there is nothing.
func (g *Gate) work() {
	for subject, ok := g.refreshes.next(); ok; subject, ok = g.refreshes.next() {
		switch g.refreshes.begin(subject, g.options.Now()) {
		case queued:
			g.flyRefresh(subject)
		case dropped:
			g.metrics.refreshes.dropped.Inc()
		}
		g.refreshes.end(subject)
	}
}

// flyRefresh fetches a subject, or joins the fetch of a cold miss.
func (g *Gate) flyRefresh(subject string) {
	g.flights.Do(subject, func() (any, error) { //nolint:errcheck // has been counted and logged
		ctx, cancel := context.WithTimeout(g.ctx, g.options.ColdWait)
		defer cancel()
		return g.fetch(ctx, subject, &g.metrics.refreshes), nil
	})
}
