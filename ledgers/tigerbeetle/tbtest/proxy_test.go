package tbtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// ask makes a call that reads, and returns how long it took.
func ask(t testing.TB, ledger *tigerbeetle.Ledger, patience time.Duration) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	start := time.Now()
	_, err := ledger.LookupAccounts(ctx, []ledgers.ID{{Lo: 1}})
	return time.Since(start), err
}

// TestProxy asks a real cluster through a proxy that does each of its tricks.
func TestProxy(t *testing.T) {
	c := tbtest.Start(t, tbtest.Development)
	p := c.Proxy(t)
	ledger, err := tigerbeetle.Open(p.Addresses(), c.ID(), nil)
	if errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	wantAnswer := func(what string, least time.Duration) {
		t.Helper()
		took, err := ask(t, ledger, 20*time.Second)
		if err != nil || took < least {
			t.Errorf("%s: got %v after %v, want an answer after %v", what, err, took, least)
		}
		t.Logf("%s: answered after %v", what, took)
	}
	wantSilence := func(what string) {
		t.Helper()
		took, err := ask(t, ledger, 300*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v after %v, want no answer", what, err, took)
		}
	}
	wantAnswer("at first", 0)
	p.Delay(200 * time.Millisecond)
	wantAnswer("delayed", 200*time.Millisecond)
	p.Delay(0)
	wantAnswer("not delayed any more", 0)

	p.DropReplies(1)
	wantSilence("all replies dropped")
	if p.Dropped() == 0 {
		t.Error("no reply was dropped")
	}
	p.DropReplies(0)
	wantAnswer("no reply dropped any more", 0)

	p.Cut()
	wantSilence("cut")
	p.Mend()
	wantAnswer("mended", 0)

	err = c.Pause(0)
	if err != nil {
		t.Fatal(err)
	}
	wantSilence("paused")
	err = c.Resume(0)
	if err != nil {
		t.Fatal(err)
	}
	wantAnswer("resumed", 0)

	c.Kill(0)
	wantSilence("killed")
	err = c.Pause(0)
	if err == nil {
		t.Error("paused a replica that does not run")
	}
	err = c.Restart(0)
	if err != nil {
		t.Fatal(err)
	}
	wantAnswer("restarted", 0)
}

// TestPrimary kills the replica that leads and looks at who does then.
func TestPrimary(t *testing.T) {
	c := tbtest.Start(t, tbtest.ThreeReplicas)
	p := c.Proxy(t)
	ledger, err := tigerbeetle.Open(p.Addresses(), c.ID(), nil)
	if errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	took, err := ask(t, ledger, 20*time.Second)
	if err != nil {
		t.Fatalf("at first: got %v after %v", err, took)
	}
	first := p.Primary()
	c.Kill((first + 1) % 3)
	took, err = ask(t, ledger, 20*time.Second)
	if err != nil || p.Primary() != first {
		t.Errorf("without a backup: got %v and primary %d, want %d", err, p.Primary(), first)
	}
	t.Logf("without a backup: answered after %v", took)
	err = c.Restart((first + 1) % 3)
	if err != nil {
		t.Fatal(err)
	}
	c.Kill(first)
	took, err = ask(t, ledger, 20*time.Second)
	if err != nil || p.Primary() == first {
		t.Errorf("without the primary: got %v and primary %d still", err, p.Primary())
	}
	t.Logf("without the primary: answered after %v, by %d after %d", took, p.Primary(), first)
}
