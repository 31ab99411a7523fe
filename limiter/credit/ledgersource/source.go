// Package ledgersource asks weir's own ledger for the balances of the credit gate.
package ledgersource

import (
	"context"
	"errors"
	"fmt"
	"math"

	"weir/limiter"
	"weir/limiter/credit"
)

// Balances reads balances, as *limiter.Limiter does. A call is bounded by the limiter's own
// deadline, whatever the context says.
type Balances interface {
	// Balance reads what a subject has on a limit.
	Balance(ctx context.Context, limit, subject string) (limiter.Balance, error)
}

// Source reads the balances of one limit. It is safe for concurrent use.
//
// A subject that was never seen has the limit's whole quota. That is a balance, not the lack of
// one: on a limit with a quota of 0, everybody who was granted nothing is exhausted.
type Source struct {
	balances Balances
	limit    string
	flag     credit.Flag
}

// New returns a source for a limit. The ledger has no enforcement flags: the flag given here is
// that of all subjects, credit.FlagMissing if there is none.
func New(balances Balances, limit string, flag credit.Flag) *Source {
	return &Source{balances: balances, limit: limit, flag: flag}
}

// Fetch reads a subject's balance. Only if there is no such limit is there none for certain.
func (s *Source) Fetch(ctx context.Context, subject string) (credit.Answer, error) {
	b, err := s.balances.Balance(ctx, s.limit, subject)
	if err != nil {
		e, ok := errors.AsType[*limiter.Error](err)
		if ok && e.Code == limiter.CodeUnknownLimit {
			return credit.Answer{Flag: s.flag}, nil
		}
		return credit.Answer{}, fmt.Errorf("read the ledger: %w", err)
	}
	return credit.Answer{Flag: s.flag, Balance: credit.Balance{
		Known: true, Granted: units(b.Quota), Usage: units(b.Used + b.Overage),
		Remaining: units(b.Remaining),
	}}, nil
}

// units is the same number; the ledger's amounts are far below what does not fit.
func units(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
