package accounts

import (
	"context"
	"sync"
	"time"

	"weir/ledgers"
)

// clockTolerance is how far the wall clock and the monotonic clock of this node may differ, since
// the last answer of the ledger, before the ledger's time is asked for.
const clockTolerance = 100 * time.Millisecond

// Now returns the ledger's time in nanoseconds since 1970: the newest timestamp that this book has
// seen plus the time passed since, or the node's own time where it has seen none.
func (b *Book) Now() uint64 {
	now, _ := b.clock.read()
	return now
}

// Time is [Book.Now], but asks the ledger if it has not answered yet, or if this node's clock was
// set or the node slept since: nobody else knows then how much has expired.
func (b *Book) Time(ctx context.Context) (uint64, error) {
	now, sure := b.clock.read()
	if sure {
		return now, nil
	}
	// An event with id 0 is refused with the ledger's time, and leaves nothing behind.
	_, err := b.createTransfers(ctx, []ledgers.Transfer{{}})
	if err != nil {
		return 0, err
	}
	return b.Now(), nil
}

// clock guesses the ledger's time between its answers.
type clock struct {
	now     func() time.Time
	elapsed func() time.Duration // nil: by the monotonic readings of now

	mu     sync.Mutex
	newest uint64
	at     time.Time
	atPace time.Duration
}

func (c *clock) saw(timestamp uint64) {
	now, pace := c.now(), c.pace()
	c.mu.Lock()
	defer c.mu.Unlock()
	if timestamp > c.newest {
		c.newest, c.at, c.atPace = timestamp, now, pace
	}
}

// read returns the ledger's time, and whether it can be told from the time passed since the ledger
// answered.
func (c *clock) read() (timestamp uint64, sure bool) {
	now, pace := c.now(), c.pace()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest == 0 {
		return uint64(now.UnixNano()), false
	}
	since := c.since(now, pace)
	wall := now.Round(0).Sub(c.at.Round(0))
	return c.newest + uint64(max(0, since)), (wall - since).Abs() <= clockTolerance
}

func (c *clock) pace() time.Duration {
	if c.elapsed == nil {
		return 0
	}
	return c.elapsed()
}

// since returns the monotonic time since the newest timestamp was seen.
func (c *clock) since(now time.Time, pace time.Duration) time.Duration {
	if c.elapsed == nil {
		return now.Sub(c.at)
	}
	return pace - c.atPace
}
