package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

// budget is a weir with one budget of tokens, which cost a millionth of a USD each. Its gate closes
// at 90 %. What is held comes back after a minute.
type budget struct {
	tokens  uint64
	reopens *wire.Time // what a closed gate says, if anything

	mu      sync.Mutex
	spent   uint64
	most    uint64 // that was ever spent and held at once
	held    map[string]*held
	asked   []wire.SpendRequest
	settled []wire.SpendUsage
	closed  int
	away    func(http.ResponseWriter, *http.Request) bool // answers in its place
}

type held struct {
	input, output uint64
	until         time.Time
	settlement    *wire.SpendSettlement
}

// guard returns a guard on the budget.
func (b *budget) guard(t testing.TB, options client.GuardOptions) *client.Guard {
	t.Helper()
	return within(t, b, client.Options{}).NewGuard("llm", &options)
}

func (b *budget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.away != nil && b.away(w, r) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	receipt, settles := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/spend/"), "/settle")
	if settles {
		var usage wire.SpendUsage
		read(r, &usage)
		b.settle(w, receipt, usage)
		return
	}
	var request wire.SpendRequest
	read(r, &request)
	send(w, http.StatusOK, b.authorize(request))
}

func read(r *http.Request, body any) {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(body)
	if err != nil {
		panic(err)
	}
}

// use returns what is spent and held.
func (b *budget) use() uint64 {
	sum := b.spent
	for _, h := range b.held {
		if h.settlement == nil && time.Now().Before(h.until) {
			sum += h.input + h.output
		}
	}
	b.most = max(b.most, sum)
	return sum
}

func spend(tokens uint64) wire.Spend {
	return wire.Spend{Tokens: wire.Count(tokens), USD: wire.Money(tokens, 6)}
}

func (b *budget) authorize(r wire.SpendRequest) wire.Authorization {
	b.asked = append(b.asked, r)
	h := &held{r.InputTokens.Units, r.MaxOutputTokens.Units, time.Now().Add(time.Minute), nil}
	now := wire.Time{Time: time.Now()}
	if b.use()+h.input+h.output > b.tokens*9/10 {
		b.closed++
		return wire.Authorization{Route: wire.RouteFallback, Reason: wire.ReasonTokens, At: now,
			ReopensAt: b.reopens}
	}
	receipt := fmt.Sprintf("%032x", len(b.asked))
	if b.held == nil {
		b.held = map[string]*held{}
	}
	b.held[receipt] = h
	b.use()
	return wire.Authorization{
		Route: wire.RouteModel, Transfer: receipt, At: now, ExpiresAt: &wire.Time{Time: h.until},
		Reserved: spend(h.input + h.output),
	}
}

func (b *budget) settle(w http.ResponseWriter, receipt string, usage wire.SpendUsage) {
	h, known := b.held[receipt]
	switch {
	case !known:
		fails(wire.CodeReservationUnknown, "")(w, nil)
		return
	case h.settlement != nil:
		again := *h.settlement
		again.Replayed = true
		send(w, http.StatusOK, again)
		return
	case usage.CachedTokens != nil && usage.CachedTokens.Units > usage.InputTokens.Units:
		fails(wire.CodeBadRequest, "")(w, nil)
		return
	}
	b.settled = append(b.settled, usage)
	input, output := h.input, h.output
	switch usage.Route {
	case wire.RouteError:
		output = 0
	case wire.RouteFallback:
		input, output = 0, 0
	}
	if usage.InputTokens != nil {
		input = usage.InputTokens.Units
	}
	if usage.OutputTokens != nil {
		output = usage.OutputTokens.Units
	}
	h.settlement = &wire.SpendSettlement{
		Transfer: receipt, Route: usage.Route, Late: time.Now().After(h.until),
		Estimated: usage.InputTokens == nil || usage.OutputTokens == nil,
		Reserved:  spend(h.input + h.output), Booked: spend(input + output),
	}
	b.spent += input + output
	b.use()
	send(w, http.StatusOK, *h.settlement)
}

// check fails the test if anything is not settled, or the gate let too much pass.
func (b *budget) check(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := map[string]bool{}
	for _, r := range b.asked {
		if ids[r.ID] || r.ID == "" || r.Budget != "llm" || r.InputText != "" {
			t.Errorf("got request %+v, want one with an id of its own and no text", r)
		}
		ids[r.ID] = true
	}
	for receipt, h := range b.held {
		if h.settlement == nil {
			t.Errorf("call %s is not settled", receipt)
		}
	}
	if b.most > b.tokens*9/10 {
		t.Errorf("got %d tokens spent and held at once, of %d", b.most, b.tokens)
	}
}
