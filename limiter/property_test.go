package limiter_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/limiter"
)

// TestMixAgainstModel makes random mixes of checks, reservations and what ends them, transfers,
// grants, overrides, clock steps, changed configs and restarts, by one node or by two on a ledger.
// Every answer and every figure has to be that of the naive twin. Whenever the ledger is closed, it
// is verified: debits are credits, no account is past its flag.
func TestMixAgainstModel(t *testing.T) {
	checks := rounds(60, 3_000)
	for name, value := range map[string]string{
		"rapid.checks": fmt.Sprint(checks), "rapid.steps": "60",
	} {
		set := flag.Lookup(name)
		before := set.Value.String()
		if before != set.DefValue {
			continue // whoever runs it knows better
		}
		err := flag.Set(name, value)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { flag.Set(name, before) })
	}
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		m := newMix(r, fmt.Sprintf("%s/%d", dir, runs))
		defer func() {
			m.close()
			os.RemoveAll(m.dir) // thousands of ledgers would fill the disk
		}()
		r.Repeat(m.actions())
		m.compareAll()
	})
}

// mixStarts are shortly before midnights in Berlin, of days that have 24, 23, 24 and 25 hours after
// them.
var mixStarts = []time.Time{
	time.Date(2026, 3, 27, 22, 59, 50, 0, time.UTC),
	time.Date(2026, 3, 28, 22, 59, 50, 0, time.UTC),
	time.Date(2026, 3, 29, 21, 59, 50, 0, time.UTC),
	time.Date(2026, 10, 24, 21, 59, 50, 0, time.UTC),
}

var mixLimits = []*twinLimit{
	{name: "rate", kind: limiter.RequestRate, window: 5 * time.Second},
	{name: "bytes", kind: limiter.Bandwidth, window: 7 * time.Second},
	{name: "close", kind: limiter.Budget, window: 6 * time.Second, closeAt: 700_000},
	{name: "cents", kind: limiter.Budget, window: 8 * time.Second, asset: true},
	{name: "day", kind: limiter.Budget, calendar: true, closeAt: 900_000},
	{name: "credits", kind: limiter.Credits},
	{name: "slots", kind: limiter.Concurrency},
	{name: "pay", kind: limiter.TransferAmount, window: 9 * time.Second, asset: true},
	{name: "payday", kind: limiter.TransferAmount, calendar: true, asset: true},
}

// mix is the service under test beside its twin.
type mix struct {
	t      *rapid.T
	clock  *testClock
	taken  map[int64]bool // sub-second places of the clock that were used
	played []*twinLimit   // the ones that this run is about
	dir    string
	ledger *embedded.Ledger
	driver *mixDriver
	nodes  []*mixNode

	accounts map[string]*twinAccount
	requests map[string]*twinRequest // by kind, id and accounts
	admitted []*twinRequest
	again    []limiter.Request // that were made, to be sent again
	sent     []limiter.Transfer
	funds    map[string]int64
	moves    map[string]*mixMove // deposits, withdrawals and payments by their ids
	looked   int
}

// mixNode is one process of the service.
type mixNode struct {
	place    int
	shared   bool
	revision uint32
	quotas   map[string]uint64
	limiter  *limiter.Limiter
	book     *accounts.Book
	since    map[string]uint64
}

// mixDriver tells whether something was written to limits' ledgers, and may move the clock before.
type mixDriver struct {
	ledgers.Driver
	wrote  bool
	before func()
}

func (d *mixDriver) CreateTransfers(ctx context.Context, batch []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	for _, t := range batch {
		d.wrote = d.wrote || t.Ledger != 0
	}
	if d.wrote && d.before != nil {
		d.before()
		d.before = nil
	}
	return d.Driver.CreateTransfers(ctx, batch)
}

func newMix(t *rapid.T, dir string) *mix {
	m := &mix{
		t: t, dir: dir, clock: newClock(), taken: map[int64]bool{},
		accounts: map[string]*twinAccount{}, requests: map[string]*twinRequest{},
		funds: map[string]int64{}, moves: map[string]*mixMove{},
	}
	m.clock.nanos.Store(rapid.SampledFrom(mixStarts).Draw(t, "start").UnixNano())
	for i := range rapid.IntRange(1, 2).Draw(t, "nodes") {
		m.nodes = append(m.nodes, &mixNode{place: i, quotas: map[string]uint64{}})
	}
	for _, l := range mixLimits {
		quota := rapid.Uint64Range(0, 12).Draw(t, "quota of "+l.name)
		for _, n := range m.nodes {
			n.shared = len(m.nodes) > 1
			n.quotas[l.name] = quota
		}
		for _, s := range []string{"a", "b"} {
			m.accounts[l.name+"/"+s] = &twinAccount{limit: l, subject: s, changes: map[string]int64{}}
		}
	}
	for range 3 { // a few at a time, so that much happens to each
		m.played = append(m.played, rapid.SampledFrom(mixLimits[:7]).Draw(t, "played"))
	}
	m.played = append(m.played, mixLimits[7:]...)
	m.tick()
	m.open()
	for _, subject := range []string{"a", "b"} {
		_, err := m.nodes[0].limiter.Deposit(context.Background(), limiter.Movement{
			Asset: "USD", Subject: subject, Amount: "0.15", ID: "first",
		})
		if err != nil {
			t.Fatal(err)
		}
		m.funds[subject] = 15
	}
	return m
}

func (m *mix) open() {
	ledger, err := embedded.Open(m.dir, &embedded.Options{Now: m.clock.Now, Volatile: true})
	if err != nil {
		m.t.Fatal(err)
	}
	m.ledger, m.driver = ledger, &mixDriver{Driver: ledger}
	for _, n := range m.nodes {
		n.book, err = accounts.NewBook(m.driver, accounts.Namespace{9}, &accounts.Options{
			Now: m.clock.Now, Shared: n.shared,
		})
		if err != nil {
			m.t.Fatal(err)
		}
		n.limiter, err = limiter.New(n.book, m.rules(n), &limiter.Options{Shared: n.shared})
		if err != nil {
			m.t.Fatal(err)
		}
		n.since = map[string]uint64{}
	}
	m.refresh()
}

// close closes the ledger and verifies it.
func (m *mix) close() {
	err := m.ledger.Close()
	if err != nil {
		m.t.Fatal(err)
	}
	report, err := embedded.Verify(m.dir)
	if err != nil || len(report.Problems) > 0 {
		m.t.Fatalf("verify: got %v, %v, want a sound ledger", report.Problems, err)
	}
}

func (m *mix) restart() {
	m.close()
	m.open()
}

func (m *mix) rules(n *mixNode) *limiter.Limits {
	rules := limiter.Rules{
		Revision: n.revision, Assets: []limiter.Asset{{Code: "USD", Scale: 2}},
	}
	for _, l := range mixLimits {
		limit := limiter.Limit{
			Name: l.name, Kind: l.kind, Quota: n.quotas[l.name], Window: l.window,
			CloseAt: uint32(l.closeAt), Deadline: time.Minute, OnFailure: limiter.Closed,
		}
		if l.calendar {
			limit.Align, limit.Timezone = "day", "Europe/Berlin"
		}
		if l.asset {
			limit.Asset = "USD"
		}
		rules.Limits = append(rules.Limits, limit)
	}
	rules.Limits = patient(rules.Limits)
	set, err := limiter.NewRules(rules)
	if err != nil {
		m.t.Fatal(err)
	}
	return set
}

// refresh has each node read the quota steps of the others, as it does once a second.
func (m *mix) refresh() {
	for _, n := range m.nodes {
		for _, l := range n.limiter.Limits().All() {
			next, err := n.book.Refresh(context.Background(), accounts.Limit{Name: l.Name},
				n.since[l.Name])
			if err != nil {
				m.t.Fatal(err)
			}
			n.since[l.Name] = next
		}
	}
}

// moveTo moves the clock to a time or a little later: no two calls share a place within a second,
// so that it is always clear what comes first.
func (m *mix) moveTo(to time.Time) {
	const place = int64(10 * time.Microsecond)
	at := max(to.UnixNano(), m.clock.nanos.Load()+1)
	for {
		at = (at + place - 1) / place * place
		within := at % int64(time.Second)
		if within > 0 && !m.taken[within] {
			m.taken[within] = true
			m.clock.nanos.Store(at)
			return
		}
		at++
	}
}

// tick lets a little time pass, as it does between any two calls.
func (m *mix) tick() {
	step := rapid.Int64Range(1, 2_000).Draw(m.t, "tick")
	m.moveTo(m.clock.Now().Add(time.Duration(step) * time.Microsecond))
}

// pass lets time pass: at random, or to just before or after something comes back or a day ends.
func (m *mix) pass() {
	now := m.clock.Now()
	ends := []time.Time{berlinMidnight(now)}
	for _, key := range slices.Sorted(maps.Keys(m.accounts)) {
		for _, e := range m.accounts[key].taken {
			if e.end.After(now) {
				ends = append(ends, e.end)
			}
		}
	}
	near := time.Duration(rapid.IntRange(1, 300).Draw(m.t, "close")) * time.Microsecond
	switch rapid.IntRange(0, 8).Draw(m.t, "way") {
	default:
		step := rapid.Int64Range(1, int64(4*time.Second)).Draw(m.t, "pass")
		m.moveTo(now.Add(time.Duration(step)))
	case 1, 2:
		m.moveTo(rapid.SampledFrom(ends).Draw(m.t, "before").Add(-near))
	case 3, 4:
		m.moveTo(rapid.SampledFrom(ends).Draw(m.t, "after").Add(near))
	case 5:
		step := rapid.Int64Range(1, int64(9*time.Hour)).Draw(m.t, "long")
		m.moveTo(now.Add(time.Duration(step)))
	}
}

func (m *mix) node() *mixNode {
	return m.nodes[rapid.IntRange(0, len(m.nodes)-1).Draw(m.t, "node")]
}

func (m *mix) actions() map[string]func(*rapid.T) {
	act := func(do func()) func(*rapid.T) {
		return func(*rapid.T) {
			m.tick()
			do()
		}
	}
	return map[string]func(*rapid.T){
		"check":      act(func() { m.decide(m.node(), m.request(0)) }),
		"check 2":    act(func() { m.decide(m.node(), m.request(0)) }),
		"midnight":   act(m.atMidnight),
		"reserve":    act(func() { m.decide(m.node(), m.request(m.holdTime())) }),
		"reserve 2":  act(func() { m.decide(m.node(), m.request(m.holdTime())) }),
		"retry":      act(m.retry),
		"settle":     act(m.settle),
		"settle 2":   act(m.settle),
		"release":    act(m.release),
		"renew":      act(m.renew),
		"change":     act(m.change),
		"override":   act(m.override),
		"config":     act(m.config),
		"pass":       act(m.pass),
		"pass 2":     act(m.pass),
		"move":       act(m.move),
		"transfer":   act(m.transfer),
		"transfer 2": act(m.transfer),
		"restart": act(func() {
			if rapid.IntRange(0, 3).Draw(m.t, "restart") == 0 { // it takes a while
				m.restart()
			}
		}),
		"": func(*rapid.T) { m.compareSome() },
	}
}

// compareSome compares what a few accounts have, all of them in turns.
func (m *mix) compareSome() {
	keys := slices.Sorted(maps.Keys(m.accounts))
	for range 3 {
		m.looked++
		m.compare(m.nodes[m.looked%len(m.nodes)], m.accounts[keys[m.looked%len(keys)]])
	}
}

func (m *mix) compareAll() {
	for _, n := range m.nodes {
		for _, key := range slices.Sorted(maps.Keys(m.accounts)) {
			m.compare(n, m.accounts[key])
		}
		for subject, want := range m.funds {
			got, err := n.limiter.Funds(context.Background(), "USD", subject)
			if err != nil || got.Balance != dollars(want) {
				m.t.Fatalf("funds of %s: got %+v, %v, want %s", subject, got, err, dollars(want))
			}
		}
	}
}

func (m *mix) compare(n *mixNode, a *twinAccount) {
	got, err := n.limiter.Balance(context.Background(), a.limit.name, a.subject)
	if err != nil {
		m.t.Fatal(err)
	}
	now := m.clock.Now()
	quota, used, overage := a.quota(n), a.used(now), sum(a.overage, now)
	if got.Quota != quota || got.Used != used || got.Overage != overage ||
		got.Remaining != a.remaining(n, now) || got.Overridden != a.override {
		m.t.Fatalf("balance of %s on %s by node %d: got %+v, want quota %d, used %d, overage %d: %+v",
			a.subject, a.limit.name, n.place, got, quota, used, overage, a)
	}
}

func (m *mix) holdTime() time.Duration {
	return time.Duration(rapid.IntRange(1, 6).Draw(m.t, "hold")) * time.Second
}

var mixCosts = []uint64{1, 1, 1, 2, 2, 3, 4, 6, 0}

// request draws a check, or a reservation if hold is not 0.
func (m *mix) request(hold time.Duration) limiter.Request {
	r := limiter.Request{
		Hold: hold,
		ID:   rapid.SampledFrom([]string{"", "", "1", "2", "3"}).Draw(m.t, "id"),
	}
	var names []string
	for _, l := range m.played {
		if l.kind != limiter.TransferAmount && (hold > 0 || !l.slots()) {
			names = append(names, l.name)
		}
	}
	if len(names) == 0 { // a check, where there are only slots
		names = []string{"rate"}
	}
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(m.t, "members") {
		r.Members = append(r.Members, limiter.Member{
			Limit:   rapid.SampledFrom(names).Draw(m.t, "limit"),
			Subject: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(m.t, "subject"),
			Cost:    rapid.SampledFrom(mixCosts).Draw(m.t, "cost"),
		})
	}
	if hold > 0 {
		r.Members[0].Cost = max(1, r.Members[0].Cost)
	}
	return r
}

func (m *mix) retry() {
	if len(m.again) > 0 {
		m.decide(m.node(), rapid.SampledFrom(m.again).Draw(m.t, "again"))
	}
}

// atMidnight has a day end between a check's being sent and the ledger's taking it.
func (m *mix) atMidnight() {
	r := m.request(0)
	near := time.Duration(rapid.IntRange(1, 300).Draw(m.t, "close")) * time.Microsecond
	m.driver.before = func() { m.moveTo(berlinMidnight(m.clock.Now()).Add(near)) }
	m.decide(m.node(), r)
	m.driver.before = nil
}

// parts finds the accounts of a request, each once.
func (m *mix) parts(members []limiter.Member) []twinPart {
	var parts []twinPart
	for _, member := range members {
		a := m.accounts[member.Limit+"/"+member.Subject]
		i := slices.IndexFunc(parts, func(p twinPart) bool { return p.account == a })
		if i < 0 {
			parts = append(parts, twinPart{account: a})
			i = len(parts) - 1
		}
		parts[i].cost += member.Cost
	}
	return parts
}

// met notes that a node has met the accounts of a call that wrote.
func (m *mix) met(n *mixNode, parts []twinPart) {
	changed := false
	for _, p := range parts {
		if m.driver.wrote {
			changed = p.account.meet(n) || changed || p.account.owed > 0
		}
	}
	if changed {
		m.refresh()
	}
}

// scope is the key of a request with an id.
func scope(r limiter.Request, parts []twinPart) string {
	kind := "check"
	if r.Hold > 0 {
		kind = "hold"
	}
	var names []string
	for _, p := range parts {
		names = append(names, p.account.limit.name+"/"+p.account.subject)
	}
	slices.Sort(names)
	return kind + " " + r.ID + " " + strings.Join(names, " ")
}

func (m *mix) decide(n *mixNode, r limiter.Request) {
	parts := m.parts(r.Members)
	do := n.limiter.Check
	if r.Hold > 0 {
		do = n.limiter.Reserve
	}
	m.driver.wrote = false
	d, err := do(context.Background(), r)
	now := m.clock.Now()
	m.t.Logf("node %d: %+v: %v %v", n.place, r, d.Allowed, err)
	m.met(n, parts)
	looks := !slices.ContainsFunc(parts, func(p twinPart) bool { return p.cost > 0 })
	key := scope(r, parts)
	var known *twinRequest
	if r.ID != "" && !looks {
		known = m.requests[key]
		m.again = append(m.again, r)
	}
	switch {
	case known != nil && !known.denied && !known.same(parts, r.Hold):
		m.wantCode(err, limiter.CodeIDConflict)
	case known != nil && !known.denied:
		m.replayed(n, known, parts, d, err)
	default:
		v := m.verdict(n, parts, now)
		m.judge(n, r, d, err, v, known)
		if v.allowed && known == nil && !looks && err == nil && d.Allowed {
			known = m.admit(r, parts, d)
		} else if known == nil && r.ID != "" && !looks && recorded(d, err) {
			known = &twinRequest{denied: true}
		}
		if r.ID != "" && known != nil {
			m.requests[key] = known
		}
		if err == nil && d.Allowed {
			m.wantFigures(n, d, parts)
		}
	}
}

// recorded reports whether the denial of an id was.
func recorded(d limiter.Decision, err error) bool {
	if err != nil {
		return newIDRequired(err)
	}
	return d.NewIDRequired
}

// verdict is what the twin says of a request.
type verdict struct {
	allowed  bool
	hopeless bool
	lacking  []bool
	wait     time.Duration // 0 for none
	now      time.Time
	parts    []twinPart
}

func (m *mix) verdict(n *mixNode, parts []twinPart, now time.Time) verdict {
	v := verdict{allowed: true, lacking: make([]bool, len(parts)), now: now, parts: parts}
	never := false
	for i, p := range parts {
		v.hopeless = v.hopeless || p.account.hopeless(n, p.cost)
		v.lacking[i] = p.account.lacks(n, p.cost, now)
		if v.lacking[i] {
			v.allowed = false
			wait := p.account.wait(n, p.cost, now)
			v.wait = max(v.wait, wait)
			never = never || wait == 0
		}
	}
	if never {
		v.wait = 0
	}
	return v
}

// judge compares the answer to a request with the twin's, where known is nil or an id that was
// denied before.
func (m *mix) judge(n *mixNode, r limiter.Request, d limiter.Decision, err error, v verdict,
	known *twinRequest,
) {
	stale := m.stale(n, v)
	switch {
	case v.hopeless && stale && err == nil && !d.Allowed:
	case v.hopeless:
		m.wantCode(err, limiter.CodeCostExceedsQuota)
	case err != nil:
		if stale && code(err) == limiter.CodeCostExceedsQuota {
			return
		}
		m.t.Fatalf("%+v: got %v, want %+v", r, err, v)
	case known != nil:
		if d.Allowed || d.IDNotRecorded == d.NewIDRequired || d.IDNotRecorded && m.driver.wrote {
			m.t.Fatalf("%+v: got %+v, want denied as before", r, d)
		}
		if d.Replayed && d.RetryAfter != 0 {
			m.t.Fatalf("%+v: got %+v, want no Retry-After", r, d)
		}
	case d.Allowed != v.allowed:
		if !d.Allowed && stale {
			return
		}
		m.t.Fatalf("%+v: got %+v, want %+v", r, d, v)
	case d.Allowed:
		if d.Replayed || d.Denied >= 0 || d.RetryAfter != 0 {
			m.t.Fatalf("%+v: got %+v, want allowed", r, d)
		}
	default:
		m.wantDenied(n, d, v)
	}
}

// stale reports whether a node may still deny what another one has given back within the last
// second. It notes what was denied just now.
func (m *mix) stale(n *mixNode, v verdict) bool {
	stale := false
	for i, p := range v.parts {
		asked := &p.account.asked[n.place]
		stale = stale || !asked.IsZero() && v.now.Sub(*asked) <= time.Second
		if v.lacking[i] && m.driver.wrote {
			*asked = v.now
		}
	}
	return stale && n.shared && !m.driver.wrote
}

func (m *mix) wantDenied(n *mixNode, d limiter.Decision, v verdict) {
	if d.Denied < 0 || d.Replayed || !d.Transfer.IsZero() {
		m.t.Fatalf("got %+v, want denied", d)
	}
	if n.shared && !m.driver.wrote { // from memory: it may be a second old
		return
	}
	if !v.lacking[d.Denied] {
		m.t.Fatalf("got %+v, want one of %v denied", d, v.lacking)
	}
	m.wantFigures(n, d, v.parts)
	switch {
	case v.wait == 0 && d.RetryAfter != 0:
		m.t.Fatalf("got retry after %v, want none: %+v", d.RetryAfter, d)
	case v.wait > 0 && (d.RetryAfter < v.wait-time.Microsecond ||
		d.RetryAfter > v.wait+2*time.Millisecond):
		m.t.Fatalf("got retry after %v, want %v: %+v", d.RetryAfter, v.wait, d)
	}
}

// wantFigures compares the figures of a decision.
func (m *mix) wantFigures(n *mixNode, d limiter.Decision, parts []twinPart) {
	now := m.clock.Now()
	for i, p := range parts {
		got, a := d.Limits[i], p.account
		reset := (a.next(now) + time.Second - 1).Truncate(time.Second)
		if a.limit.prepaid() {
			reset = 0
		}
		if n.shared {
			reset = got.Reset // a node does not know what others took or gave back
		}
		if !got.Known || got.Quota != a.quota(n) || got.Remaining != a.remaining(n, now) ||
			got.Cost != p.cost || got.Reset != reset {
			m.t.Fatalf("figures of %s on %s: got %+v, want quota %d, remaining %d, cost %d, reset %v",
				a.subject, a.limit.name, got, a.quota(n), a.remaining(n, now), p.cost, reset)
		}
	}
}

// admit notes what an admitted request took.
func (m *mix) admit(r limiter.Request, parts []twinPart, d limiter.Decision) *twinRequest {
	now := m.clock.Now()
	q := &twinRequest{
		parts: parts, receipts: []string{d.Transfer.String()}, at: d.At, made: now,
		hold: r.Hold,
	}
	if r.Hold > 0 {
		q.expires = now.Add(r.Hold)
	}
	for i, p := range parts {
		p.account.owed = 0
		switch {
		case p.cost == 0:
		case r.Hold > 0:
			parts[i].entry = p.account.take(p.cost, q.expires)
		default:
			parts[i].entry = p.account.take(p.cost, p.account.limit.back(now))
		}
	}
	m.wantTime("at", d.At, now)
	m.wantTime("expires at", d.ExpiresAt, q.expires)
	m.admitted = append(m.admitted, q)
	return q
}

func (m *mix) wantTime(what string, got, want time.Time) {
	if got.IsZero() != want.IsZero() || got.Sub(want).Abs() > 5*time.Microsecond {
		m.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// replayed compares the answer to a request that was admitted before.
func (m *mix) replayed(n *mixNode, q *twinRequest, parts []twinPart, d limiter.Decision,
	err error,
) {
	now := m.clock.Now()
	live, all := q.out(now)
	switch {
	case q.hold > 0 && q.ended != "":
		m.wantCode(err, limiter.CodeReservationClosed)
	case q.hold > 0 && !q.expires.After(now):
		m.wantCode(err, limiter.CodeIDExpired)
	case q.ended != "": // where its windows differ, the first one tells
		if c := code(err); c != limiter.CodeReservationClosed && c != limiter.CodeIDExpired {
			m.t.Fatalf("got %+v, %v, want it closed", d, err)
		}
	case live == 0:
		m.wantCode(err, limiter.CodeIDExpired)
	case live < all && code(err) == limiter.CodeIDExpired:
	case err != nil || !d.Allowed || !d.Replayed:
		m.t.Fatalf("got %+v, %v, want a replay", d, err)
	default:
		if d.Transfer.String() != q.receipts[len(q.receipts)-1] || !d.At.Equal(q.at) {
			m.t.Fatalf("got %+v, want receipts %v at %v", d, q.receipts, q.at)
		}
		if q.hold > 0 {
			m.wantTime("expires at", d.ExpiresAt, q.expires)
		}
		m.wantFigures(n, d, parts)
	}
}

func code(err error) limiter.Code {
	e, ok := errors.AsType[*limiter.Error](err)
	if !ok {
		return ""
	}
	return e.Code
}

func newIDRequired(err error) bool {
	e, ok := errors.AsType[*limiter.Error](err)
	return ok && e.NewIDRequired
}

func (m *mix) wantCode(err error, want limiter.Code) {
	if code(err) != want {
		m.t.Fatalf("got %v, want %s", err, want)
	}
}
