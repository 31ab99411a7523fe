package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"weir/api/wire"
)

// defaultUsageQueue is how much usage is kept while weir is away.
const defaultUsageQueue = 10_000

// Track books what a subject has used already, also what it does not have left. The same ID sent
// again books it once.
//
// It takes no longer than Timeout, and it is no error that weir or its ledger is away, or that the
// context ended first: what was used was used. The answer then says Spooled. Weir spools the usage
// where its ledger is away; where weir cannot be told, the usage is kept in this process, and sent
// again in the background under the same ID until weir answers. Up to UsageQueue are kept. What
// there is no place for is answered with Dropped, and has to be sent again, later. What is kept
// when the process ends is lost: see [Client.Flush].
//
// An error means that there was another answer, as a rule a refusal, and then nothing is booked.
// Usage that gets one after it was kept goes to UsageRefused.
func (c *Client) Track(ctx context.Context, r wire.TrackRequest) (wire.Tracked, error) {
	err := sendable(r.Subject, r.ID)
	if err == nil && r.ID == "" {
		err = ErrNoID
	}
	if err != nil {
		return wire.Tracked{}, err
	}
	if c.options.UsageQueue < 0 {
		return c.track(ctx, isPassing, r)
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	tracked, err := c.track(bounded, isPassing, r)
	if !isUntold(tracked, err) {
		return tracked, err
	}
	kept := wire.Tracked{Limit: r.Limit, Subject: r.Subject}
	if r.Amount != nil {
		amount := *r.Amount // the caller may change theirs
		r.Amount, kept.Amount = &amount, amount
	}
	kept.Spooled = c.keep(r)
	kept.Dropped = !kept.Spooled
	return kept, nil
}

func (c *Client) track(ctx context.Context, passes func(error) bool, r wire.TrackRequest,
) (wire.Tracked, error) {
	var tracked wire.Tracked
	_, err := c.callWhere(ctx, passes, http.MethodPost, "/v1/track", c.options.Token, r, &tracked)
	return tracked, err
}

// isUntold reports whether usage may have reached nobody who books it: there was no answer, for
// whatever reason, or weir could not take it just now.
func isUntold(tracked wire.Tracked, err error) bool {
	if err == nil {
		return tracked.Dropped
	}
	return isPassing(err) || errors.Is(err, ErrNoAnswer)
}

// usageQueue keeps usage in memory. While it has any, one goroutine sends it, and only that one
// takes it out.
type usageQueue struct {
	mu      sync.Mutex
	waiting []wire.TrackRequest
	// emptied is closed when there is no usage any more, and hurry ends a pause before the next try.
	// Both are nil while the queue is empty.
	emptied, hurry chan struct{}
}

// keep puts usage into the queue, and reports whether there was a place.
func (c *Client) keep(r wire.TrackRequest) bool {
	q := &c.usage
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= c.options.UsageQueue {
		return false
	}
	q.waiting = append(q.waiting, r)
	if q.emptied == nil {
		q.emptied, q.hurry = make(chan struct{}), make(chan struct{}, 1)
		go c.sendKept(r, q.hurry)
	}
	return true
}

// sendKept sends what is kept, one after the other, until there is no more of it. It pauses first,
// and after each try that weir did not answer.
func (c *Client) sendKept(r wire.TrackRequest, hurry <-chan struct{}) {
	once := func(error) bool { return false }
	wait, failed := backoff(c.options.Backoff, 0), 0
	for more := true; more; {
		select {
		case <-time.After(wait):
		case <-hurry:
			failed = 0
		}
		tracked, err := c.track(context.Background(), once, r)
		if isUntold(tracked, err) {
			wait = max(backoff(c.options.Backoff, failed), min(retryAfter(err), maxRetryAfter))
			failed++
			continue
		}
		if err != nil {
			c.options.UsageRefused(r, err)
		}
		wait, failed = 0, 0
		r, more = c.usage.next()
	}
}

// next takes the first usage out of the queue and returns the one after it, which stays, and false
// if there is none. Who keeps more after that starts another goroutine.
func (q *usageQueue) next() (wire.TrackRequest, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[0] = wire.TrackRequest{} // which the array would hold
	q.waiting = q.waiting[1:]
	if len(q.waiting) > 0 {
		return q.waiting[0], true
	}
	close(q.emptied)
	q.waiting, q.emptied, q.hurry = nil, nil, nil
	return wire.TrackRequest{}, false
}

// Flush has what [Client.Track] keeps sent now, and waits until weir has answered for all of it. It
// is for the end of a process. The error is that of the context, if that ends first: what is still
// kept then is lost with the process.
func (c *Client) Flush(ctx context.Context) error {
	q := &c.usage
	q.mu.Lock()
	emptied, hurry := q.emptied, q.hurry
	q.mu.Unlock()
	if emptied == nil {
		return nil
	}
	select {
	case hurry <- struct{}{}:
	default: // there is a hurry already
	}
	select {
	case <-emptied:
		return nil
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		return fmt.Errorf("flush usage, of which %d are kept: %w", len(q.waiting), ctx.Err())
	}
}

// logRefused is what becomes of usage that is refused in the background where nobody asks for it.
func logRefused(usage wire.TrackRequest, err error) {
	slog.Warn("usage refused, it is not booked", slog.String("limit", usage.Limit),
		slog.String("id", usage.ID), slog.Any("error", err))
}
