package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// site is three nodes on three replicas, behind a proxy that knows the primary.
type site struct {
	cluster *tbtest.Cluster
	proxy   *tbtest.Proxy
	nodes   []*process
}

func startSite(t testing.TB, limits string) *site {
	t.Helper()
	ledger, err := tigerbeetle.Open([]string{"127.0.0.1:1"}, ledgers.AmountOf(0), nil)
	if errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Skip(err)
	}
	must(t, err)
	must(t, ledger.Close())
	s := &site{cluster: tbtest.Start(t, tbtest.ThreeReplicas)}
	s.proxy = s.cluster.Proxy(t)
	for range 3 {
		dir := t.TempDir()
		path := clusterConfig(t, dir, s.proxy.Addresses(), 1, limits)
		s.nodes = append(s.nodes, startProcess(t, path, filepath.Join(dir, "data")))
	}
	wantUp(t, s.nodes)
	return s
}

// wantUp waits until nodes reach their cluster.
func wantUp(t testing.TB, nodes []*process) {
	t.Helper()
	for _, p := range nodes {
		eventually(t, p.url+" has reached the cluster", func() bool {
			status, ledger := health(t, p.url+"/readyz")
			return status == http.StatusOK && ledger == "up"
		})
	}
}

// charged counts the live charges of a subject in its journal, as a node reads it.
func charged(t testing.TB, p *process, limit, subject string) int {
	t.Helper()
	q := client.JournalQuery{Limit: limit, Subject: subject}
	charges, ended := 0, 0
	for {
		page, err := p.Journal(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			if e.Kind == "charge" && e.Pending {
				charges += int(e.Amount.Units)
			}
			if e.Ends != "" {
				ended++
			}
		}
		if page.Cursor == "" {
			return charges - ended
		}
		q.Cursor = page.Cursor
	}
}

// exactly has a subject checked by 1,000 callers at once over some nodes, for which 100 have place.
func exactly(t testing.TB, nodes []*process, subject string) {
	t.Helper()
	var allowed, denied atomic.Int64
	var callers sync.WaitGroup
	for i := range 1000 {
		callers.Go(func() {
			check := wire.CheckRequest{Limit: "hundred", Subject: subject}
			d, err := nodes[i%len(nodes)].Check(context.Background(), check)
			switch {
			case err != nil:
				t.Errorf("check %d: got %v", i, err)
			case d.Allowed:
				allowed.Add(1)
			default:
				denied.Add(1)
			}
		})
	}
	callers.Wait()
	if allowed.Load() != 100 || denied.Load() != 900 {
		t.Errorf("%s: got %d allowed and %d denied, want 100 and 900",
			subject, allowed.Load(), denied.Load())
	}
	for i, p := range nodes {
		if got := charged(t, p, "hundred", subject); got != 100 {
			t.Errorf("%s: got %d charged by the journal of node %d, want 100", subject, got, i)
		}
	}
}

// TestServeThreeNodes decides over HTTP on three nodes and three replicas: exactly, also after a
// node was killed and after the primary was, and while that happens each id is charged once.
func TestServeThreeNodes(t *testing.T) {
	s := startSite(t, "{name: hundred, kind: request-rate, quota: 100, window: 300s, "+
		"on_failure: closed, deadline: 30s}\n"+
		"{name: ids, kind: request-rate, quota: 500, window: 1h, on_failure: closed, deadline: 500ms}")
	for round := range rounds(3, 20) {
		exactly(t, s.nodes, fmt.Sprint("round ", round))
	}
	s.loseWhileChecked(t)
	exactly(t, s.nodes[1:], "after the losses")
}

// loseWhileChecked sends 1,000 ids, for 500 of which there is place, each until it is answered, and
// meanwhile kills a node and the primary.
func (s *site) loseWhileChecked(t *testing.T) {
	const ids, callers = 1000, 25
	var answered, failed, next atomic.Int64
	var lost, back atomic.Int64 // when, in nanoseconds
	admitted := make([]bool, ids)
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < ids; i = next.Add(1) - 1 {
				check := wire.CheckRequest{Limit: "ids", Subject: "alice", ID: fmt.Sprint("id ", i)}
				eventually(t, check.ID+" is answered", func() bool {
					node, sent := s.nodes[(i+failed.Load())%3], time.Now().UnixNano()
					d, err := node.Check(context.Background(), check)
					if err != nil {
						failed.Add(1)
						return false
					}
					admitted[i] = d.Allowed
					if lost.Load() > 0 && sent > lost.Load() {
						back.CompareAndSwap(0, time.Now().UnixNano())
					}
					return true
				})
				switch answered.Add(1) {
				case ids / 5:
					_ = s.nodes[0].cmd.Process.Signal(syscall.SIGKILL)
				case ids / 4:
					s.cluster.Kill(s.proxy.Primary())
					lost.Store(time.Now().UnixNano())
				}
			}
		})
	}
	wait.Wait()
	total := 0
	for _, a := range admitted {
		if a {
			total++
		}
	}
	t.Logf("%d ids sent again; what was sent after the primary was killed was answered after %v",
		failed.Load(), time.Duration(back.Load()-lost.Load()))
	if total != 500 {
		t.Errorf("got %d ids admitted, want 500", total)
	}
	wantUp(t, s.nodes[1:])
	for i, p := range s.nodes[1:] {
		if got := charged(t, p, "ids", "alice"); got != 500 {
			t.Errorf("got %d charged by the journal of node %d, want 500", got, i+1)
		}
		if b := p.mustBalance(t, "ids", "alice"); b.Used != wire.Count(500) {
			t.Errorf("node %d: got %+v, want 500 used", i+1, b)
		}
	}
}

// TestServeTigerBeetleSIGTERM ends a node under load, again and again: it is not ready any more and
// answers all the same, who was answered with yes has paid, and nobody else has.
func TestServeTigerBeetleSIGTERM(t *testing.T) {
	cluster := startCluster(t)
	t.Setenv("WEIR_DRAIN", "2s")
	dir := t.TempDir()
	path := clusterConfig(t, dir, cluster.Addresses(), 1,
		"{name: a, kind: request-rate, quota: 1000000, window: 3600s, on_failure: closed}")
	var allowed atomic.Int64
	for range rounds(3, 50) {
		p := startProcess(t, path, filepath.Join(dir, "data"))
		before := allowed.Load()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				for callUntilGone(t, p) {
					allowed.Add(1)
					<-time.After(20 * time.Millisecond) // 500 checks a second
				}
			})
		}
		eventually(t, "weir is under load", func() bool { return allowed.Load() > before+200 })
		must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		eventually(t, "/readyz is 503", func() bool {
			status, _ := health(t, p.url+"/readyz")
			return status == http.StatusServiceUnavailable
		})
		notReady := allowed.Load()
		eventually(t, "callers are answered all the same", func() bool {
			return allowed.Load() > notReady
		})
		err := <-p.exited
		if err != nil {
			t.Errorf("got %v, want exit status 0; the log:\n%s", err, p.stderr)
		}
		callers.Wait()
	}
	p := startProcess(t, path, filepath.Join(dir, "data"))
	if got := charged(t, p, "a", "alice"); int64(got) != allowed.Load() {
		t.Errorf("got %d charged by the journal, want %d as allowed", got, allowed.Load())
	}
	t.Logf("%d allowed and charged over the ends of %d processes", allowed.Load(), rounds(3, 50))
}
