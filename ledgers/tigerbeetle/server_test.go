package tigerbeetle_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
)

// Where the tests find a real TigerBeetle.
const (
	// binaryEnv names the tigerbeetle binary; the tests format and start replicas of their own.
	binaryEnv = "TIGERBEETLE"
	// addressesEnv names a running cluster, addresses joined by commas, and clusterEnv its id.
	addressesEnv = "TIGERBEETLE_ADDRESSES"
	clusterEnv   = "TIGERBEETLE_CLUSTER"
)

// startTimeout bounds the start of a replica, which allocates and zeroes all its memory.
const startTimeout = 2 * time.Minute

// mode is a way to run a cluster.
type mode struct {
	name     string
	replicas int
	flags    []string
	// memoryMiB is what all its replicas take.
	memoryMiB int
}

var (
	development = mode{"Development", 1, []string{"--development"}, 1500}
	normal      = mode{"Normal", 1, []string{"--cache-grid=128MiB"}, 2300}
	threeNodes  = mode{"ThreeReplicas", 3, []string{"--development"}, 4500}
)

// cluster is a running TigerBeetle.
type cluster struct {
	addresses []string
	id        ledgers.Amount
	replicas  []*replica
}

// open opens a session that the end of the test closes.
func (c *cluster) open(t testing.TB) *tigerbeetle.Ledger {
	t.Helper()
	return c.openWith(t, nil)
}

func (c *cluster) openWith(t testing.TB, options *tigerbeetle.Options) *tigerbeetle.Ledger {
	t.Helper()
	ledger, err := tigerbeetle.Open(c.addresses, c.id, options)
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
func (c *cluster) harness(t testing.TB) ledgertest.Harness {
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
	clusters map[string]*cluster
	dirs     []string
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, c := range running.clusters {
		c.stop()
	}
	for _, dir := range running.dirs {
		err := os.RemoveAll(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// shared returns the cluster of a mode that all tests of this run share: they take ids that no one
// else has. Without the means it skips the test and says what is missing.
func shared(t testing.TB, m mode) *cluster {
	t.Helper()
	needClient(t)
	running.Lock()
	defer running.Unlock()
	c := running.clusters[m.name]
	if c != nil {
		return c
	}
	c = given(t)
	if c == nil {
		dir, err := os.MkdirTemp("", "weir-tigerbeetle-") //nolint:usetesting // outlives the test
		if err != nil {
			t.Fatal(err)
		}
		running.dirs = append(running.dirs, dir)
		c = start(t, m, dir)
	} else if m.name != development.name {
		t.Skipf("%s names one cluster: it is tested as %s", addressesEnv, development.name)
	}
	if running.clusters == nil {
		running.clusters = map[string]*cluster{}
	}
	running.clusters[m.name] = c
	return c
}

func needClient(t testing.TB) {
	t.Helper()
	if !hasClient {
		t.Skip("no client: this test was built without cgo")
	}
}

// own starts a cluster that is the test's alone, and may be stopped and killed.
func own(t testing.TB, m mode) *cluster {
	t.Helper()
	c := start(t, m, t.TempDir())
	t.Cleanup(c.stop)
	return c
}

// given returns the cluster that the environment names, or nil.
func given(t testing.TB) *cluster {
	t.Helper()
	addresses := os.Getenv(addressesEnv)
	if addresses == "" {
		return nil
	}
	id, err := strconv.ParseUint("0"+os.Getenv(clusterEnv), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", clusterEnv, err)
	}
	return &cluster{addresses: strings.Split(addresses, ","), id: ledgers.AmountOf(id)}
}

// start formats and starts the replicas of a cluster with id 0 on free ports of the loopback.
func start(t testing.TB, m mode, dir string) *cluster {
	t.Helper()
	needClient(t)
	binary := os.Getenv(binaryEnv)
	switch {
	case binary == "" && given(t) != nil:
		t.Skipf("needs a TigerBeetle of its own: %s names no binary", binaryEnv)
	case binary == "":
		t.Skipf("no TigerBeetle: neither %s, a binary, nor %s, a cluster, is set",
			binaryEnv, addressesEnv)
	}
	free := availableMiB()
	if free < m.memoryMiB+1024 {
		t.Skipf("%s takes %d MiB of memory and there are %d", m.name, m.memoryMiB, free)
	}
	c := &cluster{addresses: freeAddresses(t, m.replicas)}
	for i := range m.replicas {
		file := filepath.Join(dir, fmt.Sprintf("0_%d.tigerbeetle", i))
		args := []string{"format", "--cluster=0", fmt.Sprintf("--replica=%d", i),
			fmt.Sprintf("--replica-count=%d", m.replicas)}
		if m.flags[0] == "--development" {
			args = append(args, "--development")
		}
		format := exec.CommandContext(t.Context(), binary, append(args, file)...)
		output, err := format.CombinedOutput()
		if err != nil {
			t.Fatalf("format: %v\n%s", err, output)
		}
		command := []string{binary, "start", "--addresses=" + strings.Join(c.addresses, ",")}
		command = append(append(command, m.flags...), file)
		c.replicas = append(c.replicas, &replica{command: command})
	}
	for _, r := range c.replicas {
		err := r.start()
		if err != nil {
			c.stop()
			t.Fatalf("start: %v", err)
		}
	}
	return c
}

func (c *cluster) stop() {
	for _, r := range c.replicas {
		r.kill()
	}
}

// freeAddresses finds ports of the loopback that are free now.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses
}

// availableMiB is how much memory there is, or enough where that cannot be found out.
func availableMiB() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 1 << 20
	}
	_, after, _ := strings.Cut(string(text), "MemAvailable:")
	kib, err := strconv.Atoi(strings.Fields(after + " 0")[0])
	if err != nil {
		return 1 << 20
	}
	return kib >> 10
}

// replica is a tigerbeetle process. A shell holds it and kills it when its standard input ends, so
// that none outlives the tests, whatever becomes of these.
type replica struct {
	command []string
	pid     int
	hold    io.WriteCloser
	shell   *exec.Cmd
}

const holdScript = `"$@" 2>&1 & echo "pid $!"; read -r _; kill -KILL $!; wait`

var errNotListening = errors.New("the replica ended before it listened")

// start starts the process and waits until it listens.
func (r *replica) start() error {
	args := append([]string{"-c", holdScript, "sh", "nice"}, r.command...)
	r.shell = exec.Command("sh", args...) //nolint:noctx // it outlives the test that starts it
	var err error
	r.hold, err = r.shell.StdinPipe()
	if err != nil {
		return err
	}
	output, err := r.shell.StdoutPipe()
	if err != nil {
		return err
	}
	err = r.shell.Start()
	if err != nil {
		return err
	}
	listening := make(chan error, 1)
	go r.follow(output, listening)
	timer := time.AfterFunc(startTimeout, r.kill)
	defer timer.Stop()
	return <-listening
}

// follow reads what the process says, to its end, and tells once whether it listens.
func (r *replica) follow(output io.Reader, listening chan<- error) {
	lines := bufio.NewScanner(output)
	var said []string
	for lines.Scan() {
		line := lines.Text()
		pid, found := strings.CutPrefix(line, "pid ")
		if found && r.pid == 0 {
			r.pid, _ = strconv.Atoi(pid)
		}
		if listening != nil && strings.Contains(line, "listening on") {
			listening <- nil
			listening = nil
		}
		if listening != nil {
			said = append(said, line)
		}
	}
	if listening != nil {
		listening <- fmt.Errorf("%w:\n%s", errNotListening, strings.Join(said, "\n"))
	}
}

// kill ends the process at once.
func (r *replica) kill() {
	if r.shell == nil || r.shell.Process == nil {
		return
	}
	_ = r.hold.Close()
	_ = r.shell.Wait()
	r.shell = nil
}
