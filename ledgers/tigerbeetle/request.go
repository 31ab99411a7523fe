package tigerbeetle

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"weir/ledgers"
)

// rules say which events depend on others of their request. A nil rule is true of no event.
type rules[E any] struct {
	// linked joins an event with the next.
	linked func(*E) bool
	// imported is judged by the first event of a request.
	imported func(*E) bool
}

// holds reports whether a rule is true of an event.
func holds[E any](rule func(*E) bool, event *E) bool { return rule != nil && rule(event) }

// together returns how many of the calls, from the first on, go into one request of at most limit
// events: at least one, which may be too large. A call that ends within a chain is the last, so
// that the chain does not join the next caller's events. A call with an imported event stays alone,
// as it would decide what may follow.
func together[E, R any](calls []*call[E, R], limit int, rules rules[E]) int {
	events := 0
	for i, call := range calls {
		events += len(call.events)
		alone := false
		for k := range call.events {
			alone = alone || holds(rules.imported, &call.events[k])
		}
		if i > 0 && (alone || events > limit) {
			return i
		}
		open := holds(rules.linked, &call.events[len(call.events)-1])
		if alone || open || events >= limit {
			return i + 1
		}
	}
	return len(calls)
}

// cut divides events into pieces of at most limit, none of which ends within a chain, unless the
// last event does. A chain that is longer is ledgers.ErrTooManyEvents.
func cut[E any](events []E, limit int, linked func(*E) bool) ([][]E, error) {
	var pieces [][]E
	for len(events) > limit {
		n := limit
		for n > 0 && holds(linked, &events[n-1]) {
			n--
		}
		if n == 0 {
			return nil, fmt.Errorf("%w: a chain is longer than the %d events that the server takes",
				ledgers.ErrTooManyEvents, limit)
		}
		pieces = append(pieces, events[:n])
		events = events[n:]
	}
	return append(pieces, events), nil
}

// dealInOrder gives each call as many answers as it has events.
func dealInOrder[E, R any](calls []*call[E, R], answers []R) error {
	rest := answers
	for _, call := range calls {
		count := len(call.events)
		if len(rest) < count {
			return fmt.Errorf("%w: %d results are too few", ErrReply, len(answers))
		}
		call.answers, rest = rest[:count:count], rest[count:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d of %d results are too many", ErrReply, len(rest), len(answers))
	}
	return nil
}

// dealByID gives each call what was found of its ids. What exists is answered in the order of the
// ids, as often as it was asked for.
func dealByID[R any](id func(*R) ledgers.ID) func([]*call[ledgers.ID, R], []R) error {
	return func(calls []*call[ledgers.ID, R], answers []R) error {
		rest := answers
		for _, call := range calls {
			found := 0
			for _, asked := range call.events {
				if found < len(rest) && id(&rest[found]) == asked {
					found++
				}
			}
			call.answers, rest = rest[:found:found], rest[found:]
		}
		if len(rest) > 0 {
			return fmt.Errorf("%w: %v was not asked for", ErrReply, id(&rest[0]))
		}
		return nil
	}
}

// requestSize is how many events or ids a request may have. It is taken for ledgers.MaxEvents until
// the server says otherwise: the limit is an option of the server, and the client does not tell it.
type requestSize struct {
	mu      sync.Mutex
	learned atomic.Int32
}

func (z *requestSize) limit() int {
	n := int(z.learned.Load())
	if n == 0 {
		return ledgers.MaxEvents
	}
	return n
}

// learn finds the limit after a request of tooMany was refused. probe makes a request of a size, of
// events that write nothing. What is too large the client refuses by itself, so few probes travel.
func (z *requestSize) learn(tooMany int, probe func(n int) error) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.limit() < tooMany {
		return nil
	}
	good, bad := 0, tooMany
	for bad-good > 1 {
		middle := good + (bad-good)/2
		err := probe(middle)
		switch {
		case err == nil:
			good = middle
		case errors.Is(err, errTooMuchData):
			bad = middle
		default:
			return err
		}
	}
	if good == 0 {
		return fmt.Errorf("%w: it takes no event at all", ErrReply)
	}
	z.learned.Store(int32(good))
	return nil
}

// forget makes the limit unknown again: another session may be with another server.
func (z *requestSize) forget() { z.learned.Store(0) }
