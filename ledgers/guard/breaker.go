package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/ledgers"
)

// breaker lets calls in or not, and counts what becomes of them. It is open from the start, until
// it is mended for the first time.
type breaker struct {
	// maxCalls bounds the calls in flight, and failures in a row open the breaker.
	maxCalls, failures int
	// opened and back get a token when the breaker opens or closes; they hold one at most.
	opened, back chan struct{}

	mu     sync.Mutex
	closed bool // by Close of the guard, for ever
	open   bool
	// since and cause say when and why it opened.
	since   time.Time
	cause   error
	reached bool // it was closed once
	failed  int  // failures in a row
	calls   int  // in flight, those that were given up included
	// openings and abandoned only grow.
	openings, abandoned int
}

// call is one that was let in.
type call struct {
	// openings is the breaker's when the call began: one that began before the breaker last opened
	// says nothing about the ledger of now.
	openings int
	// settled is set, under the breaker's lock, when it is decided what became of the call: it was
	// answered or given up, whichever came first.
	settled bool
	// err is what the driver returned.
	err error
}

func newBreaker(maxCalls, failures int, now time.Time) *breaker {
	return &breaker{
		maxCalls: maxCalls, failures: failures,
		opened: make(chan struct{}, 1), back: make(chan struct{}, 1),
		open: true, since: now,
	}
}

// begin lets a call in or says why not. ended is the error of the caller's context.
func (b *breaker) begin(ended error) (call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return call{}, ledgers.ErrClosed
	case ended != nil:
		return call{}, ended
	case b.open:
		return call{}, ErrOpen
	case b.calls >= b.maxCalls:
		return call{}, ledgers.ErrBusy
	}
	b.calls++
	return call{openings: b.openings}, nil
}

// end is told that the driver's call returned, with err.
func (b *breaker) end(c *call, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.err = err
	b.calls--
	if !c.settled {
		b.settle(c, err)
	}
}

// left is told that a call that was given up is over.
func (b *breaker) left() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
}

// giveUp is told that a caller stops waiting because of cause. It reports false, and counts
// nothing, if the driver's call has returned meanwhile.
func (b *breaker) giveUp(c *call, cause error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.settled {
		return false
	}
	b.abandoned++
	b.settle(c, cause)
	return true
}

// settle counts what became of a call.
func (b *breaker) settle(c *call, err error) {
	c.settled = true
	switch {
	case b.open || c.openings != b.openings:
	case err == nil:
		b.failed = 0
	case isFailure(err):
		b.failed++
		if b.failed >= b.failures {
			b.open, b.since, b.cause = true, time.Now(), err
			b.openings++
			notify(b.opened)
		}
	}
}

// isFailure reports whether an error says that something is wrong with the ledger. What is not a
// failure is no success either: a ledger whose queue is full because it hangs is busy as well.
func isFailure(err error) bool {
	for _, harmless := range []error{
		ledgers.ErrBusy, ledgers.ErrTooManyEvents, ledgers.ErrClosed, context.Canceled,
	} {
		if errors.Is(err, harmless) {
			return false
		}
	}
	return true
}

// mend closes the breaker. It returns how long it was open, and whether this is the first time.
func (b *breaker) mend() (down time.Duration, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	down, first = time.Since(b.since), !b.reached
	b.open, b.reached, b.failed, b.cause = false, true, 0, nil
	notify(b.back)
	return down, first
}

// close lets no more calls in.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// notify leaves a token, unless there is one.
func notify(tokens chan struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// counts is what a breaker shows of itself at one moment.
type counts struct {
	up, reached                bool
	since                      time.Time
	cause                      error
	calls, openings, abandoned int
}

func (b *breaker) read() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return counts{
		up: !b.open, reached: b.reached, since: b.since, cause: b.cause,
		calls: b.calls, openings: b.openings, abandoned: b.abandoned,
	}
}
