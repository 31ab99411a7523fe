//go:build cgo

package tigerbeetle_test

import (
	"errors"
	"math/big"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/tigerbeetle/tigerbeetle-go"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
)

// hasClient says that this build can open sessions.
const hasClient = true

// TestTracesThroughConversion replays what a real TigerBeetle answered, with every event, id,
// filter and answer passing through the client's types.
func TestTracesThroughConversion(t *testing.T) {
	files, err := ledgertest.TraceFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			now := uint64(0)
			twin := ledgertest.NewTwin(func() uint64 { return now })
			cluster := &tigerbeetle.Cluster{Ledger: tigerbeetle.Converted{Driver: twin}}
			ledgertest.RunTrace(t, file, openOn(t, cluster, nil), func(at uint64) { now = at })
		})
	}
}

func TestConversionKeepsAllBits(t *testing.T) {
	for _, n := range []ledgers.Amount{
		{}, {Lo: 1}, {Hi: 1}, {Lo: 1<<64 - 1}, {Lo: 0x0123456789abcdef, Hi: 0xfedcba9876543210},
		ledgers.MaxAmount,
	} {
		sent := tigerbeetle.ToUint128(n)
		want := new(big.Int).Lsh(new(big.Int).SetUint64(n.Hi), 64)
		want.Or(want, new(big.Int).SetUint64(n.Lo))
		got := sent.BigInt()
		if got.Cmp(want) != 0 {
			t.Errorf("%v: the client has %v, want %v", n, got, want)
		}
		back := tigerbeetle.FromUint128(sent)
		if back != n {
			t.Errorf("%v: came back as %v", n, back)
		}
	}
}

// words writes a name of Go's as TigerBeetle does: TransferIDMustNotBeZero, id_must_not_be_zero.
func words(name, prefix string) string {
	name = strings.TrimPrefix(name, prefix)
	for _, long := range []string{"128", "64", "32"} {
		name = strings.Replace(name, "UserData"+long, "UserData_"+long, 1)
	}
	name = strings.Replace(name, "ID", "Id", 1)
	var b strings.Builder
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// statusNumbersMax is above every status number but that of `created`.
const statusNumbersMax = 1000

// TestStatuses compares the names that the client has for the numbers with those of package
// ledgers, both ways: none is missing here or there.
func TestStatuses(t *testing.T) {
	numbers := []uint32{0xFFFFFFFF}
	for n := range uint32(statusNumbersMax) {
		numbers = append(numbers, n)
	}
	for _, n := range numbers {
		account := client.CreateAccountStatus(n)
		got := tigerbeetle.FromAccountResult(&client.CreateAccountResult{
			Timestamp: 7, Status: account,
		})
		theirs := words(account.String(), "Account")
		known := !strings.HasPrefix(account.String(), "CreateAccountStatus(")
		if got.Timestamp != 7 || got.Status.Known() != known || known && got.Status.String() != theirs {
			t.Errorf("account status %d: got %v, the client says %s", n, got, theirs)
		}
		transfer := client.CreateTransferStatus(n)
		moved := tigerbeetle.FromTransferResult(&client.CreateTransferResult{
			Timestamp: 7, Status: transfer,
		})
		theirs = words(transfer.String(), "Transfer")
		known = !strings.HasPrefix(transfer.String(), "CreateTransferStatus(")
		if theirs == "must_have_the_same_ledger_as_accounts" {
			theirs = "transfer_" + theirs // whose name begins like the prefix
		}
		if moved.Timestamp != 7 || moved.Status.Known() != known ||
			known && moved.Status.String() != theirs {
			t.Errorf("transfer status %d: got %v, the client says %s", n, moved, theirs)
		}
	}
}

func TestFlags(t *testing.T) {
	account := client.AccountFlags{
		Linked: true, CreditsMustNotExceedDebits: true, Imported: true,
	}.ToUint16()
	want := uint16(ledgers.AccountLinked | ledgers.CreditsMustNotExceedDebits |
		ledgers.AccountImported)
	if account != want {
		t.Errorf("flags of an account: got %b, want %b", account, want)
	}
	account = client.AccountFlags{
		DebitsMustNotExceedCredits: true, History: true, Closed: true,
	}.ToUint16()
	want = uint16(ledgers.DebitsMustNotExceedCredits | ledgers.AccountHistory |
		ledgers.AccountClosed)
	if account != want {
		t.Errorf("flags of an account: got %b, want %b", account, want)
	}
	for flag, want := range map[uint16]ledgers.TransferFlags{
		client.TransferFlags{Linked: true}.ToUint16():              ledgers.Linked,
		client.TransferFlags{Pending: true}.ToUint16():             ledgers.Pending,
		client.TransferFlags{PostPendingTransfer: true}.ToUint16(): ledgers.PostPending,
		client.TransferFlags{VoidPendingTransfer: true}.ToUint16(): ledgers.VoidPending,
		client.TransferFlags{BalancingDebit: true}.ToUint16():      ledgers.BalancingDebit,
		client.TransferFlags{BalancingCredit: true}.ToUint16():     ledgers.BalancingCredit,
		client.TransferFlags{ClosingDebit: true}.ToUint16():        ledgers.ClosingDebit,
		client.TransferFlags{ClosingCredit: true}.ToUint16():       ledgers.ClosingCredit,
		client.TransferFlags{Imported: true}.ToUint16():            ledgers.Imported,
	} {
		if flag != uint16(want) {
			t.Errorf("flag of a transfer: got %b, want %b", flag, want)
		}
	}
}

func TestSessionErrors(t *testing.T) {
	for _, row := range []struct{ err, want error }{
		{client.ErrTooMuchData, tigerbeetle.ErrTooMuchData},
		{client.ErrClientEvicted, tigerbeetle.ErrEvicted},
		{client.ErrClientReleaseTooLow, tigerbeetle.ErrEvicted},
		{client.ErrClientReleaseTooLow, tigerbeetle.ErrRelease},
		{client.ErrClientReleaseTooHigh, tigerbeetle.ErrRelease},
		{client.ErrClientClosed, tigerbeetle.ErrSessionOver},
		{client.ErrInvalidOperation, tigerbeetle.ErrReply},
	} {
		got := tigerbeetle.SessionError(row.err)
		if !errors.Is(got, row.want) {
			t.Errorf("%v: got %v, want %v", row.err, got, row.want)
		}
	}
}

func TestOpenErrAddress(t *testing.T) {
	for _, addresses := range [][]string{
		nil, {""}, {"localhost:3000"}, {"127.0.0.1"}, {"3000"}, {"127.0.0.1:3000", "127.0.0.1:"},
		strings.Split(strings.Repeat("127.0.0.1:3000 ", 100)+"127.0.0.1:3000", " "),
	} {
		ledger, err := tigerbeetle.Open(addresses, ledgers.Amount{}, nil)
		if ledger != nil || !errors.Is(err, tigerbeetle.ErrAddress) {
			t.Errorf("open %q: got %v, want ErrAddress", addresses, err)
		}
	}
}
