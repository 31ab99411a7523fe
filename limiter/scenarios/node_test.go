package scenarios_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/guard"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
	"weir/limiter"
)

const (
	// deadline is what requests wait for the ledger, and slack what an answer may take besides, on
	// a busy machine.
	deadline = 250 * time.Millisecond
	slack    = 400 * time.Millisecond
	// patience bounds every wait for what has to happen.
	patience = time.Minute
	// lag is how much later than its time-out TigerBeetle gives units back.
	lag = 50 * time.Millisecond
)

// long is whether the full counts are run.
func long() bool { return os.Getenv("WEIR_LONG") == "1" }

// rounds returns how often to do something: in short, or in full.
func rounds(short, full int) int {
	if long() {
		return full
	}
	return short
}

// namespace returns one that no other test has.
func namespace() accounts.Namespace {
	var ns accounts.Namespace
	_, _ = rand.Read(ns[:])
	return ns
}

// node is one weir below HTTP: a session of its own, a guard, a book and a limiter with a spool.
type node struct {
	*limiter.Limiter
	namespace accounts.Namespace
	guard     *guard.Guard
	book      *accounts.Book
	// calls counts what is sent to the session.
	calls    *ledgertest.Faulty
	registry *prometheus.Registry
	log      *syncBuffer
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// open starts a node on the cluster at these addresses; the end of the test stops it. It does not
// wait for the ledger.
func open(t testing.TB, addresses []string, clusterID ledgers.Amount, ns accounts.Namespace,
	limits *limiter.Limits, options guard.Options,
) *node {
	t.Helper()
	n := &node{namespace: ns, registry: prometheus.NewRegistry(), log: &syncBuffer{}}
	logger := slog.New(slog.NewTextHandler(n.log, nil))
	session, err := tigerbeetle.Open(addresses, clusterID,
		&tigerbeetle.Options{Registerer: n.registry, Logger: logger, CloseTimeout: time.Second})
	if errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.calls = ledgertest.NewFaulty(session)
	options.Logger, options.Registerer = logger, n.registry
	n.guard, err = guard.New(n.calls, &options)
	if err != nil {
		t.Fatal(err)
	}
	n.book, err = accounts.NewBook(n.guard, ns, &accounts.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	spool, err := limiter.OpenSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n.Limiter, err = limiter.New(n.book, limits, &limiter.Options{
		Lag: lag, Shared: true, Spool: spool, Logger: logger, Registerer: n.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { n.bookSpool(ctx) })
	background.Go(func() { n.refresh(ctx) })
	t.Cleanup(func() {
		stop()
		background.Wait()
		n.close(t, spool)
		if t.Failed() {
			t.Logf("log of a node:\n%s", n.log)
		}
	})
	return n
}

func (n *node) close(t testing.TB, spool *limiter.Spool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := n.Close(ctx)
	if err != nil {
		t.Errorf("close the limiter: %v", err)
	}
	err = n.guard.Close()
	if err != nil && !errors.Is(err, tigerbeetle.ErrUnanswered) {
		t.Errorf("close the ledger: %v", err)
	}
	err = spool.Close()
	if err != nil {
		t.Errorf("close the spool: %v", err)
	}
}

// bookSpool books what was let through whenever the ledger is back.
func (n *node) bookSpool(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.guard.Back():
		}
		_ = n.BookSpool(ctx) // what is left is booked by settle
	}
}

// refresh reads once a second what other nodes did to the quotas.
func (n *node) refresh(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	since := map[string]uint64{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, l := range n.Limits().All() {
			next, err := n.book.Refresh(ctx, accounts.Limit{
				Name: l.Name, Ledger: l.Ledger, Quota: l.Quota,
				WindowSeconds: uint32(l.Window / time.Second),
			}, since[l.Name])
			if err == nil {
				since[l.Name] = next
			}
		}
	}
}

// ready waits until the node has reached its ledger.
func (n *node) ready(t testing.TB) {
	t.Helper()
	await(t, "the ledger is reached", n.guard.Up)
}

// settle waits until nothing is left to be booked or given back, with the ledger in reach.
func (n *node) settle(t testing.TB) {
	t.Helper()
	await(t, "the ledger is back", n.guard.Up)
	await(t, "the spool is booked", func() bool { return n.BookSpool(t.Context()) == nil })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := n.Close(ctx)
	if err != nil {
		t.Fatalf("what was given up is not settled: %v", err)
	}
}

// await waits until something is true, and returns how long that took.
func await(t testing.TB, what string, is func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !is() {
		if time.Since(start) > patience {
			t.Fatalf("waited %v: not so: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond) // tidy:sleep a real server takes its time
	}
	return time.Since(start)
}

// metric is the value of a metric whose labels have these values, in the order of their names.
func (n *node) metric(t testing.TB, name string, values ...string) float64 {
	t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if slices.Equal(labels, values) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// rule is a limit of requests.
func rule(name string, quota uint64, window time.Duration, policy limiter.Policy) limiter.Limit {
	return limiter.Limit{
		Name: name, Kind: limiter.RequestRate, Quota: quota, Window: window,
		OnFailure: policy, Deadline: deadline,
	}
}

func newLimits(t testing.TB, revision uint32, limits ...limiter.Limit) *limiter.Limits {
	t.Helper()
	set, err := limiter.NewLimits(revision, limits)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// startNodes starts nodes on a cluster, each behind the proxy that comes with it, and waits until
// they have reached it.
func startNodes(t testing.TB, c *tbtest.Cluster, count int, limits *limiter.Limits,
) ([]*node, []*tbtest.Proxy) {
	t.Helper()
	ns := namespace()
	nodes, proxies := make([]*node, count), make([]*tbtest.Proxy, count)
	var options guard.Options
	for _, l := range limits.All() { // the guard's deadline is for limits that wait longest
		options.Deadline = max(options.Deadline, l.Deadline)
	}
	for i := range nodes {
		proxies[i] = c.Proxy(t)
		nodes[i] = open(t, proxies[i].Addresses(), c.ID(), ns, limits, options)
	}
	for _, n := range nodes {
		n.ready(t)
	}
	return nodes, proxies
}
