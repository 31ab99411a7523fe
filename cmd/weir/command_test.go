package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"weir/api/wire"
	"weir/ledgers"
	"weir/ledgers/embedded"
)

const twoLimits = `{name: a, kind: request-rate, quota: 10, window: 300s}
	{name: b, kind: bandwidth, quota: 1kB, window: 300s}`

// askable starts a weir in this process and points the client commands at it.
func askable(t *testing.T) {
	t.Helper()
	s, _ := startService(t, testConfig(t, twoLimits))
	ask(t, s)
}

// ask points the client commands at a weir.
func ask(t *testing.T, s *service) {
	t.Helper()
	t.Setenv(envServer, s.address())
	t.Setenv(envToken, testToken)
	t.Setenv(envAdminToken, testAdminToken)
}

// textConfig loads a config of this text, for a port and a directory of its own.
func textConfig(t testing.TB, text string) *config {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.yaml")
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, path, nil)
	c.Listen, c.Data, c.Drain = "127.0.0.1:0", filepath.Join(dir, "data"), 0
	return c
}

// commandRow is a command line of a session.
type commandRow struct {
	args   string
	status int
	out    string // a regular expression
}

// wantSession runs command lines in order: later ones see what earlier ones did, and where they say
// RECEIPT it is the newest one.
func wantSession(t *testing.T, rows []commandRow) {
	t.Helper()
	receipts, receipt := regexp.MustCompile(`^allowed, transfer ([0-9a-f]{32})`), ""
	for _, row := range rows {
		got := weir(t, strings.Fields(strings.Replace(row.args, "RECEIPT", receipt, 1))...)
		if found := receipts.FindStringSubmatch(got.out); found != nil {
			receipt = found[1]
		}
		if got.status != row.status || !regexp.MustCompile(row.out).MatchString(got.out) {
			t.Errorf("weir %s: got exit status %d and\n%s%swant %d and %s",
				row.args, got.status, got.out, got.err, row.status, row.out)
		}
		if failed := got.status == exitError; failed != (strings.Count(got.err, "\n") == 1) {
			t.Errorf("weir %s: got error output %q, want one line for an error", row.args, got.err)
		}
	}
}

// A session with the client commands, in order: later lines see what earlier ones did.
//
// tidy:table the command lines of a session and what they print
func TestClientCommands(t *testing.T) {
	askable(t)
	wantSession(t, []commandRow{
		{"check a alice", 0, `^allowed, transfer [0-9a-f]{32}\nLIMIT .*\na +alice +1 +10 +9 +300\n$`},
		{"check a alice --cost 9 --id x", 0, `allowed, .*\n.*\na +alice +9 +10 +0 +`},
		{"check a alice --cost 9 --id x", 0, `allowed, transfer [0-9a-f]+, replayed\n`},
		{"check a alice", 1, `^denied, retry after (29\d|300)[.\d]*s\n|^denied, retry after [45]m`},
		{"check a alice --id y", 1, `^denied, retry after .*, with a new id\n`},
		{"check a alice --cost 0", 1, `^denied`},
		{"check --limit a --limit b=400 bob", 0, `\na +bob +1 +10 +9 .*\nb +bob +400 +1000 +600 `},
		{"check --limit a --limit b=601 bob", 1, `^denied`},
		{"check b bob --cost 1001", 2, `^$`},
		{"check b bob", 2, `^$`},
		{"balance a bob", 0, `\na +bob +10 +1 +9 +0 +300 +`},
		{"balance a never-seen", 0, `\na +never-seen +10 +0 +10 +0 +300 +0\n`},
		{"grant a alice 5 --id g", 0, `\na +alice +5 +15 +5 +false `},
		{"grant a alice 5 --id g", 0, `\na +alice +5 +15 +5 +true `},
		{"grant a alice 6 --id g", 2, `^$`},
		{"revoke a alice 6 --id r", 2, `^$`},
		{"revoke a alice 5 --id s", 0, `\na +alice +5 +10 +0 +false `},
		{"journal a alice", 0, `quota +credit +10 +- .* -\n.* charge +debit +1 +2.*Z .*\n.* charge `},
		{"journal a alice --reversed", 0, `^AT .*\n.* revocation +debit +5 +- .*\n.* grant +credit +5 `},
		{"limits", 0, `\na +request-rate +10 +5m0s +open +-\nb +bandwidth +1000 +5m0s +open +-\n$`},
	})
}

const moneyConfig = `
assets: [{code: USD, scale: 2}]
limits:
  - {name: pay, kind: transfer-amount, quota: "1000.00", asset: USD, window: 24h, deadline: 30s}
  - {name: spend, kind: budget, quota: "20.00", asset: USD, align: month, timezone: Europe/Berlin,
     close_at: 0.9, deadline: 30s}
  - {name: pays, kind: request-rate, quota: 3, window: 300s, deadline: 30s}
`

// tidy:table the command lines of a session and what they print
func TestMoneyCommands(t *testing.T) {
	s, _ := startService(t, textConfig(t, moneyConfig))
	ask(t, s)
	wantSession(t, []commandRow{
		{"accounts USD alice", 2, `^$`},
		{"deposit USD alice 5000 --id d1", 0, `\nUSD +alice +5000(.00)? +5000.00 +false +[0-9a-f]{32}\n$`},
		{"deposit USD alice 5000 --id d1", 0, `\nUSD +alice +5000(.00)? +5000.00 +true `},
		{"deposit USD alice 0.001 --id d2", 2, `^$`},
		{"transfer pay alice bob 1 --id t0", 2, `^$`}, // bob was never given any
		{"deposit USD bob 0.01 --id d3", 0, `\nUSD +bob +0.01 +0.01 +false `},
		{"transfer pay alice bob 999.99 --id t1", 0,
			`^allowed, transfer [0-9a-f]{32}\n.*\npay +alice +999.99 +1000.00 +0.01 +86400\n$`},
		{"transfer pay alice bob 999.99 --id t1", 0, `^allowed, transfer [0-9a-f]{32}, replayed\n`},
		{"transfer pay alice bob 0.02 --id t2", 1, `^denied, retry after .*, with a new id\n`},
		{"transfer pay bob alice 1000.00 --limit pays --id t3", 0, `\npays +bob +1 +3 +2 `},
		{"transfer pay carol alice 1 --id t4", 2, `^$`},
		{"accounts USD alice", 0, `^ASSET +SUBJECT +BALANCE\nUSD +alice +5000.01\n$`},
		{"withdraw USD alice 0.01 --id w1", 0, `\nUSD +alice +0.01 +5000.00 +false `},
		{"withdraw USD alice 5000.01 --id w2", 2, `^$`},
		{"check spend alice --cost 17.99", 0,
			`\nspend +alice +17.99 +20.00 +2.01 +\d+, period ends \d{4}-\d\d-01T00:00:00\+0[12]:00\n$`},
		{"check spend alice --cost 0.02", 1, `^denied, retry after `},
		{"reserve spend bob --cost 1.00 --hold 1m", 0, // which is back before the period ends
			`\nspend +bob +1.00 +20.00 +19.00 +60, period ends \d{4}`},
		{"balance spend alice", 0, `\nspend +alice +20.00 +17.99 +2.01 +0.00 +\d+ +\d+, period ends `},
		{"limits", 0, `\npay +transfer-amount +1000.00 USD +24h0m0s +closed +-\n` +
			`spend +budget +20.00 USD +month in Europe/Berlin +closed +closes at 0.9\n`},
	})
	got := weir(t, "transfer", "pay", "alice", "bob", "1")
	if got.status != exitNo || !strings.HasPrefix(got.err, "id: ") {
		t.Errorf("a transfer without an id: got %d, %q, want 1 and the id made", got.status, got.err)
	}
}

const reservable = `
assets: [{code: USD, scale: 2}]
limits:
  - {name: tokens, kind: budget, quota: 1000, window: 300s, deadline: 30s}
  - {name: spend, kind: credits, quota: "10.00", asset: USD, deadline: 30s}
  - {name: slots, kind: concurrency, quota: 2, deadline: 30s}
`

// tidy:table the command lines of a session and what they print
func TestReservationCommands(t *testing.T) {
	s, _ := startService(t, textConfig(t, reservable))
	ask(t, s)
	wantSession(t, []commandRow{
		{"reserve tokens alice --cost 400", 0,
			`^allowed, transfer [0-9a-f]{32}, held until 2.*Z\n.*\ntokens +alice +400 +1000 +600 +60\n$`},
		{"settle RECEIPT 150", 0, `^settled, transfer [0-9a-f]{32}\n` +
			`LIMIT .*\ntokens +alice +400 +150 +0 +850\n$`},
		{"settle RECEIPT 150", 0, `^settled, replayed, transfer `},
		{"settle RECEIPT 151", 2, `^$`},
		{"release RECEIPT", 2, `^$`},
		{"reserve tokens alice --cost 851", 1, `^denied, retry after `},
		{"reserve tokens alice --cost 850 --hold 5m --id x", 0, `^allowed, .*\n.*\n.* +0 +300\n$`},
		{"reserve tokens alice --cost 850 --hold 5m --id x", 0, `^allowed, .*, replayed, held until`},
		{"settle RECEIPT 1000", 0, `\ntokens +alice +850 +1000 +150 +0\n$`},
		{"balance tokens alice", 0, `\ntokens +alice +1000 +1000 +0 +150 `},
		{"journal tokens alice", 0, // what ended a hold says which, and what was used beyond how much
			`^AT +KIND +SIDE +AMOUNT +EXPIRES +TRANSFER +NOTES\n` +
				`.{19}\.\d{9}Z +quota +credit +1000 +- +[0-9a-f]{32} +-\n` +
				`.* hold +debit +400 +2.*Z +([0-9a-f]{32}) +-\n` +
				`.* hold +debit +400 +- +[0-9a-f]{32} +ends [0-9a-f]{32}\n` +
				`.* settlement +debit +150 +2.*Z +[0-9a-f]{32} +-\n` +
				`.* hold +debit +850 +2.*Z +[0-9a-f]{32} +-\n` +
				`.* hold +debit +850 +- +[0-9a-f]{32} +ends [0-9a-f]{32}\n` +
				`.* overage +debit +850 +2.*Z +[0-9a-f]{32} +overage 150\n$`},
		{"reserve slots bob", 0, `\nslots +bob +1 +2 +1 +60\n$`},
		{"reserve slots bob --hold 1h", 0, `\nslots +bob +1 +2 +0 +`},
		{"reserve slots bob", 1, `^denied, retry after [^,\n]+\n`}, // no word of an id
		{"reserve slots bob --id y", 1, `^denied, retry after .*, with a new id\n`},
		{"settle RECEIPT 1", 2, `^$`},
		{"renew RECEIPT --hold 2h", 0, `^allowed, transfer [0-9a-f]{32}, held until .*\n.*\nslots +bob +1 `},
		{"release RECEIPT", 0, `^released, transfer [0-9a-f]{32}\n.*\nslots +bob +1 +0 +0 +1\n$`},
		{"release RECEIPT", 0, `^released, replayed, transfer `},
		{"reserve --limit slots --limit spend=2.50 --limit tokens=10 carol", 0, `\nspend +carol +2.50 `},
		{"settle RECEIPT --limit spend=1.25 --limit tokens=0", 0,
			`\nspend +carol +2.50 +1.25 +0.00 +8.75\n`},
		{"reserve --limit tokens=10 --limit tokens/b=c/d=20 fay", 0,
			`\ntokens +fay +10 +1000 +990 +60\ntokens +b=c/d +20 +1000 +980 +60\n$`},
		{"settle RECEIPT --limit tokens=1 --limit tokens/b=c/d=2", 2, `^$`}, // whose?
		{"settle RECEIPT --limit tokens/fay=1 --limit tokens/b=c/d=2", 0, `\ntokens +b=c/d +20 +2 +0 +998\n`},
		{"balance tokens fay", 0, `\ntokens +fay +1000 +1 +999 `},
		{"check tokens dave --cost 7", 0, `^allowed`},
		{"release RECEIPT", 0, `\ntokens +dave +7 +0 +0 +1000\n$`},
		{"release 00000000000000000000000000000001", 2, `^$`},
		{"track spend erin 12.50 --id x", 0, `^LIMIT .*\nspend +erin +12.50 +10.00 +2.50 +booked +[0-9a-f]{32}\n$`},
		{"track spend erin 12.50 --id x", 0, `\nspend +erin +12.50 +10.00 +2.50 +booked `},
		{"track spend erin 12.51 --id x", 2, `^$`},
		{"track spend erin much", 2, `^$`},
	})
}

const grouped = `
limits:
  - {name: per-user, kind: request-rate, quota: 2, window: 300s, deadline: 30s}
  - {name: per-tenant, kind: request-rate, quota: 4, window: 300s, deadline: 30s}
  - {name: tried, kind: request-rate, quota: 1, window: 300s, shadow: on, deadline: 30s}
groups:
  - name: api
    limits:
      - {limit: per-user, fields: [tenant, user]}
      - {limit: per-tenant, fields: [tenant]}
      - {limit: tried, fields: [user]}
`

// tidy:table the command lines of a session and what they print
func TestGroupAndQuotaCommands(t *testing.T) {
	s, _ := startService(t, textConfig(t, grouped))
	ask(t, s)
	const api = "check --group api --field tenant=ac/me --field user=alice"
	wantSession(t, []commandRow{
		{api + " --id x", 0, `^allowed, .*\nLIMIT .*\nper-user +ac%2Fme/alice +1 +2 +1 +300\n` +
			`per-tenant +ac/me +1 +4 +3 +300\ntried \(shadow\) +alice +1 +1 +0 +300\n$`},
		{api + " --id x", 0, `^allowed, transfer [0-9a-f]{32}, replayed\n`},
		{api, 0, `\ntried \(shadow: would deny\) +alice +1 +1 +0 +\d+\n$`},
		{api, 1, `^denied, retry after `},
		{"check --group api --field tenant=ac/me", 2, `^$`},
		{"check --group api --field tenant=a --field user=b --field x=y", 2, `^$`},
		{"check --group none --field tenant=a", 2, `^$`},
		{"reserve --group api --field tenant=ac/me --field user=bob", 0, `held until .*\n.*\nper-user `},
		{"release RECEIPT", 0, `\nper-tenant +ac/me +1 +0 +0 +2\n`},
		{"quota set per-user ac%2Fme/alice 5", 0, `\nper-user +ac%2Fme/alice +5 +3 +true +false\n$`},
		{"quota set per-user ac%2Fme/alice 5", 0, `\nper-user +ac%2Fme/alice +5 +3 +true +true\n$`},
		{"balance per-user ac%2Fme/alice", 0, `\nper-user +ac%2Fme/alice +5 \(own\) +2 +3 `},
		{api, 0, `^allowed`},
		{"quota set per-tenant ac/me 0", 0, `\nper-tenant +ac/me +0 +0 +true +false\n$`},
		{api, 1, `^denied\n.*\n.*\nper-tenant +ac/me +1 +0 +0 `}, // a ban
		{"quota clear per-tenant ac/me", 0, `\nper-tenant +ac/me +4 +1 +false +false\n$`},
		{api, 0, `^allowed`},
		{"quota set per-user alice many", 2, `^$`},
		{"limits", 0, `\ntried +request-rate +1 +5m0s +open +shadow\n$`},
	})
}

// What --json prints is one JSON value and nothing else.
func TestClientCommandsJSON(t *testing.T) {
	askable(t)
	for _, args := range []string{
		"check a alice", "check a alice --cost 10", "balance a alice", "grant a alice 5",
		"revoke a alice 5", "journal a alice", "journal a alice --all --reversed", "limits",
	} {
		got := weir(t, append(strings.Fields(args), "--json")...)
		var value map[string]any
		err := json.Unmarshal([]byte(got.out), &value)
		if err != nil || len(value) == 0 {
			t.Errorf("weir %s --json: got %q (%v), want a JSON object", args, got.out, err)
		}
	}
	wantReservationJSON(t)
	var d wire.Decision
	got := weir(t, "check", "a", "alice", "--cost", "10", "--json")
	err := json.Unmarshal([]byte(got.out), &d)
	if err != nil || got.status != exitNo || d.Allowed || d.RetryAfterMS == 0 {
		t.Errorf("a denied check: got %d, %s, want 1 and a denial with its wait", got.status, got.out)
	}
}

// wantReservationJSON checks that a receipt can be taken from what one command prints for the next.
func wantReservationJSON(t *testing.T) {
	t.Helper()
	var held wire.Decision
	got := weir(t, "reserve", "b", "bob", "--cost", "10", "--json")
	err := json.Unmarshal([]byte(got.out), &held)
	if err != nil || !held.Allowed || held.ExpiresAt == nil {
		t.Fatalf("reserve --json: got %q (%v), want a decision with its end", got.out, err)
	}
	var settled wire.Settlement
	got = weir(t, "settle", held.Transfer, "4", "--json")
	err = json.Unmarshal([]byte(got.out), &settled)
	if err != nil || settled.Transfer != held.Transfer || settled.Limits[0].Booked != wire.Count(4) {
		t.Errorf("settle --json: got %q (%v), want 4 booked on %s", got.out, err, held.Transfer)
	}
}

// Who gives no id to a grant is told the one that was made, and can send it again.
func TestGrantMakesID(t *testing.T) {
	askable(t)
	first := weir(t, "grant", "a", "alice", "5", "--json")
	id, ok := strings.CutPrefix(strings.TrimSpace(first.err), "id: ")
	if !ok || id == "" {
		t.Fatalf("got error output %q, want the id", first.err)
	}
	again := weir(t, "grant", "a", "alice", "5", "--id", id)
	replay := strings.Contains(again.out, " 15 ") && strings.Contains(again.out, "true")
	if again.err != "" || !replay {
		t.Errorf("the same id again: got %s%s, want a replay with quota 15", again.out, again.err)
	}
	other := weir(t, "grant", "a", "alice", "5")
	if !strings.Contains(other.out, " 20 ") || strings.Contains(other.err, id) {
		t.Errorf("another grant: got %s%s, want quota 20 and another id", other.out, other.err)
	}
}

// What few limits have is written as in a config.
func TestNotesCell(t *testing.T) {
	for closeAt, want := range map[float64]string{
		0: "shadow", 1: "shadow", 0.95: "closes at 0.95, shadow", 0.000001: "closes at 0.000001, shadow",
	} {
		if got := notesCell(closeAt, true); got != want {
			t.Errorf("close_at %v: got %q, want %q", closeAt, got, want)
		}
	}
	if got := notesCell(1, false); got != "-" {
		t.Errorf("nothing: got %q, want -", got)
	}
}

// A journal of more than one page is read to its end, or says how to go on.
func TestJournalPages(t *testing.T) {
	askable(t)
	for range 1000 { // which, with the quota, is one entry more than a page holds
		got := weir(t, "check", "b", "alice", "--cost", "1")
		if got.status != 0 {
			t.Fatal(got.err)
		}
	}
	all := weir(t, "journal", "b", "alice", "--all")
	if charges := strings.Count(all.out, " charge "); charges != 1000 {
		t.Errorf("journal --all: got %d charges, want 1000", charges)
	}
	page := weir(t, "journal", "b", "alice")
	_, cursor, more := strings.Cut(strings.TrimSpace(page.err), "--cursor ")
	cursor, _, _ = strings.Cut(cursor, ",")
	if !more || cursor == "" {
		t.Fatalf("a page that is not the last: got error output %q, want its cursor", page.err)
	}
	rest := weir(t, "journal", "b", "alice", "--cursor", cursor)
	both := strings.Count(page.out, " charge ") + strings.Count(rest.out, " charge ")
	if both != 1000 || rest.err != "" {
		t.Errorf("two pages: got %d charges and %q, want all 1000 and no more", both, rest.err)
	}
}

// A reservation whose answer is lost may be held: its id, which nobody gave, is said, and is the
// one that was sent. Where it is known that nothing is held, or the id was given, there is nothing
// to say.
func TestReserveUnanswered(t *testing.T) {
	status := http.StatusServiceUnavailable
	var sent wire.ReservationRequest
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := json.NewDecoder(r.Body).Decode(&sent)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		err = json.NewEncoder(w).Encode(wire.Problem{Code: "a-code", Detail: "a word", Status: status})
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	reserve := []string{"reserve", "slots", "bob", "--server", s.URL}
	got := weir(t, reserve...)
	if want := "id: " + sent.ID + "\nweir: a-code: a word\n"; sent.ID == "" || got.err != want {
		t.Errorf("unanswered: got %q, want %q", got.err, want)
	}
	got = weir(t, append(reserve, "--id", "x")...)
	if sent.ID != "x" || got.err != "weir: a-code: a word\n" {
		t.Errorf("with an id: got %q and %q sent", got.err, sent.ID)
	}
	status = http.StatusUnprocessableEntity
	got = weir(t, reserve...)
	if got.err != "weir: a-code: a word\n" {
		t.Errorf("answered: got %q, want no id", got.err)
	}
}

// tidy:table what people get wrong, and what they are told
func TestCommandErrors(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	s, _ := startService(t, testConfig(t, twoLimits))
	rows := []struct {
		name string
		args []string
		want []string
	}{
		{"ErrNotRunning", []string{"check", "a", "alice", "--server", gone.URL},
			[]string{gone.URL, "weir serve", "--server", "WEIR_SERVER"}},
		{"ErrNotWeir", []string{"limits", "--server", other.URL}, []string{other.URL, "404"}},
		{"ErrServer", []string{"limits", "--server", "localhost:8080"}, []string{"localhost:8080"}},
		{"ErrNoToken", []string{"check", "a", "alice", "--server", s.address()},
			[]string{"unauthorized", "WEIR_TOKEN", "WEIR_ADMIN_TOKEN"}},
		{"ErrUnknownCommand", []string{"chekc"}, []string{`unknown command "chekc"`}},
		{"ErrUnknownFlag", []string{"check", "a", "alice", "--tokn", "x"}, []string{"--tokn"}},
		{"ErrTooFew", []string{"balance", "a"}, []string{"want: weir balance LIMIT SUBJECT"}},
		{"ErrTooMany", []string{"limits", "a"}, []string{"want: weir limits"}},
		{"ErrCheckLimit", []string{"check", "alice"}, []string{"want LIMIT SUBJECT"}},
		{"ErrCheckBoth", []string{"check", "a", "alice", "--limit", "b"}, []string{"want only SUBJECT"}},
		{"ErrCheckCost", []string{"check", "alice", "--limit", "a", "--cost", "1"}, []string{"NAME=COST"}},
		{"ErrCost", []string{"check", "a", "alice", "--cost", "1.5e1"}, []string{"--cost: 1.5e1: want a"}},
		{"ErrLimitCost", []string{"check", "alice", "--limit", "a=-1"}, []string{"--limit a: -1: want"}},
		{"ErrAmount", []string{"grant", "a", "alice", "1e3"}, []string{"amount: 1e3: want a whole number"}},
		{"ErrGroupLimit", []string{"check", "--group", "g", "--limit", "a"}, []string{"want only --field"}},
		{"ErrGroupSubject", []string{"check", "--group", "g", "alice"}, []string{"want only --field"}},
		{"ErrField", []string{"check", "--group", "g", "--field", "user"}, []string{"want KEY=VALUE"}},
		{"ErrFieldTwice", []string{"check", "--group", "g", "--field", "u=a", "--field", "u=b"},
			[]string{"--field u: is there twice"}},
		{"ErrFieldAlone", []string{"check", "a", "alice", "--field", "u=a"}, []string{"only with --group"}},
		{"ErrQuotaWord", []string{"quota", "sett"}, []string{"want: weir quota"}},
		{"ErrHold", []string{"reserve", "a", "alice", "--hold", "60"}, []string{"--hold: 60: has no unit"}},
		{"ErrHoldFraction", []string{"renew", "x", "--hold", "1500ms"}, []string{"--hold: 1.5s: want whole"}},
		{"ErrSettleNothing", []string{"settle", "x"}, []string{"want either COST, or --limit"}},
		{"ErrSettleBoth", []string{"settle", "x", "1", "--limit", "a=1"}, []string{"want either COST"}},
		{"ErrSettleLimit", []string{"settle", "x", "--limit", "a"}, []string{"--limit a: want NAME[/SUBJECT]=COST"}},
		{"ErrMemberSubject", []string{"settle", "x", "--limit", "a/=1"}, []string{"want NAME[/SUBJECT]"}},
		{"ErrMemberCost", []string{"check", "alice", "--limit", "a/b=c"}, []string{"--limit a/b: c: want"}},
		{"ErrMemberNoSubject", []string{"check", "alice", "--limit", "a=1=2"}, []string{"want NAME[/"}},
		{"ErrTransfer", []string{"transfer", "a", "b", "c"}, []string{"want: weir transfer LIMIT FROM TO"}},
		{"ErrJournal", []string{"journal", "a"}, []string{"want: weir journal {LIMIT SUBJECT | --budget"}},
		{"ErrJournalDay", []string{"journal", "a", "u", "--day", "2026-10-16"},
			[]string{"--day is of use only with --budget"}},
		{"ErrJournalSubject", []string{"journal", "a", "--subject", "u"},
			[]string{"--subject is of use only with --budget"}},
		{"ErrJournalLines", []string{"journal", "a", "u", "--jsonl"},
			[]string{"--jsonl is of use only with --budget"}},
		{"ErrJournalNoSubject", []string{"journal", "--budget", "b"}, []string{"want --subject NAME"}},
		{"ErrJournalNoBudget", []string{"journal", "--budget", "", "--subject", "u"},
			[]string{"want --subject NAME"}},
		{"ErrJournalBoth", []string{"journal", "a", "u", "--budget", "b", "--subject", "u"},
			[]string{"and no arguments"}},
		{"ErrJournalAll", []string{"journal", "--budget", "b", "--subject", "u", "--all"},
			[]string{"--all is of no use with --budget"}},
		{"ErrJournalReversed", []string{"journal", "--budget", "b", "--subject", "u", "--reversed"},
			[]string{"--reversed is of no use with --budget"}},
		{"ErrJournalJSON", []string{"journal", "--budget", "b", "--subject", "u", "--json", "--jsonl"},
			[]string{"or --jsonl"}},
		{"ErrSpendWord", []string{"spend", "yesterday"}, []string{"want: weir spend"}},
		{"ErrSpendToday", []string{"spend", "today", "b"}, []string{"want: weir spend today BUDGET SUBJECT"}},
		{"ErrCorrectNothing", []string{"correct", "x"}, []string{"want --input, --output or --usd"}},
		{"ErrCorrectInput", []string{"correct", "x", "--input", "-1"}, []string{"--input: -1: want"}},
		{"ErrCorrectUSD", []string{"correct", "x", "--usd", "$5"}, []string{"--usd: $5: want"}},
		{"ErrConfig", []string{"config", "check", "--config", "nowhere.yaml"},
			[]string{"nowhere.yaml", "--config"}},
		{"ErrConfigWord", []string{"config", "chekc"}, []string{"want: weir config"}},
		{"ErrVerifyNothing", []string{"verify", "nowhere"}, []string{"nowhere"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := weir(t, row.args...)
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
}

func TestConfigCheck(t *testing.T) {
	got := weir(t, "config", "check", "--config", shipped)
	for _, want := range []string{"is sound\n", "\napi-requests  request-rate  10 "} {
		if got.status != 0 || !strings.Contains(got.out, want) {
			t.Errorf("got %d, %q, want 0 and %q", got.status, got.out, want)
		}
	}
	got = weir(t, "config", "check", "--config",
		filepath.Join("testdata", "config", "working_spend.yaml"))
	for _, want := range []string{
		`\nai:usd +budget +5\.000000 spend:USD +day in UTC `,
		`\nai +10000 +5\.000000 +day in UTC +0\.9 +10m0s\nhourly +- +0\.000001 +1h0m0s +1 +1s\n`,
		`\nberlin +1 +- +month in Europe/Berlin +0\.95 +18h12m15s\n`,
		`\nbig +1 +3\.000000 +15\.000000 +3\.000000\n`,
	} {
		if !regexp.MustCompile(want).MatchString(got.out) {
			t.Errorf("got %q, want %s", got.out, want)
		}
	}
	bad := filepath.Join("testdata", "config", "busted_window_no_unit.yaml")
	t.Setenv(envConfig, bad)
	got = weir(t, "config", "check")
	if got.status != exitNo || !strings.Contains(got.err, bad+": limits[0].window: ") {
		t.Errorf("got %d, %q, want 1, the file of WEIR_CONFIG and the key", got.status, got.err)
	}
}

// What is sound is 0, what is not is 1, and 2 is what could not be looked at.
//
// tidy:table what can be checked, and what the exit status says of it
func TestExitStatusOfChecks(t *testing.T) {
	configs := filepath.Join("testdata", "config")
	root := t.TempDir()
	used, damaged := filepath.Join(root, "used"), filepath.Join(root, "damaged")
	c := testConfig(t, twoLimits)
	c.Data = used
	s, _ := startService(t, c)
	damagedLedger(t, damaged)
	huge := filepath.Join(root, "huge.yaml")
	err := os.WriteFile(huge, bytes.Repeat([]byte("#\n"), maxConfigBytes), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		args   []string
		status int
		err    string
	}{
		{[]string{"config", "check", "--config", shipped}, 0, ""},
		{[]string{"config", "check", "--config", filepath.Join(configs, "busted_kind.yaml")}, 1, "kind"},
		{[]string{"config", "check", "--config", filepath.Join(configs, "busted_not_yaml.yaml")}, 1, "yaml"},
		{[]string{"config", "check", "--config", filepath.Join(configs, "busted_list.yaml")}, 1, "yaml"},
		{[]string{"config", "check", "--config", filepath.Join(configs, "busted_two_documents.yaml")}, 1, "one"},
		{[]string{"config", "check", "--config", huge}, 1, "longer"},
		{[]string{"config", "check", "--config", filepath.Join(root, "absent.yaml")}, 2, "there is no config"},
		{[]string{"config", "check", "--config", root}, 2, "directory"},
		{[]string{"config", "check", "--confg", shipped}, 2, "--confg"},
		{[]string{"config", "check", "twice"}, 2, "want: weir config check"},
		{[]string{"verify", damaged}, 1, damaged},
		{[]string{"verify", used}, 2, "in use"},
		{[]string{"verify", filepath.Join(root, "absent")}, 2, "absent"},
		{[]string{"verify", huge}, 2, huge},
		{[]string{"verify", used, damaged}, 2, "at most 1"},
		{[]string{"verify", "--config", filepath.Join(configs, "busted_kind.yaml")}, 2, "kind"},
		{[]string{"check", "a", "alice", "--cost", "10", "--server", s.address()}, 0, ""},
		{[]string{"check", "a", "alice", "--server", s.address()}, 1, ""},
		{[]string{"check", "c", "alice", "--server", s.address()}, 2, "unknown-limit"},
	}
	t.Setenv(envToken, testToken)
	for _, row := range rows {
		got := weir(t, row.args...)
		if got.status != row.status || !strings.Contains(got.err, row.err) ||
			(row.err == "") != (got.err == "") {
			t.Errorf("weir %q: got exit status %d and %q, want %d and %q", row.args, got.status,
				got.err, row.status, row.err)
		}
	}
}

// damagedLedger makes a ledger, whose manifest is not one.
func damagedLedger(t testing.TB, dir string) {
	t.Helper()
	ledger, err := embedded.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ledger.CreateAccounts(t.Context(),
		[]ledgers.Account{{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1}})
	err = errors.Join(err, ledger.Close())
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("found no manifest in %s (%v)", dir, err)
	}
	for _, manifest := range manifests {
		err = os.WriteFile(manifest, []byte("not what was written"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestVerify(t *testing.T) {
	c := testConfig(t, twoLimits)
	dir := filepath.Join(t.TempDir(), "kept")
	t.Run("ErrInUse", func(t *testing.T) {
		c.Data = dir
		_, _ = startService(t, c)
		got := weir(t, "verify", dir)
		if got.status != exitError || !strings.Contains(got.err, dir) {
			t.Errorf("got %d, %q, want 2 and the directory", got.status, got.err)
		}
	})
	t.Run("OK", func(t *testing.T) {
		got := weir(t, "verify", "--config", c.Path, "--data", dir)
		if got.status != 0 || !strings.Contains(got.out, dir+" is sound\n") {
			t.Errorf("got %d, %q, want 0 and that it is sound", got.status, got.out)
		}
	})
}

func TestVersion(t *testing.T) {
	got := describeBuild(&debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.modified", Value: "true"},
		},
	})
	if want := "weir v1.2.3, revision 0123abc with changes, go1.26.0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	ran := weir(t, "version")
	if ran.status != 0 || !strings.HasPrefix(ran.out, "weir ") {
		t.Errorf("got %d, %q, want 0 and a version", ran.status, ran.out)
	}
}

// A ledger of which a file is gone, short or changed is not sound, and the file is named.
func TestVerifyDamaged(t *testing.T) {
	for _, damage := range []struct {
		name, files string
		do          func(path string, size int64) error
	}{
		{"TableMissing", "*.sst", func(path string, _ int64) error { return os.Remove(path) }},
		{"TableShort", "*.sst", func(path string, size int64) error { return os.Truncate(path, size/2) }},
		{"TableEmpty", "*.sst", func(path string, _ int64) error { return os.Truncate(path, 0) }},
		{"TableChanged", "*.sst", changeByte},
		{"ManifestMissing", "MANIFEST-*", func(path string, _ int64) error { return os.Remove(path) }},
	} {
		t.Run(damage.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ledger")
			writeTwice(t, dir)
			wantSound(t, dir)
			files, err := filepath.Glob(filepath.Join(dir, damage.files))
			if err != nil || len(files) == 0 {
				t.Fatalf("found no %s (%v)", damage.files, err)
			}
			last := files[len(files)-1]
			info, err := os.Stat(last)
			if err != nil {
				t.Fatal(err)
			}
			err = damage.do(last, info.Size())
			if err != nil {
				t.Fatal(err)
			}
			got := weir(t, "verify", dir)
			number, _, _ := strings.Cut(filepath.Base(last), ".")
			if got.status != exitNo || !strings.Contains(got.err, "damaged") ||
				!strings.Contains(got.err, number) || strings.Contains(got.err, "<") {
				t.Errorf("got exit status %d and %q, want 1 and what is the matter with %s", got.status,
					got.err, last)
			}
		})
	}
}

// changeByte inverts a bit in the middle of a file.
func changeByte(path string, size int64) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[size/2] ^= 0x10
	return os.WriteFile(path, data, 0o600)
}

// writeTwice makes a ledger that was opened twice, so that a part of it is no log any more.
func writeTwice(t testing.TB, dir string) {
	t.Helper()
	for round := range uint64(2) {
		ledger, err := embedded.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		accounts := make([]ledgers.Account, 500)
		for i := range accounts {
			accounts[i] = ledgers.Account{
				ID: ledgers.ID{Lo: round*1000 + uint64(i) + 1}, Ledger: 1, Code: 1,
			}
		}
		_, err = ledger.CreateAccounts(t.Context(), accounts)
		err = errors.Join(err, ledger.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
}
