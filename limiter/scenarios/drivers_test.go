package scenarios_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
	"weir/limiter"
)

// driverTests are cases of every kind of limit, which run on either driver, in real time.
var driverTests = []struct {
	name string
	test func(t *testing.T, s stage)
}{
	{"BudgetOfMoney", testBudgetOfMoney}, // N10
	{"DeniedCostsNothing", testDeniedCostsNothing},
	{"SameAccountTwice", testSameAccountTwice},
	{"DenialNamesTheLimit", testDenialNamesTheLimit},
	{"Calendar", testCalendar},
	{"CalendarOfMonths", testCalendarOfMonths},
	{"ChangedQuota", testChangedQuotaOfTwo},
	{"Reloads", testReloads},
	{"CloseAt", testCloseAt},
	{"Credits", testCredits},
	{"CreditsOverage", testCreditsOverage},
	{"Override", testOverride},
	{"Shadow", testShadow},
	{"Groups", testGroups},
	{"Slots", testSlots},
	{"ReserversDie", testReserversDie},
	{"SettledAbove", testSettledAbove},
	{"SettledLate", testSettledLate},
	{"ReservationEnds", testReservationEnds},
	{"ReservationsInParallel", testReservationsInParallel},
	{"CheckReleased", testCheckReleased},
	{"SettledByAnotherNode", testSettledByAnotherNode},
	{"Transfers", testTransfers},
	{"TransferOutcomes", testTransferOutcomes},
	{"TransfersAtOnce", testTransfersAtOnce},
	{"SpendInParallel", testSpendInParallel},
	{"SpendEndings", testSpendEndings},
	{"SpendRunaway", testSpendRunaway},
	{"SpendAtOnce", testSpendAtOnce},
}

// TestKindsEmbedded runs the cases on the embedded ledger, on the clock of the machine.
func TestKindsEmbedded(t *testing.T) {
	t.Parallel() // with the other: both mostly wait
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			t.Error(err)
		}
	})
	runDriverTests(t, ledger, ledger)
}

// TestKindsOnTigerBeetle runs the same cases on a real server, with two sessions.
func TestKindsOnTigerBeetle(t *testing.T) {
	t.Parallel()
	cluster := tbtest.Start(t, tbtest.Development)
	var sessions []ledgers.Driver
	for range 2 {
		session, err := tigerbeetle.Open(cluster.Addresses(), cluster.ID(), nil)
		if errors.Is(err, tigerbeetle.ErrNoCgo) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := session.Close()
			if err != nil {
				t.Error(err)
			}
		})
		sessions = append(sessions, session)
	}
	runDriverTests(t, sessions...)
}

// runDriverTests runs all cases at once, however few processors there are: they mostly wait.
func runDriverTests(t *testing.T, sessions ...ledgers.Driver) {
	t.Helper()
	var cases sync.WaitGroup
	for _, c := range driverTests {
		cases.Go(func() {
			t.Run(c.name, func(t *testing.T) { c.test(t, stage{sessions, namespace()}) })
		})
	}
	cases.Wait()
}

// stage is a ledger that nodes are started on, with a namespace that a case has for itself.
type stage struct {
	sessions  []ledgers.Driver
	namespace accounts.Namespace
}

// node starts a node on one of the sessions. It knows nobody yet.
func (s stage) node(t testing.TB, i int, limits *limiter.Limits) *node {
	t.Helper()
	n := &node{namespace: s.namespace, registry: prometheus.NewRegistry(), log: &syncBuffer{}}
	n.calls = ledgertest.NewFaulty(s.sessions[i%len(s.sessions)])
	var err error
	n.book, err = accounts.NewBook(n.calls, s.namespace, &accounts.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	n.Limiter, err = limiter.New(n.book, limits, &limiter.Options{
		Lag: lag, Shared: true, Registerer: n.registry,
		Logger: slog.New(slog.NewTextHandler(n.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pair starts two nodes that follow each other's quotas, until the end of the case.
func (s stage) pair(t testing.TB, limits *limiter.Limits) (a, b *node) {
	t.Helper()
	a, b = s.node(t, 0, limits), s.node(t, 1, limits)
	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	for _, n := range []*node{a, b} {
		background.Go(func() { n.refresh(ctx) })
	}
	t.Cleanup(func() {
		stop()
		background.Wait()
	})
	return a, b
}

// rulesOf puts limits that wait for the ledger together with what they refer to.
func rulesOf(t testing.TB, r limiter.Rules) *limiter.Limits {
	t.Helper()
	r.Revision = max(r.Revision, 1)
	r.Limits = slices.Clone(r.Limits)
	for i := range r.Limits {
		r.Limits[i].Deadline = patience
	}
	set, err := limiter.NewRules(r)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// limitsOf is rulesOf limits that refer to nothing.
func limitsOf(t testing.TB, limits ...limiter.Limit) *limiter.Limits {
	t.Helper()
	return rulesOf(t, limiter.Rules{Limits: limits})
}

func rate(name string, quota uint64, window time.Duration) limiter.Limit {
	return limiter.Limit{Name: name, Kind: limiter.RequestRate, Quota: quota, Window: window}
}

func budget(name string, quota uint64, window time.Duration) limiter.Limit {
	return limiter.Limit{Name: name, Kind: limiter.Budget, Quota: quota, Window: window}
}

// lasting is a limit whose units do not come back after a time.
func lasting(name string, kind limiter.Kind, quota uint64) limiter.Limit {
	return limiter.Limit{Name: name, Kind: kind, Quota: quota}
}

// one asks one limit.
func one(limit, subject string, cost uint64) limiter.Request {
	return several(limiter.Member{Limit: limit, Subject: subject, Cost: cost})
}

func several(members ...limiter.Member) limiter.Request { return limiter.Request{Members: members} }

// under is a request under an id.
func under(id string, r limiter.Request) limiter.Request {
	r.ID = id
	return r
}

// holding makes a request a reservation.
func holding(hold time.Duration, r limiter.Request) limiter.Request {
	r.Hold = hold
	return r
}

// decide checks or reserves, as the request says.
func (n *node) decide(t testing.TB, r limiter.Request) limiter.Decision {
	t.Helper()
	d, err := n.try(r)
	if err != nil {
		t.Fatalf("%+v: got %v, want a decision", r, err)
	}
	return d
}

func (n *node) try(r limiter.Request) (limiter.Decision, error) {
	if r.Hold > 0 {
		return n.Reserve(context.Background(), r)
	}
	return n.Check(context.Background(), r)
}

// admit is decide where it has to be allowed.
func (n *node) admit(t testing.TB, r limiter.Request) limiter.Decision {
	t.Helper()
	d := n.decide(t, r)
	if !d.Allowed || d.Degraded {
		t.Fatalf("%+v: got %+v, want it allowed", r, d)
	}
	return d
}

// deny is decide where it has to be denied, by a limit.
func (n *node) deny(t testing.TB, r limiter.Request, by string) limiter.Decision {
	t.Helper()
	d := n.decide(t, r)
	if d.Allowed || d.Limits[d.Denied].Limit != by {
		t.Fatalf("%+v: got %+v, want it denied by %s", r, d, by)
	}
	return d
}

// refuse makes a request that must not be decided.
func (n *node) refuse(t testing.TB, r limiter.Request, want limiter.Code) {
	t.Helper()
	_, err := n.try(r)
	wantCode(t, err, want)
}

// wantCode compares the code of an error; none is expected to be empty.
func wantCode(t testing.TB, err error, want limiter.Code) {
	t.Helper()
	e, ok := errors.AsType[*limiter.Error](err)
	if (want == "") != (err == nil) || want != "" && (!ok || e.Code != want) {
		t.Fatalf("got %v, want code %q", err, want)
	}
}

// wantBalance compares what a subject has.
func (n *node) wantBalance(t testing.TB, limit, subject string, quota, used, left uint64) {
	t.Helper()
	b, err := n.Balance(context.Background(), limit, subject)
	if err != nil {
		t.Fatal(err)
	}
	if b.Quota != quota || b.Used != used || b.Remaining != left {
		t.Fatalf("balance of %q on %q: got quota %d, used %d, remaining %d, want %d, %d, %d",
			subject, limit, b.Quota, b.Used, b.Remaining, quota, used, left)
	}
}

// storm makes n requests at once over nodes, and counts what passed.
func storm(t testing.TB, n int, nodes []*node, request func(i int) limiter.Request) int {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	allowed := 0
	for i := range n {
		callers.Go(func() {
			d, err := nodes[i%len(nodes)].try(request(i))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if d.Allowed {
				allowed++
			}
		})
	}
	callers.Wait()
	return allowed
}

// rest waits until a time has passed for sure, also on a ledger that gives units back late.
func rest(until time.Time) {
	time.Sleep(time.Until(until) + 2*lag) // tidy:sleep a real server's clock cannot be moved
}

// inTime skips the rest of a case that a busy machine has carried past a time: what it would look
// at has come back meanwhile.
func inTime(t testing.TB, until time.Time) {
	t.Helper()
	late := time.Since(until)
	if late > 0 {
		t.Skipf("the machine is too busy: %v too late to tell", late)
	}
}

// wantSoon waits until something is seen that takes a second at most, and the time of some calls,
// which is long on a busy machine.
func wantSoon(t testing.TB, what string, is func() bool) {
	t.Helper()
	var slowest time.Duration
	took := await(t, what, func() bool {
		start := time.Now()
		defer func() { slowest = max(slowest, time.Since(start)) }()
		return is()
	})
	t.Logf("%s after %v, a call took up to %v", what, took, slowest)
	if took > time.Second+slack+4*slowest {
		t.Errorf("%s: got it after %v, want it within a second", what, took)
	}
}
