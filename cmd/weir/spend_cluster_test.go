package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"weir/api/client"
	"weir/api/wire"
	"weir/limiter/spend"
)

// spendingNodes are two weirs on one cluster, and what starts them again.
type spendingNodes struct {
	testing.TB
	nodes   [2]*process
	configs [2]string
	dirs    [2]string
}

// startSpendingNodes starts two nodes with a budget ai of 100,000 tokens and 1.00 USD.
func startSpendingNodes(t testing.TB) *spendingNodes {
	t.Helper()
	cluster := startCluster(t)
	s := &spendingNodes{TB: t}
	budget := spendConfig(budgetNamed("ai", `tokens: 100000, usd: "1.00", hold: 1h`))
	for i := range s.nodes {
		s.dirs[i] = t.TempDir()
		s.configs[i] = clusterConfig(t, s.dirs[i], cluster.Addresses(), 1,
			"{name: a, kind: request-rate, quota: 10, window: 300s}")
		file, err := os.OpenFile(s.configs[i], os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = file.WriteString(budget)
		must(t, err)
		must(t, file.Close())
		s.start(i)
	}
	return s
}

func (s *spendingNodes) start(i int) {
	s.Helper()
	s.nodes[i] = startProcess(s, s.configs[i], filepath.Join(s.dirs[i], "data"))
	wantUp(s, s.nodes[i:i+1])
}

func (s *spendingNodes) guard(i int) *client.Guard {
	return s.nodes[i].NewGuard("ai", &client.GuardOptions{Timeout: testWait})
}

// largeCall is a call of 1,500 tokens and 0.0105 USD.
func largeCall(subject string) client.Ask {
	return client.Ask{Subject: subject, Model: "big", InputTokens: 1000, MaxOutputTokens: 500}
}

// wantTaken compares what every node says a subject has taken, in tokens and millionths of USD.
func (s *spendingNodes) wantTaken(when, subject string, tokens, usd uint64) {
	s.Helper()
	for i, p := range s.nodes {
		got := [2]uint64{}
		for j, limit := range []string{"ai:tokens", "ai:usd"} {
			b := p.mustBalance(s, limit, subject)
			got[j] = b.Used.Units + b.Overage.Units
		}
		if want := [2]uint64{tokens, usd}; got != want {
			s.Errorf("%s, node %d: got %d tokens and millionths taken, want %d", when, i, got, want)
		}
	}
}

// TestSpendTigerBeetle has two nodes share a budget to the token, and one of them killed between
// authorizations and settlements, which the other makes by their receipts.
func TestSpendTigerBeetle(t *testing.T) {
	s := startSpendingNodes(t)
	t.Run("Shared", s.testShared)
	t.Run("Killed", s.testKilled)
}

// testShared makes 100 calls by 20 callers, for 60 of which there is place: 90,000 tokens. Each
// takes what it reserved.
func (s *spendingNodes) testShared(t *testing.T) {
	guards := [2]*client.Guard{s.guard(0), s.guard(1)}
	var callers sync.WaitGroup
	var model, fallback atomic.Int64
	for i := range 20 {
		callers.Go(func() {
			for range 5 {
				r, err := guards[i%2].Do(context.Background(), largeCall("alice"),
					func(context.Context) (wire.SpendUsage, error) {
						model.Add(1)
						return used(1000, 500, 0), nil
					},
					func(context.Context, string) error {
						fallback.Add(1)
						return nil
					})
				if err != nil || r.Unsettled != nil || r.Attempts > 1 ||
					r.Route == wire.RouteFallback && r.Reason != wire.ReasonTokens {
					t.Errorf("caller %d: got %+v and error %v, want one call or the budget closed", i, r, err)
				}
			}
		})
	}
	callers.Wait()
	if model.Load() != 60 || fallback.Load() != 40 {
		t.Errorf("got %d calls and %d fallbacks, want 60 and 40", model.Load(), fallback.Load())
	}
	s.wantTaken("100 calls later", "alice", 90_000, 630_000)
	for i, p := range s.nodes {
		t.Setenv(envServer, p.url)
		t.Setenv(envToken, testToken)
		t.Setenv(envAdminToken, testAdminToken)
		node := spending{t, p}
		node.wantReplay("ai")
		got := node.today("ai")
		want := figures{60, 60_000, 30_000, 0, wire.Money(630_000, spend.Decimals)}
		if got.Booked != want || got.Held.Calls != 0 || got.Authorized != 60 {
			t.Errorf("node %d: got the day %+v, want %+v booked and nothing held", i, got, want)
		}
	}
}

// testKilled opens 20 calls, half of them by a node that is then killed.
func (s *spendingNodes) testKilled(t *testing.T) {
	guards := [2]*client.Guard{s.guard(0), s.guard(1)}
	var calls []*client.Call
	for i := range 20 {
		call, err := guards[i%2].Authorize(t.Context(), largeCall("bob"))
		if err != nil || call.Route != wire.RouteModel {
			t.Fatalf("call %d: got %+v and error %v, want it allowed", i, call, err)
		}
		calls = append(calls, call)
	}
	s.wantTaken("20 held", "bob", 30_000, 210_000)
	s.nodes[0].kill(t)
	var booked uint64
	for i, call := range calls {
		input := 900 + uint64(i)
		usage := used(input, 100, 0)
		settlement, err := call.Settle(usage)
		if i%2 == 0 {
			if !client.IsAway(err) {
				t.Fatalf("call %d: got %+v and error %v, want its node away", i, settlement, err)
			}
			settlement, err = s.nodes[1].SettleSpend(t.Context(), call.Transfer, usage)
		}
		if err != nil || settlement.Late || settlement.Replayed || settlement.Estimated ||
			settlement.Booked.Tokens != wire.Count(input+100) {
			t.Errorf("call %d: got %+v and error %v, want %d booked", i, settlement, err, input+100)
		}
		booked += input
	}
	if booked != 20*900+190 { // 0 to 19 are 190
		t.Fatalf("got %d tokens in", booked)
	}
	s.start(0)
	// At 3 millionths in, and 15 out.
	s.wantTaken("settled", "bob", 18_190+2000, 3*18_190+15*2000)
	for i, call := range calls {
		settlement, err := s.nodes[(i+1)%2].SettleSpend(t.Context(), call.Transfer,
			used(900+uint64(i), 100, 0))
		if err != nil || !settlement.Replayed {
			t.Errorf("call %d again: got %+v and error %v, want it replayed", i, settlement, err)
		}
	}
	s.wantTaken("settled again", "bob", 20_190, 84_570)
	s.testKilledWithin(t)
}

// testKilledWithin kills a node while a guarded call is made: the application has its answer, and
// the call is held until somebody settles it.
func (s *spendingNodes) testKilledWithin(t *testing.T) {
	t.Helper()
	r, err := s.guard(0).Do(t.Context(), largeCall("carol"),
		func(context.Context) (wire.SpendUsage, error) {
			s.nodes[0].kill(t)
			return used(1000, 100, 0), nil
		}, nil)
	if err != nil || r.Route != wire.RouteModel || !client.IsAway(r.Unsettled) || r.Settlement != nil {
		t.Errorf("got %+v and error %v, want the model's answer, unsettled", r, err)
	}
	s.start(0)
	s.wantTaken("unsettled", "carol", 1500, 10_500)
	day, err := s.nodes[1].SpendJournal(t.Context(), client.SpendQuery{Budget: "ai", Subject: "carol"})
	if err != nil || len(day.Events) != 1 {
		t.Fatalf("got %+v and error %v, want one call", day, err)
	}
	_, err = s.nodes[1].SettleSpend(t.Context(), day.Events[0].Transfer, used(1000, 100, 0))
	must(t, err)
	s.wantTaken(fmt.Sprint("settled by ", day.Events[0].Transfer), "carol", 1100, 4500)
}
