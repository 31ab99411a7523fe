package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	limitName = "bench"
	checkPath = "/v1/check"
)

// server is one of the two that are measured, in a process of its own.
type server struct {
	cmd     *exec.Cmd
	address string
	calls   atomic.Int64
}

// start starts a server and reads its address from the line that says that it is ready.
func start(cmd *exec.Cmd) (*server, error) {
	s := &server{cmd: cmd}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	err = cmd.Start()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, rest, ready := strings.Cut(line, "http://")
	if err != nil || !ready {
		s.kill()
		return nil, fmt.Errorf("%s is not ready: %q", cmd.Path, line)
	}
	s.address = strings.TrimRight(strings.Fields(rest)[0], ",")
	return s, nil
}

// kill ends a server that is not needed any more.
func (s *server) kill() { _ = s.cmd.Process.Kill() }

// stop ends a server and waits for it, so that its use of the processor is known.
func (s *server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	err = s.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && !exit.Exited() {
		return nil // the empty server does not handle the signal
	}
	return err
}

// cpuMicros is what a call took of the server's processors, in microseconds.
func (s *server) cpuMicros() float64 {
	state := s.cmd.ProcessState
	total := state.UserTime() + state.SystemTime()
	return float64(total.Microseconds()) / float64(s.calls.Load())
}

// measure has the callers ask for one round and returns the answers per second.
func (s *server) measure(o settings) (float64, error) {
	var callers errgroup.Group
	before, started := s.calls.Load(), time.Now()
	for range o.callers {
		callers.Go(func() error { return s.ask(o, started.Add(o.round)) })
	}
	err := callers.Wait()
	if err != nil {
		return 0, err
	}
	return float64(s.calls.Load()-before) / time.Since(started).Seconds(), nil
}

// ask sends one check after the other until the deadline.
func (s *server) ask(o settings, deadline time.Time) error {
	if o.netHTTP {
		return s.askNetHTTP(o, deadline)
	}
	return s.askBare(o, deadline)
}

// askBare speaks only as much HTTP as it needs, so that the servers get most of the machine.
func (s *server) askBare(o settings, deadline time.Time) error {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	var request []byte
	for time.Now().Before(deadline) {
		request = appendCheck(request[:0], rand.IntN(o.subjects))
		_, err = conn.Write(request)
		if err != nil {
			return err
		}
		err = readOK(answers)
		if err != nil {
			return err
		}
		s.calls.Add(1)
	}
	return nil
}

// askNetHTTP asks as a Go program would, and takes about as much of the machine as the servers do.
func (s *server) askNetHTTP(o settings, deadline time.Time) error {
	transport := &http.Transport{MaxIdleConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	caller := http.Client{Transport: transport}
	for time.Now().Before(deadline) {
		body := bytes.NewReader(appendBody(nil, rand.IntN(o.subjects)))
		answer, err := caller.Post("http://"+s.address+checkPath, "application/json", body)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("got status %d instead of 200", answer.StatusCode)
		}
		s.calls.Add(1)
	}
	return nil
}

func appendBody(b []byte, subject int) []byte {
	b = append(b, `{"limit":"`+limitName+`","subject":"subject-`...)
	b = strconv.AppendInt(b, int64(subject), 10)
	return append(b, `"}`...)
}

// appendCheck appends a check of a subject as it is sent.
func appendCheck(b []byte, subject int) []byte {
	var space [64]byte
	body := appendBody(space[:0], subject)
	b = append(b, "POST "+checkPath+" HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\n"...)
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}

// readOK reads an answer, which has to be 200 with a body of a known length.
func readOK(r *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if first && !bytes.Equal(line, []byte("HTTP/1.1 200 OK")) {
			return fmt.Errorf("got %q instead of 200", line)
		}
		if len(line) == 0 {
			break
		}
		value, ok := bytes.CutPrefix(line, []byte("Content-Length: "))
		if ok {
			length, err = strconv.Atoi(string(value))
			if err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return fmt.Errorf("the answer does not say how long it is")
	}
	_, err := io.CopyN(io.Discard, r, int64(length))
	return err
}
