package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"weir/api/wire"
)

// startWeir starts what stands for a weir: a budget of so many tokens, each at a millionth of a
// USD, whose gate closes at 90 %. It returns its URL.
func startWeir(t *testing.T, tokens uint64) string {
	t.Helper()
	w := &weir{closeAt: tokens * 9 / 10, held: map[string]*wire.SpendEvent{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/spend/authorize", w.authorize)
	mux.HandleFunc("POST /v1/spend/{transfer}/settle", w.settle)
	mux.HandleFunc("GET /v1/admin/spend/journal", w.journal)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

type weir struct {
	mu            sync.Mutex
	closeAt, used uint64 // what is held included
	held          map[string]*wire.SpendEvent
	events        []wire.SpendEvent
}

func reply(w http.ResponseWriter, answer any) {
	err := json.NewEncoder(w).Encode(answer)
	if err != nil {
		panic(err)
	}
}

func decode(r *http.Request, body any) {
	err := json.NewDecoder(r.Body).Decode(body)
	if err != nil {
		panic(err)
	}
}

func spend(tokens uint64) wire.Spend {
	return wire.Spend{Tokens: wire.Count(tokens), USD: wire.Money(tokens, 6)}
}

// record writes an event down.
func (w *weir) record(e wire.SpendEvent) {
	e.At = wire.Time{Time: time.Now()}
	w.events = append(w.events, e)
}

func (w *weir) authorize(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var request wire.SpendRequest
	decode(r, &request)
	in, most := request.InputTokens.Units, request.MaxOutputTokens.Units
	now := wire.Time{Time: time.Now()}
	if w.used+in+most > w.closeAt {
		reply(out, wire.Authorization{
			Route: wire.RouteFallback, Reason: wire.ReasonTokens, At: now,
		})
		return
	}
	w.used += in + most
	e := wire.SpendEvent{
		Event: wire.EventAuthorize, Transfer: fmt.Sprintf("%032x", len(w.events)+1),
		Route: wire.RouteModel, InputTokens: in, OutputTokens: most,
	}
	w.held[e.Transfer] = &e
	w.record(e)
	reply(out, wire.Authorization{
		Route: wire.RouteModel, Transfer: e.Transfer, At: now, Reserved: spend(in + most),
		ExpiresAt: &wire.Time{Time: now.Add(time.Minute)},
	})
}

func (w *weir) settle(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var usage wire.SpendUsage
	decode(r, &usage)
	held := w.held[r.PathValue("transfer")]
	e := wire.SpendEvent{
		Event: wire.EventSettle, Transfer: held.Transfer, Route: usage.Route, Reason: usage.Error,
		Estimated: usage.InputTokens == nil || usage.OutputTokens == nil,
	}
	e.InputTokens = held.InputTokens
	if usage.InputTokens != nil {
		e.InputTokens = usage.InputTokens.Units
	}
	if usage.OutputTokens != nil {
		e.OutputTokens = usage.OutputTokens.Units
	} else if usage.Route == wire.RouteModel {
		e.OutputTokens = held.OutputTokens
	}
	w.used -= held.InputTokens + held.OutputTokens - e.InputTokens - e.OutputTokens
	w.record(e)
	reply(out, wire.SpendSettlement{
		Transfer: e.Transfer, Route: e.Route, Estimated: e.Estimated,
		Reserved: spend(held.InputTokens + held.OutputTokens),
		Booked:   spend(e.InputTokens + e.OutputTokens),
	})
}

func (w *weir) journal(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reply(out, wire.SpendJournal{
		Budget: r.FormValue("budget"), Subject: r.FormValue("subject"), Events: w.events,
	})
}
