package tigerbeetle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
)

// What a server in development mode takes in one request: 32 KiB less a header of 256 bytes and a
// trailer, of 128 bytes each for events and 16 for ids.
const (
	developmentEvents = (32<<10 - 256 - 128) / 128
	developmentIDs    = (32<<10 - 256 - 16) / 16
)

func openOn(
	t testing.TB, c *tigerbeetle.Cluster, options *tigerbeetle.Options,
) *tigerbeetle.Ledger {
	t.Helper()
	ledger, err := c.Open(options)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return ledger
}

func newTwin() *ledgertest.Twin { return ledgertest.NewTwin(func() uint64 { return 1 << 60 }) }

// TestConformanceOverTwin holds the driver to the specification, over the naive twin in place of a
// cluster in development mode.
func TestConformanceOverTwin(t *testing.T) {
	ledgertest.Run(t, func(t testing.TB) ledgertest.Harness {
		var now atomic.Uint64
		now.Store(1 << 60)
		cluster := &tigerbeetle.Cluster{
			Ledger: ledgertest.NewTwin(now.Load),
			Events: developmentEvents, IDs: developmentIDs,
		}
		return ledgertest.Harness{
			Driver:  openOn(t, cluster, nil),
			Advance: func(d time.Duration) { now.Add(uint64(d)) },
		}
	})
}

// log remembers the requests of a cluster, and holds them back while it is shut.
type log struct {
	mu       sync.Mutex
	requests [][]int
	shut     chan struct{}
}

func newLog() *log { return &log{shut: make(chan struct{})} }

// before is a Cluster's Before.
func (g *log) before(_ string, parts []int, ended <-chan struct{}) error {
	g.mu.Lock()
	g.requests = append(g.requests, parts)
	g.mu.Unlock()
	select {
	case <-g.shut:
		return nil
	case <-ended:
		return tigerbeetle.ErrSessionOver
	}
}

func (g *log) open() { close(g.shut) }

func (g *log) seen() [][]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.requests)
}

// someAccounts creates accounts 1 and 2 on ledger 1.
func someAccounts(t testing.TB, d ledgers.Driver) {
	t.Helper()
	_, err := d.CreateAccounts(context.Background(), []ledgers.Account{
		{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1}, {ID: ledgers.ID{Lo: 2}, Ledger: 1, Code: 1},
	})
	if err != nil {
		t.Fatalf("create accounts: %v", err)
	}
}

// someTransfers makes n transfers with ids from first on.
func someTransfers(first, n int) []ledgers.Transfer {
	transfers := make([]ledgers.Transfer, n)
	for i := range transfers {
		transfers[i] = ledgers.Transfer{
			ID:             ledgers.ID{Lo: uint64(first + i)},
			DebitAccountID: ledgers.ID{Lo: 1}, CreditAccountID: ledgers.ID{Lo: 2},
			Amount: ledgers.AmountOf(1), Ledger: 1, Code: 1,
		}
	}
	return transfers
}

// link joins transfers into one chain.
func link(transfers []ledgers.Transfer) []ledgers.Transfer {
	for i := range len(transfers) - 1 {
		transfers[i].Flags |= ledgers.Linked
	}
	return transfers
}

func idsOf(transfers []ledgers.Transfer) []ledgers.ID {
	ids := make([]ledgers.ID, len(transfers))
	for i, t := range transfers {
		ids[i] = t.ID
	}
	return ids
}

// wantCreated says that all of the transfers were created, and exist.
func wantCreated(
	t testing.TB, d ledgers.Driver, transfers []ledgers.Transfer, results []ledgers.TransferResult,
	err error,
) {
	t.Helper()
	if err != nil || len(results) != len(transfers) {
		t.Errorf("create transfers: got %d results and %v, want %d", len(results), err, len(transfers))
		return
	}
	for i, r := range results {
		if r.Status != ledgers.TransferCreated {
			t.Errorf("transfer %d of %d: got %v, want created", i, len(results), r.Status)
		}
	}
	found, err := d.LookupTransfers(context.Background(), idsOf(transfers))
	if err != nil || len(found) != len(transfers) {
		t.Errorf("look up: got %d transfers and %v, want %d", len(found), err, len(transfers))
	}
}

// TestCallersShareRequests has calls wait behind one that is under way, each in its turn, and looks
// at the requests that they become.
//
// tidy:table rows of calls and requests
func TestCallersShareRequests(t *testing.T) {
	open := func(transfers []ledgers.Transfer) []ledgers.Transfer {
		transfers[len(transfers)-1].Flags |= ledgers.Linked
		return transfers
	}
	imported := func(transfers []ledgers.Transfer) []ledgers.Transfer {
		transfers[len(transfers)-1].Flags |= ledgers.Imported
		return transfers
	}
	for _, row := range []struct {
		name  string
		calls [][]ledgers.Transfer
		want  [][]int
	}{
		{"TogetherInOrder",
			[][]ledgers.Transfer{someTransfers(20, 1), someTransfers(30, 3), someTransfers(40, 2)},
			[][]int{{1, 3, 2}}},
		{"AsManyAsFit",
			[][]ledgers.Transfer{someTransfers(20, 4), someTransfers(30, 6), someTransfers(40, 1)},
			[][]int{{4, 6}, {1}}},
		{"WholeCalls",
			[][]ledgers.Transfer{someTransfers(20, 4), someTransfers(30, 7), someTransfers(40, 1)},
			[][]int{{4}, {7, 1}}},
		{"TooLargeIsAlone",
			[][]ledgers.Transfer{someTransfers(20, 1), someTransfers(30, 15), someTransfers(50, 1)},
			[][]int{{1}, {10}, {5}, {1}}},
		{"AnOpenChainIsLast",
			[][]ledgers.Transfer{
				someTransfers(20, 1), open(someTransfers(30, 2)), someTransfers(40, 1),
			},
			[][]int{{1, 2}, {1}}},
		{"ImportedIsAlone",
			[][]ledgers.Transfer{
				someTransfers(20, 1), imported(someTransfers(30, 2)), someTransfers(40, 1),
				someTransfers(50, 1),
			},
			[][]int{{1}, {2}, {1, 1}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := newLog()
				cluster := &tigerbeetle.Cluster{Ledger: newTwin(), Events: 10}
				ledger := openOn(t, cluster, nil)
				someAccounts(t, ledger)
				// Eleven are too many, so that the driver knows the server when it matters.
				_, err := ledger.CreateTransfers(t.Context(), someTransfers(1000, 11))
				if err != nil {
					t.Fatalf("create transfers: %v", err)
				}
				cluster.Before = requests.before
				calls := append([][]ledgers.Transfer{someTransfers(10, 1)}, row.calls...)
				for _, call := range calls {
					go func() {
						results, err := ledger.CreateTransfers(t.Context(), call)
						if err != nil || len(results) != len(call) {
							t.Errorf("create transfers: got %d results and %v", len(results), err)
						}
					}()
					synctest.Wait()
				}
				requests.open()
				synctest.Wait()
				want := append([][]int{{1}}, row.want...)
				got := requests.seen()
				if !slices.EqualFunc(got, want, slices.Equal) {
					t.Errorf("requests: got %v, want %v", got, want)
				}
			})
		})
	}
}

// TestLearnsWhatTheServerTakes sends more than fits, and looks at the requests: those that look for
// the size, once, and those that carry the call.
func TestLearnsWhatTheServerTakes(t *testing.T) {
	requests := newLog()
	requests.open()
	twin := newTwin()
	cluster := &tigerbeetle.Cluster{
		Ledger: twin, Events: developmentEvents, Before: requests.before,
	}
	ledger := openOn(t, cluster, nil)
	someAccounts(t, ledger)
	calls := len(requests.seen())
	first := someTransfers(10, 1000)
	results, err := ledger.CreateTransfers(t.Context(), first)
	probes := len(requests.seen()) - calls - 4
	wantCreated(t, ledger, first, results, err)
	if probes > 13 {
		t.Errorf("first call of 1000: got %d requests to find the size, want 13 at most", probes)
	}
	calls = len(requests.seen())
	second := someTransfers(5000, 1000)
	results, err = ledger.CreateTransfers(t.Context(), second)
	got := requests.seen()[calls:]
	want := [][]int{{253}, {253}, {253}, {241}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("second call of 1000: got requests %v, want %v", got, want)
	}
	wantCreated(t, ledger, second, results, err)
}

// TestChains sends chains as long as the server takes, and longer, between other events.
func TestChains(t *testing.T) {
	for _, row := range []struct {
		name           string
		before, length int
		want           error
	}{
		{"Fits", 0, developmentEvents, nil},
		{"FitsAfterOthers", developmentEvents - 1, developmentEvents, nil},
		{"ErrTooManyEvents", 0, developmentEvents + 1, ledgers.ErrTooManyEvents},
		{"ErrTooManyEventsAfterOthers", 300, developmentEvents + 1, ledgers.ErrTooManyEvents},
	} {
		t.Run(row.name, func(t *testing.T) {
			ledger := openOn(t, &tigerbeetle.Cluster{Ledger: newTwin(), Events: developmentEvents}, nil)
			someAccounts(t, ledger)
			sent := slices.Concat(someTransfers(1000, row.before),
				link(someTransfers(5000, row.length)), someTransfers(9000, 10))
			results, err := ledger.CreateTransfers(t.Context(), sent)
			if row.want == nil {
				wantCreated(t, ledger, sent, results, err)
				return
			}
			if !errors.Is(err, row.want) {
				t.Errorf("create transfers: got %v, want %v", err, row.want)
			}
			found, err := ledger.LookupTransfers(t.Context(), idsOf(sent))
			if err != nil || len(found) != 0 {
				t.Errorf("look up: got %d transfers and %v, want none", len(found), err)
			}
		})
	}
}

func TestCut(t *testing.T) {
	for _, row := range []struct {
		name  string
		chain string // one letter a transfer: l is linked with the next
		limit int
		want  []int // the lengths of the pieces; none is ErrTooManyEvents
	}{
		{"Fits", "....", 4, []int{4}},
		{"OneMore", ".....", 4, []int{4, 1}},
		{"ChainAtTheEdge", "...l.", 4, []int{3, 2}},
		{"ChainEndsAtTheEdge", "..l..", 4, []int{4, 1}},
		{"ChainOfTheLimit", ".lll.", 4, []int{1, 4}},
		{"ChainTooLong", "llll.", 4, nil},
		{"ChainTooLongLater", ".....llll..", 4, nil},
		{"OpenChainAtTheEnd", "....ll", 4, []int{4, 2}},
		{"OpenChainTooLong", "lllll", 4, nil},
		{"ChainsOfTwo", "l.l.l.l.", 3, []int{2, 2, 2, 2}},
		{"LimitOfOne", "...", 1, []int{1, 1, 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			transfers := make([]ledgers.Transfer, len(row.chain))
			for i, c := range row.chain {
				transfers[i].ID.Lo = uint64(i)
				if c == 'l' {
					transfers[i].Flags = ledgers.Linked
				}
			}
			pieces, err := tigerbeetle.Cut(transfers, row.limit)
			if row.want == nil {
				if !errors.Is(err, ledgers.ErrTooManyEvents) {
					t.Errorf("got %d pieces and %v, want ErrTooManyEvents", len(pieces), err)
				}
				return
			}
			var lengths []int
			for _, piece := range pieces {
				lengths = append(lengths, len(piece))
			}
			if err != nil || !slices.Equal(lengths, row.want) {
				t.Errorf("got pieces of %v and %v, want %v", lengths, err, row.want)
			}
			if !slices.Equal(slices.Concat(pieces...), transfers) {
				t.Errorf("got %v, want all transfers in order", pieces)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	options := &tigerbeetle.Options{Registerer: registry}
	ledger := openOn(t, &tigerbeetle.Cluster{Ledger: newTwin()}, options)
	someAccounts(t, ledger)
	second, err := (&tigerbeetle.Cluster{Ledger: newTwin()}).Open(options)
	if err == nil {
		t.Errorf("a second ledger on the same registry: got %v, want an error", second)
	}
	names := func() string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, family := range families {
			names = append(names, strings.TrimPrefix(family.GetName(), "weir_tigerbeetle_"))
		}
		return strings.Join(names, " ")
	}
	const want = "queue_events request_events request_seconds sessions_lost_total"
	if names() != want {
		t.Errorf("metrics: got %q, want %q", names(), want)
	}
	err = ledger.Close()
	if err != nil || names() != "" {
		t.Errorf("after close: got %v and metrics %q, want none", err, names())
	}
}
