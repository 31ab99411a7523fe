package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"weir/api/wire"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// health is the status of a GET that needs no token, and what the body says of the ledger.
func health(t testing.TB, url string) (status int, ledger string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	var body struct{ Ledger string }
	err = json.NewDecoder(response.Body).Decode(&body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body.Ledger
}

// cue is a ledger that fails on cue, once it is open.
type cue struct {
	ledger *ledgertest.Faulty
	back   func()
}

// away makes every call fail, until back is called.
func (c *cue) away() {
	c.back = c.ledger.Inject(ledgertest.Fault{
		Before: errors.New("the ledger is away"), Times: ledgertest.Always,
	})
}

// faultyLedger makes a config's ledger one that fails on cue, perhaps from the start.
func faultyLedger(c *config, away bool) *cue {
	faulty := &cue{}
	open := c.Driver.open
	c.Driver.open = func(c *config, l *slog.Logger, r prometheus.Registerer) (ledgers.Driver, error) {
		driver, err := open(c, l, r)
		faulty.ledger = ledgertest.NewFaulty(driver)
		if away {
			faulty.away()
		}
		return faulty.ledger, err
	}
	return faulty
}

// A weir that starts without its ledger is alive and not ready. Once the ledger was reached it is,
// and stays so: an outage shows in the body.
func TestServeReadiness(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	faulty := faultyLedger(c, true)
	s, _ := startService(t, c)
	want := func(status int, ledgerState string, up string) {
		t.Helper()
		eventually(t, fmt.Sprintf("/readyz is %d, ledger %s", status, ledgerState), func() bool {
			got, state := health(t, s.address()+"/readyz")
			return got == status && state == ledgerState
		})
		if got, _ := health(t, s.address()+"/healthz"); got != http.StatusOK {
			t.Errorf("/healthz: got %d, want 200", got)
		}
		if got := metricsOf(t, s.address()); !strings.Contains(got, "\nweir_ledger_up "+up+"\n") {
			t.Errorf("the metrics do not say weir_ledger_up %s", up)
		}
	}
	want(http.StatusServiceUnavailable, "down", "0")
	faulty.back()
	want(http.StatusOK, "up", "1")
	faulty.away()
	weir := mustClient(t, s.address())
	for range 5 { // failures in a row, after which nothing is sent any more
		_, _ = weir.Check(t.Context(), wire.CheckRequest{Limit: "a", Subject: "alice"})
	}
	want(http.StatusOK, "down", "0")
	faulty.back()
	want(http.StatusOK, "up", "1")
}

// At SIGTERM readiness goes first: calls are answered for as long as others need to notice.
func TestServeDrains(t *testing.T) {
	root := t.TempDir()
	path := writeConfig(t, root, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	t.Setenv("WEIR_DRAIN", "2s")
	p := startProcess(t, path, filepath.Join(root, "data"))
	if status, _ := health(t, p.url+"/readyz"); status != http.StatusOK {
		t.Fatalf("/readyz: got %d, want 200", status)
	}
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "/readyz is 503", func() bool {
		status, _ := health(t, p.url+"/readyz")
		return status == http.StatusServiceUnavailable
	})
	if d := p.mustCheck(t, "a", "alice", ""); !d.Allowed {
		t.Errorf("a check while readiness is off: got %+v, want it allowed", d)
	}
	err = <-p.exited
	if err != nil {
		t.Errorf("after SIGTERM: got %v, want exit status 0; the log:\n%s", err, p.stderr)
	}
}

// What is let through while the ledger is away is booked once it is back, by this process or, if
// that has ended meanwhile, by the next.
func TestServeSpool(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	faulty := faultyLedger(c, false)
	s, err := newService(t.Context(), c, slog.New(slog.DiscardHandler), testToken, testAdminToken)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, nil, io.Discard) }()
	weir := mustClient(t, s.address())
	letThrough := func(n int) {
		t.Helper()
		for range n {
			d, err := weir.Check(t.Context(), wire.CheckRequest{Limit: "a", Subject: "alice"})
			if err != nil || !d.Allowed || !d.Degraded {
				t.Fatalf("got %+v, %v, want it allowed and degraded", d, err)
			}
		}
	}
	eventually(t, "weir is ready", func() bool {
		status, _ := health(t, s.address()+"/readyz")
		return status == http.StatusOK
	})
	faulty.away()
	letThrough(7)
	faulty.back()
	eventually(t, "7 are booked", func() bool {
		b, err := weir.Balance(t.Context(), "a", "alice")
		return err == nil && b.Used == wire.Count(7)
	})
	faulty.away()
	letThrough(5)
	stop()
	must(t, <-ended)

	next, _ := startService(t, c)
	weir = mustClient(t, next.address())
	eventually(t, "3 of 5 are booked and 2 are overage", func() bool {
		b, err := weir.Balance(t.Context(), "a", "alice")
		return err == nil && b.Used == wire.Count(10) && b.Overage == wire.Count(2)
	})
}

// A deadline that is longer than the running process waits for the ledger comes with a restart.
func TestServeReloadErrDeadline(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s, deadline: 250ms}")
	s, _ := startService(t, c)
	s.load = func() (*config, error) { return loadConfig(c.Path, nil) }
	for deadline, want := range map[string]uint64{"251ms": 10, "100ms": 9} {
		writeConfig(t, filepath.Dir(c.Path), fmt.Sprintf(
			"{name: a, kind: request-rate, quota: 9, window: 300s, deadline: %s}", deadline))
		s.limiter.SetLimits(c.Limits)
		s.reload()
		if got := s.limiter.Limits().All()[0].Quota; got != want {
			t.Errorf("reload with deadline %s: got quota %d, want %d", deadline, got, want)
		}
	}
}

// Two nodes of one cluster cannot keep what waits for the ledger in one directory.
func TestServeErrSpoolInUse(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	spool, err := limiter.OpenSpool(filepath.Join(c.Data, "spool"))
	must(t, err)
	defer func() { must(t, spool.Close()) }()
	_, err = newService(t.Context(), c, slog.New(slog.DiscardHandler), "", "")
	if !errors.Is(err, limiter.ErrSpoolInUse) || !strings.Contains(err.Error(), c.Data) {
		t.Errorf("got %v, want %v and the directory", err, limiter.ErrSpoolInUse)
	}
}
