package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
	"weir/limiter/credit"
)

// gateServer answers like a weir with a gate.
type gateServer struct {
	answer atomic.Pointer[string]
	status atomic.Int32
	calls  atomic.Int32
	query  sync.Map // the last query's parameters, by name
}

func (g *gateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.calls.Add(1)
	for name := range r.URL.Query() {
		g.query.Store(name, r.URL.Query().Get(name))
	}
	w.WriteHeader(int(g.status.Load()))
	io.WriteString(w, *g.answer.Load())
}

func (g *gateServer) says(status int, body string) {
	g.answer.Store(&body)
	g.status.Store(int32(status))
}

func startGate(t testing.TB) (*gateServer, *client.Client) {
	t.Helper()
	g := &gateServer{}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return g, connect(t, server.URL)
}

func TestGate(t *testing.T) {
	g, c := startGate(t)
	g.says(200, `{"limit":"credits","subject":"u &","blocked":true,"exhausted":true,"enforced":true,`+
		`"known":true,"granted":10,"usage":12,"remaining":-2,"age_ms":7}`)
	got, err := c.Gate(t.Context(), "credits", "u &")
	want := wire.Gate{
		Limit: "credits", Subject: "u &", Blocked: true, Exhausted: true, Enforced: true, Known: true,
		Granted: 10, Usage: 12, Remaining: -2, AgeMS: 7,
	}
	if err != nil || got != want {
		t.Errorf("got %+v and error %v, want %+v", got, err, want)
	}
	for name, want := range map[string]string{"limit": "credits", "subject": "u &", "mode": "mark"} {
		got, _ := g.query.Load(name)
		if got != want {
			t.Errorf("asked with %s=%v, want %s", name, got, want)
		}
	}
	_, err = c.Gate(t.Context(), "credits", "\xff")
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
	c = connect(t, start(t, fixed)) // which has no gates
	_, err = c.Gate(t.Context(), "credits", "u")
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != wire.CodeUnknownLimit {
		t.Errorf("got error %v, want unknown-limit", err)
	}
}

// What a server does not say for certain is unknown, and what was known before stays known.
func TestNewGate(t *testing.T) {
	const known = `{"known":true,"enforced":true,"remaining":0,"granted":5,"usage":5}`
	g, c := startGate(t)
	var log strings.Builder
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	gate, err := c.NewGate("credits", &credit.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	for status, body := range map[int]string{
		200: `{"known":false,"enforced":true,"remaining":0}`, 404: `{"code":"unknown-limit"}`,
		402: `{"code":"credits-exhausted"}`, 503: "", 500: known,
	} {
		g.says(status, body)
		got := gate.Balance(t.Context(), "a")
		if got.Known || got.Blocked {
			t.Errorf("%d: got %+v, want unknown", status, got)
		}
	}
	if !strings.Contains(log.String(), client.ErrUnknownBalance.Error()) {
		t.Errorf("got the log %s, want it to say that nothing is known", log.String())
	}
	g.says(200, known)
	got := gate.Balance(t.Context(), "a")
	want := credit.Decision{
		Blocked: true, Exhausted: true, Enforced: true, Known: true, Granted: 5, Usage: 5,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, want := range map[string]string{
		"limit": "credits", "subject": "a", "mode": "mark", "wait": "true",
	} {
		got, _ := g.query.Load(name)
		if got != want {
			t.Errorf("asked with %s=%v, want %s", name, got, want)
		}
	}
	g.says(503, "")
	now = now.Add(10 * time.Minute) // stale
	for range 100 {
		if got := gate.Decide("a"); !got.Blocked || !got.Stale {
			t.Fatalf("server away: got %+v, want blocked by a stale balance", got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := gate.Balance(ctx, "b"); got.Known {
		t.Errorf("got %+v, want unknown", got)
	}
}

// A gate in this process says what that of the server says, flag and all.
func TestNewGateAnswers(t *testing.T) {
	g, c := startGate(t)
	asked := int32(0)
	for body, want := range map[string]credit.Decision{
		`{"known":true,"enforced":true,"granted":10,"usage":4,"remaining":6}`: {
			Known: true, Enforced: true, Granted: 10, Usage: 4, Remaining: 6,
		},
		`{"known":true,"enforced":false,"exhausted":true,"granted":5,"usage":7,"remaining":-2}`: {
			Known: true, Exhausted: true, Granted: 5, Usage: 7, Remaining: -2,
		},
		`{"known":false,"none":true,"enforced":true}`: {None: true, Enforced: true},
		`{"known":true,"enforced":true,"unlimited":true,"remaining":0}`: {
			Known: true, Enforced: true, Unlimited: true,
		},
	} {
		g.says(200, body)
		gate, err := c.NewGate("credits", nil)
		if err != nil {
			t.Fatal(err)
		}
		got := gate.Balance(t.Context(), "a")
		gate.Balance(t.Context(), "a") // is remembered
		gate.Close()
		got.Age = 0
		asked++
		if got != want || g.calls.Load() != asked {
			t.Errorf("%s: got %+v after %d calls, want %+v after %d", body, got, g.calls.Load(), want,
				asked)
		}
	}
}

// The log of a gate has no subject in it, whatever goes wrong.
func TestNewGateLogs(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // nobody listens there
	var log strings.Builder
	gate, err := connect(t, server.URL).NewGate("credits", &credit.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	got := gate.Balance(t.Context(), "alice")
	if got.Known || !strings.Contains(log.String(), "ask weir") ||
		strings.Contains(log.String(), "alice") {
		t.Errorf("got %+v and the log %s, want unknown and a warning without the subject",
			got, log.String())
	}
}
