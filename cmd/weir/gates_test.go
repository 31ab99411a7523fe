package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
	"weir/limiter/credit"
)

const (
	// asProvider makes the test program be a billing provider that listens there.
	asProvider = "WEIR_TEST_AS_PROVIDER"
	// providerLeft is what subjects called empty-… have left at that provider.
	providerLeft = "WEIR_TEST_PROVIDER_LEFT"
	// providerToken is what it wants, and providerTokenEnv the variable that weir has it from.
	providerToken    = "s3cret-of-billing"
	providerTokenEnv = "BILLING_TOKEN"
)

// serveProvider answers until it is killed.
func serveProvider(address string) {
	err := http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+providerToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		left := "40"
		if strings.HasPrefix(r.URL.Path, "/empty-") {
			left = os.Getenv(providerLeft)
		}
		_, _ = io.WriteString(w, `{"balance":{"remaining":`+left+`},"enforced":true}`)
	}))
	_, _ = fmt.Fprintln(os.Stderr, "provider:", err)
	os.Exit(1)
}

// startProvider runs a provider in a process of its own and returns how to kill it with SIGKILL.
func startProvider(t testing.TB, address, left string) func() {
	t.Helper()
	provider := exec.CommandContext(t.Context(), os.Args[0])
	provider.Env = append(os.Environ(), asProvider+"="+address, providerLeft+"="+left)
	provider.Stderr = os.Stderr
	err := provider.Start()
	if err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = provider.Process.Kill()
		_ = provider.Wait()
	})
	t.Cleanup(kill)
	eventually(t, "the provider listens", func() bool {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		_ = connection.Close()
		return true
	})
	return kill
}

// freeAddress is one that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

const gatedByProvider = `
limits:
  - {name: credits, kind: credits, quota: 10, deadline: 30s}
gates:
  - limit: credits
    source: http
    http:
      url: "http://%s/{subject}"
      token_env: BILLING_TOKEN
      remaining: balance.remaining
      enforced: enforced
    stale_after: 20ms
    debounce: 10ms
    fetch_timeout: 2s
`

// gated is a provider, a weir with a gate that asks it, and a gate in this process that asks the
// weir, each of the first two a process that can be killed.
type gated struct {
	testing.TB
	provider, listen, config, data string
	weir                           *process
	gate                           *credit.Gate
}

func startGated(t testing.TB) *gated {
	t.Helper()
	t.Setenv(providerTokenEnv, providerToken)
	root := t.TempDir()
	g := &gated{
		TB: t, provider: freeAddress(t), listen: freeAddress(t),
		config: filepath.Join(root, "weir.yaml"), data: filepath.Join(root, "data"),
	}
	err := os.WriteFile(g.config, fmt.Appendf(nil, gatedByProvider, g.provider), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	g.startWeir()
	g.gate, err = g.weir.NewGate("credits", &credit.Options{
		StaleAfter: 20 * time.Millisecond, Debounce: 10 * time.Millisecond, FetchTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.gate.Close)
	return g
}

func (g *gated) startWeir() {
	g.Helper()
	g.weir = startProcessOn(g, g.config, g.data, g.listen)
}

// over asks the weir's gate.
func (g *gated) over(subject string) wire.Gate {
	g.Helper()
	gate, err := g.weir.Gate(g.Context(), "credits", subject)
	if err != nil {
		g.Fatal(err)
	}
	return gate
}

// wantKept keeps asking for a while: who is known to be exhausted is blocked all the while, and
// everybody else passes.
func (g *gated) wantKept(what string, weirAnswers bool) {
	g.Helper()
	start := time.Now()
	for i := 0; time.Since(start) < 300*time.Millisecond; i++ {
		stranger := fmt.Sprintf("empty-%s-%d", what, i%10)
		if !g.gate.Decide("empty-a").Blocked || g.gate.Decide("rich").Blocked ||
			g.gate.Decide(stranger).Blocked {
			g.Fatalf("%s dead: got another answer from the gate in this process", what)
		}
		if !weirAnswers {
			continue
		}
		if !g.over("empty-a").Blocked || g.over("rich").Blocked || g.over(stranger).Blocked {
			g.Fatalf("%s dead: got another answer from weir's gate", what)
		}
	}
}

// kill -9 of the provider, then of weir, then both come back with the balance topped up.
func TestGateKilled(t *testing.T) {
	g := startGated(t)
	killProvider := startProvider(t, g.provider, "0")
	if got := g.gate.Balance(t.Context(), "rich"); got.Remaining != 40 || got.Blocked {
		t.Fatalf("got %+v, want 40 remaining", got)
	}
	if got := g.gate.Balance(t.Context(), "empty-a"); !got.Blocked {
		t.Fatalf("got %+v, want blocked", got)
	}
	if got := g.over("empty-a"); !got.Blocked || !got.Known || !got.Enforced {
		t.Fatalf("got %+v, want blocked", got)
	}
	usage := wire.TrackRequest{
		Limit: "credits", Subject: "empty-a", Amount: new(wire.Count(12)), ID: "run-1",
	}
	first, err := g.weir.Track(t.Context(), usage)
	if err != nil || first.Booked != wire.Count(10) || first.Overage != wire.Count(2) {
		t.Fatalf("got %+v and %v, want 10 booked and 2 over", first, err)
	}

	killProvider()
	g.wantKept("provider", true)
	g.weir.kill(t)
	killed := g.weir
	g.wantKept("weir", false)
	_, err = g.weir.Gate(t.Context(), "credits", "empty-a")
	if err == nil {
		t.Error("got an answer from a weir that was killed")
	}
	late := usage
	late.Amount, late.ID = new(wire.Count(3)), "run-2"
	kept, err := killed.Track(t.Context(), late)
	if err != nil || !kept.Spooled {
		t.Fatalf("got %+v and %v, want it kept in this process", kept, err)
	}

	startProvider(t, g.provider, "5")
	g.startWeir()
	again, err := g.weir.Track(t.Context(), usage)
	if err != nil || again.Transfer != first.Transfer || again.Booked != first.Booked ||
		again.Overage != first.Overage {
		t.Errorf("got %+v and %v, want what was booked first, %+v", again, err, first)
	}
	_, err = g.weir.Track(t.Context(), late) // also by another process, meanwhile
	err = errors.Join(err, killed.Flush(t.Context()))
	if err != nil {
		t.Error(err)
	}
	b := g.weir.mustBalance(t, "credits", "empty-a")
	if b.Used != wire.Count(10) || b.Overage != wire.Count(5) {
		t.Errorf("got %+v, want each booked once", b)
	}
	eventually(t, "the top-up is seen", func() bool {
		return !g.gate.Decide("empty-a").Blocked && !g.over("empty-a").Blocked
	})
	if got := g.gate.Decide("empty-a"); got.Remaining != 5 {
		t.Errorf("got %+v, want 5 remaining", got)
	}
	g.weir.kill(t)
	for _, secret := range []string{providerToken, "empty-"} {
		if strings.Contains(killed.stderr.String()+g.weir.stderr.String(), secret) {
			t.Errorf("%q is in the logs:\n%s%s", secret, killed.stderr, g.weir.stderr)
		}
	}
	if !strings.Contains(killed.stderr.String(), "credits stay as they were known") {
		t.Errorf("a provider that is away is not in the log:\n%s", killed.stderr)
	}
}

const gatedByLedger = `
limits:
  - {name: credits, kind: credits, quota: 10, deadline: 30s}
  - {name: other, kind: credits, quota: 10, deadline: 30s}
`

// TestGateReload has gates come, change, stay and go with the config.
func TestGateReload(t *testing.T) {
	c := textConfig(t, gatedByLedger+"gates: [{limit: credits, enforced: on, debounce: 10ms}]")
	s, _ := startService(t, c)
	s.load = func() (*config, error) { return loadConfig(c.Path, nil) }
	weir := mustClient(t, s.address())
	reload := func(gates string, failed int) {
		t.Helper()
		err := os.WriteFile(c.Path, []byte(gatedByLedger+gates), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		s.reload()
		gauge := fmt.Sprintf("\nweir_config_reload_failed %d\n", failed)
		if !strings.Contains(metricsOf(t, s.address()), gauge) {
			t.Errorf("%q: want%s", gates, gauge)
		}
	}
	blocked := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("known and blocked %t", want), func() bool {
			got, err := weir.Gate(t.Context(), "credits", "alice")
			return err == nil && got.Known && got.Blocked == want
		})
	}
	_, err := weir.Track(t.Context(), wire.TrackRequest{
		Limit: "credits", Subject: "alice", Amount: new(wire.Count(10)), ID: "a",
	})
	if err != nil {
		t.Fatal(err)
	}
	blocked(true)
	gate := s.gates.of("credits")
	reload("gates: [{limit: credits, enforced: on, debounce: 10ms}, {limit: other}]", 0)
	if s.gates.of("credits") != gate {
		t.Error("a gate that did not change was made anew, and knows nothing")
	}
	reload("gates: [{limit: credits, enforced: off, debounce: 10ms}]", 0)
	blocked(false)
	reload("gates: [{limit: other, source: http, http: {url: 'http://127.0.0.1:1/{subject}', "+
		"remaining: r, token_env: NO_SUCH_TOKEN}}]", 1)
	blocked(false)
	reload("gates: [{limit: credits, always_enforced: on, debounce: 10ms}]", 0)
	blocked(true)
	reload("", 0)
	_, err = weir.Gate(t.Context(), "credits", "alice")
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != wire.CodeUnknownLimit {
		t.Errorf("got error %v, want unknown-limit", err)
	}
}

func TestGateErrNoToken(t *testing.T) {
	c := textConfig(t, gatedByLedger+"gates: [{limit: other, source: http, "+
		"http: {url: 'http://127.0.0.1:1/{subject}', remaining: r, token_env: NO_SUCH_TOKEN}}]")
	logger, err := newLogger(io.Discard, "text")
	if err != nil {
		t.Fatal(err)
	}
	_, err = newService(t.Context(), c, logger, "", "")
	if err == nil || !strings.Contains(err.Error(), "gates[0].http.token_env: ") {
		t.Errorf("got error %v, want one about gates[0].http.token_env", err)
	}
}
