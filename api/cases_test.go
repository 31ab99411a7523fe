package api_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/accounts"
	"weir/api"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
)

// rounds is how often a case is tried: fewer times than WEIR_LONG=1 asks for.
func rounds(short, long int) int {
	if os.Getenv("WEIR_LONG") == "1" {
		return long
	}
	return short
}

// at reads when a decision was made.
func (a answer) at(t testing.TB) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, a.field("at"))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// storm sends a check n times at once, and returns how many were allowed. It goes past the network:
// no machine has to have a thousand connections for it.
func (s *service) storm(n int, check string) int {
	s.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	statuses := map[int]int{}
	for range n {
		group.Go(func() {
			a := s.direct("POST", "/v1/check", check)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	group.Wait()
	if statuses[200]+statuses[429] != n {
		s.Errorf("got statuses %v, want 200 and 429 only", statuses)
	}
	return statuses[200]
}

func TestManyWithinASecond(t *testing.T) { // N8
	s := newService(t, api.Options{})
	batch := batchOf(`{"limit":"fast","subject":"u"}`, 1000)
	allowed := 0
	for range 12 {
		a := s.call("POST", "/v1/check/batch", batch)
		a.want(t, 200)
		allowed += strings.Count(a.text, `"allowed":true`)
		s.clock.Add(80 * time.Millisecond) // 12 of them are 0.96 s
	}
	if allowed != 6000 {
		t.Errorf("got %d of 12,000 allowed, want 6000", allowed)
	}
}

func TestRetryAfterIsTrue(t *testing.T) { // N11
	random := rand.New(rand.NewPCG(11, 11))
	s := newService(t, api.Options{})
	const check = `{"limit":"slow","subject":"u"}`
	for range 50 {
		s.clock.Add(2*time.Second + time.Duration(random.Int64N(int64(2*time.Second))))
		s.check(check).want(t, 200)
		s.clock.Add(time.Duration(random.Int64N(int64(1999 * time.Millisecond))))
		a := s.check(check)
		a.want(t, 429)
		wait, err := strconv.Atoi(a.field("retry_after_ms"))
		if err != nil || wait < 1 || wait > 2000 {
			t.Fatalf("got retry_after_ms %q, want 1 to 2000", a.field("retry_after_ms"))
		}
		a.wantHeader(t, "Retry-After", strconv.Itoa((wait+999)/1000))
		s.clock.Add(time.Duration(wait) * time.Millisecond)
		s.check(check).want(t, 200)
	}
}

func TestNoOvershoot(t *testing.T) { // C1
	s := newService(t, api.Options{})
	for round := range rounds(3, 20) {
		got := s.storm(1000, fmt.Sprintf(`{"limit":"hundred","subject":"%d"}`, round))
		if got != 100 {
			t.Fatalf("round %d: got %d allowed, want 100", round, got)
		}
	}
}

func TestFirstSight(t *testing.T) { // C2
	s := newService(t, api.Options{})
	for round := range rounds(10, 100) {
		got := s.storm(64, fmt.Sprintf(`{"limit":"five","subject":"%d"}`, round))
		if got != 5 {
			t.Fatalf("round %d: got %d allowed, want 5", round, got)
		}
		s.call("GET", fmt.Sprintf("/v1/balance?limit=five&subject=%d", round), "").
			want(t, 200, "quota", "5", "used", "5", "remaining", "0")
	}
}

func TestDeniedCostsNothing(t *testing.T) { // C3
	s := newService(t, api.Options{})
	s.check(`{"limit":"five","subject":"u","cost":5}`).want(t, 200)
	const five, site = `{"limit":"five","subject":"u"}`, `{"limit":"site","subject":"all"}`
	checks := make([]string, 500)
	for i := range checks {
		checks[i] = `{"limits":[` + five + "," + site + `]}`
		if i%2 == 1 {
			checks[i] = `{"limits":[` + site + "," + five + `]}`
		}
		if i%5 == 0 { // which the ledger decides, and not the memory of what is exhausted
			checks[i] = strings.Replace(checks[i], "{", fmt.Sprintf(`{"id":"%d",`, i), 1)
		}
	}
	a := s.call("POST", "/v1/check/batch", `{"checks":[`+strings.Join(checks, ",")+`]}`)
	a.want(t, 200)
	if denied := strings.Count(a.text, `"violated-policies":["five"]`); denied != 500 {
		t.Errorf("got %d of 500 denied by the limit that is used up", denied)
	}
	s.wantUsed("site", "all", "0")
}

func TestSameAccountTwice(t *testing.T) { // C4
	s := newService(t, api.Options{})
	s.check(`{"limit":"five","subject":"u","cost":4}`).want(t, 200)
	s.check(`{"subject":"u","limits":[{"limit":"five"},{"limit":"five"}]}`).want(t, 429,
		path("limits", 0, "cost"), "2", path("limits", 0, "remaining"), "1", path("limits", 1), "")
	s.wantUsed("five", "u", "4")
	s.check(`{"limit":"five","subject":"u"}`).want(t, 200, path("limits", 0, "remaining"), "0")
}

func TestDenialNamesTheLimit(t *testing.T) { // C5
	s := newService(t, api.Options{})
	s.check(`{"limit":"hour","subject":"u","cost":100}`).want(t, 200)
	s.clock.Add(30 * time.Minute)
	s.check(`{"limit":"minute","subject":"u","cost":4}`).want(t, 200)
	s.clock.Add(time.Millisecond)
	for range 2 { // from the ledger, and from the memory of what is exhausted
		a := s.check(`{"subject":"u","limits":[{"limit":"minute"},{"limit":"hour"}]}`)
		a.want(t, 429, "violated-policies", `["hour"]`, path("limits", 0, "remaining"), "56",
			path("limits", 1, "remaining"), "0", path("limits", 1, "reset_seconds"), "1800")
		a.wantHeader(t, "RateLimit-Policy", `"hour";q=100;w=3600`)
		a.wantHeader(t, "RateLimit", `"hour";r=0;t=1800`)
		a.wantHeader(t, "Retry-After", "1800")
	}
	s.wantUsed("minute", "u", "4")
}

// wantApart compares admissions that are n apart.
func wantApart(t *testing.T, times []time.Time, n int, want time.Duration) {
	t.Helper()
	for i := n; i < len(times); i++ {
		if apart := times[i].Sub(times[i-n]); apart < want {
			t.Errorf("admissions %d and %d are %v apart, want at least %v", i-n, i, apart, want)
		}
	}
}

func TestSlidingWindow(t *testing.T) { // C6
	s := newService(t, api.Options{})
	var times []time.Time
	for _, wait := range []time.Duration{9500 * time.Millisecond, time.Second, 0} {
		for range 10 {
			a := s.check(`{"limit":"ten","subject":"u"}`)
			if a.status == 200 {
				times = append(times, a.at(t))
			}
		}
		s.clock.Add(wait)
	}
	if len(times) != 20 {
		t.Errorf("got %d admitted, want 20", len(times))
	}
	wantApart(t, times, 10, 10*time.Second)
}

func TestPolling(t *testing.T) { // C7
	s := newService(t, api.Options{})
	var times []time.Time
	for range 1200 { // every 50 ms for 60 s
		a := s.check(`{"limit":"slow","subject":"u"}`)
		if a.status == 200 {
			times = append(times, a.at(t))
		}
		s.clock.Add(50 * time.Millisecond)
	}
	if len(times) < 27 {
		t.Errorf("got %d admitted, want at least 27", len(times))
	}
	wantApart(t, times, 1, 2*time.Second)
}

func TestDroppedReplies(t *testing.T) { // R2
	s := newService(t, api.Options{})
	s.check(`{"limit":"site","subject":"u","cost":300}`).want(t, 200)
	s.ledger.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, Every: 10, Times: ledgertest.Always, After: errDown,
	})
	allowed, dropped := 0, 0
	for i := range 1000 {
		check := fmt.Sprintf(`{"limit":"site","subject":"u","id":"%d"}`, i)
		a := s.check(check)
		for ; a.status == 503; a = s.check(check) {
			dropped++
		}
		if a.status == 200 {
			allowed++
		}
	}
	if allowed != 700 || dropped < 70 {
		t.Errorf("got %d allowed and %d dropped, want 700 and every tenth", allowed, dropped)
	}
	s.wantUsed("site", "u", "1000")
}

func TestDeniedIDWithOtherPayload(t *testing.T) { // R3
	s := newService(t, api.Options{})
	s.check(`{"limit":"ten","subject":"u","cost":10}`).want(t, 200)
	s.clock.Add(time.Millisecond)
	a := s.check(`{"limit":"ten","subject":"u","id":"one","cost":2}`)
	a.want(t, 429, "replayed", "false", "new_id_required", "true")
	a.wantHeader(t, "Retry-After", "10")
	s.clock.Add(10*time.Second + time.Millisecond)
	for _, cost := range []string{"2", "1", "3", "10"} {
		a = s.check(`{"limit":"ten","subject":"u","id":"one","cost":` + cost + `}`)
		a.want(t, 429, "replayed", "true", "new_id_required", "true", "retry_after_ms", "",
			path("limits", 0, "remaining"), "10")
		a.wantHeader(t, "Retry-After", "")
	}
	s.check(`{"limit":"ten","subject":"u","id":"two","cost":2}`).
		want(t, 200, "replayed", "false", path("limits", 0, "remaining"), "8")
}

func TestFloodDoesNotWrite(t *testing.T) { // L11
	s := newService(t, api.Options{})
	s.check(`{"limit":"api-requests","subject":"u","cost":10}`).want(t, 200)
	before := s.ledger.Calls(ledgertest.CallCreateTransfers)
	n := rounds(5_000, 100_000)
	for range n {
		a := s.direct("POST", "/v1/check", `{"limit":"api-requests","subject":"u"}`)
		if a.status != 429 {
			t.Fatalf("got status %d, want 429: %s", a.status, a.text)
		}
		s.clock.Add(59 * time.Second / time.Duration(n))
	}
	writes := s.ledger.Calls(ledgertest.CallCreateTransfers) - before
	if writes > 1 {
		t.Errorf("got %d ledger writes for %d denials before the first expiry, want one", writes, n)
	}
}

func TestRetention(t *testing.T) { // L14
	const admin = "Authorization: Bearer admin"
	dir, c := t.TempDir(), newClock()
	receipt := ""
	for life := range 4 { // each a start, the last three on a day when all but the quota is forgotten
		t.Run(fmt.Sprint("Life", life), func(t *testing.T) {
			ledger, err := embedded.Open(dir, &embedded.Options{
				Now: c.Now, Elapsed: c.Elapsed, Volatile: true, Retention: time.Hour,
				KeepCodes: accounts.QuotaCodes(),
			})
			if err != nil {
				t.Fatal(err)
			}
			s := newServiceOn(t, ledger, c, api.Options{AdminToken: "admin"})
			replayed := strconv.FormatBool(life > 0)
			a := s.direct("POST", "/v1/admin/grants",
				`{"limit":"five","subject":"granted","amount":2,"id":"g"}`, admin)
			a.want(t, 200, "replayed", replayed, "quota", "7", "remaining", "7")
			if life > 0 && a.field("transfer") != receipt {
				t.Errorf("got the grant %s, want %s again", a.field("transfer"), receipt)
			}
			receipt = a.field("transfer")
			for subject, quota := range map[string]int{"granted": 7, "plain": 5} {
				for i := range quota {
					s.direct("POST", "/v1/check", `{"limit":"five","subject":"`+subject+`"}`).want(t, 200,
						path("limits", 0, "quota"), strconv.Itoa(quota),
						path("limits", 0, "remaining"), strconv.Itoa(quota-i-1))
				}
				s.direct("POST", "/v1/check", `{"limit":"five","subject":"`+subject+`"}`).want(t, 429)
			}
		})
		c.Add(24 * time.Hour)
	}
}

func TestClockSteps(t *testing.T) { // L15
	s := newService(t, api.Options{})
	s.check(`{"limit":"ten","subject":"u"}`).want(t, 200)
	s.clock.Step(24 * time.Hour)
	s.check(`{"limit":"ten","subject":"v","cost":10}`).want(t, 200) // the ledger has seen the future
	s.clock.Step(-24 * time.Hour)
	for second := range 10 {
		a := s.check(fmt.Sprintf(`{"limit":"ten","subject":"v","id":"%d"}`, second))
		a.want(t, 429)
		left := 1000 * (10 - second)
		wait, err := strconv.Atoi(a.field("retry_after_ms"))
		if err != nil || wait < left || wait > left+1 {
			t.Errorf("second %d: got retry_after_ms %q, want %d", second, a.field("retry_after_ms"), left)
		}
		s.clock.Add(time.Second)
	}
	s.clock.Add(time.Millisecond)
	s.check(`{"limit":"ten","subject":"v","cost":10}`).want(t, 200)
}
