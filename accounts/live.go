package accounts

import (
	"cmp"
	"slices"
	"time"

	"weir/ledgers"
)

// maxLive bounds how many live charges of one account are remembered.
const maxLive = 128

// out is what a live charge holds and when it comes back.
type out struct {
	end    uint64 // ledger time in nanoseconds
	amount uint64
}

// live remembers the charges of one account that are out, the first to come back first, so that
// most answers say when units return without reading the journal. It knows all of them (complete),
// or only the first ones. The zero value knows nothing.
type live struct {
	outs     []out
	complete bool
	// charges counts the calls of add, so that a reader of the journal sees that others charged.
	charges uint64
}

// add notes a charge, once: ends differ because timestamps do. Behind a list that is cut short it
// may be forgotten: what comes back earlier is still known.
func (l *live) add(o out) {
	l.charges++
	at, noted := slices.BinarySearchFunc(l.outs, o.end, func(o out, end uint64) int {
		return cmp.Compare(o.end, end)
	})
	if noted || at == len(l.outs) && !l.complete {
		return
	}
	l.outs = slices.Insert(l.outs, at, o)
	if len(l.outs) > maxLive {
		l.cut()
	}
}

// remove notes that what would have come back at an end is back. Who reads the journal meanwhile is
// told as by add.
func (l *live) remove(end uint64) {
	l.charges++
	l.outs = slices.DeleteFunc(l.outs, func(o out) bool { return o.end == end })
}

func (l *live) cut() {
	l.outs = slices.Clip(l.outs[:maxLive])
	l.complete = false
}

// expire forgets what is back at the ledger time now.
func (l *live) expire(now uint64) {
	back := 0
	for back < len(l.outs) && l.outs[back].end <= now {
		back++
	}
	if back > 0 {
		l.outs = slices.Delete(l.outs, 0, back)
	}
}

// next returns when the next unit comes back after now, 0 if none is out, and whether that is
// known.
func (l *live) next(now uint64) (end uint64, known bool) {
	l.expire(now)
	if len(l.outs) > 0 {
		return l.outs[0].end, true
	}
	return 0, l.complete
}

// free returns when at least need units will have come back after now, and whether that is known.
func (l *live) free(now, need uint64) (end uint64, known bool) {
	l.expire(now)
	var back uint64
	for _, o := range l.outs {
		back += o.amount
		if back >= need {
			return o.end, true
		}
	}
	return 0, false
}

// forget drops what is remembered of what is out: after an error nobody knows what was charged.
func forget(charges []Charge) {
	for _, c := range charges {
		c.standing.mu.Lock()
		c.standing.live = live{charges: c.standing.live.charges + 1}
		c.standing.mu.Unlock()
	}
}

// taken notes what an accepted chain did. How much a lowering ahead of the charges took is read
// from the ledger when its account is next charged.
func (b *Book) taken(sorted []Charge, results []ledgers.TransferResult, c chain) {
	for _, owner := range c.steps {
		b.unlearn(sorted[owner])
	}
	made := c.charged()
	for i, owner := range c.owner {
		if made[i].Timeout == 0 { // a guard, or what does not come back
			continue
		}
		made[i].Timestamp = results[i].Timestamp
		standing := sorted[owner].standing
		standing.mu.Lock()
		standing.live.add(out{end: made[i].ExpiresAt(), amount: sorted[owner].Amount})
		standing.mu.Unlock()
	}
}

// liveReader picks the live charges out of pages of a journal.
type liveReader struct {
	pendings []ledgers.Transfer
	ended    map[ledgers.ID]bool
}

func (r *liveReader) read(page []ledgers.Transfer) {
	for _, t := range page {
		switch {
		case t.Amount.IsZero(): // a settlement that found nothing to take
		case t.Flags.Has(ledgers.Pending) && t.Timeout != 0:
			r.pendings = append(r.pendings, t)
		case t.Flags.Has(ledgers.VoidPending), t.Flags.Has(ledgers.PostPending):
			r.ended[t.PendingID] = true
		}
	}
}

// longest returns the longest window that a charge was made under, in nanoseconds.
func (r *liveReader) longest() uint64 {
	var seconds uint32
	for _, t := range r.pendings {
		seconds = max(seconds, t.Timeout)
	}
	return uint64(seconds) * uint64(time.Second)
}

// live returns what is out at the ledger time now, and its sum.
func (r *liveReader) live(now uint64) (outs []out, sum uint64) {
	for _, t := range r.pendings {
		if t.ExpiresAt() > now && !r.ended[t.ID] {
			outs = append(outs, out{end: t.ExpiresAt(), amount: t.Amount.Lo})
			sum += t.Amount.Lo
		}
	}
	slices.SortFunc(outs, func(a, b out) int { return cmp.Compare(a.end, b.end) })
	return outs, sum
}
