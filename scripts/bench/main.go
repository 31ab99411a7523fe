// Command bench measures POST /v1/check of a weir against the same server framework doing nothing:
// an echo handler that decodes and encodes the same JSON. Both run in processes of their own and
// are asked in turn, round by round, by the same callers over loopback, so that the ratio holds on
// any machine. From the root of the project:
//
//	go -C scripts/bench run .
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// settings are what the flags say.
type settings struct {
	root     string
	callers  int
	subjects int
	rounds   int
	round    time.Duration
	window   time.Duration
	netHTTP  bool
}

func main() {
	var s settings
	var echo bool
	flag.StringVar(&s.root, "root", filepath.Join("..", ".."), "`directory` of the project")
	flag.IntVar(&s.callers, "callers", 256, "callers at once, each with a connection of its own")
	flag.IntVar(&s.subjects, "subjects", 10_000, "subjects that are checked, at random")
	flag.IntVar(&s.rounds, "rounds", 7, "rounds for each of the two")
	flag.DurationVar(&s.round, "round", 3*time.Second, "length of a round")
	flag.DurationVar(&s.window, "window", time.Minute,
		"window of the limit, after which charges expire")
	flag.BoolVar(&s.netHTTP, "nethttp", false, "callers use net/http, not the least of HTTP they need")
	flag.BoolVar(&echo, "echo", false, "be the empty handler: for the benchmark itself")
	flag.Parse()
	run := func() error { return compare(context.Background(), s) }
	if echo {
		run = serveEcho
	}
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// compare measures both and prints the figures.
func compare(ctx context.Context, s settings) error {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	weir, err := startWeir(ctx, s, dir)
	if err != nil {
		return err
	}
	defer weir.kill()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	empty, err := start(exec.CommandContext(ctx, self, "-echo"))
	if err != nil {
		return err
	}
	defer empty.kill()

	fmt.Printf("%d callers, %d subjects, window %v\n", s.callers, s.subjects, s.window)
	fmt.Println("round   weir/s   echo/s  ratio")
	var ratios []float64
	for round := range s.rounds + 1 {
		rates := make([]float64, 2)
		for i, server := range []*server{weir, empty} {
			rates[i], err = server.measure(s)
			if err != nil {
				return err
			}
		}
		if round == 0 { // connections, caches and compiled code are warm after this one
			continue
		}
		ratios = append(ratios, rates[0]/rates[1])
		fmt.Printf("%5d %8.0f %8.0f  %.2f\n", round, rates[0], rates[1], rates[0]/rates[1])
	}
	slices.Sort(ratios)
	fmt.Printf("ratio: median %.2f, lowest %.2f, highest %.2f\n",
		ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	for _, server := range []*server{weir, empty} {
		err = server.stop()
		if err != nil {
			return err
		}
	}
	fmt.Printf("server CPU, starts and ends included: weir %.1f µs a check, echo %.1f µs a call\n",
		weir.cpuMicros(), empty.cpuMicros())
	return nil
}

// startWeir builds weir and starts it with a limit that nobody exhausts.
func startWeir(ctx context.Context, s settings, dir string) (*server, error) {
	binary := filepath.Join(dir, "weir")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/weir")
	build.Dir, build.Stderr = s.root, os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	err := build.Run()
	if err != nil {
		return nil, fmt.Errorf("build weir: %w", err)
	}
	config := filepath.Join(dir, "weir.yaml")
	text := fmt.Sprintf("limits:\n  - {name: %s, kind: request-rate, quota: 999999999, window: %v}\n",
		limitName, s.window)
	err = os.WriteFile(config, []byte(text), 0o600)
	if err != nil {
		return nil, err
	}
	return start(exec.CommandContext(ctx, binary, "serve", "--config", config,
		"--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0"))
}
