package accounts_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers/ledgertest"
)

// The bounds are worked out by hand from the zones' rules, in UTC.
func TestCalendarPeriods(t *testing.T) {
	tests := []struct {
		name, align, zone, at string
		start, end            string
	}{
		{"day in UTC", "day", "", "2026-10-16T13:00:00Z",
			"2026-10-16T00:00:00Z", "2026-10-17T00:00:00Z"},
		{"the first instant of a day", "day", "UTC", "2026-10-16T00:00:00Z",
			"2026-10-16T00:00:00Z", "2026-10-17T00:00:00Z"},
		{"the last of a day", "day", "UTC", "2026-10-16T23:59:59.999999999Z",
			"2026-10-16T00:00:00Z", "2026-10-17T00:00:00Z"},
		{"a day of 23 hours", "day", "Europe/Berlin", "2026-03-29T10:00:00Z",
			"2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"a day of 25 hours", "day", "Europe/Berlin", "2026-10-25T10:00:00Z",
			"2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"no midnight: clocks go from 0:00 to 1:00", "day", "America/Sao_Paulo",
			"2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"the day before it", "day", "America/Sao_Paulo",
			"2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"clocks go from 0:00 back to 23:00", "day", "America/Sao_Paulo",
			"2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"clocks go from 0:01 back to 23:01", "day", "America/St_Johns",
			"2010-11-07T02:45:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"a date that was skipped", "day", "Pacific/Apia", "2011-12-30T12:00:00Z",
			"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"week from Monday, seen on Sunday", "week", "Asia/Kathmandu", "2026-11-29T12:00:00Z",
			"2026-11-22T18:15:00Z", "2026-11-29T18:15:00Z"},
		{"week, seen on Monday", "week", "Asia/Kathmandu", "2026-11-29T18:15:00Z",
			"2026-11-29T18:15:00Z", "2026-12-06T18:15:00Z"},
		{"week over a year's end, an hour longer in summer time", "week", "Europe/Berlin",
			"2026-10-22T00:00:00Z", "2026-10-18T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"February of a leap year", "month", "UTC", "2028-02-29T23:00:00Z",
			"2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"December", "month", "America/New_York", "2026-12-31T23:59:59Z",
			"2026-12-01T05:00:00Z", "2027-01-01T05:00:00Z"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			calendar, err := accounts.NewCalendar(test.align, test.zone)
			if err != nil {
				t.Fatal(err)
			}
			want := accounts.Period{Start: nanos(t, test.start), End: nanos(t, test.end)}
			for range 2 { // worked out, and remembered
				got := calendar.Period(nanos(t, test.at))
				if got != want {
					t.Errorf("got %v to %v, want %s to %s", time.Unix(0, int64(got.Start)).UTC(),
						time.Unix(0, int64(got.End)).UTC(), test.start, test.end)
				}
			}
		})
	}
}

func nanos(t *testing.T, text string) uint64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(at.UnixNano())
}

// Periods leave no gap and do not overlap, through every change of the clocks.
func TestCalendarPeriodsMeet(t *testing.T) {
	for _, zone := range []string{
		"UTC", "Europe/Berlin", "America/St_Johns", "America/Sao_Paulo", "Australia/Lord_Howe",
		"Pacific/Apia", "Africa/Casablanca", "Asia/Tehran",
	} {
		for _, align := range []string{"day", "week", "month"} {
			calendar, err := accounts.NewCalendar(align, zone)
			if err != nil {
				t.Fatal(err)
			}
			p := calendar.Period(nanos(t, "2009-01-15T12:00:00Z"))
			for p.End < nanos(t, "2019-12-01T00:00:00Z") {
				for _, at := range []uint64{p.Start, p.End - 1} {
					if got := calendar.Period(at); got != p {
						t.Fatalf("%s %s: %d is in %v, want %v", zone, align, at, got, p)
					}
				}
				next := calendar.Period(p.End)
				if next.Start != p.End || next.End <= next.Start {
					t.Fatalf("%s %s: %v follows %v", zone, align, next, p)
				}
				p = next
			}
		}
	}
}

func TestCalendarErrors(t *testing.T) {
	for _, test := range []struct{ align, zone string }{
		{"", "UTC"}, {"year", "UTC"}, {"Day", "UTC"}, {"day", "Local"}, {"day", "Mars/Olympus"},
		{"day", "../etc/passwd"},
	} {
		_, err := accounts.NewCalendar(test.align, test.zone)
		if !errors.Is(err, accounts.ErrCalendar) {
			t.Errorf("%q in %q: got %v, want ErrCalendar", test.align, test.zone, err)
		}
	}
}

func TestCalendarInJSON(t *testing.T) {
	calendar, err := accounts.NewCalendar("week", "Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(calendar)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"align":"week","timezone":"Europe/Berlin"}`
	if string(data) != want {
		t.Errorf("got %s, want %s", data, want)
	}
	var read accounts.Calendar
	err = json.Unmarshal(data, &read)
	if err != nil {
		t.Fatal(err)
	}
	at := nanos(t, "2026-10-22T00:00:00Z")
	if read.Period(at) != calendar.Period(at) {
		t.Errorf("read back: got %v, want %v", read.Period(at), calendar.Period(at))
	}
}

// daily comes back at midnight in UTC.
func daily(t testing.TB) accounts.Limit {
	t.Helper()
	calendar, err := accounts.NewCalendar("day", "")
	if err != nil {
		t.Fatal(err)
	}
	l := limitOf("spend", 100, 2*24*3600)
	l.Calendar = calendar
	return l
}

// at sets the clock to a time of 2026-03-02, or of the day after, in UTC.
func (c *testClock) at(t testing.TB, day int, text string) {
	t.Helper()
	clock, err := time.Parse("15:04:05.999999999", text)
	if err != nil {
		t.Fatal(err)
	}
	midnight := time.Date(2026, 3, 2+day, 0, 0, 0, 0, time.UTC)
	c.nanos.Store(midnight.Add(clock.Sub(clock.Truncate(24 * time.Hour))).UnixNano())
}

// ticking is a fault that lets time pass in the ledger's next batch, before it is committed and
// before it is answered.
func ticking(clock *testClock, before, after time.Duration) ledgertest.Fault {
	pass := func(d time.Duration) func(context.Context) error {
		return func(context.Context) error {
			clock.Advance(d)
			return nil
		}
	}
	return ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, WaitBefore: pass(before), WaitAfter: pass(after),
	}
}

// Whatever time passes around the commit, units come back with the period that they were committed
// in: not before its end, and less than a second after it.
func TestCalendarCharges(t *testing.T) {
	limit := daily(t)
	for _, test := range []struct {
		name          string
		sent          string
		before, after time.Duration
		day           int // after whose midnight it is back
		replaced      bool
	}{
		{"at once", "12:00:00", 0, 0, 1, false},
		{"in the last instant", "23:59:59.9", 0, 0, 1, false},
		{"5 s late", "12:00:00", 5 * time.Second, 0, 1, true},
		{"answered 5 s late", "12:00:00", 0, 5 * time.Second, 1, false},
		{"over midnight", "23:59:59.5", 700 * time.Millisecond, 0, 2, true},
		{"long over midnight", "23:00:00", 2 * time.Hour, 0, 2, true},
		{"at midnight", "00:00:00", 0, 0, 1, false},
		{"answered after midnight", "23:59:59", 0, 500 * time.Millisecond, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			clock := newClock()
			faulty := ledgertest.NewFaulty(openLedger(t, clock))
			book := newBook(t, faulty, clock)
			clock.at(t, -1, "10:00:00")
			wantOutcome(t, charge(t, book, "", book.NewCharge(limit, "bob", 1)), accounts.Accepted)
			clock.at(t, 0, test.sent)
			remove := faulty.Inject(ticking(clock, test.before, test.after))
			c := book.NewCharge(limit, "bob", 60)
			attempt, err := book.NewAttempt("id", []accounts.Charge{c})
			if err != nil {
				t.Fatal(err)
			}
			result, err := book.Charge(context.Background(), attempt)
			if err != nil {
				t.Fatal(err)
			}
			remove()
			wantOutcome(t, result, accounts.Accepted)
			h := find(t, book, result.Transfer)
			if replaced := h.First != attempt.First; replaced != test.replaced {
				t.Errorf("replaced: got %t, want %t", replaced, test.replaced)
			}
			clock.Advance(time.Second) // R6: the retry's time-out differs
			again := charge(t, newBook(t, faulty, clock), "id", c)
			if test.day == 1 && test.name != "at once" && clock.Now().After(midnightOf(1)) {
				wantOutcome(t, again, accounts.Expired)
				return
			}
			wantOutcome(t, again, accounts.Replayed)
			if again.Transfer != result.Transfer || again.Timestamp != result.Timestamp {
				t.Errorf("replay: got %+v, want %+v", again, result)
			}
			clock.nanos.Store(midnightOf(test.day).UnixNano() - 1000)
			wantBalance(t, book, c, 100, 60, 40)
			clock.Advance(time.Second)
			wantBalance(t, book, c, 100, 0, 100)
		})
	}
}

func midnightOf(day int) time.Time { return time.Date(2026, 3, 2+day, 0, 0, 0, 0, time.UTC) }

// A charge that has to be replaced is, whichever call of that fails, once the id is sent again; two
// that send it at the same time do it once.
func TestCalendarReplacementLost(t *testing.T) {
	errDown := errors.New("down")
	for _, fault := range []ledgertest.Fault{{Before: errDown}, {After: errDown}} {
		for skip := range 3 {
			clock := newClock()
			faulty := ledgertest.NewFaulty(openLedger(t, clock))
			book, limit := newBook(t, faulty, clock), daily(t)
			clock.at(t, 0, "10:00:00")
			charge(t, book, "", book.NewCharge(limit, "bob", 1))
			clock.at(t, 0, "23:59:59.5")
			defer faulty.Inject(ticking(clock, 700*time.Millisecond, 0))()
			fault.On, fault.Skip = ledgertest.CallCreateTransfers, skip
			faulty.Inject(fault)
			c := book.NewCharge(limit, "bob", 60)
			_, err := tryCharge(book, "id", c)
			if err == nil && skip < 1 {
				t.Fatalf("call %d: the fault did not strike", skip)
			}
			clock.Advance(100 * time.Millisecond)
			var group sync.WaitGroup
			for range 4 {
				other := newBook(t, faulty, clock)
				group.Go(func() {
					result, err := tryCharge(other, "id", other.NewCharge(limit, "bob", 60))
					if err != nil && !errors.Is(err, errDown) ||
						err == nil && result.Outcome > accounts.Replayed {
						t.Errorf("call %d, again: got %+v, %v, want it done", skip, result, err)
					}
				})
			}
			group.Wait()
			if got := charge(t, book, "id", c); got.Outcome > accounts.Replayed {
				t.Fatalf("call %d, at last: got %+v", skip, got)
			}
			clock.nanos.Store(midnightOf(2).UnixNano() - 1000)
			wantBalance(t, book, c, 100, 60, 40)
			clock.Advance(time.Second)
			wantBalance(t, book, c, 100, 0, 100)
		}
	}
}

// What was replaced is undone as it is now.
func TestCalendarUndo(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	book := newBook(t, faulty, clock)
	c := book.NewCharge(daily(t), "bob", 60)
	attempt, err := book.NewAttempt("", []accounts.Charge{c})
	if err != nil {
		t.Fatal(err)
	}
	clock.at(t, 0, "10:00:00")
	charge(t, book, "", book.NewCharge(daily(t), "bob", 1))
	faulty.Inject(ticking(clock, 5*time.Second, 0))
	_, err = book.Charge(context.Background(), attempt)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err = book.Undo(context.Background(), attempt)
		if err != nil {
			t.Fatal(err)
		}
		wantBalance(t, book, c, 100, 1, 99)
	}
}

// An answer that takes longer than the time-out itself finds nothing to put right.
func TestCalendarAnsweredTooLate(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	book, limit := newBook(t, faulty, clock), daily(t)
	clock.at(t, 0, "10:00:00")
	charge(t, book, "", book.NewCharge(limit, "bob", 1))
	clock.at(t, 0, "23:59:59.5")
	faulty.Inject(ticking(clock, 700*time.Millisecond, 3*time.Second))
	wantOutcome(t, charge(t, book, "id", book.NewCharge(limit, "bob", 60)), accounts.Accepted)
	wantBalance(t, book, book.NewCharge(limit, "bob", 0), 100, 0, 100)
}

// Beside a prepaid balance, which is charged for good, what comes back with a period is replaced by
// itself, whichever of the two leads the chain, and cannot be released.
func TestCalendarBesidePrepaid(t *testing.T) {
	limit := daily(t)
	for i := range 8 {
		clock := newClock()
		faulty := ledgertest.NewFaulty(openLedger(t, clock))
		book, subject := newBook(t, faulty, clock), string(rune('a'+i))
		clock.at(t, 0, "10:00:00")
		window, credits := book.NewCharge(limit, subject, 1), book.NewCharge(prepaid, subject, 1)
		charge(t, book, "", window, credits)
		clock.at(t, 0, "23:59:59.5")
		faulty.Inject(ticking(clock, 700*time.Millisecond, 0))
		window.Amount, credits.Amount = 60, 20
		result := charge(t, book, "id", window, credits)
		wantOutcome(t, result, accounts.Accepted)
		clock.Advance(time.Second)
		wantBalance(t, book, window, 100, 60, 40)
		wantBalance(t, book, credits, 50, 21, 29)
		wantOutcome(t, charge(t, book, "id", window, credits), accounts.Replayed)
		h, found, err := book.Hold(context.Background(), result.Transfer, onLedger)
		if err != nil || !found || len(h.Charges) != 2 {
			t.Fatalf("subject %s: got %+v, %t, %v, want two charges", subject, h, found, err)
		}
		wantOutcome(t, release(t, book, result.Transfer), accounts.Ended)
		clock.nanos.Store(midnightOf(2).UnixNano() - 1000)
		wantBalance(t, book, window, 100, 60, 40)
	}
}

// A reservation is booked to the period that it was made in, also when it is settled in the next.
func TestCalendarSettlements(t *testing.T) {
	limit := daily(t)
	for _, test := range []struct {
		name, settled string
		day           int
		back          string // not before, on the same day
	}{
		{"in its period", "23:58:00", 0, "23:59:59.999"},
		{"in the next", "00:00:10", 1, "00:00:10.9"},
		{"late, in the next", "00:05:00", 1, "00:05:00.9"},
	} {
		t.Run(test.name, func(t *testing.T) {
			clock := newClock()
			d := newDesk(t, clock)
			clock.at(t, 0, "23:57:00")
			held := d.hold(t, "", 200, d.of(limit, 30))
			clock.at(t, test.day, test.settled)
			h, found, err := d.book.Hold(context.Background(), held.Transfer,
				func(uint32) (accounts.Limit, bool) { return limit, true })
			if err != nil || !found {
				t.Fatal(found, err)
			}
			s, err := d.book.Settle(context.Background(), h, []uint64{20}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if late := test.name[0] == 'l'; s.Late != late {
				t.Errorf("late: got %t, want %t", s.Late, late)
			}
			clock.at(t, test.day, test.back)
			d.wantUsed(t, limit, 20)
			clock.Advance(time.Second)
			d.wantUsed(t, limit, 0)
		})
	}
}
