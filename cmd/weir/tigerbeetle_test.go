package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// startCluster starts a real TigerBeetle of the test's own, or skips the test.
func startCluster(t testing.TB) *tbtest.Cluster {
	t.Helper()
	ledger, err := tigerbeetle.Open([]string{"127.0.0.1:1"}, ledgers.AmountOf(0), nil)
	if errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Skip(err)
	}
	if err == nil {
		err = ledger.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return tbtest.Start(t, tbtest.Development)
}

// clusterConfig writes a config with these limits on a cluster.
func clusterConfig(t testing.TB, dir string, addresses []string, revision int, limits string,
) string {
	t.Helper()
	path := writeConfig(t, dir, limits)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ledger := fmt.Sprintf("ledger:\n  driver: tigerbeetle\n  cluster: 0\n  addresses: [%s]\n"+
		"namespace: 3f8a6c1d-94b7-4a53-8b1e-6d2f0c7e5a90\nrevision: %d\n",
		strings.Join(addresses, ", "), revision)
	err = os.WriteFile(path, append([]byte(ledger), text...), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Two nodes on one cluster see one truth, which outlives both.
func TestServeTigerBeetle(t *testing.T) {
	cluster := startCluster(t)
	limit := "{name: a, kind: request-rate, quota: %d, window: 300s}"
	configs, dirs := [2]string{}, [2]string{t.TempDir(), t.TempDir()}
	nodes := [2]*process{}
	for i, dir := range dirs {
		configs[i] = clusterConfig(t, dir, cluster.Addresses(), 1, fmt.Sprintf(limit, 10))
		nodes[i] = startProcess(t, configs[i], filepath.Join(dir, "data"))
	}
	want := "ledger tigerbeetle cluster 0 at " + cluster.Addresses()[0]
	if !strings.HasSuffix(nodes[0].ready, want) {
		t.Errorf("got ready line %q, want it to end with %q", nodes[0].ready, want)
	}
	for i := range 10 {
		d := nodes[i%2].mustCheck(t, "a", "alice", fmt.Sprint("id-", i))
		if got := *d.Limits[0].Remaining; !d.Allowed || d.Degraded || got != wire.Count(uint64(9-i)) {
			t.Fatalf("check %d: got %+v, remaining %v, want allowed, remaining %v", i, d, got, 9-i)
		}
	}
	for i, p := range nodes {
		if d := p.mustCheck(t, "a", "alice", ""); d.Allowed || d.RetryAfterMS == 0 {
			t.Errorf("node %d, check 11: got %+v, want a denial with its wait", i, d)
		}
		if d := p.mustCheck(t, "a", "alice", fmt.Sprint("id-", i)); !d.Allowed || !d.Replayed {
			t.Errorf("node %d, an id of the other: got %+v, want a replay", i, d)
		}
	}

	err := nodes[0].signal(t, syscall.SIGTERM)
	if err != nil {
		t.Errorf("after SIGTERM: got %v, want exit status 0; the log:\n%s", err, nodes[0].stderr)
	}
	nodes[1].kill(t)
	for i := range nodes {
		nodes[i] = startProcess(t, configs[i], filepath.Join(dirs[i], "data"))
	}
	for i, p := range nodes {
		if d := p.mustCheck(t, "a", "alice", ""); d.Allowed {
			t.Errorf("node %d, after a restart: got %+v, want it denied", i, d)
		}
		if d := p.mustCheck(t, "a", "alice", "id-9"); !d.Replayed {
			t.Errorf("node %d, after a restart: got %+v, want a replay", i, d)
		}
		if b := p.mustBalance(t, "a", "alice"); b.Quota != wire.Count(10) || b.Used != wire.Count(10) {
			t.Errorf("node %d, after a restart: got %+v, want 10 of 10 used", i, b)
		}
	}

	wantQuotasFollow(t, cluster, dirs, nodes, limit)
}

// wantQuotasFollow changes the quota of 10, which is used up, on one node and the other.
func wantQuotasFollow(t testing.TB, cluster *tbtest.Cluster, dirs [2]string, nodes [2]*process,
	limit string,
) {
	t.Helper()
	// Another quota under the same number changes nothing, and is told.
	nodes[0].mustCheck(t, "a", "bob", "")
	clusterConfig(t, dirs[1], cluster.Addresses(), 1, fmt.Sprintf(limit, 11))
	_ = nodes[1].signal(t, syscall.SIGHUP)
	eventually(t, "node 1 counts that it differs", func() bool {
		_ = nodes[1].mustCheck(t, "a", "bob", "")
		return strings.Contains(metricsOf(t, nodes[1].url), "\nweir_quota_differs_total{limit=\"a\"} ")
	})
	if b := nodes[1].mustBalance(t, "a", "alice"); b.Quota != wire.Count(10) {
		t.Errorf("node 1, another quota of one revision: got %+v, want 10 to stand", b)
	}

	// A raised quota binds also the node that does not have it in its config yet.
	clusterConfig(t, dirs[0], cluster.Addresses(), 2, fmt.Sprintf(limit, 12))
	_ = nodes[0].signal(t, syscall.SIGHUP)
	eventually(t, "node 0 allows more", func() bool {
		return nodes[0].mustCheck(t, "a", "alice", "").Allowed
	})
	eventually(t, "node 1 follows", func() bool {
		return nodes[1].mustBalance(t, "a", "alice").Quota == wire.Count(12)
	})
	eventually(t, "node 1 allows the last", func() bool { // it remembers its denials for a second
		return nodes[1].mustCheck(t, "a", "alice", "").Allowed
	})
	for i, p := range nodes {
		if b := p.mustBalance(t, "a", "alice"); b.Used != wire.Count(12) || b.Remaining != wire.Count(0) {
			t.Errorf("node %d, at the end: got %+v, want 12 of 12 used", i, b)
		}
	}
}

// A weir that cannot reach its cluster serves, says what is the matter, and is ready once it can.
func TestServeTigerBeetleAway(t *testing.T) {
	cluster := startCluster(t)
	cluster.Kill(0)
	root := t.TempDir()
	path := clusterConfig(t, root, cluster.Addresses(), 1,
		"{name: a, kind: request-rate, quota: 10, window: 300s, on_failure: closed, deadline: 250ms}\n"+
			"{name: b, kind: request-rate, quota: 10, window: 300s, deadline: 250ms}")
	p := startProcess(t, path, filepath.Join(root, "data"))
	wantState := func(ready int, ledger string) {
		t.Helper()
		eventually(t, fmt.Sprintf("/readyz is %d, ledger %s", ready, ledger), func() bool {
			status, state := health(t, p.url+"/readyz")
			return status == ready && state == ledger
		})
		if status, _ := health(t, p.url+"/healthz"); status != http.StatusOK {
			t.Errorf("/healthz: got %d, want 200", status)
		}
	}
	wantPolicy := func() {
		t.Helper()
		start := time.Now()
		_, err := p.Check(t.Context(), wire.CheckRequest{Limit: "a", Subject: "alice"})
		var answer *client.Error
		if !errors.As(err, &answer) || answer.Code != wire.CodeLedgerUnavailable {
			t.Errorf("closed, without the ledger: got %v, want %s", err, wire.CodeLedgerUnavailable)
		}
		if d := p.mustCheck(t, "b", "alice", ""); !d.Allowed || !d.Degraded {
			t.Errorf("open, without the ledger: got %+v, want it allowed and degraded", d)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("without the ledger two checks took %v, want two deadlines of 250ms", took)
		}
	}
	wantState(http.StatusServiceUnavailable, "down")
	wantPolicy()
	must(t, cluster.Restart(0))
	wantState(http.StatusOK, "up")
	eventually(t, "the ledger decides", func() bool {
		return !p.mustCheck(t, "b", "bob", "").Degraded
	})
	cluster.Kill(0)
	for range 6 { // of which the first ones find out
		wantPolicy()
	}
	wantState(http.StatusOK, "down")
	must(t, cluster.Restart(0))
	wantState(http.StatusOK, "up")
	eventually(t, "what was let through is booked", func() bool {
		b, err := p.Balance(t.Context(), "b", "alice")
		return err == nil && b.Used == wire.Count(7)
	})
	cluster.Kill(0)
	wantPolicy()
	err := p.signal(t, syscall.SIGTERM)
	if err != nil {
		t.Errorf("SIGTERM while the cluster is away: got %v, want exit status 0", err)
	}
	address := cluster.Addresses()[0]
	for _, want := range []string{"serving without the ledger", "tigerbeetle cluster 0 at " + address,
		"the ledger is reached", "the ledger is down", "the ledger is back",
		"units that were let through without the ledger are accounted for"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, p.stderr)
		}
	}
}

// A weir that is told of a cluster that is not there, or of one with another id, lives all the time
// and is never ready, and soon its log says which cluster it looks for, and where.
func TestServeTigerBeetleErrCluster(t *testing.T) {
	cluster := startCluster(t)
	nowhere, err := tbtest.FreeAddresses(1)
	must(t, err)
	for name, test := range map[string]struct {
		addresses []string
		id        string
	}{
		"NoCluster": {nowhere, "0"},
		"WrongID":   {cluster.Addresses(), "17"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WEIR_LEDGER_CLUSTER", test.id)
			dir := t.TempDir()
			path := clusterConfig(t, dir, test.addresses, 1,
				"{name: a, kind: request-rate, quota: 10, window: 300s, deadline: 250ms}")
			listen, err := tbtest.FreeAddresses(1)
			must(t, err)
			watched := watchHealth(t, "http://"+listen[0])
			start := time.Now()
			p := startProcessOn(t, path, filepath.Join(dir, "data"), listen[0])
			<-time.After(time.Duration(rounds(1, 15)) * time.Second)
			polls := watched()
			p.kill(t)
			took := loggedAfter(t, p.stderr.String(), start, "serving without the ledger",
				"tigerbeetle cluster "+test.id+" at "+test.addresses[0])
			t.Logf("said so after %v; alive and not ready %d times", took, polls)
			if took > 10*time.Second || polls < 10 {
				t.Errorf("got it after %v and %d polls, want it within 10s, and many", took, polls)
			}
		})
	}
}

// watchHealth looks again and again at a weir without its ledger, from the moment at which it
// listens until the returned function is called, which says how often that was.
func watchHealth(t testing.TB, url string) (stop func() int) {
	t.Helper()
	stopped, polls := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		for {
			live, _ := health(t, url+"/healthz")
			ready, ledger := health(t, url+"/readyz")
			notYet := n == 0 && (live == 0 || ready == 0) // nobody listens
			if live == http.StatusOK && ready == http.StatusServiceUnavailable && ledger == "down" {
				n++
			} else if !notYet {
				t.Errorf("poll %d: got /healthz %d, /readyz %d and ledger %q, want 200, 503, down",
					n, live, ready, ledger)
			}
			select {
			case <-stopped:
				polls <- n
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	stop = sync.OnceValue(func() int {
		close(stopped)
		return <-polls
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// loggedAfter returns how long after start a line with all these words was logged.
func loggedAfter(t testing.TB, log string, start time.Time, words ...string) time.Duration {
	t.Helper()
	for line := range strings.Lines(log) {
		lacks := func(word string) bool { return !strings.Contains(line, word) }
		first, _, _ := strings.Cut(line, " ")
		stamp, isOurs := strings.CutPrefix(first, "time=")
		if !isOurs || slices.ContainsFunc(words, lacks) {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, stamp)
		must(t, err)
		return at.Sub(start)
	}
	t.Fatalf("the log has no line with %q:\n%s", words, log)
	return 0
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A program without the client says so, and how to get one that has it.
func TestServeTigerBeetleErrNoCgo(t *testing.T) {
	path := clusterConfig(t, t.TempDir(), []string{"127.0.0.1:1"}, 1,
		"{name: a, kind: request-rate, quota: 10, window: 300s}")
	c := mustLoad(t, path, nil)
	ledger, err := c.Driver.open(c, nil, nil)
	if err == nil {
		must(t, ledger.Close())
		t.Skip("this test was built with cgo")
	}
	if !errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Errorf("got %v, want %v", err, tigerbeetle.ErrNoCgo)
	}
}
