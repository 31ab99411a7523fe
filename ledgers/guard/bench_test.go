package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ledgers"
	"weir/ledgers/guard"
)

// noop is a driver that answers at once.
type noop struct{}

func (noop) CreateAccounts(context.Context, []ledgers.Account) ([]ledgers.AccountResult, error) {
	return nil, nil
}

func (noop) CreateTransfers(context.Context, []ledgers.Transfer) ([]ledgers.TransferResult, error) {
	return nil, nil
}

func (noop) LookupAccounts(context.Context, []ledgers.ID) ([]ledgers.Account, error) {
	return nil, nil
}

func (noop) LookupTransfers(context.Context, []ledgers.ID) ([]ledgers.Transfer, error) {
	return nil, nil
}

func (noop) AccountTransfers(context.Context, ledgers.AccountFilter) ([]ledgers.Transfer, error) {
	return nil, nil
}

func (noop) Close() error { return nil }

// BenchmarkGuard is what a guard adds to a call: with no deadline of the caller, and with one that
// is earlier than the guard's, as the limiter sets it.
func BenchmarkGuard(b *testing.B) {
	// Callers that never wait keep each other from running for longer than a usual deadline.
	g := newGuard(b, noop{}, &guard.Options{
		Deadline: time.Minute, Registerer: prometheus.NewRegistry(),
	})
	err := g.Probe(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	transfers, ids := []ledgers.Transfer{move(10)}, []ledgers.ID{id(1)}
	calls := map[string]func(ctx context.Context) error{
		"CreateTransfers": func(ctx context.Context) error {
			_, err := g.CreateTransfers(ctx, transfers)
			return err
		},
		"LookupAccounts": func(ctx context.Context) error {
			_, err := g.LookupAccounts(ctx, ids)
			return err
		},
	}
	for name, call := range calls {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := context.Background()
			for b.Loop() {
				err := call(ctx)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/DeadlineOfTheCaller", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				err := call(ctx)
				cancel()
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/Parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(128)
			b.RunParallel(func(p *testing.PB) {
				ctx := context.Background()
				for p.Next() {
					err := call(ctx)
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
