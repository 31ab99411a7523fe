package embedded_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

// TestVerify breaks a sound ledger in one place at a time.
func TestVerify(t *testing.T) {
	drop := func(kind byte) func(*pebble.DB) error {
		return func(db *pebble.DB) error { return embedded.DropFirst(db, kind) }
	}
	overdraw := func(db *pebble.DB) error {
		return embedded.AddPending(db, ledgers.ID{Lo: 2}, 1<<40)
	}
	cases := []struct {
		name   string
		change func(*pebble.DB) error
		want   []string
	}{
		{"Sound", func(*pebble.DB) error { return nil }, nil},
		{"Balance", overdraw, []string{"its sums", "exceed", "debits are not credits"}},
		{"IDs", drop('i'), []string{"index of ids"}},
		{"Debits", drop('d'), []string{"index of debits"}},
		{"Credits", drop('c'), []string{"index of credits"}},
		{"Endings", drop('e'), []string{"index of ended transfers", "its sums"}},
		{"Live", drop('l'), []string{"index of live transfers"}},
		{"Transfer", drop('t'), []string{"its sums", "index of ids"}},
		{"Account", drop('a'), []string{"is missing"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files := vfs.NewMem()
			ledger, err := embedded.Open("ledger", embedded.Testing(
				embedded.Options{Now: newClock().read}, files, 0))
			if err != nil {
				t.Fatal(err)
			}
			fund(t, ledger, 1)
			transfer(t, ledger, ledgers.TransferCreated,
				pending(100, 1, 60), pending(101, 2, 60), pending(102, 3, 0),
				ended(103, 100, ledgers.VoidPending))
			err = ledger.Close()
			if err != nil {
				t.Fatal(err)
			}
			embedded.Tamper(t, "ledger", files, c.change)
			report, err := embedded.VerifyFiles("ledger", files)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.want) == 0 && len(report.Problems) != 0 {
				t.Errorf("got problems %q, want none", report.Problems)
			}
			all := strings.Join(report.Problems, "\n")
			for _, want := range c.want {
				if !strings.Contains(all, want) {
					t.Errorf("got problems %q, want one with %q", report.Problems, want)
				}
			}
		})
	}
}
