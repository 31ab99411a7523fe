package ledgertest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/ledgers"
)

// How far a random sequence stays away from an expiry, as a server expires with a delay: no call
// lies within quietBefore before one or quietAfter after it.
const (
	quietBefore = 300 * time.Millisecond
	quietAfter  = 1200 * time.Millisecond
)

// Bounds of a failing run: replays to shrink it, for how long, and steps printed.
const (
	shrinkTries  = 300
	shrinkTime   = 20 * time.Second
	stepsPrinted = 40
	settleRounds = 1000
)

// RunRandom compares a driver with the [Twin] over a random sequence of steps, the same one for the
// same seed: accounts with all mixes of flags on three ledgers, transfers of every kind, valid and
// not, chains, posts, voids and expiries, ids sent again with the same and with other content,
// look-ups and journals. Every answer is compared whole, timestamps included. A failure prints the
// seed and the fewest steps found that still show it, or the last ones.
//
// It works with a clock of the test's and on a real server alike, as the twin learns the time from
// the driver: a transfer without an id is refused with the ledger's present, and each event is
// booked at the time that its result tells. Where a step would come close to an expiry, the clock
// is advanced past it first; where it came close all the same, both orders are right.
func RunRandom(t testing.TB, seed uint64, steps int, open func(t testing.TB) Harness) {
	t.Helper()
	sequence := randomSequence(seed, steps)
	harness := open(t)
	harness.Driver = Checked(t, harness.Driver)
	failed, difference := playRandom(t.Context(), harness, sequence)
	if difference == "" {
		return
	}
	sequence = sequence[:failed+1]
	start := time.Now()
	tries := 0
	fails := func(shorter []randomStep) bool {
		tries++
		if tries > shrinkTries || time.Since(start) > shrinkTime {
			return false
		}
		fresh := open(t)
		_, d := playRandom(t.Context(), fresh, shorter)
		err := fresh.Driver.Close()
		if err != nil {
			t.Logf("close after a replay: %v", err)
		}
		if d != "" {
			difference = d
		}
		return d != ""
	}
	sequence = shrinkSteps(sequence, fails)
	described := make([]string, len(sequence))
	for i, step := range sequence {
		described[i] = step.String()
	}
	left := max(0, len(described)-stepsPrinted)
	t.Fatalf("seed %d, %d steps: the ledger differs from the twin at the last of these steps "+
		"(%d before them left out):\n%s\n%s",
		seed, steps, left, strings.Join(described[left:], "\n"), difference)
}

// randomStep is one call, or an advance of the clock. It is worked out before the run, so that it
// can be left out of a shorter run: its ids are numbers within the run's own ids, and the times of
// its filter are places in the list of all transfers.
type randomStep struct {
	accounts       []ledgers.Account
	transfers      []ledgers.Transfer
	lookupAccounts []ledgers.ID
	findTransfers  []ledgers.ID
	filter         *ledgers.AccountFilter
	advance        time.Duration
}

func (step randomStep) String() string {
	var lines []string
	for _, a := range step.accounts {
		lines = append(lines, "account   "+formatAccount(a))
	}
	for _, t := range step.transfers {
		lines = append(lines, "transfer  "+formatTransfer(t))
	}
	var l line
	for _, id := range slices.Concat(step.lookupAccounts, step.findTransfers) {
		l.add("look up", ledgers.Amount(id), false)
	}
	l.add("advance", step.advance, step.advance == 0)
	if step.filter != nil {
		l.add("journal", *step.filter, false)
	}
	if l.Len() > 0 {
		lines = append(lines, l.String())
	}
	return strings.Join(append(lines, "commit"), "\n")
}

// duel is a driver and its twin in one run.
type duel struct {
	harness Harness
	twin    *Twin
	ids     idSpace
}

// playRandom plays steps and returns the first one at which driver and twin differ, and how, or "".
func playRandom(ctx context.Context, h Harness, steps []randomStep) (int, string) {
	d := &duel{harness: h, ids: newIDSpace()}
	d.twin = NewTwin(func() uint64 { return 0 })
	for i, step := range steps {
		difference, err := d.play(ctx, step)
		if err != nil {
			return i, "error: " + err.Error()
		}
		if difference != "" {
			return i, difference
		}
	}
	return 0, ""
}

func (d *duel) play(ctx context.Context, step randomStep) (string, error) {
	if step.advance > 0 {
		d.harness.Advance(step.advance)
		return "", nil
	}
	at, err := d.settle(ctx)
	if err != nil {
		return "", err
	}
	switch {
	case step.accounts != nil:
		return d.createAccounts(ctx, at, step.accounts)
	case step.transfers != nil:
		return d.createTransfers(ctx, at, step.transfers)
	case step.lookupAccounts != nil:
		ids := d.places(step.lookupAccounts)
		got, err := d.harness.Driver.LookupAccounts(ctx, ids)
		if err != nil {
			return "", err
		}
		return d.compare(ctx, at, func(twin *Twin) string {
			want := twin.lookupAccounts(at, ids)
			return differ(formatAll(got, formatAccount), formatAll(want, formatAccount), nil)
		})
	case step.findTransfers != nil:
		ids := d.places(step.findTransfers)
		got, err := d.harness.Driver.LookupTransfers(ctx, ids)
		want := d.twin.lookupTransfers(ids)
		return differ(formatAll(got, formatTransfer), formatAll(want, formatTransfer), nil), err
	case step.filter != nil:
		filter := *step.filter
		filter.AccountID = d.place(filter.AccountID)
		filter.TimestampMin = d.timeOf(filter.TimestampMin)
		filter.TimestampMax = d.timeOf(filter.TimestampMax)
		got, err := d.harness.Driver.AccountTransfers(ctx, filter)
		want := d.twin.accountTransfers(filter)
		return differ(formatAll(got, formatTransfer), formatAll(want, formatTransfer), nil), err
	default:
		return "", nil
	}
}

// compare compares the answer to a call, which began at a time of the ledger, with the twin's. On a
// busy machine the call may have come so late that something timed out before it was over. Whether
// it was given back before or after, either is right: the twin goes on with what agrees.
func (d *duel) compare(
	ctx context.Context, at uint64, play func(twin *Twin) (difference string),
) (string, error) {
	expiries := d.twin.expiriesAfter(at)
	if len(expiries) > 0 {
		now, err := d.time(ctx)
		if err != nil {
			return "", err
		}
		expiries = slices.DeleteFunc(expiries, func(e uint64) bool { return e > now })
	}
	if len(expiries) == 0 {
		return play(d.twin), nil
	}
	first := ""
	for _, released := range slices.Concat([]uint64{0, at}, expiries) {
		twin := d.twin.clone()
		twin.released = released
		difference := play(twin)
		if difference == "" {
			twin.released = 0
			d.twin = twin
			return "", nil
		}
		first = cmp.Or(first, difference)
	}
	return first, nil
}

// expiriesAfter returns when what has not timed out at a time will, the earliest first.
func (w *Twin) expiriesAfter(at uint64) []uint64 {
	var expiries []uint64
	for _, t := range w.transfers {
		_, ended := w.endedBy[t.ID]
		if !ended && t.Flags.Has(ledgers.Pending) && t.Timeout != 0 && !expired(&t, at) {
			expiries = append(expiries, t.ExpiresAt())
		}
	}
	slices.Sort(expiries)
	return slices.Compact(expiries)
}

// time asks for the ledger's time.
func (d *duel) time(ctx context.Context) (uint64, error) {
	results, err := d.harness.Driver.CreateTransfers(ctx, []ledgers.Transfer{{}})
	if err != nil {
		return 0, err
	}
	if len(results) != 1 {
		return 0, errWrongCount
	}
	return results[0].Timestamp, nil
}

// settle advances the clock until no expiry is near and returns the ledger's time.
func (d *duel) settle(ctx context.Context) (uint64, error) {
	for range settleRounds {
		at, err := d.time(ctx)
		if err != nil {
			return 0, err
		}
		wait := d.twin.untilQuiet(at)
		if wait == 0 {
			return at, nil
		}
		d.harness.Advance(wait)
	}
	return 0, errNeverQuiet
}

// untilQuiet is how long to wait until the expiry that is nearest to a time is far enough away.
func (w *Twin) untilQuiet(at uint64) time.Duration {
	var wait time.Duration
	for _, t := range w.transfers {
		_, ended := w.endedBy[t.ID]
		if ended || !t.Flags.Has(ledgers.Pending) || t.Timeout == 0 {
			continue
		}
		passed := time.Duration(int64(at) - int64(t.ExpiresAt()))
		if passed >= -quietBefore && passed < quietAfter {
			wait = max(wait, quietAfter-passed)
		}
	}
	return wait
}

func (d *duel) createAccounts(
	ctx context.Context, at uint64, relative []ledgers.Account,
) (string, error) {
	accounts := slices.Clone(relative)
	for i := range accounts {
		accounts[i].ID = d.place(accounts[i].ID)
	}
	results, err := d.harness.Driver.CreateAccounts(ctx, accounts)
	if err != nil {
		return "", err
	}
	if len(results) != len(accounts) {
		return "", errWrongCount
	}
	stamps, err := stampsOf(at, results, func(r ledgers.AccountResult) (uint64, bool) {
		return r.Timestamp, r.Status == ledgers.AccountExists
	})
	if err != nil {
		return "", err
	}
	want := d.twin.createAccounts(stamps, accounts)
	format := func(r ledgers.AccountResult) string { return formatResult(r.Status, r.Timestamp) }
	return differ(formatAll(results, format), formatAll(want, format),
		func(i int) string { return formatAccount(relative[i]) }), nil
}

func (d *duel) createTransfers(
	ctx context.Context, at uint64, relative []ledgers.Transfer,
) (string, error) {
	transfers := slices.Clone(relative)
	for i := range transfers {
		t := &transfers[i]
		t.ID, t.PendingID = d.place(t.ID), d.place(t.PendingID)
		t.DebitAccountID, t.CreditAccountID = d.place(t.DebitAccountID), d.place(t.CreditAccountID)
	}
	results, err := d.harness.Driver.CreateTransfers(ctx, transfers)
	if err != nil {
		return "", err
	}
	if len(results) != len(transfers) {
		return "", errWrongCount
	}
	stamps, err := stampsOf(at, results, func(r ledgers.TransferResult) (uint64, bool) {
		return r.Timestamp, r.Status == ledgers.TransferExists
	})
	if err != nil {
		return "", err
	}
	format := func(r ledgers.TransferResult) string { return formatResult(r.Status, r.Timestamp) }
	return d.compare(ctx, at, func(twin *Twin) string {
		want := twin.createTransfers(stamps, transfers)
		return differ(formatAll(results, format), formatAll(want, format),
			func(i int) string { return formatTransfer(relative[i]) })
	})
}

// stampsOf takes the time of each event from its result. `exists` tells another's: such an event
// gets the earliest time that it can have had.
func stampsOf[R any](
	after uint64, results []R, read func(R) (timestamp uint64, exists bool),
) ([]uint64, error) {
	stamps := make([]uint64, len(results))
	for i, r := range results {
		timestamp, exists := read(r)
		if exists {
			timestamp = after + 1
		}
		if timestamp <= after {
			return nil, errTimeWentBack
		}
		stamps[i], after = timestamp, timestamp
	}
	return stamps, nil
}

// place turns a number within the run into an id of the run's own.
func (d *duel) place(id ledgers.ID) ledgers.ID {
	if id.IsZero() || id == ledgers.MaxID {
		return id
	}
	return d.ids.id(id.Lo)
}

func (d *duel) places(ids []ledgers.ID) []ledgers.ID {
	placed := make([]ledgers.ID, len(ids))
	for i, id := range ids {
		placed[i] = d.place(id)
	}
	return placed
}

// timeOf is the time of a transfer, given by its place in the list of all, in thousandths of it.
func (d *duel) timeOf(place uint64) uint64 {
	if place == 0 || len(d.twin.transfers) == 0 {
		return 0
	}
	return d.twin.transfers[int(place)*len(d.twin.transfers)/1000].Timestamp
}

// shrinkSteps leaves steps out, then events of steps, as long as the rest still fails.
func shrinkSteps(steps []randomStep, fails func([]randomStep) bool) []randomStep {
	for size := (len(steps) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(steps); {
			shorter := slices.Delete(slices.Clone(steps), from, from+size)
			if len(shorter) > 0 && fails(shorter) {
				steps = shorter
				continue
			}
			from += size
		}
	}
	for i := range steps {
		for k := 0; k < len(steps[i].transfers)+len(steps[i].accounts); {
			shorter := slices.Clone(steps)
			shorter[i] = steps[i].without(k)
			if !fails(shorter) {
				k++
				continue
			}
			steps = shorter
		}
	}
	return steps
}

// without is the step less its k-th event.
func (step randomStep) without(k int) randomStep {
	if step.accounts != nil {
		step.accounts = slices.Delete(slices.Clone(step.accounts), k, k+1)
	} else {
		step.transfers = slices.Delete(slices.Clone(step.transfers), k, k+1)
	}
	return step
}
