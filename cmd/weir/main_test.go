package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

// asMain makes the test program be weir, so that tests can start it, send it signals and kill it.
const asMain = "WEIR_TEST_AS_MAIN"

// longTests, set to 1, makes tests repeat themselves in full.
const longTests = "WEIR_LONG"

const (
	testToken      = "user-token"
	testAdminToken = "admin-token"
	// testWait bounds whatever a test waits for.
	testWait = 30 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	if address := os.Getenv(asProvider); address != "" {
		serveProvider(address)
	}
	for _, variable := range os.Environ() { // of whoever runs the tests
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envPrefix+"_") && name != longTests {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// process is a weir in a process of its own.
type process struct {
	*client.Client
	url    string
	ready  string // the line
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	exited chan error
}

// startProcess starts a weir with a config on a directory and waits until it is ready. It is killed
// when the test ends, if it still runs then.
func startProcess(t testing.TB, config, dir string) *process {
	t.Helper()
	return startProcessOn(t, config, dir, "127.0.0.1:0")
}

// startProcessOn starts a weir that listens there.
func startProcessOn(t testing.TB, config, dir, listen string) *process {
	t.Helper()
	p := &process{stderr: new(bytes.Buffer), exited: make(chan error, 1)}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0],
		"serve", "--config", config, "--data", dir, "--listen", listen)
	p.cmd.Env = append([]string{"WEIR_DRAIN=0s"}, os.Environ()...)
	p.cmd.Env = append(p.cmd.Env, asMain+"=1", envToken+"="+testToken,
		envAdminToken+"="+testAdminToken)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = p.cmd.Start()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	ready := lines.Scan()
	go func() {
		_, _ = io.Copy(io.Discard, out)
		p.exited <- p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	words := strings.Fields(lines.Text())
	if !ready || len(words) < 4 || words[1] != "ready" {
		_ = p.cmd.Process.Kill()
		err = <-p.exited
		t.Fatalf("got %q instead of the ready line (%v); the log:\n%s", lines.Text(), err, p.stderr)
	}
	p.ready, p.url = lines.Text(), strings.TrimSuffix(words[3], ",")
	p.Client = mustClient(t, p.url)
	return p
}

func mustClient(t testing.TB, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, &client.Options{
		Token: testToken, AdminToken: testAdminToken,
		Timeout: 2 * testWait, // longer than any limit's deadline: who is charged is told so
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// signal sends a signal and, unless it is SIGHUP, waits for the end.
func (p *process) signal(t testing.TB, signal syscall.Signal) error {
	t.Helper()
	err := p.cmd.Process.Signal(signal)
	if err != nil {
		t.Fatal(err)
	}
	if signal == syscall.SIGHUP {
		return nil
	}
	select {
	case err = <-p.exited:
		return err
	case <-time.After(testWait):
		t.Fatalf("weir still runs %v after %v", testWait, signal)
		return nil
	}
}

// kill kills the process as kill -9 does.
func (p *process) kill(t testing.TB) {
	t.Helper()
	_ = p.signal(t, syscall.SIGKILL)
}

func (p *process) mustCheck(t testing.TB, limit, subject, id string) wire.Decision {
	t.Helper()
	d, err := p.Check(t.Context(), wire.CheckRequest{Limit: limit, Subject: subject, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (p *process) mustBalance(t testing.TB, limit, subject string) wire.Balance {
	t.Helper()
	b, err := p.Balance(t.Context(), limit, subject)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startService runs a service in this process until the test ends, and returns its ready line.
func startService(t testing.TB, c *config) (*service, string) {
	t.Helper()
	logger, err := newLogger(io.Discard, "text")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newService(t.Context(), c, logger, testToken, testAdminToken)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, nil, in) }()
	ready, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		err := <-ended
		if err != nil {
			t.Error(err)
		}
		wantSound(t, c.Data)
	})
	return s, ready
}

// testConfig loads a config with these limits, for a port and a directory of its own.
func testConfig(t testing.TB, limits string) *config {
	t.Helper()
	dir := t.TempDir()
	path := writeConfig(t, dir, limits)
	c := mustLoad(t, path, nil)
	c.Listen, c.Data, c.Drain = "127.0.0.1:0", filepath.Join(dir, "data"), 0
	return c
}

// writeConfig writes a config of limits, each a line such as "{name: a, ...}". Unless they say
// otherwise, they wait for a ledger on a busy machine.
func writeConfig(t testing.TB, dir, limits string) string {
	t.Helper()
	path := filepath.Join(dir, "weir.yaml")
	text := "limits:\n"
	for line := range strings.Lines(limits) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, "deadline:") {
			line = strings.TrimSuffix(line, "}") + ", deadline: 30s}"
		}
		text += "  - " + line + "\n"
	}
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// outcome is how a command line ended.
type outcome struct {
	status   int
	out, err string
}

// weir runs a command line in this process.
func weir(t testing.TB, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	status := runCommand(t.Context(), args, strings.NewReader(""), &out, &errOut)
	return outcome{status, out.String(), errOut.String()}
}

// wantSound verifies a ledger that nobody has open.
func wantSound(t testing.TB, dir string) {
	t.Helper()
	got := weir(t, "verify", dir)
	if got.status != 0 {
		t.Errorf("weir verify %s: got exit status %d: %s%s", dir, got.status, got.out, got.err)
	}
}

// eventually waits until a condition holds that a running weir brings about by itself.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(testWait)
	for tick := time.NewTicker(2 * time.Millisecond); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not so after %v", what, testWait)
		}
	}
}

// rounds is how often a test repeats itself.
func rounds(short, long int) int {
	if os.Getenv(longTests) == "1" {
		return long
	}
	return short
}
