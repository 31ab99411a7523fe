package spend_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/limiter"
	"weir/limiter/spend"
)

// TestAgainstModel makes random mixes of calls that are authorized, settled, corrected, sent again
// and left to expire, by two nodes with prices of their own on a ledger, beside overrides, grants,
// clock steps over midnights and restarts. Every answer, every balance and every line of the day
// has to be that of a naive model. When the ledger is closed, it is verified.
func TestAgainstModel(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue { // else whoever runs it knows better
		err := checks.Value.Set(strconv.Itoa(rounds(40, 3_000)))
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		w := newWorld(r, fmt.Sprintf("%s/%d", dir, runs))
		defer func() { w.close(); os.RemoveAll(w.dir) }()
		r.Repeat(map[string]func(*rapid.T){
			"":          w.compare,
			"authorize": w.authorize, "authorize2": w.authorize, "again": w.again,
			"settle": w.settle, "settle2": w.settle, "correct": w.correct,
			"wait": w.wait, "price": w.price, "override": w.override, "grant": w.grant,
			"restart": w.restart,
		})
		w.compareLines()
	})
}

var worldSubjects = []string{"alice", "bob"}

// world is a breaker on two nodes beside its model.
type world struct {
	t      *rapid.T
	clock  *testClock
	place  int64
	dir    string
	budget spend.Budget
	zone   *time.Location

	ledger *embedded.Ledger
	faulty *ledgertest.Faulty
	nodes  []*worldNode

	tokens, usd map[string]*modelLimit // by subject
	calls       []*modelCall
	lines       map[string][]spend.Event // by subject, without Closed
	turned      map[string]uint64
	n           int
	restarted   bool // some counts of calls turned away may have found no minute to be told in
}

type worldNode struct {
	*spend.Breaker
	limiter *limiter.Limiter
	book    *accounts.Book
	models  []spend.Model
	since   map[string]uint64
}

// modelLimit is what a subject has of tokens or of USD.
type modelLimit struct {
	target, grants uint64
	counted        bool // without a bound
}

// quota and closes are all that there is, and all that may be taken when a call is authorized.
func (l *modelLimit) quota() uint64 { return l.target + l.grants }
func (l *modelLimit) closes(closeAt uint64) uint64 {
	if l.counted {
		return l.quota()
	}
	return l.target*closeAt/1_000_000 + l.grants
}

// modelPart is what a call takes of one limit.
type modelPart struct {
	amount uint64
	until  time.Time // it stands so long
}

type modelCall struct {
	call        spend.Call
	receipt     ledgers.ID
	at, expires time.Time
	end         time.Time // when the period or window is over that it was made in
	number      uint16
	tokens, usd uint64 // reserved
	parts       [2]modelPart
	settled     *spend.Usage
	late        bool
	answer      spend.Settlement
	corrections []*modelCorrection
}

type modelCorrection struct {
	id     string
	usage  spend.Usage
	answer spend.Settlement
}

func newWorld(t *rapid.T, dir string) *world {
	w := &world{
		t: t, dir: dir, clock: newClock(), zone: time.UTC,
		tokens: map[string]*modelLimit{}, usd: map[string]*modelLimit{},
		lines: map[string][]spend.Event{}, turned: map[string]uint64{},
	}
	w.budget = spend.Budget{
		Name:    "ai",
		Tokens:  rapid.SampledFrom([]uint64{0, 1, 9, 100, 1000}).Draw(t, "tokens"),
		USD:     rapid.SampledFrom([]uint64{0, 3, 150, 1500}).Draw(t, "usd"),
		CloseAt: rapid.SampledFrom([]uint32{1, 500_000, 900_000, 1_000_000}).Draw(t, "close_at"),
		Hold:    time.Duration(rapid.IntRange(1, 20).Draw(t, "hold")) * time.Second,
	}
	if w.budget.Tokens+w.budget.USD == 0 {
		w.budget.Tokens = 50
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind of window") {
	case 0:
		w.budget.Window = time.Duration(rapid.IntRange(1, 40).Draw(t, "window")) * time.Second
	case 1:
		w.budget.Align, w.budget.Timezone = "day", "Europe/Berlin"
		w.zone, _ = time.LoadLocation(w.budget.Timezone)
	}
	w.clock.nanos.Store(rapid.SampledFrom([]time.Time{
		time.Date(2026, 3, 28, 22, 59, 30, 0, time.UTC), // the day behind has 23 hours in Berlin
		time.Date(2026, 10, 24, 21, 59, 30, 0, time.UTC),
		time.Date(2026, 10, 16, 23, 59, 30, 0, time.UTC),
	}).Draw(t, "start").UnixNano())
	for _, s := range worldSubjects {
		w.tokens[s] = &modelLimit{target: w.budget.Tokens}
		w.usd[s] = &modelLimit{target: w.budget.USD}
		for _, l := range []*modelLimit{w.tokens[s], w.usd[s]} {
			if l.target == 0 {
				l.target, l.counted = spend.MaxBudget, true
			}
		}
	}
	w.nodes = []*worldNode{{models: models()}, {models: models()}}
	w.tick(0)
	w.open()
	return w
}

// tick moves the clock. No two calls have the same place within a second, so that it is clear what
// comes first where whole seconds pass.
func (w *world) tick(seconds int) {
	w.place += int64(50 * time.Microsecond)
	now := w.clock.nanos.Load()
	w.clock.nanos.Store(now - now%int64(time.Second) + w.place + int64(seconds)*int64(time.Second))
}

func (w *world) open() {
	ledger, err := embedded.Open(w.dir, &embedded.Options{Now: w.clock.Now, Volatile: true})
	w.must(err)
	w.ledger, w.faulty = ledger, ledgertest.NewFaulty(ledger)
	for _, n := range w.nodes {
		n.book, err = accounts.NewBook(w.faulty, accounts.Namespace{7},
			&accounts.Options{Now: w.clock.Now, Shared: true})
		w.must(err)
		plan := w.plan(n)
		rules, err := limiter.NewRules(plan.Rules(limiter.Rules{}))
		w.must(err)
		n.limiter, err = limiter.New(n.book, rules, &limiter.Options{Shared: true})
		w.must(err)
		n.Breaker, err = spend.New(n.limiter, plan, nil)
		w.must(err)
		n.since = map[string]uint64{}
	}
	w.refresh()
}

func (w *world) plan(n *worldNode) *spend.Plan {
	budget := w.budget
	budget.Deadline = 10 * time.Second
	plan, err := spend.NewPlan([]spend.Budget{budget}, n.models)
	w.must(err)
	return plan
}

// refresh has each node read what others made of quotas, as it does once a second.
func (w *world) refresh() {
	for _, n := range w.nodes {
		for _, l := range n.limiter.Limits().All() {
			next, err := n.book.Refresh(context.Background(), accounts.Limit{Name: l.Name},
				n.since[l.Name])
			w.must(err)
			n.since[l.Name] = next
		}
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.must(w.ledger.Close())
	report, err := embedded.Verify(w.dir)
	if err != nil || len(report.Problems) > 0 {
		w.t.Fatalf("verify: got %v, %v, want a sound ledger", report.Problems, err)
	}
}

func (w *world) restart(*rapid.T) {
	w.restarted = true
	for _, n := range w.nodes {
		n.Close(context.Background())
	}
	w.close()
	w.open()
}

func (w *world) node(t *rapid.T) *worldNode {
	w.tick(0)
	w.refresh()
	return rapid.SampledFrom(w.nodes).Draw(t, "node")
}

// try makes a call that the ledger may not answer, in which case it is made again.
func (w *world) try(t *rapid.T, call func() error) error {
	fault := ledgertest.Fault{On: ledgertest.CallCreateTransfers}
	away := errors.New("away, for a test")
	switch rapid.IntRange(0, 9).Draw(t, "fault") {
	case 0:
		fault.Before = away
	case 1:
		fault.After = away
	default:
		return call()
	}
	fault.Skip = rapid.IntRange(0, 1).Draw(t, "skipped")
	heal := w.faulty.Inject(fault)
	err := call()
	heal()
	e, ok := errors.AsType[*limiter.Error](err)
	if ok && e.Code == limiter.CodeLedgerUnavailable {
		return call()
	}
	return err
}

// standing is what a subject has taken of a limit: 0 of tokens, 1 of USD.
func (w *world) standing(subject string, limit int) (sum uint64) {
	for _, c := range w.calls {
		if c.call.Subject == subject && w.clock.Now().Before(c.parts[limit].until) {
			sum += c.parts[limit].amount
		}
	}
	return sum
}

// periodEnd is when what is taken at a time comes back.
func (w *world) periodEnd(at time.Time) time.Time {
	if w.budget.Window > 0 {
		return at.Add(w.budget.Window)
	}
	y, m, d := at.In(w.zone).Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, w.zone)
}

// until is when what is booked now for a call comes back, in whole seconds from now.
func (w *world) until(end time.Time) time.Time {
	now := w.clock.Now()
	left := max(time.Second, (end.Sub(now) + time.Second - 1).Truncate(time.Second))
	return now.Add(left)
}

func modelCost(m spend.Model, input, output, cached uint64) uint64 {
	sum := (input-cached)*m.Input + output*m.Output + cached*m.Cached
	return (sum + 999_999) / 1_000_000
}

func free(m spend.Model) bool { return m.Input+m.Output+m.Cached == 0 }

func (w *world) authorize(t *rapid.T) {
	n := w.node(t)
	w.n++
	c := spend.Call{
		Budget: "ai", Subject: rapid.SampledFrom(worldSubjects).Draw(t, "subject"),
		InputTokens:     rapid.Uint64Range(0, 60).Draw(t, "input"),
		MaxOutputTokens: rapid.Uint64Range(0, 60).Draw(t, "output"),
		ID:              name("call", w.n),
	}
	m := rapid.SampledFrom(n.models).Draw(t, "model")
	c.Model = m.Name
	var a spend.Authorization
	err := w.try(t, func() (err error) {
		a, err = n.Authorize(context.Background(), c)
		return err
	})
	if c.InputTokens+c.MaxOutputTokens == 0 {
		wantCode(t, err, limiter.CodeBadRequest)
		return
	}
	if err != nil {
		t.Fatalf("authorize %+v: %v", c, err)
	}
	est := [2]uint64{c.InputTokens + c.MaxOutputTokens}
	if !free(m) {
		est[1] = max(1, modelCost(m, c.InputTokens, c.MaxOutputTokens, 0))
	}
	var short [2]bool
	for i, l := range []*modelLimit{w.tokens[c.Subject], w.usd[c.Subject]} {
		sum := w.standing(c.Subject, i) + est[i]
		short[i] = est[i] > 0 && sum > l.closes(uint64(w.budget.CloseAt))
	}
	if short[0] || short[1] {
		if a.Route != spend.RouteFallback ||
			!short[slices.Index([]spend.Reason{spend.TokenBudget, spend.USDBudget}, a.Reason)] {
			t.Fatalf("got %+v, want a closed gate (%v)", a, short)
		}
		if !a.ReopensAt.IsZero() && !a.ReopensAt.After(w.clock.Now()) {
			t.Fatalf("reopens at %v, and it is %v", a.ReopensAt, w.clock.Now())
		}
		w.turned[c.Subject]++
		return
	}
	if a.Route != spend.RouteModel || a.Reserved != (spend.Amount{est[0], est[1]}) {
		t.Fatalf("got %+v, want %v reserved", a, est)
	}
	call := &modelCall{
		call: c, receipt: a.Transfer, at: a.At, end: w.periodEnd(a.At), number: m.Number,
		tokens: est[0], usd: est[1], expires: w.clock.Now().Add(w.budget.Hold),
	}
	for i := range call.parts {
		call.parts[i] = modelPart{est[i], call.expires}
	}
	w.calls = append(w.calls, call)
	w.line(call, spend.Event{
		Kind: spend.Authorized, Route: spend.RouteModel, InputTokens: c.InputTokens,
		OutputTokens: c.MaxOutputTokens, USD: est[1],
	})
}

// line notes an event.
func (w *world) line(c *modelCall, e spend.Event) {
	e.Transfer, e.Model = c.receipt, c.call.Model
	w.lines[c.call.Subject] = append(w.lines[c.call.Subject], e)
}

func (w *world) anyCall(t *rapid.T) *modelCall {
	if len(w.calls) == 0 {
		t.Skip()
	}
	last := w.calls[max(0, len(w.calls)-6):]
	return rapid.SampledFrom(last).Draw(t, "call")
}

// again authorizes what passed before once more.
func (w *world) again(t *rapid.T) {
	n, c := w.node(t), w.anyCall(t)
	sent := c.call
	if rapid.IntRange(0, 3).Draw(t, "another") == 0 {
		sent.InputTokens++
		_, err := n.Authorize(context.Background(), sent)
		wantCode(t, err, limiter.CodeIDConflict)
		return
	}
	a, err := n.Authorize(context.Background(), sent)
	switch {
	case c.settled != nil && c.late, c.settled == nil && !w.clock.Now().Before(c.expires):
		// Settled late or not at all: it came back by itself, and then may have been settled.
		e, ok := errors.AsType[*limiter.Error](err)
		if !ok || e.Code != limiter.CodeIDExpired && e.Code != limiter.CodeReservationClosed {
			t.Fatalf("got %+v, %v, want it expired", a, err)
		}
	case c.settled != nil:
		wantCode(t, err, limiter.CodeReservationClosed)
	case err != nil || !a.Replayed || a.Transfer != c.receipt ||
		a.Reserved != (spend.Amount{c.tokens, c.usd}):
		t.Fatalf("got %+v, %v, want %+v replayed", a, err, c)
	}
}

func (w *world) usage(t *rapid.T) spend.Usage {
	u := spend.Usage{Route: rapid.SampledFrom([]spend.Route{
		spend.RouteModel, spend.RouteModel, spend.RouteFallback, spend.RouteError,
	}).Draw(t, "route")}
	report := func(what string, most uint64) *uint64 {
		if rapid.IntRange(0, 2).Draw(t, what+" is reported") == 0 {
			return nil
		}
		return new(rapid.Uint64Range(0, most).Draw(t, what))
	}
	u.InputTokens, u.OutputTokens = report("input", 120), report("output", 120)
	if u.InputTokens != nil && rapid.Bool().Draw(t, "cached is reported") {
		u.CachedTokens = new(rapid.Uint64Range(0, *u.InputTokens).Draw(t, "cached"))
	}
	if rapid.IntRange(0, 5).Draw(t, "usd is reported") == 0 {
		u.USD = new(rapid.Uint64Range(0, 300).Draw(t, "usd"))
	}
	return u
}

// books is what a usage books for a call.
func (c *modelCall) books(n *worldNode, u spend.Usage) (e spend.Event) {
	e.Route = u.Route
	if u.Route == spend.RouteModel {
		e.InputTokens, e.OutputTokens = c.call.InputTokens, c.call.MaxOutputTokens
		e.Estimated = u.InputTokens == nil || u.OutputTokens == nil
	}
	if u.Route == spend.RouteError {
		e.InputTokens, e.Estimated = c.call.InputTokens, u.InputTokens == nil
	}
	if u.InputTokens != nil {
		e.InputTokens = *u.InputTokens
	}
	if u.OutputTokens != nil {
		e.OutputTokens = *u.OutputTokens
	}
	if u.CachedTokens != nil {
		e.CachedTokens = *u.CachedTokens
	}
	at := slices.IndexFunc(n.models, func(m spend.Model) bool { return m.Number == c.number })
	all := e.Estimated && e.InputTokens == c.call.InputTokens &&
		e.OutputTokens == c.call.MaxOutputTokens && e.CachedTokens == 0
	switch {
	case c.usd == 0:
	case u.USD != nil:
		e.USD = *u.USD
	case e.InputTokens+e.OutputTokens == 0:
	case all:
		e.USD = c.usd
	default:
		e.USD = modelCost(n.models[at], e.InputTokens, e.OutputTokens, e.CachedTokens)
	}
	return e
}

func (w *world) settle(t *rapid.T) {
	n, c := w.node(t), w.anyCall(t)
	u := w.usage(t)
	if c.settled != nil && rapid.Bool().Draw(t, "the same") {
		u = *c.settled
	}
	var s spend.Settlement
	err := w.try(t, func() (err error) {
		s, err = n.Settle(context.Background(), c.receipt, u)
		return err
	})
	if c.settled != nil {
		if !sameUsage(u, *c.settled) {
			wantCode(t, err, limiter.CodeReservationClosed)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		want := c.answer
		want.Replayed, want.Remaining = true, s.Remaining
		if s != want {
			t.Fatalf("settled again: got %+v, want %+v", s, want)
		}
		return
	}
	if err != nil {
		t.Fatalf("settle %+v: %v", u, err)
	}
	now := w.clock.Now()
	e := c.books(n, u)
	e.Kind, e.Late = spend.Settled, !now.Before(c.expires)
	c.settled, c.late, c.answer = &u, e.Late, s
	c.parts[0] = modelPart{e.InputTokens + e.OutputTokens, w.until(c.end)}
	c.parts[1] = modelPart{e.USD, w.until(c.end)}
	w.wantSettled(t, c, s, e)
	w.line(c, e)
}

func (w *world) wantSettled(t *rapid.T, c *modelCall, s spend.Settlement, e spend.Event) {
	if s.Late != c.late || s.Estimated != e.Estimated || s.Route != e.Route ||
		s.Booked != (spend.Amount{e.InputTokens + e.OutputTokens, e.USD}) ||
		s.Reserved != (spend.Amount{c.tokens, c.usd}) {
		t.Fatalf("got %+v, want %+v", s, e)
	}
}

func sameUsage(a, b spend.Usage) bool {
	same := func(a, b *uint64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return a.Route == b.Route && same(a.InputTokens, b.InputTokens) &&
		same(a.OutputTokens, b.OutputTokens) && same(a.CachedTokens, b.CachedTokens) &&
		same(a.USD, b.USD)
}

func (w *world) correct(t *rapid.T) {
	n, c := w.node(t), w.anyCall(t)
	u := w.usage(t)
	w.n++
	id := name("correction", w.n)
	if len(c.corrections) > 0 && rapid.IntRange(0, 2).Draw(t, "again") == 0 {
		was := rapid.SampledFrom(c.corrections).Draw(t, "correction")
		if rapid.Bool().Draw(t, "the same") {
			u = was.usage
		}
		s, err := n.Correct(context.Background(), c.receipt, was.id, u)
		if !sameUsage(u, was.usage) {
			wantCode(t, err, limiter.CodeIDConflict)
			return
		}
		if err != nil || !s.Replayed || s.Booked != was.answer.Booked {
			t.Fatalf("corrected again: got %+v, %v, want %+v", s, err, was.answer)
		}
		return
	}
	var s spend.Settlement
	err := w.try(t, func() (err error) {
		s, err = n.Correct(context.Background(), c.receipt, id, u)
		return err
	})
	if c.settled == nil {
		wantCode(t, err, limiter.CodeReservationClosed)
		return
	}
	if err != nil {
		t.Fatalf("correct %+v: %v", u, err)
	}
	e := c.books(n, u)
	e.Kind, e.Late = spend.Correction, c.late
	w.wantSettled(t, c, s, e)
	c.corrections = append(c.corrections, &modelCorrection{id, u, s})
	for i, amount := range []uint64{e.InputTokens + e.OutputTokens, e.USD} {
		back := c.end
		if c.parts[i].amount > 0 {
			back = c.parts[i].until
		}
		if w.clock.Now().Before(back) {
			c.parts[i] = modelPart{amount, w.until(c.end)}
		}
	}
	w.line(c, e)
}

func (w *world) wait(t *rapid.T) { w.tick(rapid.IntRange(0, 25).Draw(t, "seconds")) }

// price has one node read another price table than the other has.
func (w *world) price(t *rapid.T) {
	n := w.node(t)
	n.models = slices.Clone(n.models)
	m := rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "model")
	for _, price := range []*uint64{&n.models[m].Input, &n.models[m].Output, &n.models[m].Cached} {
		*price = rapid.SampledFrom([]uint64{0, 1, 333_333, 2_000_000}).Draw(t, "price")
	}
	n.SetPlan(w.plan(n))
}

// bounded chooses what has a quota that may change.
func (w *world) bounded(t *rapid.T) (limit, subject string, l *modelLimit) {
	subject = rapid.SampledFrom(worldSubjects).Draw(t, "subject")
	limit, l = "ai:tokens", w.tokens[subject]
	if rapid.Bool().Draw(t, "of usd") {
		limit, l = "ai:usd", w.usd[subject]
	}
	if l.counted {
		t.Skip()
	}
	return limit, subject, l
}

func (w *world) override(t *rapid.T) {
	n := w.node(t)
	limit, subject, l := w.bounded(t)
	quota := rapid.SampledFrom([]uint64{0, 1, 20, 80, 500}).Draw(t, "quota")
	_, err := n.limiter.Override(context.Background(), limit, subject, quota)
	w.must(err)
	l.target = quota
	w.refresh()
	w.tick(1)
}

func (w *world) grant(t *rapid.T) {
	n := w.node(t)
	limit, subject, l := w.bounded(t)
	w.n++
	_, err := n.limiter.Grant(context.Background(), limiter.Change{
		Limit: limit, Subject: subject, Amount: 7, ID: name("grant", w.n),
	})
	w.must(err)
	l.grants += 7
	w.tick(1)
}

// compare checks all balances.
func (w *world) compare(t *rapid.T) {
	w.refresh()
	for _, n := range w.nodes {
		for _, subject := range worldSubjects {
			for i, limit := range []string{"ai:tokens", "ai:usd"} {
				l := []*modelLimit{w.tokens[subject], w.usd[subject]}[i]
				b, err := n.limiter.Balance(context.Background(), limit, subject)
				w.must(err)
				want := w.standing(subject, i)
				if b.Used+b.Overage != want || b.Quota != l.quota() ||
					b.Remaining != b.Quota-min(b.Quota, b.Used) {
					t.Fatalf("%s of %s: got %+v, want %d used and overage, and a quota of %d",
						limit, subject, b, want, l.quota())
				}
			}
		}
	}
}

// compareLines checks all that the ledger tells of what happened.
func (w *world) compareLines() {
	for _, n := range w.nodes {
		w.tick(0)
		n.Close(context.Background())
	}
	w.tick(90) // the last counts are in the next minute
	for _, n := range w.nodes {
		n.Close(context.Background())
	}
	for _, subject := range worldSubjects {
		var got []spend.Event
		var turned uint64
		from := w.clock.Now().Add(-72 * time.Hour)
		for !from.IsZero() {
			page, next, err := w.nodes[0].Events(context.Background(), "ai", subject, from,
				w.clock.Now().Add(time.Hour))
			w.must(err)
			for _, e := range page {
				e.At, e.ExpiresAt = time.Time{}, time.Time{}
				if e.Kind == spend.Closed {
					turned += e.Count
					continue
				}
				got = append(got, e)
			}
			from = next
		}
		if !slices.Equal(got, w.lines[subject]) {
			w.t.Fatalf("lines of %s: got %+v, want %+v", subject, got, w.lines[subject])
		}
		if turned > w.turned[subject] || turned < w.turned[subject] && !w.restarted {
			w.t.Fatalf("turned away of %s: got %d, want %d", subject, turned, w.turned[subject])
		}
	}
}

func wantCode(t *rapid.T, err error, want limiter.Code) {
	t.Helper()
	e, ok := errors.AsType[*limiter.Error](err)
	if !ok || e.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}
