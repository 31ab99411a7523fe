package scenarios_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/ledgers/tigerbeetle/tbtest"
	"weir/limiter"
)

// TestThreeNodes runs three nodes on three replicas, all of which work, and loses replies.
func TestThreeNodes(t *testing.T) {
	c := tbtest.Start(t, tbtest.ThreeReplicas)
	t.Run("ConcurrentChecks", func(t *testing.T) { testConcurrentChecks(t, c) })
	t.Run("FirstChecks", func(t *testing.T) { testFirstChecks(t, c) })
	t.Run("SlidingWindow", func(t *testing.T) { testSlidingWindow(t, c) })
	t.Run("LostReply", func(t *testing.T) { testLostReply(t, c) })
	t.Run("DroppedReplies", func(t *testing.T) { testDroppedReplies(t, c) })
	t.Run("ChangedQuota", func(t *testing.T) { testChangedQuota(t, c) })
	t.Run("GrantElsewhere", func(t *testing.T) { testGrantElsewhere(t, c) })
}

// unhurried is a rule whose requests wait for their answers however busy the machine is.
func unhurried(name string, quota uint64, window time.Duration) limiter.Limit {
	l := rule(name, quota, window, limiter.Closed)
	l.Deadline = patience
	return l
}

// Limit 100: 1,000 checks at once over three nodes, and exactly 100 pass, each round.
func testConcurrentChecks(t *testing.T, c *tbtest.Cluster) {
	nodes, _ := startNodes(t, c, 3, newLimits(t, 1, unhurried("api", 100, time.Minute)))
	var all tally
	for round := range rounds(5, 20) {
		var l tally
		subject := fmt.Sprint("round ", round)
		l.all(1000, func(i int) answer { return nodes[i%3].ask("api", subject, "") })
		l.wantKinds(t, map[string]int{"allowed": 100, "denied": 900})
		all.answers = append(all.answers, l.answers...)
	}
	t.Logf("slowest answer: %v", all.slowest())
	all.prove(t, nodes...)
}

// A subject that was never seen, limit 5: of 64 first checks at once over three nodes 5 pass.
func testFirstChecks(t *testing.T, c *tbtest.Cluster) {
	nodes, _ := startNodes(t, c, 3, newLimits(t, 1, unhurried("api", 5, time.Minute)))
	var all tally
	for round := range rounds(10, 100) {
		var l tally
		subject := fmt.Sprint("round ", round)
		l.all(64, func(i int) answer { return nodes[i%3].ask("api", subject, "") })
		l.wantKinds(t, map[string]int{"allowed": 5, "denied": 59})
		for i, n := range nodes {
			b, err := n.Balance(t.Context(), "api", subject)
			if err != nil || b.Quota != 5 || b.Used != 5 || b.Remaining != 0 {
				t.Errorf("balance by node %d: got %+v and %v, want 5 of 5 used", i, b, err)
			}
		}
		all.answers = append(all.answers, l.answers...)
	}
	all.prove(t, nodes...)
}

// 10 in 10 s: 10 checks, 9.5 s later 10 more, 1 s later 10 more, over three nodes.
func testSlidingWindow(t *testing.T, c *tbtest.Cluster) {
	const window = 10 * time.Second
	nodes, _ := startNodes(t, c, 3, newLimits(t, 1, unhurried("api", 10, window)))
	var l tally
	ten := func() {
		for i := range 10 {
			l.add(nodes[i%3].ask("api", "alice", ""))
		}
	}
	ten()
	time.Sleep(9500 * time.Millisecond) // tidy:sleep a real server's clock cannot be moved
	ten()
	time.Sleep(time.Second) // tidy:sleep a real server's clock cannot be moved
	ten()
	l.wantKinds(t, map[string]int{"allowed": 20, "denied": 10})
	wantApart(t, &l, 10, window)
	l.prove(t, nodes...)
}

// wantApart looks at the times of admissions: quota of them are at least a window apart.
func wantApart(t testing.TB, l *tally, quota int, window time.Duration) {
	t.Helper()
	var at []time.Time
	for _, a := range l.answers {
		if a.kind() == "allowed" {
			at = append(at, a.At)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	for i := quota; i < len(at); i++ {
		apart := at[i].Sub(at[i-quota])
		if apart < window {
			t.Errorf("admissions %d and %d: got %v apart, want %v", i-quota, i, apart, window)
		}
	}
}

// The reply to an id is lost after the commit: sent again, to this node or to another, it is the
// same decision, replayed, and one unit is charged.
func testLostReply(t *testing.T, c *tbtest.Cluster) {
	for policy, want := range map[limiter.Policy]string{
		limiter.Open: "degraded", limiter.Closed: string(limiter.CodeLedgerUnavailable),
	} {
		nodes, proxies := startNodes(t, c, 2, newLimits(t, 1, rule("api", 10, time.Minute, policy)))
		var l tally
		await(t, "a first check passes", func() bool {
			return l.add(nodes[0].ask("api", "alice", "first")).Transfer.Lo != 0
		})
		dropped := proxies[0].Dropped()
		proxies[0].DropReplies(1)
		a := l.add(nodes[0].ask("api", "alice", "second"))
		proxies[0].DropReplies(0)
		if a.kind() != want || proxies[0].Dropped() == dropped {
			t.Errorf("%s, the reply lost: got %s and %d replies lost, want %s",
				policy, a.kind(), proxies[0].Dropped()-dropped, want)
		}
		for i, n := range []*node{nodes[1], nodes[0]} {
			// The first node's session is busy until its client has asked for the reply again.
			await(t, "the id sent again is answered by the ledger", func() bool {
				a = l.add(n.ask("api", "alice", "second"))
				return a.kind() != want
			})
			if a.kind() != "replayed" {
				t.Errorf("%s, sent again: got %s by node %d, want replayed", policy, a.kind(), 1-i)
			}
		}
		for _, n := range nodes {
			n.settle(t)
		}
		b, err := nodes[0].Balance(t.Context(), "api", "alice")
		if err != nil || b.Used != 2 {
			t.Errorf("%s: got %+v and %v, want 2 used", policy, b, err)
		}
		l.prove(t, nodes...)
	}
}

// 1,000 checks with ids, 700 of which have place, every tenth reply lost: each id is sent again
// until it is answered.
func testDroppedReplies(t *testing.T, c *tbtest.Cluster) {
	api := rule("api", 700, time.Hour, limiter.Closed)
	api.Deadline = 40 * time.Millisecond // less than the client takes to ask again by itself
	nodes, proxies := startNodes(t, c, 3, newLimits(t, 1, api))
	for _, p := range proxies {
		p.DropReplies(10)
	}
	var l tally
	var callers sync.WaitGroup
	for worker := range 20 {
		callers.Go(func() {
			for i := range 50 {
				id := fmt.Sprint(worker, " ", i)
				await(t, "id "+id+" is answered", func() bool {
					return l.add(nodes[(worker+i)%3].ask("api", "alice", id)).err == nil
				})
			}
		})
	}
	callers.Wait()
	lost := 0
	for _, p := range proxies {
		p.DropReplies(0)
		lost += p.Dropped()
	}
	admitted := map[string]bool{}
	for _, a := range l.answers {
		if a.err == nil && a.Allowed {
			admitted[a.id] = true
		}
	}
	if len(admitted) != 700 || lost == 0 {
		t.Errorf("got %d ids admitted and %d replies lost, want 700 and some", len(admitted), lost)
	}
	t.Logf("%d replies lost, answers %v", lost, l.kinds())
	for _, n := range nodes {
		n.settle(t)
	}
	l.prove(t, nodes...)
}

// 8 of 10 used, then a config with 5 on one node, with 20 later. The other node keeps the old one.
func testChangedQuota(t *testing.T, c *tbtest.Cluster) {
	window := 4 * time.Second
	nodes, _ := startNodes(t, c, 2, newLimits(t, 1, unhurried("api", 10, window)))
	var l tally
	for i := range 8 {
		l.add(nodes[i%2].ask("api", "alice", ""))
	}
	nodes[1].SetLimits(newLimits(t, 2, unhurried("api", 5, window)))
	a := l.add(nodes[1].ask("api", "alice", ""))
	if a.kind() != "denied" || a.Limits[0].Remaining != 0 || a.Limits[0].Quota != 5 {
		t.Errorf("lowered: got %s, %+v, want denied, remaining 0, quota 5", a.kind(), a.Limits)
	}
	took := await(t, "the node with the old config knows of it", func() bool {
		b, err := nodes[0].Balance(context.Background(), "api", "alice")
		return err == nil && b.Quota == 5
	})
	t.Logf("the node with the old config knew the new quota after %v", took)
	if took > 2*time.Second {
		t.Errorf("the old config's node: got the quota after %v, want it within a second", took)
	}
	end := time.Now().Add(3*window + window/2)
	for i := 0; time.Now().Before(end); i++ {
		l.add(nodes[i%2].ask("api", "alice", ""))
		time.Sleep(20 * time.Millisecond) // tidy:sleep a real server's clock cannot be moved
	}
	wantWindows(t, &l, window)
	page, err := nodes[0].Journal(t.Context(), limiter.JournalQuery{Limit: "api", Subject: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, e := range page.Entries {
		if e.Kind == "requota" {
			steps++
		}
	}
	t.Logf("%d steps to lower the quota, of %d entries", steps, len(page.Entries))
	if steps > 10 {
		t.Errorf("got %d steps, want no more than it takes to lower a quota", steps)
	}
	for i := range 8 {
		l.add(nodes[i%2].ask("api", "bob", ""))
	}
	nodes[1].SetLimits(newLimits(t, 3, unhurried("api", 20, time.Minute)))
	b, err := nodes[1].Balance(t.Context(), "api", "carol")
	if err != nil || b.Quota != 20 {
		t.Errorf("raised, a new subject: got %+v and %v, want quota 20", b, err)
	}
	l.proveUnits(t, nodes...)
}

// wantWindows looks at the admissions after the quota was lowered to 5, once the old ones are back:
// 5 in each window, and not fewer.
func wantWindows(t testing.TB, l *tally, window time.Duration) {
	t.Helper()
	var at []time.Time
	for _, a := range l.answers[9:] {
		if a.kind() == "allowed" {
			at = append(at, a.At)
		}
		if a.err != nil {
			t.Errorf("got %v", a.err)
		}
	}
	for i := 5; i < len(at); i++ {
		if at[i].Sub(at[i-5]) < window {
			t.Errorf("admissions %d and %d: got %v apart, want %v", i-5, i, at[i].Sub(at[i-5]), window)
		}
	}
	t.Logf("%d admissions after the quota was lowered", len(at))
	if len(at) < 3*5 {
		t.Errorf("got %d admissions in three windows, want 5 in each", len(at))
	}
}

// A subject is exhausted through one node and granted 5 through another.
func testGrantElsewhere(t *testing.T, c *tbtest.Cluster) {
	nodes, _ := startNodes(t, c, 2, newLimits(t, 1, unhurried("api", 10, time.Hour)))
	var l tally
	for range 12 {
		l.add(nodes[1].ask("api", "alice", ""))
	}
	l.wantKinds(t, map[string]int{"allowed": 10, "denied": 2})
	_, err := nodes[0].Grant(t.Context(), limiter.Change{
		Limit: "api", Subject: "alice", Amount: 5, ID: "grant",
	})
	if err != nil {
		t.Fatal(err)
	}
	took := await(t, "the other node lets the subject pass", func() bool {
		return l.add(nodes[1].ask("api", "alice", "")).kind() == "allowed"
	})
	t.Logf("the other node let the subject pass after %v", took)
	if took > 1100*time.Millisecond {
		t.Errorf("got it after %v, want it within a second", took)
	}
	for range 6 {
		l.add(nodes[1].ask("api", "alice", ""))
	}
	if got := l.kinds()["allowed"]; got != 15 {
		t.Errorf("got %d allowed, want 10 and the 5 that were granted", got)
	}
	l.proveUnits(t, nodes...)
}
