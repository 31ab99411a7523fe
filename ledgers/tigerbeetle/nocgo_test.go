//go:build !cgo

package tigerbeetle_test

import (
	"errors"
	"testing"

	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
)

// hasClient says that this build cannot open sessions.
const hasClient = false

func TestOpenWithoutCgo(t *testing.T) {
	ledger, err := tigerbeetle.Open([]string{"127.0.0.1:3000"}, ledgers.Amount{}, nil)
	if ledger != nil || !errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Errorf("open: got %v and %v, want ErrNoCgo", ledger, err)
	}
}
