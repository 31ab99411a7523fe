package embedded

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// clockTolerance is how far the wall clock may seem to be behind before the ledger's time stops
// following it; drift of up to one part in clockDrift of the time since the last look is allowed on
// top (clocks are slewed by at most 500 parts in a million).
const (
	clockTolerance = time.Millisecond
	clockDrift     = 1000
)

// clock tells the ledger's time: the wall clock's, unless that is behind what was told before; then
// time goes on from there at the pace of the monotonic clock, until the wall clock has caught up.
// It is read by one goroutine at a time.
type clock struct {
	wall    func() time.Time
	elapsed func() time.Duration // nil: since start, by the monotonic reading of wall
	start   time.Time
	logger  *slog.Logger

	// told and toldAt are the last answer and the monotonic time of it.
	told   uint64
	toldAt time.Duration
	// While behind, time is anchor plus the monotonic time since anchorAt.
	behind   bool
	anchor   uint64
	anchorAt time.Duration

	// offset is how far the ledger's time is ahead of the wall clock, in nanoseconds.
	offset atomic.Int64
}

// newClock starts a clock that goes on from last.
func newClock(options *Options, last uint64) *clock {
	c := &clock{wall: options.Now, elapsed: options.Elapsed, logger: options.Logger, told: last}
	c.start = c.wall()
	if c.elapsed != nil {
		c.toldAt = c.elapsed()
	}
	return c
}

func (c *clock) read() uint64 {
	reading := c.wall()
	wall, elapsed := uint64(reading.UnixNano()), time.Duration(0)
	switch {
	case c.elapsed != nil:
		elapsed = c.elapsed()
	case reading != reading.Round(0): // it has a monotonic reading
		elapsed = reading.Sub(c.start)
	}
	since := max(elapsed-c.toldAt, 0)
	tolerance := clockTolerance + since/clockDrift
	if !c.behind && wall+uint64(tolerance) < c.told+uint64(since) {
		c.behind, c.anchor, c.anchorAt = true, c.told, min(c.toldAt, elapsed)
		c.logger.Warn("the clock is behind the ledger's time, which goes on at its own pace",
			"behind", time.Duration(c.told+uint64(since)-wall))
	}
	now := max(wall, c.told)
	if c.behind {
		paced := c.anchor + uint64(max(elapsed-c.anchorAt, 0))
		c.behind = wall < paced
		now = max(now, paced)
		if !c.behind {
			c.logger.Info("the clock has caught up with the ledger's time")
		}
	}
	c.told, c.toldAt = now, elapsed
	c.offset.Store(int64(now - wall))
	return now
}
