package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

// TestChild is not a test: it is what the other process runs.
func TestChild(t *testing.T) {
	dir := os.Getenv("WEIR_TEST_DIR")
	switch os.Getenv("WEIR_TEST_CHILD") {
	case "":
		t.Skip("only another test starts this, in a process of its own")
	case "open":
		_, err := embedded.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
	case "load":
		loadUntilKilled(t, dir)
	}
}

const killCallers = 16

// loadUntilKilled makes chains of two transfers and prints the number of each that was answered.
func loadUntilKilled(t *testing.T, dir string) {
	ledger, err := embedded.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var start uint64
	_, err = fmt.Sscan(os.Getenv("WEIR_TEST_START"), &start)
	if err != nil {
		t.Fatal(err)
	}
	var next atomic.Uint64
	next.Store(start)
	var output sync.Mutex
	var wait sync.WaitGroup
	for range killCallers {
		wait.Go(func() {
			for {
				n := next.Add(1)
				results, err := ledger.CreateTransfers(context.Background(), chainOf(n))
				if err != nil || results[1].Status != ledgers.TransferCreated {
					t.Errorf("chain %d: %v, %v", n, results, err)
					return
				}
				output.Lock()
				fmt.Println(n)
				output.Unlock()
			}
		})
	}
	wait.Wait()
}

// chainOf is two linked transfers; every third pair is a reservation and its void.
func chainOf(n uint64) []ledgers.Transfer {
	first, second := pending(1000+2*n, 1, uint32(1+n%5)), pending(1001+2*n, 2, 3600)
	first.Flags |= ledgers.Linked
	if n%3 == 0 {
		second = ended(second.ID.Lo, first.ID.Lo, ledgers.VoidPending)
	}
	return []ledgers.Transfer{first, second}
}

// TestKill kills a process under load, again and again: every answer it gave is kept, no chain is
// half there, and the ledger is sound.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	ledger, err := embedded.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	fund(t, ledger, 1)
	err = ledger.Close()
	if err != nil {
		t.Fatal(err)
	}
	start := uint64(0)
	for round := range count(10, 200) {
		newest := killRound(t, dir, start, 200+97*(round%7))
		start = newest + killCallers + 1
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// killRound returns the greatest number that was answered before the kill.
func killRound(t *testing.T, dir string, start uint64, answers int) uint64 {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), "WEIR_TEST_CHILD=load", "WEIR_TEST_DIR="+dir,
		fmt.Sprintf("WEIR_TEST_START=%d", start))
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = child.Start()
	if err != nil {
		t.Fatal(err)
	}
	var answered []uint64
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		var n uint64
		_, err = fmt.Sscan(line, &n)
		if err != nil {
			t.Fatalf("the child says %q", line)
		}
		answered = append(answered, n)
		if len(answered) == answers {
			_ = child.Process.Kill()
		}
	}
	_ = child.Wait()
	return checkKilled(t, dir, start, answered)
}

func checkKilled(t *testing.T, dir string, start uint64, answered []uint64) uint64 {
	t.Helper()
	report, err := embedded.Verify(dir)
	if err != nil || len(report.Problems) != 0 {
		t.Errorf("verify: %v, %v", report, err)
	}
	ledger, err := embedded.Open(dir, nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer ledger.Close()
	newest := start
	wanted := map[uint64]bool{}
	for _, n := range answered {
		wanted[n] = true
		newest = max(newest, n)
	}
	checkChains(t, ledger, start, newest, wanted)
	return newest
}

// checkChains looks at the chains after start: both transfers are there or none, and both where the
// chain is wanted.
func checkChains(
	t *testing.T, ledger ledgers.Driver, start, newest uint64, wanted map[uint64]bool,
) {
	t.Helper()
	var ids []ledgers.ID
	for n := start + 1; n <= newest+killCallers; n++ {
		chain := chainOf(n)
		ids = append(ids, chain[0].ID, chain[1].ID)
	}
	found, err := ledger.LookupTransfers(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	stored := map[uint64]int{}
	for _, tr := range found {
		stored[(tr.ID.Lo-1000)/2]++
	}
	for n := start + 1; n <= newest+killCallers; n++ {
		if stored[n] == 1 || stored[n] == 0 && wanted[n] {
			t.Errorf("chain %d: %d of 2 transfers, answered %v", n, stored[n], wanted[n])
		}
	}
}
