package tigerbeetle_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// cluster is a running TigerBeetle.
type cluster struct{ *tbtest.Cluster }

// open opens a session that the end of the test closes.
func (c cluster) open(t testing.TB) *tigerbeetle.Ledger {
	t.Helper()
	return c.openWith(t, nil)
}

func (c cluster) openWith(t testing.TB, options *tigerbeetle.Options) *tigerbeetle.Ledger {
	t.Helper()
	ledger, err := tigerbeetle.Open(c.Addresses(), c.ID(), options)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return ledger
}

// harness is a session for the suite, whose clock is the real one.
func (c cluster) harness(t testing.TB) ledgertest.Harness {
	t.Helper()
	return ledgertest.Harness{
		Driver: c.open(t),
		// tidy:sleep a real server's clock cannot be moved
		Advance: time.Sleep,
	}
}

// running are the clusters that tests share, by mode.
var running struct {
	sync.Mutex
	clusters map[tbtest.Mode]*tbtest.Cluster
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, c := range running.clusters {
		err := c.Stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// shared returns the cluster of a mode that all tests of this run share: they take ids that no one
// else has. Without the means it skips the test and says what is missing.
func shared(t testing.TB, m tbtest.Mode) cluster {
	t.Helper()
	needClient(t)
	running.Lock()
	defer running.Unlock()
	c := running.clusters[m]
	if c != nil {
		return cluster{c}
	}
	c = given(t)
	if c != nil && m != tbtest.Development {
		t.Skipf("%s names one cluster: it is tested as %s", tbtest.AddressesEnv, tbtest.Development)
	}
	if c == nil {
		var err error
		c, err = tbtest.Run(m)
		if errors.Is(err, tbtest.ErrMissing) {
			t.Skipf("%v, and %s no cluster", err, tbtest.AddressesEnv)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if running.clusters == nil {
		running.clusters = map[tbtest.Mode]*tbtest.Cluster{}
	}
	running.clusters[m] = c
	return cluster{c}
}

func needClient(t testing.TB) {
	t.Helper()
	if !hasClient {
		t.Skip("no client: this test was built without cgo")
	}
}

// own starts a server that is the test's alone, and may be stopped and killed.
func own(t testing.TB) cluster {
	t.Helper()
	needClient(t)
	return cluster{tbtest.Start(t, tbtest.Development)}
}

// given returns the cluster that the environment names, or nil.
func given(t testing.TB) *tbtest.Cluster {
	t.Helper()
	c, err := tbtest.Given()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
