// Command tigerbeetle measures checks through limiter.Limiter on a TigerBeetle against the bare
// client, tigerbeetle-go, making the same calls: a pending transfer, and a look-up of its account
// for what remains. A third, the guarded driver making them, tells what of the difference is the
// driver's. All ask one server, in turn, so that the ratios hold on any machine. From the root of
// the project, with the server's binary:
//
//	TIGERBEETLE=/path/to/tigerbeetle go -C scripts/bench run ./tigerbeetle
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/ledgers/tigerbeetle/tbtest"
)

// settings are what the flags say.
type settings struct {
	callers  []int
	subjects int
	rounds   int
	round    time.Duration
	window   time.Duration
}

func main() {
	var s settings
	s.callers = []int{16, 256, 1024}
	flag.Func("callers", "callers at once, `numbers` joined by commas (default 16,256,1024)",
		func(text string) error {
			s.callers = nil
			for number := range strings.SplitSeq(text, ",") {
				n, err := strconv.Atoi(number)
				if err != nil {
					return err
				}
				s.callers = append(s.callers, n)
			}
			return nil
		})
	flag.IntVar(&s.subjects, "subjects", 10_000, "subjects that are checked, at random")
	flag.IntVar(&s.rounds, "rounds", 16, "rounds for each of the three")
	flag.DurationVar(&s.round, "round", 700*time.Millisecond, "length of a round")
	flag.DurationVar(&s.window, "window", time.Hour, "window of the limit, after which charges expire")
	flag.Parse()
	err := compare(context.Background(), s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// side is one of those that are measured: it makes a check of a subject, given by its number.
type side interface {
	name() string
	check(ctx context.Context, subject int) error
}

// compare measures all sides and prints the figures.
func compare(ctx context.Context, s settings) (err error) {
	cluster, err := tbtest.Run(tbtest.Normal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	weir, err := openWeir(cluster, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, weir.ledger.Close()) }()
	err = spread(256, s.subjects, func(subject int) error { return weir.check(ctx, subject) })
	if err != nil {
		return err
	}
	bare, err := openBare(cluster, s)
	if err != nil {
		return err
	}
	defer bare.client.Close()
	sides := []side{weir, newDriverSide(weir.ledger, s), bare}
	fmt.Printf("%d subjects, window %v, %d rounds of %v for each\n",
		s.subjects, s.window, s.rounds, s.round)
	fmt.Println("callers                checks/s  CPU/check  of bare: total  median  lowest  highest")
	for _, callers := range s.callers {
		err = compareAt(ctx, s, callers, sides)
		if err != nil {
			return err
		}
	}
	return nil
}

// total is what one side made.
type total struct {
	checks int64
	took   time.Duration
	// cpu is what this process took of the processors, the client's thread included.
	cpu time.Duration
}

func (t total) rate() float64 { return float64(t.checks) / t.took.Seconds() }

// compareAt measures all sides, the bare one last, with a number of callers.
func compareAt(ctx context.Context, s settings, callers int, sides []side) error {
	totals := make([]total, len(sides))
	ratios := make([][]float64, len(sides))
	for round := range s.rounds + 1 {
		made := make([]total, len(sides))
		for i, asked := range sides {
			var err error
			made[i], err = measure(ctx, s, callers, asked)
			if err != nil {
				return err
			}
		}
		if round == 0 { // caches and sessions are warm after this one
			continue
		}
		for i, m := range made {
			totals[i].checks += m.checks
			totals[i].took += m.took
			totals[i].cpu += m.cpu
			ratios[i] = append(ratios[i], m.rate()/made[len(made)-1].rate())
		}
	}
	for i, t := range totals {
		slices.Sort(ratios[i])
		fmt.Printf("%7d  %-12s  %9.0f  %6.1f µs  %14.2f  %6.2f  %6.2f  %7.2f\n", callers,
			sides[i].name(), t.rate(), float64(t.cpu.Microseconds())/float64(t.checks),
			t.rate()/totals[len(totals)-1].rate(), ratios[i][len(ratios[i])/2], ratios[i][0],
			ratios[i][len(ratios[i])-1])
	}
	return nil
}

// measure has the callers check for one round.
func measure(ctx context.Context, s settings, callers int, asked side) (total, error) {
	var made atomic.Int64
	var group errgroup.Group
	started, used := time.Now(), cpuUsed()
	end := started.Add(s.round)
	for range callers {
		group.Go(func() error {
			for time.Now().Before(end) {
				err := asked.check(ctx, rand.IntN(s.subjects))
				if err != nil {
					return err
				}
				made.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return total{checks: made.Load(), took: time.Since(started), cpu: cpuUsed() - used}, err
}

// cpuUsed is what this process has taken of the processors.
func cpuUsed() time.Duration {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	if err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// spread calls f for 0 to n-1 from a number of callers.
func spread(callers, n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(callers)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}
