package tigerbeetle

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lane gathers the calls of one kind and makes one request at a time. While it is under way calls
// wait; then as many as fit go into the next one together, first come, first served. So a request
// costs the process one call of C, not one for each caller; the client of tigerbeetle-go would
// gather them as well, but for twice the work here. E is an event or an id, R what is answered.
type lane[E, R any] struct {
	name   string
	ledger *Ledger
	// reads says that the calls write nothing.
	reads bool
	rules rules[E]
	// request makes one request, and deal gives each of its calls its own answers.
	request func(c conn, parts [][]E) ([]R, error)
	deal    func(calls []*call[E, R], answers []R) error
	size    requestSize
	seen    observer

	mu      sync.Mutex
	queue   []*call[E, R]
	sending bool
	// spare has calls whose callers have their answers.
	spare sync.Pool
}

// call is a caller's events until they are answered.
type call[E, R any] struct {
	events  []E
	answers []R
	err     error
	// done gets a token with the answer.
	done chan struct{}
	// gone is set when the caller gave up.
	gone atomic.Bool
}

// do has events sent and waits for the answers, or for the end of ctx.
func (n *lane[E, R]) do(ctx context.Context, events []E) ([]R, error) {
	err := n.ledger.accept(ctx, len(events))
	if err != nil || len(events) == 0 {
		return nil, err
	}
	c := n.push(events)
	answers, err := c.wait(ctx, n.name)
	if !c.gone.Load() {
		n.reuse(c)
	}
	return answers, err
}

func (c *call[E, R]) wait(ctx context.Context, name string) ([]R, error) {
	if c.answered(ctx) {
		return c.answers, c.err
	}
	c.gone.Store(true)
	return nil, fmt.Errorf("%s: gave up waiting: %w", name, ctx.Err())
}

// answered waits for the answer, and reports false if the end of ctx came first.
func (c *call[E, R]) answered(ctx context.Context) bool {
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// push puts events that are accepted into the queue.
func (n *lane[E, R]) push(events []E) *call[E, R] {
	c, ok := n.spare.Get().(*call[E, R])
	if !ok {
		c = &call[E, R]{done: make(chan struct{}, 1)}
	}
	c.events = events
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, c)
	if !n.sending {
		n.sending = true
		go n.send()
	}
	return c
}

// reuse takes back a call that was answered and whose caller has read the answer.
func (n *lane[E, R]) reuse(c *call[E, R]) {
	c.events, c.answers, c.err = nil, nil, nil
	n.spare.Put(c)
}

// send makes requests until no call waits.
func (n *lane[E, R]) send() {
	for {
		// Those who were just answered and come back run first, so that they go along.
		runtime.Gosched()
		calls := n.take()
		if len(calls) == 0 {
			return
		}
		for len(calls) > 0 {
			calls = calls[n.sendSome(calls):]
		}
	}
}

// take returns the calls of the next request; if there are none, the sending is over.
func (n *lane[E, R]) take() []*call[E, R] {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		n.queue = nil
		n.sending = false
		return nil
	}
	count := together(n.queue, n.size.limit(), n.rules)
	calls := slices.Clone(n.queue[:count])
	clear(n.queue[:count])
	n.queue = n.queue[count:]
	return calls
}

// sendSome answers the first of the calls, as many as fit into one request and at least one, and
// returns how many.
func (n *lane[E, R]) sendSome(calls []*call[E, R]) int {
	if n.reads && calls[0].gone.Load() {
		n.answer(calls[:1], context.Canceled)
		return 1
	}
	count := len(calls)
	err := n.ledger.sessions.try(n.reads, func(c conn) error {
		for {
			limit := n.size.limit()
			count = together(calls, limit, n.rules)
			err := n.sendGroup(c, calls[:count], limit)
			if !errors.Is(err, errTooMuchData) {
				return err
			}
			err = n.size.learn(min(eventsOf(calls[:count]), limit), func(k int) error {
				_, err := n.observed(c, [][]E{make([]E, k)})
				return err
			})
			if err != nil {
				return err
			}
		}
	})
	n.answer(calls[:count], err)
	return count
}

// sendGroup makes the request for calls that fit into one, or those for a call that does not.
func (n *lane[E, R]) sendGroup(c conn, calls []*call[E, R], limit int) error {
	if eventsOf(calls) > limit {
		return n.sendPieces(c, calls[0], limit)
	}
	parts := make([][]E, len(calls))
	for i, call := range calls {
		parts[i] = call.events
	}
	answers, err := n.observed(c, parts)
	if err != nil {
		return err
	}
	return n.deal(calls, answers)
}

// sendPieces makes the requests for a call that is too large for one. After the first is answered
// there is no way back: an error is the call's.
func (n *lane[E, R]) sendPieces(c conn, whole *call[E, R], limit int) error {
	pieces, err := cut(whole.events, limit, n.rules.linked)
	if err != nil {
		return err
	}
	var all []R
	for i, events := range pieces {
		answers, err := n.observed(c, [][]E{events})
		switch {
		case err == nil:
		case i == 0 || n.reads:
			return err
		case errors.Is(err, errSessionOver):
			return fmt.Errorf("%w after %d of %d requests", ErrEvicted, i, len(pieces))
		default:
			return fmt.Errorf("after %d of %d requests: %w", i, len(pieces), permanent(err))
		}
		piece := &call[E, R]{events: events}
		err = n.deal([]*call[E, R]{piece}, answers)
		if err != nil {
			return err
		}
		all = append(all, piece.answers...)
	}
	whole.answers = all
	return nil
}

// permanent keeps a request from being made again.
func permanent(err error) error {
	if errors.Is(err, errTooMuchData) {
		return fmt.Errorf("%w: it takes less than before", ErrReply)
	}
	return err
}

// observed makes a request and measures it.
func (n *lane[E, R]) observed(c conn, parts [][]E) ([]R, error) {
	start := time.Now()
	answers, err := n.request(c, parts)
	if err == nil {
		count := 0
		for _, part := range parts {
			count += len(part)
		}
		n.seen.observe(count, time.Since(start))
	}
	return answers, err
}

// answer ends calls, which have their answers if err is nil.
func (n *lane[E, R]) answer(calls []*call[E, R], err error) {
	n.ledger.release(len(calls), eventsOf(calls))
	for _, call := range calls {
		if err != nil {
			call.answers, call.err = nil, fmt.Errorf("%s: %w", n.name, err)
		}
		call.done <- struct{}{} // from here on the call is its caller's
	}
}

func eventsOf[E, R any](calls []*call[E, R]) int {
	count := 0
	for _, call := range calls {
		count += len(call.events)
	}
	return count
}
