package ledgersource_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers/embedded"
	"weir/limiter"
	"weir/limiter/credit"
	"weir/limiter/credit/ledgersource"
)

// openLimiter returns a limiter on a ledger of its own.
func openLimiter(t testing.TB, limits ...limiter.Limit) *limiter.Limiter {
	t.Helper()
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			t.Error(err)
		}
	})
	book, err := accounts.NewBook(ledger, accounts.Namespace{6}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range limits {
		limits[i].Deadline = 10 * time.Second // a busy machine is not a ledger that is away
	}
	set, err := limiter.NewLimits(0, limits)
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, set, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t testing.TB, l *limiter.Limiter, limit, subject string, cost uint64) {
	t.Helper()
	d, err := l.Check(t.Context(), limiter.Request{Members: []limiter.Member{
		{Limit: limit, Subject: subject, Cost: cost},
	}})
	if err != nil || !d.Allowed {
		t.Fatalf("take %d: got %+v and %v, want allowed", cost, d, err)
	}
}

// A gate over weir's own ledger, from a subject that was never seen to one that has used all.
func TestLedger(t *testing.T) {
	l := openLimiter(t,
		limiter.Limit{Name: "calls", Kind: limiter.Bandwidth, Quota: 10, Window: time.Hour},
		limiter.Limit{Name: "nothing", Kind: limiter.Bandwidth, Quota: 0, Window: time.Hour})
	// open returns a gate that knows nothing yet.
	open := func(limit string) *credit.Gate {
		g, err := credit.New(limit, ledgersource.New(l, limit, credit.FlagOn), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		return g
	}
	for _, row := range []struct {
		take uint64
		want credit.Decision
	}{
		{0, credit.Decision{Known: true, Enforced: true, Granted: 10, Remaining: 10}},
		{4, credit.Decision{Known: true, Enforced: true, Granted: 10, Usage: 4, Remaining: 6}},
		{6, credit.Decision{
			Known: true, Enforced: true, Granted: 10, Usage: 10, Exhausted: true, Blocked: true,
		}},
	} {
		if row.take > 0 {
			take(t, l, "calls", "alice", row.take)
		}
		got := open("calls").Balance(t.Context(), "alice")
		got.Age = 0
		if got != row.want {
			t.Errorf("after %d more: got %+v, want %+v", row.take, got, row.want)
		}
	}
	got := open("nothing").Balance(t.Context(), "alice")
	if !got.Blocked {
		t.Errorf("quota 0: got %+v, want blocked", got)
	}
}

// balances answers as it is told.
type balances struct {
	balance limiter.Balance
	err     error
}

func (b balances) Balance(context.Context, string, string) (limiter.Balance, error) {
	return b.balance, b.err
}

// tidy:table one row for each answer of a ledger
func TestFetch(t *testing.T) {
	down := &limiter.Error{Code: limiter.CodeLedgerUnavailable}
	rows := []struct {
		name string
		from balances
		flag credit.Flag
		want credit.Answer
		err  error
	}{
		{"OK", balances{balance: limiter.Balance{Quota: 10, Used: 3, Remaining: 7}}, credit.FlagOff,
			credit.Answer{Flag: credit.FlagOff, Balance: credit.Balance{
				Known: true, Granted: 10, Usage: 3, Remaining: 7,
			}}, nil},
		{"OK overage", balances{balance: limiter.Balance{Quota: 10, Used: 10, Overage: 2}},
			credit.FlagMissing,
			credit.Answer{Balance: credit.Balance{Known: true, Granted: 10, Usage: 12}}, nil},
		{"OK largest", balances{balance: limiter.Balance{Quota: math.MaxUint64}}, credit.FlagMissing,
			credit.Answer{Balance: credit.Balance{Known: true, Granted: math.MaxInt64}}, nil},
		{"OK no such limit", balances{err: &limiter.Error{Code: limiter.CodeUnknownLimit}},
			credit.FlagOn, credit.Answer{Flag: credit.FlagOn}, nil},
		{"ErrLedger", balances{err: down}, credit.FlagOn, credit.Answer{}, down},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := ledgersource.New(row.from, "credits", row.flag)
			got, err := s.Fetch(t.Context(), "a")
			if !errors.Is(err, row.err) || got != row.want {
				t.Errorf("got %+v and %v, want %+v and %v", got, err, row.want, row.err)
			}
		})
	}
}
