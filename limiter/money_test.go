package limiter_test

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"lukechampine.com/uint128"
	"pgregory.net/rapid"

	"weir/accounts"
	"weir/limiter"
)

// Decimal text is read exactly or not at all.
func TestAmountText(t *testing.T) {
	rows := []struct {
		scale       int
		text, units string
		written     string // empty: the same text
	}{
		{2, "0", "0", "0.00"},
		{2, "0.01", "1", ""},
		{2, "0.1", "10", "0.10"},
		{2, "1", "100", "1.00"},
		{2, "999.99", "99999", ""},
		{2, "0.02", "2", ""},
		{0, "0", "0", ""},
		{0, "1234567890123456789012345", "1234567890123456789012345", ""},
		{3, "9007199254740993.001", "9007199254740993001", ""}, // past what a float64 can tell
		{18, "0.000000000000000001", "1", ""},
		{18, "79228162514.264337593543950335", "79228162514264337593543950335", ""},
		{0, "79228162514264337593543950335", "79228162514264337593543950335", ""},
	}
	for _, row := range rows {
		asset := limiter.Asset{Code: "X", Scale: row.scale}
		got, err := asset.Parse(row.text)
		if err != nil || got.String() != row.units {
			t.Errorf("%q of scale %d: got %s, %v, want %s", row.text, row.scale, got, err, row.units)
		}
		if row.written == "" {
			row.written = row.text
		}
		if back := asset.Format(got); back != row.written {
			t.Errorf("%s units of scale %d: got %q, want %q", got, row.scale, back, row.written)
		}
	}
}

func TestAmountRefused(t *testing.T) {
	rows := []struct {
		scale int
		texts []string
	}{
		// Not a number as it is wanted.
		{2, []string{"", " ", "1 ", " 1", "\n1", "1\n", "abc", "1a", "0x10", "NaN", "Inf", "1_000",
			"1,000.00", "1,5", "١", "1.0.0", "1..0", ".", ".5", "5.", "$5", "5 USD", "null", "\"1\"",
			"1\x00"}},
		// No sign, no exponent, one spelling of the whole part.
		{2, []string{"-1", "+1", "-0", "−1", "1e2", "1E2", "1e-2", "00", "01", "007.50", "1.-1", "1.+1",
			"1.e1"}},
		// More digits than the asset has, though they are 0.
		{2, []string{"0.001", "1.000", "999.990"}},
		{0, []string{"1.0", "1.", "0.0"}},
		{18, []string{"0.0000000000000000001"}},
		// More than 2^96-1 units.
		{0, []string{"79228162514264337593543950336", "99999999999999999999999999999",
			strings.Repeat("9", 48), strings.Repeat("9", 49), strings.Repeat("1", 1<<20)}},
		{18, []string{"79228162514.264337593543950336"}},
		{2, []string{"792281625142643375935439503.36", "79228162514264337593543950335"}},
	}
	for _, row := range rows {
		asset := limiter.Asset{Code: "X", Scale: row.scale}
		for _, text := range row.texts {
			got, err := asset.Parse(text)
			e, ok := errors.AsType[*limiter.Error](err)
			if !ok || e.Code != limiter.CodeBadRequest || len(e.Detail) > 300 {
				t.Errorf("%.60q of scale %d: got %s, %v, want a bad request", text, row.scale, got, err)
			}
		}
	}
}

// Any amount that there can be is read back from its text, and the text is what arithmetic says.
func TestAmountRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := uint128.New(rapid.Uint64().Draw(t, "lo"), uint64(rapid.Uint32().Draw(t, "hi")))
		asset := limiter.Asset{Code: "X", Scale: rapid.IntRange(0, limiter.MaxScale).Draw(t, "scale")}
		text := asset.Format(units)
		back, err := asset.Parse(text)
		if err != nil || back != units {
			t.Fatalf("%s of scale %d: wrote %q, got %s, %v", units, asset.Scale, text, back, err)
		}
		power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(asset.Scale)), nil)
		want := new(big.Rat).SetFrac(units.Big(), power).FloatString(asset.Scale)
		if text != want {
			t.Fatalf("%s of scale %d: got %q, want %q", units, asset.Scale, text, want)
		}
	})
}

// Each way in which an asset, or a limit's, cannot be names its key.
func TestAssetsRefused(t *testing.T) {
	usd := limiter.Asset{Code: "USD", Scale: 2}
	daily := limiter.Limit{
		Name: "daily", Kind: limiter.TransferAmount, Asset: "USD", Quota: 1, Window: time.Second,
	}
	rows := []struct {
		path   string
		change func(*limiter.Rules)
	}{
		{"assets[0].code", func(r *limiter.Rules) { r.Assets[0].Code = "" }},
		{"assets[0].code", func(r *limiter.Rules) { r.Assets[0].Code = "U S" }},
		{"assets[0].scale", func(r *limiter.Rules) { r.Assets[0].Scale = -1 }},
		{"assets[0].scale", func(r *limiter.Rules) { r.Assets[0].Scale = 19 }},
		{"assets[1].code", func(r *limiter.Rules) { r.Assets = append(r.Assets, usd) }},
		{"limits[0].asset", func(r *limiter.Rules) { r.Limits[0].Asset = "" }},
		{"limits[0].asset", func(r *limiter.Rules) { r.Limits[0].Asset = "EUR" }},
		{"limits[0].asset", func(r *limiter.Rules) { r.Limits[0].Kind = limiter.RequestRate }},
	}
	for _, row := range rows {
		rules := limiter.Rules{Limits: []limiter.Limit{daily}, Assets: []limiter.Asset{usd}}
		row.change(&rules)
		_, err := limiter.NewRules(rules)
		if !errors.Is(err, limiter.ErrLimit) || !strings.HasPrefix(err.Error(), row.path+": ") {
			t.Errorf("%+v: got %v, want an error at %s", rules, err, row.path)
		}
	}
	for _, limit := range []limiter.Limit{
		rate("asset:USD", 1, time.Second),
		{Name: "x", Kind: limiter.Bandwidth, Window: time.Second, Ledger: accounts.AssetLedger("USD")},
	} {
		_, err := limiter.NewRules(limiter.Rules{
			Limits: []limiter.Limit{limit}, Assets: []limiter.Asset{usd},
		})
		if !errors.Is(err, accounts.ErrLedgerNumber) {
			t.Errorf("a limit on the asset's ledger: got %v, want ErrLedgerNumber", err)
		}
	}
	set, err := limiter.NewRules(limiter.Rules{
		Limits: []limiter.Limit{daily}, Assets: []limiter.Asset{usd},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := set.Assets()
	if len(got) != 1 || got[0].Code != "USD" || got[0].Ledger != accounts.AssetLedger("USD") {
		t.Errorf("assets: got %+v, want USD on its own ledger", got)
	}
}

// Deposits and withdrawals are made once under their ids, and told apart where they are not made.
func TestMovements(t *testing.T) {
	b := newBank(t)
	ctx := context.Background()
	move := func(subject, amount, id string) limiter.Movement {
		return limiter.Movement{Asset: "USD", Subject: subject, Amount: amount, ID: id}
	}
	wantMoved := func(m limiter.Moved, err error, replayed bool, balance string) limiter.Moved {
		t.Helper()
		if err != nil || m.Replayed != replayed || m.Balance != balance || m.Transfer.IsZero() {
			t.Fatalf("got %+v, %v, want replayed %t and a balance of %s", m, err, replayed, balance)
		}
		return m
	}
	m, err := b.Deposit(ctx, move("alice", "10.5", "d"))
	first := wantMoved(m, err, false, "10.50")
	b.clock.Advance(1000 * time.Hour)
	m, err = b.Deposit(ctx, move("alice", "10.50", "d"))
	again := wantMoved(m, err, true, "10.50")
	if again.Transfer != first.Transfer || !again.At.Equal(first.At) {
		t.Errorf("replay: got %+v, want the receipt and time of %+v", again, first)
	}
	m, err = b.Withdraw(ctx, move("alice", "0.49", "w"))
	wantMoved(m, err, false, "10.01")

	_, err = b.Deposit(ctx, move("alice", "10.51", "d"))
	wantError(t, err, limiter.CodeIDConflict)
	_, err = b.Withdraw(ctx, move("alice", "10.50", "d"))
	wantError(t, err, limiter.CodeIDConflict)
	_, err = b.Withdraw(ctx, move("alice", "10.02", "more"))
	e := wantError(t, err, limiter.CodeInsufficientFunds)
	if !e.NewIDRequired {
		t.Errorf("got %+v, want the id spent", e)
	}
	_, err = b.Deposit(ctx, move("alice", "10.02", "more")) // the id of a refused withdrawal
	wantError(t, err, limiter.CodeIDConflict)
	_, err = b.Withdraw(ctx, move("bob", "1", "w"))
	wantError(t, err, limiter.CodeAccountUnknown)
	_, err = b.Funds(ctx, "USD", "bob")
	wantError(t, err, limiter.CodeAccountUnknown)
	_, err = b.Deposit(ctx, move("alice", "792281625142643375935439503.35", "all"))
	wantError(t, err, limiter.CodeQuotaTooLarge)
	for _, bad := range []limiter.Movement{
		move("alice", "1", ""), move("", "1", "i"), move("alice", "0.00", "i"),
		move("alice", "-1", "i"), move("alice", "1.001", "i"),
		{Asset: "GBP", Subject: "alice", Amount: "1", ID: "i"},
	} {
		_, err = b.Deposit(ctx, bad)
		wantError(t, err, limiter.CodeBadRequest)
		_, err = b.Withdraw(ctx, bad)
		wantError(t, err, limiter.CodeBadRequest)
	}
	b.wantFunds(t, "alice", "10.01")
}
