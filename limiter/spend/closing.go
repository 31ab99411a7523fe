package spend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"weir/limiter"
)

const (
	// rememberedClosings is how many budgets of subjects are remembered to be closed. A forgotten one
	// costs a write more when it is asked next.
	rememberedClosings = 1 << 16
	// recordEvery is how often counts that wait are written down.
	recordEvery = 10 * time.Second
)

// closing names the budget of a subject.
type closing struct {
	budget, subject string
}

// closings counts the calls that closed budgets turn away, so that a loop of them is written down
// once a minute and not once a call.
type closings struct {
	mu   sync.Mutex
	list *lru.Cache[closing, turned]
}

// turned is what is remembered of one budget of a subject.
type turned struct {
	closed bool  // the last answer was no
	minute int64 // since 1970, in which something was last written down, or tried to be
	told         // what is not written down
	// asked is the part of it that may be written down: the ledger did not answer. It is asked the
	// same again, so that nothing is told twice.
	asked told
}

// told is what a record says.
type told struct {
	count  uint64 // calls turned away
	number int64  // the minute of the record
	model  uint16
	reason Reason
	again  bool
}

// newClosings returns closings that count in forgotten what is pushed out unwritten.
func newClosings(forgotten prometheus.Counter) (*closings, error) {
	list, err := lru.NewWithEvict(rememberedClosings, func(_ closing, t turned) {
		forgotten.Add(float64(t.count))
	})
	if err != nil {
		return nil, fmt.Errorf("remember %d closings: %w", rememberedClosings, err)
	}
	return &closings{list: list}, nil
}

// is reports whether the last answer was no.
func (c *closings) is(key closing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, _ := c.list.Get(key)
	return t.closed
}

// add counts a call that was turned away.
func (c *closings) add(key closing, model uint16, reason Reason) {
	c.change(key, func(t turned) turned {
		t.closed, t.model, t.reason = true, model, reason
		t.count++
		return t
	})
}

// reopen notes that a call passed.
func (c *closings) reopen(key closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.list.Peek(key)
	if !ok {
		return
	}
	t.closed = false
	c.list.Add(key, t)
}

// due returns what is to be written down in a minute, false if that is nothing, or was done.
func (c *closings) due(key closing, minute int64) (told, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.list.Peek(key)
	if !ok || t.count == 0 || t.minute >= minute {
		return told{}, false
	}
	t.minute = minute
	c.list.Add(key, t)
	if t.asked.count > 0 {
		return t.asked, true
	}
	t.number = minute
	return t.told, true
}

// change replaces what is remembered.
func (c *closings) change(key closing, change func(turned) turned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, _ := c.list.Peek(key)
	c.list.Add(key, change(t))
}

// keys returns all that is remembered.
func (c *closings) keys() []closing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list.Keys()
}

// record writes down how many calls a closed budget has turned away, at most once a minute over all
// nodes: the minute is the note's number. Where another node was quicker, or the ledger does not
// answer, the count waits for the next minute. It reports false where the ledger is away.
func (b *Breaker) record(ctx context.Context, key closing, minute int64) bool {
	t, due := b.closed.due(key, minute)
	if !due {
		return true
	}
	budget := Budget{Name: key.budget}
	made, err := b.limiter.Note(ctx, budget.tokenLimit(), key.subject, uint64(t.number),
		closedNote(b.node, t.count, t.model, t.reason), t.again)
	e, failed := errors.AsType[*limiter.Error](err)
	away := failed && e.Code == limiter.CodeLedgerUnavailable
	if failed {
		b.metrics.unrecorded.Inc()
	}
	b.closed.change(key, func(now turned) turned {
		switch now.asked = (told{}); {
		case made:
			now.count -= min(now.count, t.count)
		case away:
			now.asked, now.asked.again = t, true
		}
		return now
	})
	return !away
}

// Run writes down counts that wait for their minute, until the context ends. After that
// [Breaker.Close] writes down the rest.
func (b *Breaker) Run(ctx context.Context) {
	ticker := time.NewTicker(recordEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.Record(ctx)
		}
	}
}

// Record writes down the counts that wait and whose minute has come, until the context ends or the
// ledger does not answer. See [Breaker.Run].
func (b *Breaker) Record(ctx context.Context) { b.recordAll(ctx, 0) }

// Close writes down the counts that still wait, as [Breaker.Record] does. One whose minute has its
// note takes the next one's.
func (b *Breaker) Close(ctx context.Context) { b.recordAll(ctx, 0, 1) }

// recordAll writes counts down in minutes that are so far ahead.
func (b *Breaker) recordAll(ctx context.Context, ahead ...int64) {
	for _, key := range b.closed.keys() {
		for _, minutes := range ahead {
			if ctx.Err() != nil || !b.record(ctx, key, b.minute()+minutes) {
				return
			}
		}
	}
}

// minute returns the minutes of the ledger's time since 1970.
func (b *Breaker) minute() int64 { return b.limiter.Now().Unix() / 60 }
