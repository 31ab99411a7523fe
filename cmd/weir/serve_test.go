package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/accounts"
	"weir/api/client"
	"weir/api/wire"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

var shipped = filepath.Join("..", "..", "weir.yaml")

// post sends a body as any HTTP client would, and reads the problem that is the answer.
func post(t testing.TB, url, body string) (int, http.Header, wire.Problem) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+testToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var problem wire.Problem
	err = json.NewDecoder(response.Body).Decode(&problem)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, problem
}

// The main job, end to end, with the config that ships: ten checks pass, the eleventh does not, a
// grant lets five more pass, and no kill refunds or loses anything.
func TestServeShippedConfig(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := startProcess(t, shipped, dir)
	for i := range 10 {
		d := p.mustCheck(t, "api-requests", "alice", fmt.Sprintf("first-%d", i))
		if got := *d.Limits[0].Remaining; !d.Allowed || got != wire.Count(uint64(9-i)) {
			t.Fatalf("check %d: got allowed %t, remaining %v, want true, %d", i+1, d.Allowed, got, 9-i)
		}
	}
	wantDenied429(t, p)
	d := p.mustCheck(t, "api-requests", "bob", "")
	if !d.Allowed || *d.Limits[0].Remaining != wire.Count(9) {
		t.Errorf("another subject: got %+v, want 9 remaining", d)
	}
	amount := wire.Count(5)
	grant := wire.ChangeRequest{
		Limit: "api-requests", Subject: "alice", Amount: &amount, ID: "grant-1",
	}
	granted, err := p.Grant(t.Context(), grant)
	if err != nil || granted.Quota != wire.Count(15) || granted.Remaining != wire.Count(5) {
		t.Fatalf("grant: got %+v, %v, want quota 15, remaining 5", granted, err)
	}
	for i := range 5 {
		if d := p.mustCheck(t, "api-requests", "alice", ""); !d.Allowed {
			t.Fatalf("check %d after the grant: got %+v, want it allowed", i+1, d)
		}
	}

	p.kill(t)
	wantSound(t, dir)
	p = startProcess(t, shipped, dir)
	if d := p.mustCheck(t, "api-requests", "alice", ""); d.Allowed {
		t.Errorf("check after kill -9: got %+v, want it denied", d)
	}
	for i := range 10 {
		d := p.mustCheck(t, "api-requests", "alice", fmt.Sprintf("first-%d", i))
		if !d.Allowed || !d.Replayed {
			t.Errorf("id %d after kill -9: got %+v, want it allowed and replayed", i, d)
		}
	}
	again, err := p.Grant(t.Context(), grant)
	if err != nil || !again.Replayed || again.Quota != wire.Count(15) ||
		again.Transfer != granted.Transfer {
		t.Errorf("grant after kill -9: got %+v, %v, want a replay of %+v", again, err, granted)
	}
	b := p.mustBalance(t, "api-requests", "alice")
	if b.Used != wire.Count(15) || b.Quota != wire.Count(15) {
		t.Errorf("balance after kill -9: got %+v, want 15 of 15 used", b)
	}
	err = p.signal(t, syscall.SIGTERM)
	if err != nil {
		t.Errorf("after SIGTERM: got %v, want exit status 0", err)
	}
	wantSound(t, dir)
}

// wantDenied429 checks that alice is denied, in the way that HTTP clients know.
func wantDenied429(t testing.TB, p *process) {
	t.Helper()
	body := `{"limit":"api-requests","subject":"alice"}`
	status, header, problem := post(t, p.url+"/v1/check", body)
	seconds, _ := strconv.Atoi(header.Get("Retry-After"))
	if status != http.StatusTooManyRequests || seconds < 1 || seconds > 60 {
		t.Errorf("got %d, Retry-After %q, want 429 and 1 to 60 s", status,
			header.Get("Retry-After"))
	}
	if problem.Code != wire.CodeQuotaExceeded {
		t.Errorf("got problem %+v, want code %s", problem, wire.CodeQuotaExceeded)
	}
	ms := problem.RetryAfterMS
	if int64(seconds) != (ms+999)/1000 {
		t.Errorf("got Retry-After %d and retry_after_ms %d, want the one to be the other", seconds, ms)
	}
}

const paymentsConfig = `
assets: [{code: USD, scale: 2}]
limits:
  - {name: pay, kind: transfer-amount, quota: "1000.00", asset: USD, window: 4s, deadline: 30s}
`

// A payment and its limit are one: what one of them refuses touches neither, no kill parts them,
// and what the window gives back can be paid.
func TestServePayments(t *testing.T) {
	c := textConfig(t, paymentsConfig)
	p := startProcess(t, c.Path, c.Data)
	for subject, amount := range map[string]string{"alice": "1000.01", "bob": "1", "carol": "2"} {
		_, err := p.Deposit(t.Context(), wire.MovementRequest{
			Asset: "USD", Subject: subject, Amount: amount, ID: "d",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pay := func(from, amount, id string) (wire.Decision, error) {
		return p.Transfer(t.Context(), wire.TransferRequest{
			Limit: "pay", From: from, To: "bob", Amount: amount, ID: id,
		})
	}
	paid, err := pay("alice", "999.99", "one")
	if err != nil || !paid.Allowed {
		t.Fatalf("999.99: got %+v, %v, want it allowed", paid, err)
	}
	more, err := pay("alice", "0.02", "two")
	if err != nil || more.Allowed || more.RetryAfterMS == 0 {
		t.Fatalf("0.02 more: got %+v, %v, want it denied, with a wait", more, err)
	}
	_, err = pay("carol", "2.01", "one")
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Code != wire.CodeInsufficientFunds {
		t.Errorf("2.01 of 2.00: got %v, want %s", err, wire.CodeInsufficientFunds)
	}
	if b := p.mustBalance(t, "pay", "carol"); b.Used != wire.Money(0, 2) {
		t.Errorf("insufficient funds: got %+v, want nothing used", b)
	}
	wantFunds(t, p, map[string]string{"alice": "0.02", "bob": "1000.99", "carol": "2.00"})
	p.kill(t)
	wantSound(t, c.Data)
	p = startProcess(t, c.Path, c.Data)
	again, err := pay("alice", "999.99", "one")
	if err != nil || !again.Replayed || again.Transfer != paid.Transfer {
		t.Errorf("the same id after kill -9: got %+v, %v, want a replay of %+v", again, err, paid)
	}
	attempt := 0
	eventually(t, "0.02 passes when the window has given back", func() bool {
		attempt++
		d, err := pay("alice", "0.02", fmt.Sprintf("later-%d", attempt))
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	})
	wantFunds(t, p, map[string]string{"alice": "0.00", "bob": "1001.01", "carol": "2.00"})
}

// wantFunds checks what subjects have.
func wantFunds(t testing.TB, p *process, funds map[string]string) {
	t.Helper()
	for subject, want := range funds {
		account, err := p.Account(t.Context(), "USD", subject)
		if err != nil || account.Balance != want {
			t.Errorf("%s: got %+v, %v, want %s USD", subject, account, err, want)
		}
	}
}

// Used units stay used over kill -9, and the quota is given once, however often weir starts.
func TestServeRestarts(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "data")
	path := writeConfig(t, root, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	p := startProcess(t, path, dir)
	for range 4 {
		p.mustCheck(t, "a", "alice", "")
	}
	for range 5 {
		p.kill(t)
		p = startProcess(t, path, dir)
		if b := p.mustBalance(t, "a", "alice"); b.Quota != wire.Count(10) || b.Used != wire.Count(4) {
			t.Errorf("after a restart: got %+v, want 4 of 10 used", b)
		}
	}
	allowed := 0
	for range 10 {
		if p.mustCheck(t, "a", "alice", "").Allowed {
			allowed++
		}
	}
	if allowed != 6 {
		t.Errorf("got %d allowed after 4 of 10 and five restarts, want 6", allowed)
	}
}

// SIGHUP puts other quotas in force; what is used stays used.
func TestServeReload(t *testing.T) {
	root := t.TempDir()
	limit := "{name: a, kind: request-rate, quota: %d, window: 300s}"
	path := writeConfig(t, root, fmt.Sprintf(limit, 10))
	p := startProcess(t, path, filepath.Join(root, "data"))
	for range 8 {
		p.mustCheck(t, "a", "alice", "")
	}
	reload := func(quota int) {
		t.Helper()
		writeConfig(t, root, fmt.Sprintf(limit, quota))
		_ = p.signal(t, syscall.SIGHUP)
		eventually(t, "the new quota is in force", func() bool {
			limits, err := p.Limits(t.Context())
			return err == nil && limits[0].Quota == wire.Count(uint64(quota))
		})
	}
	reload(5)
	d := p.mustCheck(t, "a", "alice", "")
	if s := d.Limits[0]; d.Allowed || *s.Remaining != wire.Count(0) || *s.Quota != wire.Count(5) {
		t.Errorf("8 used, quota lowered to 5: got %+v, want denied, remaining 0, quota 5", d)
	}
	reload(20)
	b := p.mustBalance(t, "a", "alice")
	if b.Remaining != wire.Count(12) || b.Quota != wire.Count(20) {
		t.Errorf("8 used, quota raised to 20: got %+v, want remaining 12", b)
	}

	writeConfig(t, root, "{name: a, kind: request-rate, quota: many, window: 300s}")
	_ = p.signal(t, syscall.SIGHUP)
	eventually(t, "the gauge of the failed reload is 1", func() bool {
		return strings.Contains(metricsOf(t, p.url), "\nweir_config_reload_failed 1\n")
	})
	if b := p.mustBalance(t, "a", "alice"); b.Quota != wire.Count(20) {
		t.Errorf("after a reload of a bad config: got %+v, want the old quota of 20", b)
	}
	reload(21)
	if got := metricsOf(t, p.url); !strings.Contains(got, "\nweir_config_reload_failed 0\n") {
		t.Error("after a good reload the gauge of the failed one is not 0")
	}
	p.kill(t)
	if !strings.Contains(p.stderr.String(), "limits[0].quota: \\\"many\\\": want a whole number") {
		t.Errorf("the log does not say why a config was refused:\n%s", p.stderr)
	}
}

func metricsOf(t testing.TB, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// Reading the same config again, however often, gives nothing back and writes nothing.
func TestServeReloadOfSameConfig(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	s, _ := startService(t, c)
	s.load = func() (*config, error) { return loadConfig(c.Path, nil) }
	weir := mustClient(t, s.address())
	for range 10 {
		_, err := weir.Check(t.Context(), wire.CheckRequest{Limit: "a", Subject: "alice"})
		if err != nil {
			t.Fatal(err)
		}
	}
	before := mustJournal(t, weir)
	for range 100 {
		s.reload()
		d, err := weir.Check(t.Context(), wire.CheckRequest{Limit: "a", Subject: "alice"})
		if err != nil || d.Allowed {
			t.Fatalf("after a reload: got %+v, %v, want it denied", d, err)
		}
	}
	if after := mustJournal(t, weir); after != before {
		t.Errorf("100 reloads: got a journal of %d entries, want %d as before", after, before)
	}
}

func mustJournal(t testing.TB, c *client.Client) int {
	t.Helper()
	page, err := c.Journal(t.Context(), client.JournalQuery{Limit: "a", Subject: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Entries)
}

// A window that outlives the transfers kept cannot be served by the ledger as it was opened.
func TestServeReloadErrWindowBeyondRetention(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	s, _ := startService(t, c)
	writeConfig(t, filepath.Dir(c.Path), "{name: a, kind: request-rate, quota: 9, window: 31d}")
	s.load = func() (*config, error) { return loadConfig(c.Path, nil) }
	s.reload()
	if got := s.limiter.Limits().All()[0].Quota; got != 10 {
		t.Errorf("got quota %d, want that of the old config, 10", got)
	}
	rewrite(t, s, "limits: [{name: a, kind: request-rate, quota: 9, align: month, deadline: 30s}]")
	if got := s.limiter.Limits().All()[0].Quota; got != 10 {
		t.Errorf("a month: got quota %d, want that of the old config, 10", got)
	}
}

// rewrite puts a text in the place of a service's config.
func rewrite(t testing.TB, s *service, text string) {
	t.Helper()
	err := os.WriteFile(s.config.Path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s.load = func() (*config, error) { return loadConfig(s.config.Path, nil) }
	s.reload()
}

// All that rules say can be read anew, but what an asset is: an asset that was left out for a while
// comes back as it was.
func TestServeReloadRules(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	s, _ := startService(t, c)
	const money = `
assets: [{code: USD, scale: %d, ledger: %d}]
limits:
  - {name: a, kind: budget, quota: "%s", asset: USD, align: week, timezone: Europe/Berlin,
     close_at: 0.9, shadow: on, deadline: 30s}
`
	const plain = "limits: [{name: a, kind: credits, quota: 3, deadline: 30s}]\n"
	for _, step := range []struct {
		text  string
		quota uint64 // in force
	}{
		{fmt.Sprintf(money, 2, 7, "10.00"), 1000},
		{fmt.Sprintf(money, 3, 7, "10.00"), 1000},
		{fmt.Sprintf(money, 2, 8, "11.00"), 1000},
		{plain, 3},
		{fmt.Sprintf(money, 3, 7, "10.00"), 3},
		{fmt.Sprintf(money, 2, 7, "11.00"), 1100},
		{"retention: 24h\n" + plain, 3}, // with a warning
		{"limits: [{name: a, kind: budget, quota: 4, align: week, timezone: Nowhere}]", 3},
	} {
		rewrite(t, s, step.text)
		if got := s.limiter.Limits().All()[0].Quota; got != step.quota {
			t.Errorf("after %s: got quota %d, want %d", step.text, got, step.quota)
		}
	}
}

// What an asset is does not change with a restart either, once there is money of it.
func TestServeAssetsStay(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	with := func(scale, ledger int) *config {
		text := fmt.Sprintf("assets: [{code: USD, scale: %d, ledger: %d}]\n"+
			"limits: [{name: a, kind: request-rate, quota: 10, window: 300s, deadline: 30s}]\n",
			scale, ledger)
		err := os.WriteFile(c.Path, []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		next := mustLoad(t, c.Path, nil)
		next.Listen, next.Data, next.Drain = c.Listen, c.Data, 0
		return next
	}
	t.Run("no money yet", func(t *testing.T) {
		startService(t, with(3, 8))
	})
	t.Run("the first money", func(t *testing.T) {
		s, _ := startService(t, with(2, 7))
		_, err := s.limiter.Deposit(t.Context(), limiter.Movement{
			Asset: "USD", Subject: "alice", Amount: "10.00", ID: "d",
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, changed := range []*config{with(3, 7), with(2, 8)} {
		_, err := newService(t.Context(), changed, slog.New(slog.DiscardHandler), "", "")
		if !errors.Is(err, accounts.ErrAsset) || !strings.Contains(err.Error(), `"USD"`) {
			t.Errorf("got %v, want the asset refused", err)
		}
	}
	t.Run("away at the start", func(t *testing.T) { // it is served, and ends once the ledger tells
		changed := with(3, 7)
		faulty := faultyLedger(changed, true)
		s, err := newService(t.Context(), changed, slog.New(slog.DiscardHandler), "", "")
		must(t, err)
		ended := make(chan error, 1)
		go func() { ended <- s.run(t.Context(), nil, io.Discard) }()
		faulty.back()
		err = <-ended
		if !errors.Is(err, accounts.ErrAsset) {
			t.Errorf("got %v, want it ended for the asset", err)
		}
	})
	t.Run("left out and put in by a reload", func(t *testing.T) {
		s, _ := startService(t, c) // without assets
		for _, step := range []struct{ scale, assets int }{{3, 0}, {2, 1}} {
			with(step.scale, 7)
			s.load = func() (*config, error) { return loadConfig(c.Path, nil) }
			s.reload()
			if got := len(s.limiter.Limits().Assets()); got != step.assets {
				t.Errorf("scale %d: got %d assets in force, want %d", step.scale, got, step.assets)
			}
		}
	})
}

// SIGTERM under load: whoever is answered with yes has paid, and nobody else has.
func TestServeSIGTERM(t *testing.T) {
	root := t.TempDir()
	path := writeConfig(t, root, "{name: a, kind: request-rate, quota: 1000000, window: 3600s}")
	dir := filepath.Join(root, "data")
	var allowed atomic.Int64
	for range rounds(3, 50) {
		p := startProcess(t, path, dir)
		before := allowed.Load()
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for callUntilGone(t, p) {
					allowed.Add(1)
				}
			})
		}
		eventually(t, "weir is under load", func() bool { return allowed.Load() > before+200 })
		err := p.signal(t, syscall.SIGTERM)
		if err != nil {
			t.Fatalf("got %v, want exit status 0; the log:\n%s", err, p.stderr)
		}
		callers.Wait()
	}
	p := startProcess(t, path, dir)
	if b := p.mustBalance(t, "a", "alice"); int64(b.Used.Units) != allowed.Load() {
		t.Errorf("got %v units charged, want one for each of %d answers", b.Used, allowed.Load())
	}
}

// callUntilGone makes a check and reports whether it was allowed; if not, weir has to be gone.
func callUntilGone(t testing.TB, p *process) bool {
	t.Helper()
	d, err := p.Check(t.Context(), wire.CheckRequest{Limit: "a", Subject: "alice"})
	var answer *client.Error
	if errors.As(err, &answer) || err == nil && !d.Allowed {
		t.Errorf("got %+v, %v, want it allowed or no answer at all", d, err)
	}
	return err == nil && d.Allowed
}

// tidy:table how a start can fail
func TestServeRefuses(t *testing.T) {
	root := t.TempDir()
	path := writeConfig(t, root, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	dir := filepath.Join(root, "data")
	notDir := filepath.Join(root, "file")
	err := os.WriteFile(notDir, nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, path, dir)
	rows := []struct {
		name string
		args []string
		want []string
	}{
		{"ErrSecondProcess", []string{"--data", dir, "--listen", "127.0.0.1:0"},
			[]string{dir, "in use by another process"}},
		{"ErrNotADirectory", []string{"--data", notDir, "--listen", "127.0.0.1:0"}, []string{notDir}},
		{"ErrListenOffLoopback", []string{"--data", dir, "--listen", "0.0.0.0:0"},
			[]string{"0.0.0.0:0 is not loopback", "WEIR_TOKEN", "--insecure"}},
		{"ErrListenEverywhere", []string{"--data", dir, "--listen", ":0"},
			[]string{":0 is not loopback"}},
		{"ErrPortTaken", []string{"--data", dir + "2", "--listen", strings.TrimPrefix(p.url, "http://")},
			[]string{"listen", strings.TrimPrefix(p.url, "http://")}},
		{"ErrLogFormat", []string{"--log-format", "xml"}, []string{"--log-format", "text or json"}},
		{"ErrUnknownFlag", []string{"--port", "80"}, []string{"--port"}},
		{"ErrArgument", []string{"now"}, []string{"weir serve"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := weir(t, append([]string{"serve", "--config", path}, row.args...)...)
			if got.status != exitError || got.out != "" {
				t.Errorf("got exit status %d, output %q, want 2 and none", got.status, got.out)
			}
			for _, want := range row.want {
				if !strings.Contains(got.err, want) {
					t.Errorf("got error %q, want it to contain %q", got.err, want)
				}
			}
		})
	}
	if b := p.mustBalance(t, "a", "alice"); b.Quota != wire.Count(10) {
		t.Errorf("the running weir answers %+v after all that, want quota 10", b)
	}
}

func TestServeReadyLine(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	s, ready := startService(t, c)
	want := fmt.Sprintf("weir ready on %s, ledger embedded in %s\n", s.address(), c.Data)
	if ready != want {
		t.Errorf("got %q, want %q", ready, want)
	}
}

// A ledger that has stopped for good ends the process, so that whoever started it can do so again.
func TestServeErrLedgerStopped(t *testing.T) {
	c := testConfig(t, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	faulty := faultyLedger(c, false)
	s, err := newService(t.Context(), c, slog.New(slog.DiscardHandler), "", "")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.run(t.Context(), nil, io.Discard) }()
	ledger := faulty.ledger
	ledger.Inject(ledgertest.Fault{Before: ledgers.ErrBusy, Times: 1})
	ledger.Inject(ledgertest.Fault{Before: embedded.ErrFailed, Times: ledgertest.Always})
	select {
	case err = <-ended:
		if !errors.Is(err, embedded.ErrFailed) {
			t.Errorf("got %v, want the ledger's error", err)
		}
	case <-time.After(testWait):
		t.Fatal("weir still runs on a ledger that has stopped")
	}
	wantSound(t, c.Data)
}
