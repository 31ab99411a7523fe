package accounts_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/accounts"
)

// noting reserves with notes, which are kept on the account of the first charge.
func (d desk) noting(t testing.TB, id, sent string, notes []accounts.Note,
	charges ...accounts.Charge,
) accounts.Result {
	t.Helper()
	attempt, err := d.book.NewHold(id, charges, 30)
	if err != nil {
		t.Fatal(err)
	}
	result, err := d.book.Charge(context.Background(), d.book.WithNotes(attempt, id,
		&accounts.Annotation{
			Sent: []string{sent}, Notes: func(bool) []accounts.Note { return notes },
		}))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// settling settles with notes that tell whether it is late.
func (d desk) settling(t testing.TB, h accounts.Hold, actual []uint64, lo uint64,
) accounts.Settlement {
	t.Helper()
	s, err := d.book.Settle(context.Background(), h, actual, notingOf(lo))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// notingOf are two notes, of which one says a number and whether it is late.
func notingOf(lo uint64) *accounts.Annotation {
	return &accounts.Annotation{
		Sent: []string{strconv.FormatUint(lo, 10)},
		Notes: func(late bool) []accounts.Note {
			if late {
				return []accounts.Note{{Lo: lo, Hi: 1}, {}}
			}
			return []accounts.Note{{Lo: lo}, {}}
		},
	}
}

// wantNotes compares the notes on alice's account.
func (d desk) wantNotes(t testing.TB, limit accounts.Limit, want ...accounts.Note) {
	t.Helper()
	entries, err := d.book.Notes(context.Background(), d.of(limit, 0), 1, 1<<62, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []accounts.Note
	for _, e := range entries {
		got = append(got, e.Note)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("notes: got %v, want %v", got, want)
	}
}

func testNotes(t *testing.T, d desk) {
	ctx := context.Background()
	made := []accounts.Note{{Lo: 1<<64 - 1, Hi: 1<<32 - 1}, {}}
	first := d.noting(t, "one", "x", made, d.of(spend, 10), d.of(slots, 1))
	wantOutcome(t, first, accounts.Accepted)
	h := find(t, d.stranger(), first.Transfer)
	if !slices.Equal(h.Notes, made) {
		t.Fatalf("notes of the hold: got %v, want %v", h.Notes, made)
	}
	wantOutcome(t, d.noting(t, "one", "x", made, d.of(spend, 10), d.of(slots, 1)), accounts.Replayed)
	wantOutcome(t, d.noting(t, "one", "y", made, d.of(spend, 10), d.of(slots, 1)), accounts.Conflict)
	// A refused one leaves none.
	wantOutcome(t, d.noting(t, "two", "x", made, d.of(spend, 91)), accounts.Refused)
	d.wantNotes(t, spend, made...)
	d.wantNotes(t, slots)

	actual := make([]uint64, 2)
	for i, c := range h.Charges {
		if c.Limit.Name == "spend" {
			actual[i] = 7
		}
	}
	wantOutcome(t, d.settling(t, h, actual, 5).Result, accounts.Accepted)
	wantOutcome(t, d.settling(t, find(t, d.stranger(), first.Transfer), actual, 5).Result,
		accounts.Replayed)
	wantOutcome(t, d.settling(t, find(t, d.stranger(), first.Transfer), actual, 6).Result,
		accounts.Ended)
	d.wantNotes(t, spend, append(slices.Clone(made), accounts.Note{Lo: 5}, accounts.Note{})...)

	// One that stands alone, on an account that nobody has met.
	fresh := d.book.NewCharge(spend, "bob", 0)
	for i, row := range []struct {
		lo          uint64
		again, want bool
	}{{0, false, true}, {0, false, false}, {0, true, true}, {1, false, false}, {1, true, false}} {
		written, err := d.stranger().Note(ctx, fresh, 77, accounts.Note{Lo: row.lo}, row.again)
		if err != nil || written != row.want {
			t.Fatalf("note %d: got %t and %v, want %t", i, written, err, row.want)
		}
	}
	entries, err := d.book.Notes(ctx, fresh, 1, 1<<62, 100)
	if err != nil || len(entries) != 1 || entries[0].Note != (accounts.Note{}) ||
		!entries[0].About.IsZero() {
		t.Fatalf("got %+v and %v, want the first note", entries, err)
	}
	// Bounds of time are kept, the upper one excluded.
	at := entries[0].Timestamp
	for _, row := range []struct {
		from, to uint64
		want     int
	}{{at, at + 1, 1}, {at, at, 0}, {at + 1, at + 2, 0}, {1, at, 0}} {
		entries, err = d.book.Notes(ctx, fresh, row.from, row.to, 100)
		if err != nil || len(entries) != row.want {
			t.Errorf("from %d to %d: got %d and %v, want %d", row.from-at, row.to-at, len(entries), err,
				row.want)
		}
	}
}

func testCorrections(t *testing.T, d desk) {
	ctx := context.Background()
	long := limitOf("spend", 100, 8) // what is booked is back within the test
	correct := func(h accounts.Hold, id string, actual, lo uint64) accounts.Settlement {
		t.Helper()
		s, err := d.stranger().Correct(ctx, h, id, []uint64{actual}, notingOf(lo))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := d.noting(t, "one", "x", []accounts.Note{{Lo: 9}}, d.of(long, 10))
	h, found, err := d.book.Hold(ctx, first.Transfer,
		func(uint32) (accounts.Limit, bool) { return long, true })
	if err != nil || !found {
		t.Fatal(found, err)
	}
	wantOutcome(t, correct(h, "early", 3, 1).Result, accounts.Unsettled)
	wantOutcome(t, d.settling(t, h, []uint64{10}, 2).Result, accounts.Accepted)
	h, _, err = d.book.Hold(ctx, first.Transfer,
		func(uint32) (accounts.Limit, bool) { return long, true })
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range []struct{ actual, used, overage uint64 }{
		{4, 4, 0}, {120, 100, 20}, {0, 0, 0}, {60, 60, 0}, {50, 50, 0}, {55, 55, 0},
	} {
		id := string(rune('a' + i))
		s := correct(h, id, row.actual, uint64(i))
		wantOutcome(t, s.Result, accounts.Accepted)
		if s.Overage[0] != row.overage {
			t.Errorf("correction to %d: got %d overage, want %d", row.actual, s.Overage[0], row.overage)
		}
		wantOutcome(t, correct(h, id, row.actual, uint64(i)).Result, accounts.Replayed)
		wantOutcome(t, correct(h, id, row.actual, uint64(i)+100).Result, accounts.Conflict)
		d.wantUsed(t, long, row.used)
		d.wantOverage(t, long, row.overage)
	}
	d.advance(8 * time.Second)
	d.wantUsed(t, long, 0)
	wantOutcome(t, correct(h, "after", 70, 8).Result, accounts.Accepted)
	d.wantUsed(t, long, 0)
	want := []accounts.Note{{Lo: 9}}
	for _, lo := range []uint64{2, 0, 1, 2, 3, 4, 5, 8} {
		want = append(want, accounts.Note{Lo: lo}, accounts.Note{})
	}
	d.wantNotes(t, long, want...)
}
