package scenarios_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"weir/ledgers/guard"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle/tbtest"
	"weir/limiter"
)

// outage is a way to lose a ledger, and to get it back.
type outage struct {
	name       string
	lose, back func(c *tbtest.Cluster, p *tbtest.Proxy) error
}

// outages are all the ways.
var outages = []outage{
	{
		"Paused",
		func(c *tbtest.Cluster, _ *tbtest.Proxy) error { return c.Pause(0) },
		func(c *tbtest.Cluster, _ *tbtest.Proxy) error { return c.Resume(0) },
	},
	{
		"Killed",
		func(c *tbtest.Cluster, _ *tbtest.Proxy) error { c.Kill(0); return nil },
		func(c *tbtest.Cluster, _ *tbtest.Proxy) error { return c.Restart(0) },
	},
	{
		"Slow",
		func(_ *tbtest.Cluster, p *tbtest.Proxy) error { p.Delay(2 * time.Second); return nil },
		func(_ *tbtest.Cluster, p *tbtest.Proxy) error { p.Delay(0); return nil },
	},
	{
		"Cut",
		func(_ *tbtest.Cluster, p *tbtest.Proxy) error { p.Cut(); return nil },
		func(_ *tbtest.Cluster, p *tbtest.Proxy) error { p.Mend(); return nil },
	},
	{
		"Dropping",
		func(_ *tbtest.Cluster, p *tbtest.Proxy) error { p.DropReplies(1); return nil },
		func(_ *tbtest.Cluster, p *tbtest.Proxy) error { p.DropReplies(0); return nil },
	},
}

// site is one node on a cluster of one replica, behind a proxy.
type site struct {
	*node
	cluster *tbtest.Cluster
	proxy   *tbtest.Proxy
	outage  outage
	policy  limiter.Policy
	// silence is the answer of the policy.
	silence string
}

func (s *site) lose(t testing.TB) {
	t.Helper()
	err := s.outage.lose(s.cluster, s.proxy)
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) back(t testing.TB) {
	t.Helper()
	err := s.outage.back(s.cluster, s.proxy)
	if err != nil {
		t.Fatal(err)
	}
}

// opened has subjects be seen, so that a check of theirs is one call, with nothing charged.
func (s *site) opened(t testing.TB, subjects ...string) {
	t.Helper()
	for _, subject := range subjects {
		change := limiter.Change{Limit: "api", Subject: subject, Amount: 1, ID: "in"}
		await(t, "a grant", func() bool {
			_, err := s.Grant(t.Context(), change)
			return err == nil
		})
		change.ID = "out"
		await(t, "its revocation", func() bool {
			_, err := s.Revoke(t.Context(), change)
			return err == nil
		})
	}
}

// eachOutage runs a test for each of some outages and each policy, on one cluster. The limit is
// "api", 10 in 30 s.
func eachOutage(t *testing.T, some []outage, options guard.Options,
	test func(t *testing.T, s *site),
) {
	c := tbtest.Start(t, tbtest.Development)
	for _, o := range some {
		for _, policy := range []limiter.Policy{limiter.Open, limiter.Closed} {
			t.Run(o.name+"/"+string(policy), func(t *testing.T) {
				s := &site{cluster: c, proxy: c.Proxy(t), outage: o, policy: policy}
				s.silence = "degraded"
				if policy == limiter.Closed {
					s.silence = string(limiter.CodeLedgerUnavailable)
				}
				limits := newLimits(t, 1, rule("api", 10, 30*time.Second, policy))
				s.node = open(t, s.proxy.Addresses(), c.ID(), namespace(), limits, options)
				s.ready(t)
				test(t, s)
			})
		}
	}
}

// TestOutage loses the ledger while checks are made one after the other. They are answered by their
// policy within the deadline, and at once when the breaker is open; when the ledger is back it
// decides again.
func TestOutage(t *testing.T) {
	eachOutage(t, outages, guard.Options{}, func(t *testing.T, s *site) {
		var l tally
		s.opened(t, "alice")
		for range 2 {
			l.add(s.ask("api", "alice", ""))
		}
		s.lose(t)
		lost := time.Now()
		var before, open tally
		for s.guard.Up() && time.Since(lost) < patience {
			before.add(s.ask("api", "alice", ""))
		}
		opened := time.Since(lost)
		for range 100 {
			open.add(s.ask("api", fmt.Sprint("subject ", len(open.answers)%10), ""))
		}
		s.back(t)
		healed := time.Now()
		await(t, "the ledger decides again", func() bool {
			return l.add(s.ask("api", "bob", "")).kind() != s.silence
		})
		t.Logf("| %s | %s | slowest answer %v | %d answers until the breaker opened after %v | "+
			"then slowest %v | decided again %v after the ledger was back |", s.outage.name, s.policy,
			before.slowest().Round(time.Millisecond), len(before.answers),
			opened.Round(time.Millisecond), open.slowest().Round(time.Microsecond),
			time.Since(healed).Round(time.Millisecond))
		open.wantKinds(t, map[string]int{s.silence: 100})
		before.wantKinds(t, map[string]int{s.silence: len(before.answers)})
		if before.slowest() > deadline+slack || open.slowest() > slack/4 {
			t.Errorf("slowest answers: got %v and, the breaker open, %v; want %v and no wait",
				before.slowest(), open.slowest(), deadline)
		}
		s.settle(t)
		l.answers = append(append(l.answers, before.answers...), open.answers...)
		l.prove(t, s.node)
	})
}

// TestFloodInOutage makes 2,000 checks at once when the ledger was just lost: only so many are in
// flight, and the others are answered at once.
func TestFloodInOutage(t *testing.T) {
	const checks, inFlight = 2000, 100
	some := outages[:rounds(1, len(outages))]
	eachOutage(t, some, guard.Options{MaxCalls: inFlight}, func(t *testing.T, s *site) {
		s.opened(t, "alice")
		s.lose(t)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		sent := s.calls.Calls(ledgertest.CallCreateTransfers)
		var l tally
		l.all(checks, func(int) answer { return s.ask("api", "alice", "") })
		sent = s.calls.Calls(ledgertest.CallCreateTransfers) - sent
		runtime.GC()
		runtime.ReadMemStats(&after)
		waited := 0
		for _, a := range l.answers {
			if a.took >= deadline-lag {
				waited++
			}
		}
		grown := int64(after.HeapInuse) - int64(before.HeapInuse)
		t.Logf("%d sent to the ledger, %d waited, slowest %v, heap grown by %d KiB, answers %v",
			sent, waited, l.slowest(), grown>>10, l.kinds())
		kinds := l.kinds()
		if kinds[s.silence]+kinds[string(limiter.CodeBusy)] != checks {
			t.Errorf("answers: got %v, want %d by the policy", kinds, checks)
		}
		if sent > inFlight || grown > 32<<20 || l.slowest() > deadline+2*slack {
			t.Errorf("got %d in flight, want %d; slowest %v, want %v; heap grown by %d",
				sent, inFlight, l.slowest(), deadline, grown)
		}
		s.back(t)
		s.settle(t)
		l.prove(t, s.node)
	})
}

// TestLateCommits makes ten checks of 10 while the ledger is away, without ids and with. What
// commits late is given back where nobody was let through, and stands where somebody was.
func TestLateCommits(t *testing.T) {
	eachOutage(t, outages, guard.Options{Failures: 30}, func(t *testing.T, s *site) {
		s.opened(t, "without", "with")
		s.lose(t)
		var without, with tally
		without.all(10, func(int) answer { return s.ask("api", "without", "") })
		with.all(10, func(i int) answer { return s.ask("api", "with", fmt.Sprint("id ", i)) })
		without.wantKinds(t, map[string]int{s.silence: 10})
		with.wantKinds(t, map[string]int{s.silence: 10})
		s.back(t)
		healed := time.Now()
		s.settle(t)
		want := uint64(10)
		if s.policy == limiter.Open {
			want = 0
		}
		took := await(t, "what was late is settled", func() bool {
			b, err := s.Balance(t.Context(), "api", "without")
			return err == nil && b.Remaining == want
		})
		voided := s.metric(t, "weir_late_charges_total", "voided")
		t.Logf("remaining %d of 10 after %v, %v late charges voided",
			want, time.Since(healed), voided)
		if took > 5*time.Second || s.policy == limiter.Closed && voided != 10 {
			t.Errorf("got %v voided within %v, want 10 within 5s", voided, took)
		}
		for i := range 10 { // each id is the one recorded answer
			id := fmt.Sprint("id ", i)
			for range 2 {
				a := with.add(s.ask("api", "with", id))
				if a.kind() != "replayed" && a.kind() != "allowed" {
					t.Errorf("%s again: got %s, want it admitted", id, a.kind())
				}
			}
		}
		b, err := s.Balance(t.Context(), "api", "with")
		if err != nil || b.Used != 10 || b.Overage != 0 {
			t.Errorf("ten ids: got %+v and %v, want 10 used", b, err)
		}
		with.answers = append(with.answers, without.answers...)
		with.prove(t, s.node)
	})
}

// TestNoLedger starts a node for a cluster that is not there, and with the wrong id for one that
// is: it is not ready, and its log says so. When the ledger comes the node is ready by itself.
func TestNoLedger(t *testing.T) {
	c := tbtest.Start(t, tbtest.Development)
	nowhere, err := tbtest.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	wrong := c.ID().Add64(1)
	limits := newLimits(t, 1, rule("open", 10, time.Minute, limiter.Open),
		rule("closed", 10, time.Minute, limiter.Closed))
	for name, n := range map[string]*node{
		"no cluster": open(t, nowhere, c.ID(), namespace(), limits, guard.Options{}),
		"wrong id":   open(t, c.Addresses(), wrong, namespace(), limits, guard.Options{}),
	} {
		took := await(t, "the log says so", func() bool {
			return strings.Contains(n.log.String(), "the ledger is not reached yet")
		})
		t.Logf("%s: said after %v", name, took)
		open, closed := n.ask("open", "alice", ""), n.ask("closed", "alice", "")
		if took > 10*time.Second || n.guard.Ready() || open.kind() != "degraded" ||
			closed.kind() != string(limiter.CodeLedgerUnavailable) {
			t.Errorf("%s: got ready %v, %s and %s, want not ready and the policies' answers",
				name, n.guard.Ready(), open.kind(), closed.kind())
		}
	}
}
