package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
	"weir/limiter/spend"
)

// tidy:table cases of reservations, through the client: as authorizations and settlements over HTTP
func TestSpendCases(t *testing.T) {
	full := func(b spend.Budget) spend.Budget { // closes at its end
		b.Name, b.CloseAt = "ai", 1_000_000
		return b
	}
	t.Run("B2", func(t *testing.T) { // budget 30, reserve 10, settle 50
		s := newSpenders(t, full(spend.Budget{Tokens: 30}))
		got := s.settle(s.authorize(askFor(10, 0)), took(50, 0))
		if got.Booked.Tokens.Units != 50 || got.Overage.Tokens.Units != 20 {
			t.Errorf("got %+v, want 50 booked, 20 of them overage", got)
		}
		s.wantClosed(askFor(1, 0))
		b, err := s.clients[1].Balance(t.Context(), "ai:tokens", "feature")
		if err != nil || b.Used.Units != 30 || b.Overage.Units != 20 || b.Remaining.Units != 0 {
			t.Errorf("got %+v and error %v, want 30 used and an overage of 20", b, err)
		}
	})
	t.Run("B3", func(t *testing.T) { // budget 100, reserve 10, settle 35
		s := newSpenders(t, full(spend.Budget{Tokens: 100}))
		got := s.settle(s.authorize(askFor(10, 0)), took(35, 0))
		if got.Remaining == nil || got.Remaining.Tokens.Units != 65 || got.Overage.Tokens.Units != 0 {
			t.Errorf("got %+v, want 65 remaining", got)
		}
		s.settle(s.authorize(askFor(65, 0)), took(65, 0))
	})
	t.Run("B4", func(t *testing.T) { // reserve 10 for 2 s, settle 7 at 4 s, window 60 s
		s := newSpenders(t, full(spend.Budget{
			Tokens: 100, USD: 100, Hold: 2 * time.Second, Window: time.Minute,
		}))
		call := s.authorize(askFor(10, 0))
		s.wantTaken("held", 10, 10)
		s.clock.Add(2*time.Second + time.Millisecond)
		s.wantTaken("past the time-out", 0, 0)
		s.clock.Add(2*time.Second - time.Millisecond)
		got := s.settle(call, took(7, 0))
		again, err := s.clients[1].SettleSpend(t.Context(), call.Transfer,
			wire.SpendUsage{Route: wire.RouteModel, InputTokens: new(wire.Count(7)),
				OutputTokens: new(wire.Count(0))})
		if err != nil || !got.Late || got.Replayed || !again.Late || !again.Replayed {
			t.Errorf("got %+v, %+v and error %v, want it late, and then replayed", got, again, err)
		}
		s.clock.Add(56*time.Second - time.Millisecond)
		s.wantTaken("at the end of its window", 7, 7)
		s.clock.Add(2 * time.Millisecond)
		s.wantTaken("after its window", 0, 0)
	})
	t.Run("B5", testSpendEndsOnce)
	t.Run("B6", func(t *testing.T) { // a failed attempt with known input tokens
		s := newSpenders(t, full(spend.Budget{Tokens: 1000, USD: 1000}))
		r, err := s.guards()[0].Do(t.Context(), askFor(30, 100),
			func(context.Context) (wire.SpendUsage, error) {
				return wire.SpendUsage{InputTokens: new(wire.Count(25))},
					&client.ProviderError{Status: http.StatusTooManyRequests}
			}, func(context.Context, string) error { return nil })
		if err != nil || r.Attempts != 3 || r.Reason != wire.ErrorRateLimited || r.Settlement.Estimated {
			t.Errorf("got %+v and error %v, want three attempts as reported", r, err)
		}
		s.wantTaken("three attempts of 25", 75, 75)
	})
	t.Run("B7", func(t *testing.T) { // a stream that ends without a usage report
		s := newSpenders(t, full(spend.Budget{Tokens: 1000, USD: 1000}))
		calls := s.authorize(askFor(30, 100))
		err := calls.Close()
		if err != nil {
			t.Error(err)
		}
		r, err := s.guards()[1].Do(t.Context(), askFor(20, 50),
			func(context.Context) (wire.SpendUsage, error) { return wire.SpendUsage{}, nil }, nil)
		if err != nil || !r.Settlement.Estimated || r.Settlement.Booked.Tokens.Units != 70 {
			t.Errorf("got %+v and error %v, want the 70 that were reserved, marked", r, err)
		}
		s.wantTaken("130 and 70", 200, 230+120)
		for _, e := range s.events() {
			if e.Event == wire.EventSettle && (!e.Estimated || e.Route != wire.RouteModel) {
				t.Errorf("got %+v in the journal, want it marked as estimated", e)
			}
		}
	})
	t.Run("B8", testSpendStreams)
	t.Run("N10", testSpendExactly)
}

// authorize opens a call that has to be allowed.
func (s *spenders) authorize(ask client.Ask) *client.Call {
	s.Helper()
	call, err := s.guards()[0].Authorize(s.Context(), ask)
	if err != nil || call.Route != wire.RouteModel {
		s.Fatalf("got %+v and error %v, want %+v allowed", call, err, ask)
	}
	return call
}

// wantClosed asks for a call on both servers, that neither allows.
func (s *spenders) wantClosed(ask client.Ask) {
	s.Helper()
	for i, g := range s.guards() {
		call, err := g.Authorize(s.Context(), ask)
		if err != nil || call.Route != wire.RouteFallback || call.Transfer != "" {
			s.Errorf("server %d: got %+v and error %v, want the gate closed", i, call, err)
		}
	}
}

func (s *spenders) settle(call *client.Call, usage wire.SpendUsage) wire.SpendSettlement {
	s.Helper()
	settlement, err := call.Settle(usage)
	if err != nil {
		s.Fatal(err)
	}
	return settlement
}

// testSpendEndsOnce: 0 gives all back, the same end is answered the same, of several at once one
// wins, and after it the others are refused.
func testSpendEndsOnce(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 1_000_000, USD: 1_000_000_000})
	end := func(server int, receipt string, usage wire.SpendUsage) (wire.SpendSettlement, bool) {
		settlement, err := s.clients[server].SettleSpend(t.Context(), receipt, usage)
		wantCode(t, err, wire.CodeReservationClosed)
		return settlement, err == nil
	}
	model := func(input uint64) wire.SpendUsage {
		return wire.SpendUsage{
			Route: wire.RouteModel, InputTokens: new(wire.Count(input)), OutputTokens: new(wire.Count(0)),
		}
	}
	released := wire.SpendUsage{Route: wire.RouteFallback}
	zero := s.authorize(askFor(10, 0)).Transfer
	for i := range 2 {
		got, ok := end(i, zero, model(0))
		if !ok || got.Replayed != (i == 1) || got.Booked.Tokens.Units != 0 {
			t.Errorf("end %d: got %+v, want 0 booked once", i, got)
		}
	}
	s.wantTaken("settled at 0", 0, 0)
	gone := s.authorize(askFor(10, 0)).Transfer
	if _, ok := end(0, gone, released); !ok {
		t.Error("got it not released")
	}
	if got, ok := end(1, gone, model(10)); ok {
		t.Errorf("got %+v after it was released", got)
	}
	s.wantTaken("released", 0, 0)
	var taken uint64
	for round := range rounds(20, 500) {
		receipt := s.authorize(askFor(10, 0)).Transfer
		var ends sync.WaitGroup
		won := [2]bool{}
		for i, usage := range []wire.SpendUsage{model(10), released} {
			ends.Go(func() { _, won[i] = end((i+round)%2, receipt, usage) })
		}
		ends.Wait()
		if won[0] == won[1] {
			t.Fatalf("round %d: got %v, want one end to win", round, won)
		}
		if won[0] {
			taken += 10
		}
		s.wantTaken(fmt.Sprint("round ", round), taken, taken)
	}
}

// wantCode wants no error or one with this code.
func wantCode(t testing.TB, err error, code wire.Code) {
	t.Helper()
	if err == nil {
		return
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != code {
		t.Errorf("got error %v, want %s", err, code)
	}
}

// testSpendStreams opens 20 streams at once, on both servers: of 70 tokens each there is place for
// 12 in 900, for as many as are not done.
func testSpendStreams(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000})
	guards := s.guards()
	open := func() (calls []*client.Call) {
		var mu sync.Mutex
		var streams sync.WaitGroup
		for i := range 20 {
			streams.Go(func() {
				call, err := guards[i%2].Authorize(t.Context(), askFor(20, 50))
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if call.Route == wire.RouteModel {
					calls = append(calls, call)
				}
			})
		}
		streams.Wait()
		return calls
	}
	calls := open()
	if len(calls) != 12 {
		t.Fatalf("got %d streams of 20 opened, want 12", len(calls))
	}
	s.wantTaken("12 held", 840, 12*120)
	var streams sync.WaitGroup
	for i, call := range calls {
		streams.Go(func() {
			var err error
			switch i % 3 {
			case 0: // reports
				_, err = call.Settle(took(20, 10))
			case 1: // does not
				err = call.Close()
			case 2: // is never heard of again
			}
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	streams.Wait()
	s.wantTaken("four reported, four closed, four held", 4*30+4*70+4*70, 4*40+4*120+4*120)
	if again := open(); len(again) != 3 { // 680 and 210 are 890
		t.Errorf("got %d streams of 20 opened, want 3", len(again))
	}
	s.clock.Add(10*time.Minute + time.Second)
	s.wantTaken("what was held has come back", 400, 640)
}

// Streams that open and end all the time never hold more than there is.
func TestStreamsHold(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000, CloseAt: 1_000_000})
	guards := s.guards()
	var held, most, opened atomic.Int64
	var streams sync.WaitGroup
	for i := range 20 {
		streams.Go(func() {
			size := uint64(60 + 7*i) // 60 to 193
			for range rounds(15, 100) {
				call, err := guards[i%2].Authorize(t.Context(), askFor(size, 0))
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
				if call.Route != wire.RouteModel {
					continue
				}
				opened.Add(1)
				now := held.Add(int64(size)) // at most what is held: it was before, and is yet
				for was := most.Load(); now > was && !most.CompareAndSwap(was, now); {
					was = most.Load()
				}
				held.Add(-int64(size))
				_, err = call.Settle(wire.SpendUsage{Route: wire.RouteFallback})
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			}
		})
	}
	streams.Wait()
	if most.Load() > 1000 || opened.Load() == 0 {
		t.Errorf("got %d tokens held at once by %d streams, want at most 1,000",
			most.Load(), opened.Load())
	}
	s.wantTaken("after all streams", 0, 0)
}

// testSpendExactly: a budget of 10.00 USD that closes at its end, or of a fifth of that, admits
// 2,500 calls that cost 0.004 each, or a fifth of them.
func testSpendExactly(t *testing.T) {
	calls := rounds(500, 2500)
	s := newSpenders(t, spend.Budget{
		Name: "ai", USD: uint64(calls) * 4000, CloseAt: 1_000_000,
	})
	ask := askFor(600, 400)
	ask.Model = "exact"
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for i, g := range s.guards() {
		callers.Go(func() {
			for {
				r, err := g.Do(t.Context(), ask, func(context.Context) (wire.SpendUsage, error) {
					return took(500, 500), nil
				}, func(context.Context, string) error { return nil })
				if err != nil {
					t.Errorf("server %d: %v", i, err)
				}
				if err != nil || r.Route != wire.RouteModel {
					return
				}
				admitted.Add(1)
			}
		})
	}
	callers.Wait()
	if admitted.Load() != int64(calls) {
		t.Errorf("got %d calls admitted, want %d", admitted.Load(), calls)
	}
	b, err := s.clients[0].Balance(t.Context(), "ai:usd", "feature")
	all := fmt.Sprintf("%d.000000", calls/250)
	if err != nil || b.Used.String() != all || b.Quota.String() != all ||
		b.Remaining.String() != "0.000000" || b.Overage.Units != 0 {
		t.Errorf("got %+v and error %v, want %s used", b, err, all)
	}
	ask.InputTokens, ask.MaxOutputTokens = 1, 0
	s.wantClosed(ask)
}
