package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/accounts"
	"weir/ledgers/embedded"
	"weir/limiter"
)

// model is the naive twin of a limiter with one limit: it remembers every charge for ever and adds
// them up anew each time. Asked one request after the other, the limiter must agree with it in
// every answer and every figure, whatever is restarted, reloaded, granted and sent again in
// between.
type model struct {
	quota    uint64
	window   time.Duration
	subjects map[string]*modelSubject
}

type modelSubject struct {
	granted int64
	taken   []modelCharge
	ids     map[string]modelCharge
	changes map[string]int64
}

type modelCharge struct {
	cost   uint64
	end    time.Time
	denied bool
}

func (m *model) subject(name string) *modelSubject {
	s, ok := m.subjects[name]
	if !ok {
		s = &modelSubject{ids: map[string]modelCharge{}, changes: map[string]int64{}}
		m.subjects[name] = s
	}
	return s
}

func (m *model) quotaOf(s *modelSubject) uint64 { return uint64(int64(m.quota) + s.granted) }

func (s *modelSubject) used(now time.Time) uint64 {
	var used uint64
	for _, c := range s.taken {
		if c.end.After(now) {
			used += c.cost
		}
	}
	return used
}

// wait returns how long until cost more can be taken, by trying every end.
func (m *model) wait(s *modelSubject, cost uint64, now time.Time) time.Duration {
	best := time.Duration(-1)
	for _, c := range s.taken {
		if c.end.After(now) && s.used(c.end)+cost <= m.quotaOf(s) {
			if apart := c.end.Sub(now); best < 0 || apart < best {
				best = apart
			}
		}
	}
	return best
}

// world is the real thing under test beside its model.
type world struct {
	t       *rapid.T
	clock   *testClock
	dir     string
	ledger  *embedded.Ledger
	limiter *limiter.Limiter
	model   model
}

func (w *world) limits() *limiter.Limits {
	set, err := limiter.NewLimits(0,
		patient([]limiter.Limit{rate("api", w.model.quota, w.model.window)}))
	if err != nil {
		w.t.Fatal(err)
	}
	return set
}

// restart closes the ledger, unless this is the start, and opens everything anew.
func (w *world) restart() {
	if w.ledger != nil {
		err := w.ledger.Close()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	ledger, err := embedded.Open(w.dir, &embedded.Options{Now: w.clock.Now, Volatile: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.ledger = ledger
	book, err := accounts.NewBook(ledger, accounts.Namespace{9}, &accounts.Options{Now: w.clock.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.limiter, err = limiter.New(book, w.limits(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass moves the clock by an odd time, so that no expiry falls on the very instant of a request.
func (w *world) pass() {
	d := rapid.Int64Range(1, int64(2*time.Second)).Draw(w.t, "pass")
	w.clock.Advance(time.Duration(d)*2 + 10*time.Microsecond)
}

func (w *world) name() string { return rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "subject") }

func (w *world) check() {
	name := w.name()
	cost := rapid.Uint64Range(0, 6).Draw(w.t, "cost")
	id := rapid.SampledFrom([]string{"", "", "1", "2", "3", "4"}).Draw(w.t, "id")
	if cost == 0 {
		id = ""
	}
	s := w.model.subject(name)
	d, err := w.limiter.Check(context.Background(), named(id, one("api", name, cost)))
	now := w.clock.Now()
	quota, used := w.model.quotaOf(s), s.used(now)

	known, again := s.ids[id]
	switch {
	case id != "" && again && !known.denied && known.cost != cost:
		w.wantError(err, limiter.CodeIDConflict)
	case id != "" && again && !known.denied && !known.end.After(now):
		w.wantError(err, limiter.CodeIDExpired)
	case id != "" && again && !known.denied:
		w.wantAllowed(d, err, quota, used, true)
	case quota > 0 && cost > quota:
		w.wantError(err, limiter.CodeCostExceedsQuota)
		s.denied(id, cost, d)
	case id != "" && again:
		w.wantDenied(d, err, quota, used, -1)
	case used+max(1, cost) > quota:
		w.wantDenied(d, err, quota, used, w.model.wait(s, max(1, cost), now))
		s.denied(id, cost, d)
	default:
		w.wantAllowed(d, err, quota, used+cost, false)
		if cost > 0 {
			c := modelCharge{cost: cost, end: d.At.Add(w.model.window)}
			s.taken = append(s.taken, c)
			s.ids[id] = c
		}
	}
}

func (s *modelSubject) denied(id string, cost uint64, d limiter.Decision) {
	if id != "" && !d.IDNotRecorded {
		s.ids[id] = modelCharge{cost: cost, denied: true}
	}
}

func (w *world) wantError(err error, want limiter.Code) {
	var e *limiter.Error
	if !errors.As(err, &e) || e.Code != want {
		w.t.Fatalf("got %v, want %s", err, want)
	}
}

func (w *world) wantAllowed(d limiter.Decision, err error, quota, used uint64, replayed bool) {
	if err != nil || !d.Allowed || d.Replayed != replayed {
		w.t.Fatalf("got %+v, %v, want allowed, replayed %v", d, err, replayed)
	}
	w.wantFigures(d, quota, used)
}

func (w *world) wantDenied(d limiter.Decision, err error, quota, used uint64, wait time.Duration) {
	if err != nil || d.Allowed {
		w.t.Fatalf("got %+v, %v, want denied", d, err)
	}
	w.wantFigures(d, quota, used)
	if wait < 0 || quota == 0 {
		if d.RetryAfter != 0 {
			w.t.Fatalf("retry after: got %v, want none", d.RetryAfter)
		}
		return
	}
	if d.RetryAfter < wait || d.RetryAfter > wait+2*time.Millisecond {
		w.t.Fatalf("retry after: got %v, want %v and at most 2 ms more", d.RetryAfter, wait)
	}
}

func (w *world) wantFigures(d limiter.Decision, quota, used uint64) {
	got := d.Limits[0]
	if got.Quota != quota || got.Remaining != quota-min(quota, used) {
		w.t.Fatalf("figures: got %+v, want quota %d with %d used", got, quota, used)
	}
}

func (w *world) change() {
	name := w.name()
	amount := rapid.Int64Range(1, 4).Draw(w.t, "amount")
	id := rapid.StringMatching(`[1-6]`).Draw(w.t, "change id")
	signed, change := amount, w.limiter.Grant
	if rapid.Bool().Draw(w.t, "revoke") {
		signed, change = -amount, w.limiter.Revoke
	}
	s := w.model.subject(name)
	got, err := change(context.Background(), limiter.Change{
		Limit: "api", Subject: name, Amount: uint64(amount), ID: id,
	})
	quota, used := w.model.quotaOf(s), s.used(w.clock.Now())
	known, again := s.changes[id]
	switch {
	case again && known != signed:
		w.wantError(err, limiter.CodeIDConflict)
	case again:
		if err != nil || !got.Replayed || got.Quota != quota {
			w.t.Fatalf("got %+v, %v, want replayed with quota %d", got, err, quota)
		}
	case signed < 0 && uint64(amount) > quota-min(quota, used):
		w.wantError(err, limiter.CodeQuotaInUse)
	default:
		s.changes[id] = signed
		s.granted += signed
		if err != nil || got.Replayed || got.Quota != w.model.quotaOf(s) {
			w.t.Fatalf("got %+v, %v, want quota %d", got, err, w.model.quotaOf(s))
		}
	}
}

// reload changes the quota, to no less than has been revoked: below that the books and this model
// would have to agree on what a negative quota is.
func (w *world) reload() {
	least := int64(0)
	for _, s := range w.model.subjects {
		least = max(least, -s.granted)
	}
	w.model.quota = uint64(rapid.Int64Range(least, least+12).Draw(w.t, "quota"))
	w.limiter.SetLimits(w.limits())
}

func (w *world) balance() {
	name := w.name()
	s := w.model.subject(name)
	got, err := w.limiter.Balance(context.Background(), "api", name)
	if err != nil {
		w.t.Fatal(err)
	}
	quota, used := w.model.quotaOf(s), s.used(w.clock.Now())
	if got.Quota != quota || got.Used != used || got.Remaining != quota-min(quota, used) {
		w.t.Fatalf("balance: got %+v, want quota %d with %d used", got, quota, used)
	}
}

func TestAgainstModel(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		w := &world{
			t: r, clock: newClock(), dir: fmt.Sprintf("%s/%d", dir, runs),
			model: model{quota: 8, window: 5 * time.Second, subjects: map[string]*modelSubject{}},
		}
		w.restart()
		defer func() {
			err := w.ledger.Close()
			if err != nil {
				r.Error(err)
			}
			os.RemoveAll(w.dir)
		}()
		r.Repeat(map[string]func(*rapid.T){
			"check":   func(*rapid.T) { w.check() },
			"check 2": func(*rapid.T) { w.check() },
			"check 3": func(*rapid.T) { w.check() },
			"pass":    func(*rapid.T) { w.pass() },
			"change":  func(*rapid.T) { w.change() },
			"reload":  func(*rapid.T) { w.reload() },
			"restart": func(*rapid.T) {
				if rapid.IntRange(0, 3).Draw(r, "restart") == 0 { // it takes a while
					w.restart()
				}
			},
			"balance": func(*rapid.T) { w.balance() },
		})
	})
}
