package scenarios_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ledgers/tigerbeetle/tbtest"
	"weir/limiter"
)

// load is a steady stream of checks against an open and a closed limit, over all nodes. Every other
// check has an id, which is sent again until it is decided.
type load struct {
	nodes []*node
	stop  chan struct{}
	done  sync.WaitGroup
	tally
}

const (
	// loadCallers are the callers of a load, and loadPause what each waits between two checks.
	loadCallers = 24
	loadPause   = 60 * time.Millisecond
	// loadSubjects are the subjects that it checks: what they ask for is about twice their quota.
	loadSubjects = 12
)

// loadLimits are the limits of a load.
func loadLimits(t testing.TB) *limiter.Limits {
	t.Helper()
	return newLimits(t, 1,
		rule("open", 40, 5*time.Second, limiter.Open),
		rule("closed", 40, 5*time.Second, limiter.Closed))
}

func startLoad(nodes []*node) *load {
	l := &load{nodes: nodes, stop: make(chan struct{})}
	for caller := range loadCallers {
		l.done.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				case <-time.After(loadPause):
				}
				l.check(caller, i)
			}
		})
	}
	return l
}

// check is check i of a caller.
func (l *load) check(caller, i int) {
	limit := []string{"open", "closed"}[i%2]
	subject := fmt.Sprint("subject ", (caller+i)%loadSubjects)
	id := ""
	if i/2%2 == 0 {
		id = fmt.Sprint(caller, " ", i)
	}
	for try := 0; ; try++ {
		a := l.add(l.nodes[(caller+try)%len(l.nodes)].ask(limit, subject, id))
		if a.err == nil || id == "" {
			return
		}
		<-time.After(loadPause)
	}
}

// end stops the load and waits for its answers.
func (l *load) end() {
	close(l.stop)
	l.done.Wait()
}

// since are the answers to what was sent after a time.
func (l *load) since(start time.Time) *tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	var later tally
	for _, a := range l.answers {
		if !a.sent.Before(start) {
			later.answers = append(later.answers, a)
		}
	}
	return &later
}

// recovered is how long after start the last answer without the ledger was sent.
func (l *tally) recovered(start time.Time) time.Duration {
	var last time.Duration
	for _, a := range l.answers {
		if a.kind() == "degraded" || a.kind() == string(limiter.CodeLedgerUnavailable) {
			last = max(last, a.sent.Add(a.took).Sub(start))
		}
	}
	return last
}

// timeline says for each second after start how many of each node's answers were the ledger's, and
// after the slash how many were not.
func (l *tally) timeline(start time.Time, nodes []*node) string {
	var text strings.Builder
	for i, n := range nodes {
		var good, bad [60]int
		last := 0
		for _, a := range l.answers {
			second := int(a.sent.Sub(start) / time.Second)
			if a.node != n || second < 0 || second >= len(good) {
				continue
			}
			last = max(last, second)
			if a.kind() == "degraded" || a.err != nil {
				bad[second]++
			} else {
				good[second]++
			}
		}
		fmt.Fprintf(&text, "\n  node %d:", i)
		for second := range last + 1 {
			fmt.Fprintf(&text, " %d/%d", good[second], bad[second])
		}
	}
	return text.String()
}

// wantAnswers looks at what callers were told and how long they waited for it.
func (l *tally) wantAnswers(t testing.TB) {
	t.Helper()
	known := []string{
		"allowed", "denied", "replayed", "degraded", string(limiter.CodeLedgerUnavailable),
	}
	for kind := range maps.Keys(l.kinds()) {
		if !slices.Contains(known, kind) {
			t.Errorf("got %d answers %q, want none", l.kinds()[kind], kind)
		}
	}
	for _, a := range l.answers {
		if a.limit == "closed" && a.Degraded || a.limit == "open" && a.err != nil {
			t.Errorf("limit %s: got %s, want the answer of its policy", a.limit, a.kind())
		}
	}
	if l.slowest() > deadline+slack {
		t.Errorf("an answer took %v, want at most %v", l.slowest(), deadline+slack)
	}
}

// TestReplicasKilled kills a backup under load, and then the primary; both come back. Three nodes
// go on deciding.
func TestReplicasKilled(t *testing.T) {
	c := tbtest.Start(t, tbtest.ThreeReplicas)
	nodes, proxies := startNodes(t, c, 3, loadLimits(t))
	l := startLoad(nodes)
	l.late = 3 * time.Second
	<-time.After(3 * time.Second)
	for _, who := range []string{"backup", "primary"} {
		replica := proxies[0].Primary()
		if who == "backup" {
			replica = (replica + 1) % 3
		}
		start := time.Now()
		c.Kill(replica)
		<-time.After(6 * time.Second)
		after := l.since(start)
		t.Logf("%s killed: back to normal after %v, slowest answer %v, answers %v; primary now %d%s",
			who, after.recovered(start), after.slowest(), after.kinds(), proxies[0].Primary(),
			after.timeline(start, nodes))
		restarted := time.Now()
		err := c.Restart(replica)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(6 * time.Second)
		after = l.since(restarted)
		t.Logf("%s restarted: answers without the ledger until %v after, answers %v%s",
			who, after.recovered(restarted), after.kinds(), after.timeline(restarted, nodes))
		normal := after.kinds()["allowed"]
		if normal == 0 || time.Since(start) < after.recovered(restarted) {
			t.Errorf("%s: got no decisions after it came back, want the ledger's", who)
		}
	}
	l.end()
	for _, n := range nodes {
		n.settle(t)
	}
	l.wantAnswers(t)
	l.prove(t, nodes...)
}

// TestPrimaryPaused stops the primary's process for a while: it keeps its connections and says
// nothing, until it is no longer the primary.
func TestPrimaryPaused(t *testing.T) {
	c := tbtest.Start(t, tbtest.ThreeReplicas)
	nodes, proxies := startNodes(t, c, 3, loadLimits(t))
	l := startLoad(nodes)
	l.late = 3 * time.Second
	<-time.After(3 * time.Second)
	primary, start := proxies[0].Primary(), time.Now()
	err := c.Pause(primary)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(6 * time.Second)
	after := l.since(start)
	t.Logf("primary paused: back to normal after %v, slowest answer %v, answers %v; primary now %d%s",
		after.recovered(start), after.slowest(), after.kinds(), proxies[0].Primary(),
		after.timeline(start, nodes))
	err = c.Resume(primary)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(4 * time.Second)
	l.end()
	for _, n := range nodes {
		n.settle(t)
	}
	l.wantAnswers(t)
	l.prove(t, nodes...)
}
