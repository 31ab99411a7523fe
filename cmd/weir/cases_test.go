package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// N11 on real clocks: whoever waits exactly as long as told and asks anew is admitted.
func TestServeRetryAfterIsTrue(t *testing.T) {
	root := t.TempDir()
	path := writeConfig(t, root, "{name: slow, kind: request-rate, quota: 1, window: 2s}")
	p := startProcess(t, path, filepath.Join(root, "data"))
	first := p.mustCheck(t, "slow", "alice", "")
	if !first.Allowed {
		t.Fatalf("the first check: got %+v, want it allowed", first)
	}
	for round := range rounds(2, 50) {
		<-time.After(time.Duration(rand.IntN(1900)) * time.Millisecond) // a random phase
		d := p.mustCheck(t, "slow", "alice", "")
		if d.Allowed || d.RetryAfterMS < 1 || d.RetryAfterMS > 2000 {
			t.Fatalf("round %d: got %+v, want it denied for up to 2 s", round, d)
		}
		<-time.After(time.Duration(d.RetryAfterMS) * time.Millisecond)
		d = p.mustCheck(t, "slow", "alice", "")
		if !d.Allowed {
			t.Fatalf("round %d: denied after the wait: %+v", round, d)
		}
	}
}

// A directory that weir may not write to is named, and left as it is.
func TestServeErrPermission(t *testing.T) {
	root := t.TempDir()
	program := copyOfProgram(t, root)
	config := writeConfig(t, root, "{name: a, kind: request-rate, quota: 10, window: 300s}")
	dir := filepath.Join(root, "closed")
	err := os.Mkdir(dir, 0o500)
	if err != nil {
		t.Fatal(err)
	}
	for _, open := range []string{root, filepath.Dir(root)} { // to those who are not the owner
		err = os.Chmod(open, 0o711)
		if err != nil {
			t.Fatal(err)
		}
	}
	err = os.Chmod(config, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "serve", "--config", config, "--listen",
		"127.0.0.1:0", "--data", filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.Dir = root
	if os.Getuid() == 0 { // who may write everywhere
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
			Uid: nobody, Gid: nobody,
		}}
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Start()
	if err != nil {
		t.Skipf("the program cannot be run by another user: %v", err)
	}
	_ = cmd.Wait() // its status is looked at below
	if cmd.ProcessState.ExitCode() != exitError || out.Len() > 0 {
		t.Errorf("got %v, output %q, want exit status 2 and none", cmd.ProcessState, out.String())
	}
	for _, want := range []string{dir, "permission denied"} {
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("got error %q, want it to contain %q", errOut.String(), want)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the directory, want nothing", left, err)
	}
}

// copyOfProgram puts this program where other users can run it.
func copyOfProgram(t testing.TB, dir string) string {
	t.Helper()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "weir")
	err = os.WriteFile(path, program, 0o700)
	if err == nil {
		err = os.Chmod(path, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
