package tbtest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds the start of a replica, which allocates and zeroes all its memory.
const startTimeout = 2 * time.Minute

// replica is a tigerbeetle process. A shell holds it and kills it when its standard input ends, so
// that none outlives the tests, whatever becomes of these.
type replica struct {
	command []string
	pid     int
	hold    io.WriteCloser
	shell   *exec.Cmd
}

// holdScript says the id of the process before that says anything.
const holdScript = `sh -c 'echo "pid $$"; exec "$@" 2>&1' sh "$@" &
read -r _; kill -KILL $!; wait`

// signal sends a signal to the process.
func (r *replica) signal(s syscall.Signal) error {
	if r.pid <= 0 {
		return errNotRunning
	}
	return syscall.Kill(r.pid, s)
}

// start starts the process and waits until it listens.
func (r *replica) start() error {
	args := append([]string{"-c", holdScript, "sh"}, r.command...)
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
	pid, listening := make(chan int, 1), make(chan error, 1)
	go follow(output, pid, listening)
	r.pid = <-pid
	timer := time.AfterFunc(startTimeout, r.kill)
	defer timer.Stop()
	return <-listening
}

// follow reads what the process says, to its end, and tells once its id and whether it listens.
func follow(output io.Reader, pid chan<- int, listening chan<- error) {
	lines := bufio.NewScanner(output)
	lines.Scan()
	text, _ := strings.CutPrefix(lines.Text(), "pid ")
	id, _ := strconv.Atoi(text)
	pid <- id
	var said []string
	for lines.Scan() {
		switch {
		case listening == nil:
		case strings.Contains(lines.Text(), "listening on"):
			listening <- nil
			listening = nil
		default:
			said = append(said, lines.Text())
		}
	}
	if listening != nil {
		listening <- fmt.Errorf("%w:\n%s", errNotListening, strings.Join(said, "\n"))
	}
}

// kill ends the process at once, if it runs.
func (r *replica) kill() {
	if r.shell == nil || r.shell.Process == nil {
		return
	}
	_ = r.hold.Close()
	_ = r.shell.Wait()
	r.shell, r.pid = nil, 0
}
