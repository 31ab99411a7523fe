package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// Bounds of what goes on after a call to the ledger was given up.
const (
	// maxLate is how many given-up calls are waited for.
	maxLate = 4096
	// undoPatience is how long giving back a late charge is tried, and undoPause the time between
	// two tries: the ledger may have answered the late call and still be down for the next.
	undoPatience = time.Minute
	undoPause    = 250 * time.Millisecond
)

// patience gives contexts that end after a time. Requests that begin at nearly the same moment
// share one, and with it its timer: many requests a second would otherwise keep the process busy
// with timers of which hardly one ever fires. The zero value is ready.
type patience struct {
	mu sync.Mutex
	// latest is the one given last for each length. They are as few as the deadlines of the limits
	// in force.
	latest map[time.Duration]wait
}

// wait is a context that is given until a time, and ends later.
type wait struct {
	ctx   context.Context
	until time.Time
}

// sharing is the part of its length by which a wait that is shared may be shorter.
const sharing = 64

// begin returns a context that ends after a length, or up to a sharing-th of it earlier.
func (p *patience) begin(length time.Duration) context.Context {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	latest, ok := p.latest[length]
	if ok && now.Before(latest.until) {
		return latest.ctx
	}
	ctx, cancel := context.WithDeadline(context.Background(), now.Add(length))
	context.AfterFunc(ctx, cancel) // it is left to end by itself: others wait with it
	if p.latest == nil {
		p.latest = map[time.Duration]wait{}
	}
	p.latest[length] = wait{ctx, now.Add(length / sharing)}
	return ctx
}

// clear forgets all: the limits have changed. Who waits goes on waiting.
func (p *patience) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = nil
}

// unanswered answers a request whose ledger call failed: the one place where a limit's policy
// decides. A reservation is never let through: without the ledger there is no receipt to settle it
// by. It lets any other request pass, degraded, if every limit in it is open; the attempt is then
// spooled, to be booked when the ledger is back. An attempt of nil is a look, with nothing to book.
// Faults that are not the ledger's silence are errors whatever the policy.
func (l *Limiter) unanswered(id string, charges []charge, attempt *accounts.Attempt, cause error,
) (Decision, error) {
	e := failure(cause)
	if !silent(e) {
		return Decision{}, e
	}
	closed := attempt != nil && attempt.Holds() || slices.ContainsFunc(charges, func(c charge) bool {
		return c.limit.OnFailure == Closed || c.limit.Shadow // which is counted as an error
	})
	if attempt != nil {
		l.watch(*attempt, closed && id == "", cause)
	}
	if closed && attempt != nil {
		return Decision{}, undecided(cause, id)
	}
	if closed {
		return Decision{}, e
	}
	now := l.book.Now()
	if attempt != nil {
		l.keep(id, *attempt, now)
	}
	d := Decision{Allowed: true, Degraded: true, Denied: -1, At: instant(now)}
	for _, c := range charges {
		d.Limits = append(d.Limits, state(c, figures{}, now))
	}
	return d, nil
}

// keep spools an attempt that was let through, under the caller's id if it has one, or counts it as
// dropped and reports false where that cannot be.
func (l *Limiter) keep(id string, attempt accounts.Attempt, now uint64) bool {
	added, err := l.options.Spool.add(newSpooled(attempt, now), id != "")
	if err == nil && !added { // it waits there already, and is counted
		return true
	}
	result := "spooled"
	if err != nil {
		result = "dropped"
		last := l.complained.Load()
		if now-last > uint64(time.Minute) && l.complained.CompareAndSwap(last, now) {
			l.options.Logger.Error("requests that are let through cannot be booked later",
				"cause", err)
		}
	}
	for _, c := range attempt.Charges() {
		l.metrics.units.WithLabelValues(c.Limit.Name, result).Add(float64(c.Amount))
	}
	return err == nil
}

// afterwards calls f once the call that cause says was given up is over. It calls nothing if no
// call was given up or too many are waited for.
func (l *Limiter) afterwards(cause error, f func()) {
	given, ok := errors.AsType[*ledgers.GivenUp](cause)
	if !ok {
		return // the ledger answered with an error, or was not asked
	}
	select {
	case l.late <- struct{}{}:
	default:
		l.metrics.late.WithLabelValues("unwatched").Inc()
		return
	}
	l.waiting.Go(func() {
		defer func() { <-l.late }()
		for range given.Late { // results or not: what became of the charge is looked up
		}
		f()
	})
}

// watch waits for an attempt whose call was given up, counts it if it was accepted all the same,
// and, if it is to be undone, gives back what it took: its caller was told that the request was not
// decided, and has no id to ask again with. Nothing is given back before the charge is known to
// exist: a void that comes first would burn its id.
func (l *Limiter) watch(attempt accounts.Attempt, undo bool, cause error) {
	l.afterwards(cause, func() {
		result, err := l.settle(attempt, undo)
		switch {
		case errors.Is(err, ledgers.ErrClosed): // weir ends, and Close has said what is left
			result = "unwatched"
		case err != nil:
			l.options.Logger.Warn("a late charge was not given back: if the ledger has taken it, it "+
				"stands until its window is over; one of credits for good, unless it is granted back",
				"transfer", attempt.First, "cause", err)
		}
		if result != "" {
			l.metrics.late.WithLabelValues(result).Inc()
		}
	})
}

// settle finds out whether an attempt was accepted, and ends it if it is to be undone. It returns
// what to count it as, nothing if it was not accepted.
func (l *Limiter) settle(attempt accounts.Attempt, undo bool) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), undoPatience)
	defer cancel()
	tried := false
	for {
		result, found, err := l.book.Recall(ctx, attempt)
		if err == nil && tried && result.Outcome == accounts.Ended { // the answer was lost
			return "voided", nil
		}
		if err == nil && (!found || result.Outcome != accounts.Replayed) {
			return "", nil
		}
		if err == nil && !undo {
			return "kept", nil
		}
		if err == nil {
			tried = true
			err = l.book.Undo(ctx, attempt)
			l.forget(attempt)
		}
		if err == nil {
			return "voided", nil
		}
		if errors.Is(err, ledgers.ErrClosed) || errors.Is(err, accounts.ErrStatus) ||
			!pause(ctx, undoPause) {
			return "kept", err
		}
	}
}

// pause waits, and reports false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// forget drops what is remembered of the accounts of an attempt.
func (l *Limiter) forget(attempt accounts.Attempt) {
	for _, c := range attempt.Charges() {
		l.memory.forget(c.Account())
	}
}

// BookSpool books what was let through while the ledger did not answer. It is to be called at the
// start, for what an earlier process has left, when the ledger is back, and every few seconds, for
// single calls that went unanswered; with nothing to book it costs nothing. It stops at the first
// failure of the ledger, or when the context ends, and goes on from there when it is called again:
// what was booked before is not booked twice. What can never be booked is set aside in the spool's
// directory, logged and counted.
func (l *Limiter) BookSpool(ctx context.Context) error {
	return l.options.Spool.drain(func(lines [][]byte) error {
		err := ctx.Err()
		if err != nil {
			return err
		}
		return l.bookLines(ctx, lines)
	})
}

// Close waits until the calls that were given up are over and what they took is given back where it
// has to be, or the context ends: the error then says how many are left. The spool stays open.
func (l *Limiter) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		l.waiting.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d calls are not answered yet: %w", len(l.late), ctx.Err())
	}
}
