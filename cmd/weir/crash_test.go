package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

const (
	crashCallers  = 8
	crashSubjects = 16
	crashQuota    = 40 // of each subject, so that some checks are denied
)

// attempt is a check that was sent, with the answer if one came.
type attempt struct {
	subject, id string
	answered    bool
	decision    wire.Decision
}

func (a *attempt) request() wire.CheckRequest {
	return wire.CheckRequest{
		Subject: a.subject, Limits: []wire.Member{{Limit: "a"}, {Limit: "b"}}, ID: a.id,
	}
}

// kill -9 under concurrent load, again and again on one directory: whatever was answered is
// answered the same afterwards, both limits of a check have been charged or neither, and the books
// are sound.
func TestKillUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	root := t.TempDir()
	dir := filepath.Join(root, "data")
	limit := "{name: %s, kind: request-rate, quota: %d, window: 3600s}\n"
	path := writeConfig(t, root,
		fmt.Sprintf(limit, "a", crashQuota)+fmt.Sprintf(limit, "b", 2*crashQuota))
	for round := range rounds(10, 200) {
		p := startProcess(t, path, dir)
		attempts := loadUntilKilled(t, p, round, time.Duration(random.IntN(200))*time.Millisecond)
		wantSound(t, dir)
		p = startProcess(t, path, dir)
		wantSameAnswers(t, p, attempts)
		t.Logf("round %d: %d checks", round, len(attempts))
		wantWholeChains(t, p, round, attempts)
		p.kill(t)
		if t.Failed() {
			t.Fatalf("round %d of seed %d", round, seed)
		}
	}
	wantSound(t, dir)
}

// loadUntilKilled has callers make checks of both limits until the process is killed, and returns
// all of them.
func loadUntilKilled(t testing.TB, p *process, round int, after time.Duration) []*attempt {
	t.Helper()
	var mu sync.Mutex
	var attempts []*attempt
	var callers sync.WaitGroup
	for caller := range crashCallers {
		callers.Go(func() {
			for n := 0; ; n++ {
				a := &attempt{
					subject: crashSubject(round, (caller+n)%crashSubjects),
					id:      fmt.Sprintf("%d-%d-%d", round, caller, n),
				}
				decision, err := p.Check(t.Context(), a.request())
				_, isAnswer := errors.AsType[*client.Error](err)
				if isAnswer {
					t.Errorf("check %s: got %v, want a decision or no answer", a.id, err)
				}
				a.answered, a.decision = err == nil, decision
				mu.Lock()
				attempts = append(attempts, a)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	select {
	case <-time.After(after):
	case err := <-p.exited:
		t.Fatalf("weir ended by itself: %v\n%s", err, p.stderr)
	}
	p.kill(t)
	callers.Wait()
	return attempts
}

func crashSubject(round, n int) string { return fmt.Sprintf("%d/%d", round, n) }

// wantSameAnswers sends every check again: those that were answered are answered the same.
func wantSameAnswers(t testing.TB, p *process, attempts []*attempt) {
	t.Helper()
	var callers sync.WaitGroup
	for caller := range crashCallers {
		callers.Go(func() {
			for i := caller; i < len(attempts); i += crashCallers {
				wantSameAnswer(t, p, attempts[i])
			}
		})
	}
	callers.Wait()
}

func wantSameAnswer(t testing.TB, p *process, a *attempt) {
	t.Helper()
	again, err := p.Check(t.Context(), a.request())
	first := a.decision
	switch {
	case err != nil:
		t.Errorf("check %s again: %v", a.id, err)
	case !a.answered:
		a.decision = again // whether it was charged before the end or is now
	case first.Allowed && (!again.Allowed || !again.Replayed || again.Transfer != first.Transfer):
		t.Errorf("check %s: got %+v, and after kill -9 %+v, want a replay", a.id, first, again)
	case !first.Allowed && again.Allowed:
		t.Errorf("check %s: got it denied, and after kill -9 allowed", a.id)
	}
}

// wantWholeChains compares what each subject has used on both limits with the answers it got.
func wantWholeChains(t testing.TB, p *process, round int, attempts []*attempt) {
	t.Helper()
	allowed := make(map[string]uint64)
	for _, a := range attempts {
		if a.decision.Allowed {
			allowed[a.subject]++
		}
	}
	for n := range crashSubjects {
		subject := crashSubject(round, n)
		for limit := range strings.SplitSeq("ab", "") {
			b := p.mustBalance(t, limit, subject)
			if b.Used != wire.Count(allowed[subject]) {
				t.Errorf("limit %s, subject %s: got %v units used, want %d, one for each allowed",
					limit, subject, b.Used, allowed[subject])
			}
		}
	}
}
