package accounts_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"weir/accounts"
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
