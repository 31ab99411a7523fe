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
	// stalls are the times for which this process did not run, the machine being busy.
	stalls []stall
	tally
}

// stall is a time in which a timer was not served.
type stall struct{ from, to time.Time }

// stallOver is the lateness of a timer from which on it counts as a stall.
const stallOver = 20 * time.Millisecond

const (
	// loadCallers are the callers of a load, and loadPause what each waits between two checks.
	loadCallers = 24
	loadPause   = 60 * time.Millisecond
	// loadSubjects are the subjects that it checks: what they ask for is about twice their quota.
	loadSubjects = 12
	// phase is how long at the least the load goes on after each change.
	phase = 6 * time.Second
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
	l.done.Go(l.watchStalls)
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

// watchStalls notes when the process does not run, until the load ends.
func (l *load) watchStalls() {
	for {
		due := time.Now().Add(stallOver)
		select {
		case <-l.stop:
			return
		case <-time.After(stallOver):
		}
		now := time.Now()
		if now.Sub(due) > stallOver {
			l.stalls = append(l.stalls, stall{due, now})
		}
	}
}

// stalled is for how long the process did not run while an answer was waited for.
func (l *load) stalled(a answer) time.Duration {
	var sum time.Duration
	from, to := a.sent, a.sent.Add(a.took)
	for _, s := range l.stalls {
		if s.from.Before(to) && from.Before(s.to) {
			sum += s.to.Sub(s.from)
		}
	}
	return sum
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
		if a.err == nil || id == "" || a.kind() == string(limiter.CodeIDExpired) {
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

// byLedger reports whether the ledger decided.
func (a answer) byLedger() bool {
	return a.kind() != "degraded" && a.kind() != string(limiter.CodeLedgerUnavailable)
}

// disturbed is how long after start the last answer without the ledger was given.
func (l *tally) disturbed(start time.Time) time.Duration {
	var last time.Duration
	for _, a := range l.answers {
		if !a.byLedger() {
			last = max(last, a.sent.Add(a.took).Sub(start))
		}
	}
	return last
}

// restored is how long after start each node was back to normal: 9 of 10 answers to what it was
// sent within the next second are the ledger's. It reports false if that is still to come.
func (l *tally) restored(start time.Time, nodes []*node) (time.Duration, bool) {
	var latest time.Duration
	for _, n := range nodes {
		mine := slices.DeleteFunc(slices.Clone(l.answers), func(a answer) bool { return a.node != n })
		slices.SortFunc(mine, func(a, b answer) int { return a.sent.Compare(b.sent) })
		i := slices.IndexFunc(mine, func(a answer) bool { return normalFrom(a.sent, mine) })
		if i < 0 {
			return 0, false
		}
		latest = max(latest, mine[i].sent.Sub(start))
	}
	return latest, true
}

// normalFrom reports whether a second is over in which hardly any answer was not the ledger's.
func normalFrom(at time.Time, answers []answer) bool {
	sum, good := 0, 0
	for _, a := range answers {
		after := a.sent.Sub(at)
		if after >= time.Second {
			return good*10 >= sum*9
		}
		if after < 0 {
			continue
		}
		sum++
		if a.byLedger() {
			good++
		}
	}
	return false
}

// observe waits until all nodes are back to normal after a change that was made at start, and at
// least for phase, and returns how long it took them.
func (l *load) observe(t testing.TB, what string, start time.Time) time.Duration {
	t.Helper()
	<-time.After(phase)
	var took time.Duration
	await(t, "after "+what+" the nodes are back to normal", func() bool {
		is := false
		took, is = l.since(start).restored(start, l.nodes)
		return is
	})
	after := l.since(start)
	t.Logf("%s: back to normal after %v, the last answer without the ledger after %v, slowest %v, "+
		"answers %v%s", what, took, after.disturbed(start), after.slowest(), after.kinds(),
		after.timeline(start, l.nodes))
	return took
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
			if a.byLedger() {
				good[second]++
			} else {
				bad[second]++
			}
		}
		fmt.Fprintf(&text, "\n  node %d:", i)
		for second := range last + 1 {
			fmt.Fprintf(&text, " %d/%d", good[second], bad[second])
		}
	}
	return text.String()
}

// wantAnswers looks at what callers were told and how long they waited for it, less what the
// machine kept this process waiting.
func (l *load) wantAnswers(t testing.TB) {
	t.Helper()
	known := []string{
		"allowed", "denied", "replayed", "degraded", string(limiter.CodeLedgerUnavailable),
		string(limiter.CodeIDExpired), // of an id that was admitted a window ago, and not told so
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
		if a.took > deadline+slack+l.stalled(a) {
			t.Errorf("limit %s: %s after %v, want it within %v: the machine stalled for %v",
				a.limit, a.kind(), a.took, deadline+slack, l.stalled(a))
		}
	}
	var longest time.Duration
	for _, s := range l.stalls {
		longest = max(longest, s.to.Sub(s.from))
	}
	t.Logf("slowest answer %v; the machine stalled %d times, for up to %v",
		l.slowest(), len(l.stalls), longest)
}

// restoredWithin is for how long at the most a replica that is gone may be noticed. The others miss
// the primary after half a second and have elected another one 0.3 s later, for which they are
// enough. The rest is for a machine on which they have to wait for a processor.
const restoredWithin = 10 * time.Second

// TestReplicasKilled kills a backup under load, and then the primary; both come back. Three nodes
// go on deciding. How long they are disturbed by a replica that starts is logged only: two of three
// are all the cluster needs, but it takes the processors of this machine for some seconds, to clear
// its memory and to catch up, and answers of the others come after the deadline meanwhile.
func TestReplicasKilled(t *testing.T) {
	c := tbtest.Start(t, tbtest.ThreeReplicas)
	nodes, proxies := startNodes(t, c, 3, loadLimits(t))
	l := startLoad(nodes)
	l.late = 3 * time.Second
	l.observe(t, "load began", time.Now())
	for _, who := range []string{"backup", "primary"} {
		replica := proxies[0].Primary()
		if who == "backup" {
			replica = (replica + 1) % 3
		}
		c.Kill(replica)
		took := l.observe(t, who+" killed", time.Now())
		if took > restoredWithin {
			t.Errorf("%s killed: got the ledger's answers after %v, want them within %v",
				who, took, restoredWithin)
		}
		starting := time.Now()
		err := c.Restart(replica)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s started again within %v", who, time.Since(starting))
		l.observe(t, who+" restarted", starting)
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
	l.observe(t, "load began", time.Now())
	primary, start := proxies[0].Primary(), time.Now()
	err := c.Pause(primary)
	if err != nil {
		t.Fatal(err)
	}
	took := l.observe(t, "primary paused", start)
	if took > restoredWithin {
		t.Errorf("got the ledger's answers after %v, want them within %v", took, restoredWithin)
	}
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
