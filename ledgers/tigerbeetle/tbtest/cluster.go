package tbtest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"lukechampine.com/uint128"

	"weir/ledgers"
)

// Where a real TigerBeetle is found.
const (
	// BinaryEnv names the tigerbeetle binary, with which clusters are formatted and started.
	BinaryEnv = "TIGERBEETLE"
	// AddressesEnv names a running cluster, addresses joined by commas, and ClusterEnv its id.
	AddressesEnv = "TIGERBEETLE_ADDRESSES"
	ClusterEnv   = "TIGERBEETLE_CLUSTER"
)

// reserveMiB is the memory that is left to others.
const reserveMiB = 1024

// Mode is a way to run a cluster.
type Mode string

// The modes.
const (
	// Development is one replica that starts in half a second; a request takes about 250 events.
	Development Mode = "Development"
	// Normal is one replica as in service, with a small cache; it starts in some seconds.
	Normal Mode = "Normal"
	// ThreeReplicas are three replicas in development mode.
	ThreeReplicas Mode = "ThreeReplicas"
)

// modes are what the modes mean. The memory is that of one replica.
var modes = map[Mode]struct {
	replicas  int
	flag      string
	memoryMiB int
}{
	Development:   {1, "--development", 1500},
	Normal:        {1, "--cache-grid=128MiB", 2300},
	ThreeReplicas: {3, "--development", 1500},
}

// Cluster is a running TigerBeetle.
type Cluster struct {
	addresses []string
	id        ledgers.Amount
	dir       string
	replicas  []*replica
}

// Start runs a cluster that is the test's alone: its end stops it. Where there cannot be one the
// test is skipped, and says what it missed.
func Start(t testing.TB, m Mode) *Cluster {
	t.Helper()
	c, err := Run(m)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := c.Stop()
		if err != nil {
			t.Error(err)
		}
	})
	return c
}

// Run formats and starts the replicas of a cluster with id 0, on free ports of the loopback and in
// a directory of its own, until Stop. It returns an ErrMissing where that cannot be.
func Run(m Mode) (*Cluster, error) {
	mode, binary := modes[m], os.Getenv(BinaryEnv)
	if binary == "" {
		return nil, fmt.Errorf("%w: %s names no binary to start", ErrMissing, BinaryEnv)
	}
	needed, free := mode.replicas*mode.memoryMiB+reserveMiB, availableMiB()
	if free < needed {
		return nil, fmt.Errorf("%w: %s wants %d MiB of memory free and there are %d",
			ErrMissing, m, needed, free)
	}
	addresses, err := FreeAddresses(mode.replicas)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-tigerbeetle-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{addresses: addresses, dir: dir}
	for i := range mode.replicas {
		file := filepath.Join(dir, fmt.Sprintf("0_%d.tigerbeetle", i))
		err = format(binary, file, i, mode.replicas, mode.flag)
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		c.replicas = append(c.replicas, &replica{command: []string{
			binary, "start", "--addresses=" + strings.Join(addresses, ","), mode.flag, file,
		}})
	}
	for _, r := range c.replicas {
		err = r.start()
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return c, nil
}

// format makes the data file of a replica.
func format(binary, file string, replica, replicas int, flag string) error {
	args := []string{
		"format", "--cluster=0", fmt.Sprintf("--replica=%d", replica),
		fmt.Sprintf("--replica-count=%d", replicas),
	}
	if flag == "--development" {
		args = append(args, flag)
	}
	output, err := exec.Command(binary, append(args, file)...).CombinedOutput() //nolint:noctx // short
	if err != nil {
		return fmt.Errorf("format: %w\n%s", err, output)
	}
	return nil
}

// Given returns the cluster that the environment names, nil if it names none.
func Given() (*Cluster, error) {
	addresses := os.Getenv(AddressesEnv)
	if addresses == "" {
		return nil, nil //nolint:nilnil // there is none, and nothing wrong with that
	}
	id, err := uint128.FromString(cmp.Or(os.Getenv(ClusterEnv), "0"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ClusterEnv, err)
	}
	return &Cluster{addresses: strings.Split(addresses, ","), id: id}, nil
}

// Addresses are those of the replicas, in their order.
func (c *Cluster) Addresses() []string { return c.addresses }

// ID is the cluster's.
func (c *Cluster) ID() ledgers.Amount { return c.id }

// Pause stops the process of a replica as it stands: its connections stay open, and nothing is
// answered.
func (c *Cluster) Pause(replica int) error { return c.replicas[replica].signal(syscall.SIGSTOP) }

// Resume lets a paused replica go on.
func (c *Cluster) Resume(replica int) error { return c.replicas[replica].signal(syscall.SIGCONT) }

// Kill ends a replica at once, as a crash would. What it has written stays.
func (c *Cluster) Kill(replica int) { c.replicas[replica].kill() }

// Restart starts a replica that was killed, and waits until it listens.
func (c *Cluster) Restart(replica int) error { return c.replicas[replica].start() }

// Stop ends all replicas and removes their data. A cluster that was given is left alone.
func (c *Cluster) Stop() error {
	for _, r := range c.replicas {
		r.kill()
	}
	if c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// FreeAddresses finds ports of the loopback that are free now.
func FreeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // all at the end, so that no two are the same
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
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
