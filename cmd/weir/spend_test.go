package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
	"weir/limiter/spend"
)

// noonZone is a time zone in which no day ends while a test runs.
func noonZone() string { return fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12) }

// spendConfig has budgets and nothing else. A call of 1,000 tokens in and 500 out costs 0.0105 USD.
func spendConfig(budgets string) string {
	return "spend:\n  budgets:\n" + budgets + `
  models:
    - {name: big, number: 7, input: 3, output: "15", cached: 0.30}
    - {name: free, number: 8, input: 0, output: 0}
`
}

func budgetNamed(name, keys string) string {
	return fmt.Sprintf("    - {name: %s, deadline: 30s, timezone: %s, %s}\n", name, noonZone(), keys)
}

// spending is a weir in a process of its own, and the subject alice who spends there.
type spending struct {
	testing.TB
	*process
}

// startSpending starts a weir with these budgets and points the commands at it.
func startSpending(t *testing.T, budgets string) spending {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, "weir.yaml")
	err := os.WriteFile(path, []byte(spendConfig(budgets)), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, path, filepath.Join(root, "data"))
	t.Setenv(envServer, p.url)
	t.Setenv(envToken, testToken)
	t.Setenv(envAdminToken, testAdminToken)
	return spending{t, p}
}

// authorize asks for a call of 1,000 tokens in and 500 out.
func (s spending) authorize(budget string) wire.Authorization {
	s.Helper()
	a, err := s.Authorize(s.Context(), wire.SpendRequest{
		Budget: budget, Subject: "alice", Model: "big",
		InputTokens: new(wire.Count(1000)), MaxOutputTokens: new(wire.Count(500)),
	})
	if err != nil {
		s.Fatal(err)
	}
	return a
}

func (s spending) settle(receipt string, usage wire.SpendUsage) wire.SpendSettlement {
	s.Helper()
	settlement, err := s.SettleSpend(s.Context(), receipt, usage)
	if err != nil {
		s.Fatal(err)
	}
	return settlement
}

// used is the usage of a call that was answered.
func used(input, output, cached uint64) wire.SpendUsage {
	return wire.SpendUsage{
		Route: wire.RouteModel, InputTokens: new(wire.Count(input)),
		OutputTokens: new(wire.Count(output)), CachedTokens: new(wire.Count(cached)),
	}
}

// today is what `weir spend today` says as JSON.
func (s spending) today(budget string) (day spendDay) {
	s.Helper()
	got := weir(s, "spend", "today", budget, "alice", "--json")
	err := json.Unmarshal([]byte(got.out), &day)
	if got.status != 0 || err != nil {
		s.Fatalf("got %d, %q, %q and %v", got.status, got.out, got.err, err)
	}
	return day
}

// wantReplay replays the lines of a day, as they are printed, and compares what they come to with
// the balances of the ledger.
func (s spending) wantReplay(budget string) {
	s.Helper()
	got := weir(s, "journal", "--budget", budget, "--subject", "alice", "--jsonl")
	if got.status != 0 {
		s.Fatal(got.err)
	}
	type amount struct{ tokens, usd uint64 }
	taken := map[string]amount{} // by call
	for line := range strings.Lines(got.out) {
		var e wire.SpendEvent
		err := json.Unmarshal([]byte(line), &e)
		if err != nil {
			s.Fatalf("%s: %v", line, err)
		}
		switch {
		case e.Event == wire.EventClosed:
		case e.Event == wire.EventAuthorize && !e.ExpiresAt.After(time.Now()):
		default:
			taken[e.Transfer] = amount{e.InputTokens + e.OutputTokens, e.USD.Units}
		}
	}
	var sum amount
	for _, a := range taken {
		sum.tokens += a.tokens
		sum.usd += a.usd
	}
	inLedger := func(limit string) uint64 {
		b := s.mustBalance(s, budget+limit, "alice")
		return b.Used.Units + b.Overage.Units
	}
	if ledger := (amount{inLedger(":tokens"), inLedger(":usd")}); ledger != sum {
		s.Errorf("budget %s: the ledger has %+v taken, the day's lines come to %+v", budget, ledger, sum)
	}
}

func TestSpendToday(t *testing.T) {
	s := startSpending(t, budgetNamed("ai", `tokens: 20000, usd: "1.00", hold: 1h`))
	s.wantReplay("ai") // of nothing
	s.settle(s.authorize("ai").Transfer, used(1000, 100, 400))
	s.settle(s.authorize("ai").Transfer, wire.SpendUsage{
		Route: wire.RouteError, Error: wire.ErrorTimeout,
	})
	s.settle(s.authorize("ai").Transfer, wire.SpendUsage{Route: wire.RouteModel})
	s.settle(s.authorize("ai").Transfer, wire.SpendUsage{Route: wire.RouteFallback})
	s.authorize("ai") // is held
	s.wantReplay("ai")
	wrong := s.authorize("ai").Transfer
	s.settle(wrong, used(1000, 500, 0))
	wantSession(t, []commandRow{
		{"correct " + wrong + " --input 100 --output 100 --id c", 0,
			`\nmodel +200 +0\.001800 +0 +0\.000000 +false +false +` + wrong + `\n$`},
		{"correct " + wrong + " --input 100 --output 100 --id c", 0, ` +false +true +` + wrong},
		{"correct " + wrong + " --input 101 --output 100 --id c", 2, `^$`},
	})
	s.wantReplay("ai")
	s.settle(s.authorize("ai").Transfer, used(30_000, 0, 0)) // more than there is
	s.wantReplay("ai")
	if a := s.authorize("ai"); a.Route != wire.RouteFallback || a.Reason != wire.ReasonTokens {
		t.Errorf("got %+v, want the budget closed", a)
	}
	s.wantReplay("ai")

	money := func(millionths uint64) wire.Amount { return wire.Money(millionths, spend.Decimals) }
	got := s.today("ai")
	for route, want := range map[string]figures{
		wire.RouteModel:    {4, 32_100, 700, 400, money(105_720)},
		wire.RouteError:    {1, 1000, 0, 0, money(3000)},
		wire.RouteFallback: {1, 0, 0, 0, money(0)},
	} {
		if *got.Routes[route] != want {
			t.Errorf("route %s: got %+v, want %+v", route, *got.Routes[route], want)
		}
	}
	want := spendDay{
		Booked:     figures{6, 33_100, 700, 400, money(108_720)},
		Held:       figures{1, 1000, 500, 0, money(10_500)},
		Authorized: 7, Estimated: 2, Corrections: 1,
	}
	if got.Booked != want.Booked || got.Held != want.Held || got.Authorized != want.Authorized ||
		got.Estimated != 2 || got.Corrections != 1 || got.Late != 0 || got.Expired != 0 ||
		got.TurnedAway != 1 || got.To.Sub(got.From.Time) != day {
		t.Errorf("got %+v, want %+v and one turned away", got, want)
	}
	wantSpendTables(t, wrong)
}

// tidy:table the command lines of a session and what they print
func wantSpendTables(t *testing.T, corrected string) {
	t.Helper()
	zone, err := time.LoadLocation(noonZone())
	if err != nil {
		t.Fatal(err)
	}
	today := time.Now().In(zone)
	date, before := today.Format(time.DateOnly), today.AddDate(0, 0, -1).Format(time.DateOnly)
	const table = `^ai from \S+T\S+Z to \S+T\S+Z\nROUTE +CALLS +INPUT +OUTPUT +CACHED +USD\n` +
		`model +4 +32100 +700 +400 +0\.105720\nfallback +1 +0 +0 +0 +0\.000000\n` +
		`error +1 +1000 +0 +0 +0\.003000\nbooked +6 +33100 +700 +400 +0\.108720\n` +
		`carried over +0 +0 +0 +0 +0\.000000\n` +
		`held now +1 +1000 +500 +0 +0\.010500\n` +
		`AUTHORIZED +TURNED AWAY +EXPIRED +LATE +ESTIMATED +CORRECTIONS\n7 +1 +0 +0 +2 +1\n$`
	wantSession(t, []commandRow{
		{"spend today ai alice", 0, table},
		{"spend today ai alice --day " + date, 0, table},
		{"spend today ai alice --day " + before, 0, `\nbooked +0 +0 +0 +0 +0\.000000\n`},
		{"spend today ai nobody", 0, `\nbooked +0 +0 +0 +0 +0\.000000\ncarried .*\nheld now +0 `},
		{"spend today ai alice --day 16.10.2026", 2, `^$`},
		{"spend today zz alice", 2, `^$`},
		{"journal --budget ai --subject alice", 0, `^AT +EVENT +ROUTE .*\n` +
			`\S+Z +authorize +model +- +big +1000 +500 +0 +0\.010500 +held until \S+Z +[0-9a-f]{32}\n` +
			`\S+Z +settle +model +- +big +1000 +100 +400 +0\.003420 +- +[0-9a-f]{32}\n.*\n` +
			`\S+Z +settle +error +timeout +big +1000 +0 +0 +0\.003000 +estimated +[0-9a-f]{32}\n`},
		{"journal --budget ai --subject alice --day " + date, 0,
			`\n\S+Z +correction +model +- +big +100 +100 +0 +0\.001800 +- +` + corrected + `\n`},
		{"journal --budget ai --subject alice", 0,
			`\n\S+Z +closed +fallback +token-budget +big +0 +0 +0 +0\.000000 +1 turned away +-\n$`},
		{"journal --budget ai --subject alice --day " + before + " --jsonl", 0, `^$`},
		{"journal --budget ai --subject alice --json", 0, `^{"budget":"ai","subject":"alice",.*}\n$`},
		{"journal --budget ai --subject alice --jsonl", 0,
			`^{"at":"\S+Z","event":"authorize","transfer":"[0-9a-f]{32}","route":"model","model":"big",` +
				`"input_tokens":1000,"output_tokens":500,"cached_tokens":0,"usd":"0.010500",` +
				`"expires_at":"\S+Z"}\n`},
		{"journal --budget zz --subject alice", 2, `^$`},
		{"limits", 0, `\nai:usd +budget +1\.000000 spend:USD +day in Etc/GMT\S+ +closed +closes at 0\.9\n$`},
		{"check ai:tokens alice --cost 1", 2, `^$`},
	})
}

// A day's sum takes each call once, and tells what belongs to other days.
func TestSpendDay(t *testing.T) {
	now := time.Date(2026, 10, 16, 12, 0, 0, 0, time.UTC)
	until := func(d time.Duration) *wire.Time { return &wire.Time{Time: now.Add(d)} }
	usd := func(millionths uint64) wire.Amount { return wire.Money(millionths, spend.Decimals) }
	sum := newSpendDay()
	for _, e := range []wire.SpendEvent{
		{Event: "settle", Transfer: "yesterday's", Route: "model", InputTokens: 5, USD: usd(50)},
		{Event: "correction", Transfer: "yesterday's too", Route: "model", InputTokens: 7, USD: usd(70)},
		{Event: "authorize", Transfer: "a", InputTokens: 9, USD: usd(90), ExpiresAt: until(-time.Hour)},
		{Event: "settle", Transfer: "a", Route: "error", InputTokens: 9, USD: usd(90), Late: true,
			Estimated: true},
		{Event: "correction", Transfer: "a", Route: "model", InputTokens: 1, USD: usd(10)},
		{Event: "correction", Transfer: "a", Route: "model", InputTokens: 2, USD: usd(20)},
		{Event: "authorize", Transfer: "b", InputTokens: 4, USD: usd(40), ExpiresAt: until(1)},
		{Event: "authorize", Transfer: "c", InputTokens: 6, USD: usd(60), ExpiresAt: until(0)},
		{Event: "closed", Count: 3}, {Event: "closed", Count: 4},
	} {
		sum.add(e)
	}
	sum.close(now)
	sum.authorized, sum.booked = nil, nil
	none := figures{USD: usd(0)}
	want := &spendDay{
		Booked: figures{Calls: 2, InputTokens: 7, USD: usd(70)},
		Routes: map[string]*figures{
			"model": {Calls: 2, InputTokens: 7, USD: usd(70)}, "fallback": &none, "error": &none,
		},
		Carried:    figures{Calls: 1, InputTokens: 5, USD: usd(50)},
		Held:       figures{Calls: 1, InputTokens: 4, USD: usd(40)},
		Authorized: 3, TurnedAway: 7, Expired: 1, Late: 1, Corrections: 3,
	}
	if !reflect.DeepEqual(sum, want) {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}

// What comes late is booked once and marked, and what never comes is not.
func TestSpendLate(t *testing.T) {
	s := startSpending(t, budgetNamed("quick", `usd: "1.00", hold: 1s`))
	late := s.authorize("quick").Transfer
	s.authorize("quick")
	eventually(t, "what was reserved is back", func() bool {
		return s.mustBalance(t, "quick:tokens", "alice").Used.Units == 0
	})
	if got := s.settle(late, used(1000, 100, 0)); !got.Late || got.Replayed {
		t.Errorf("got %+v, want it late", got)
	}
	if got := s.settle(late, used(1000, 100, 0)); !got.Late || !got.Replayed {
		t.Errorf("got %+v, want it late and replayed", got)
	}
	s.wantReplay("quick")
	day := s.today("quick")
	if day.Booked.Calls != 1 || day.Late != 1 || day.Expired != 1 || day.Held.Calls != 0 {
		t.Errorf("got %+v, want one late and one expired", day)
	}
}

// A day of more than one page is read to its end, also after kill -9 and by the ledger alone.
func TestSpendPages(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "weir.yaml")
	budget := budgetNamed("ai", "tokens: 10000000, hold: 1h")
	err := os.WriteFile(path, []byte(spendConfig(budget)), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := spending{t, startProcess(t, path, filepath.Join(root, "data"))}
	const calls = 300 // of two notes each, and two for the settlement
	for range calls {
		s.settle(s.authorize("ai").Transfer, used(10, 1, 0))
	}
	s.kill(t)
	s.process = startProcess(t, path, filepath.Join(root, "data"))
	t.Setenv(envServer, s.url)
	t.Setenv(envAdminToken, testAdminToken)
	got := weir(t, "journal", "--budget", "ai", "--subject", "alice", "--jsonl")
	if events := strings.Count(got.out, "\n"); got.status != 0 || events != 2*calls {
		t.Errorf("got %d, %d events, %s, want %d", got.status, events, got.err, 2*calls)
	}
	pages := weir(t, "journal", "--budget", "ai", "--subject", "alice", "--json")
	if n := strings.Count(pages.out, "\n"); n != 2 {
		t.Errorf("got %d pages, want 2", n)
	}
	if day := s.today("ai"); day.Booked.InputTokens != 10*calls || day.Booked.OutputTokens != calls {
		t.Errorf("got %+v, want %d calls of 10 and 1", day.Booked, calls)
	}
	s.wantReplay("ai")
}

// A reload puts other prices and budgets in force, all of them or none.
func TestServeReloadSpend(t *testing.T) {
	budget := budgetNamed("ai", `tokens: 20000, usd: "1.00", hold: 1h`)
	text := spendConfig(budget)
	service, _ := startService(t, textConfig(t, text))
	s := spending{t, &process{Client: mustClient(t, service.address())}}
	wantClosed := func(budget, want string) {
		t.Helper()
		_, err := s.Authorize(t.Context(), wire.SpendRequest{
			Budget: budget, Subject: "alice", Model: "big", InputText: "hello",
			MaxOutputTokens: new(wire.Count(1)),
		})
		refused, _ := errors.AsType[*client.Error](err)
		if refused == nil || string(refused.Code) != want {
			t.Errorf("budget %s: got %v, want %s", budget, err, want)
		}
	}
	first, second := s.authorize("ai").Transfer, s.authorize("ai").Transfer
	rewrite(t, service, strings.Replace(text, "input: 3", "input: 6", 1))
	if got := s.settle(first, used(1000, 0, 0)).Booked.USD; got != wire.Money(6000, spend.Decimals) {
		t.Errorf("got %v, want the new price", got)
	}
	wantClosed("other", "unknown-limit")
	rewrite(t, service, spendConfig(budget+budgetNamed("other", "tokens: 10")))
	if got := s.authorize("other"); got.Route != wire.RouteFallback {
		t.Errorf("got %+v, want the new budget to be too small", got)
	}
	rewrite(t, service, spendConfig(budgetNamed("other", "tokens: 2000")))
	wantClosed("ai", "unknown-limit")
	_, err := s.SettleSpend(t.Context(), second, used(1, 0, 0))
	if err == nil {
		t.Error("settled a call on a budget that there is not")
	}
	rewrite(t, service, spendConfig(budgetNamed("other", "tokens: 0")))
	if got := s.authorize("other"); got.Route != wire.RouteModel {
		t.Errorf("after a bad config got %+v, want the budget before it", got)
	}
	rewrite(t, service, text)
	if got := s.settle(second, used(1000, 0, 0)); got.Booked.USD != wire.Money(3000, spend.Decimals) {
		t.Errorf("got %+v, want a budget that is back to know its calls", got)
	}
	rewrite(t, service, "limits: [{name: a, kind: credits, quota: 3}]\n")
	wantClosed("other", "unknown-limit")
	metrics := metricsOf(t, service.address())
	for _, want := range []string{
		`weir_spend_authorizations_total{budget="ai",reason="",route="model"} 2`,
		`weir_spend_authorizations_total{budget="other",reason="token-budget",route="fallback"} 1`,
		`weir_spend_settlements_total{budget="ai",route="model"} 2`,
		`weir_spend_tokens_total{budget="ai"} 2000`,
	} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want,
				strings.Join(regexp.MustCompile(`weir_spend.*`).FindAllString(metrics, -1), "\n"))
		}
	}
}
