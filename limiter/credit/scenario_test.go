package credit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/limiter/credit"
)

// scenario is ten minutes in which 200 callers decide, on a clock that runs only while all of them
// wait.
type scenario struct {
	provider func(ctx context.Context, subject string) (credit.Answer, error)
	// cache, if not nil, is what a read of a cache that is not in memory goes through.
	cache func(ctx context.Context) error
	// blocks says that who is known to be exhausted goes on being blocked.
	blocks bool
	// learns says that who is exhausted and was never seen is found out.
	learns bool
	// reads is the most that a decision may wait.
	reads time.Duration
	// fetches says whether the provider may be asked at all.
	fetches bool
}

const (
	scenarioCallers = 200
	scenarioTime    = 10 * time.Minute
)

// flapping is up and down for half a minute each, down as a refusal and as silence in turn.
func flapping(start time.Time) func(context.Context, string) (credit.Answer, error) {
	return func(ctx context.Context, subject string) (credit.Answer, error) {
		switch int(time.Since(start)/(30*time.Second)) % 4 {
		case 1:
			return failing(ctx, subject)
		case 3:
			return dead(ctx, subject)
		}
		return up(ctx, subject)
	}
}

// hangs is a read that does not listen to its context.
func hangs(d time.Duration) func(context.Context) error {
	return func(context.Context) error { <-time.After(d); return nil }
}

// tidy:table one row for each scenario
func TestScenarios(t *testing.T) {
	fine := func(context.Context) error { return nil }
	budget := credit.DefaultReadBudget
	rows := map[string]scenario{
		"provider up":       {provider: up, blocks: true, learns: true, fetches: true},
		"provider slow 2 s": {provider: slow(2 * time.Second), blocks: true, learns: true, fetches: true},
		"provider slow":     {provider: slow(10 * time.Second), blocks: true, fetches: true},
		"provider failing":  {provider: failing, blocks: true, fetches: true},
		"provider flapping": {blocks: true, learns: true, fetches: true},
		"provider dead":     {provider: dead, blocks: true, fetches: true},
		"cache fine": {
			provider: up, cache: fine, blocks: true, learns: true, fetches: true,
		},
		"cache slow within the budget": {
			provider: up, cache: hangs(10 * time.Millisecond), blocks: true, learns: true,
			reads: 10 * time.Millisecond, fetches: true,
		},
		"cache slow":    {provider: up, cache: hangs(100 * time.Millisecond), reads: budget},
		"cache hanging": {provider: up, cache: hangs(24 * time.Hour), reads: budget},
		"cache failing": {provider: up, cache: failingRead},
		"both dead":     {provider: dead, cache: hangs(24 * time.Hour), reads: budget},
	}
	for name, s := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.run(t) })
		})
	}
}

func failingRead(context.Context) error { return errDown }

func (s scenario) run(t *testing.T) {
	if s.provider == nil {
		s.provider = flapping(time.Now())
	}
	p := newProvider(up)
	options := credit.Options{}
	c := &cache{}
	if s.cache != nil {
		options.Cache = c
	}
	g := open(t, p, &options)
	for i := range 10 {
		g.Balance(t.Context(), fmt.Sprint("empty-known-", i))
		g.Balance(t.Context(), fmt.Sprint("rich-known-", i))
	}
	warm := p.total()
	p.now(s.provider)
	c.now(s.cache)

	var callers sync.WaitGroup
	for i := range scenarioCallers {
		callers.Go(func() { s.call(t, g, i) })
	}
	watched := make(chan struct{})
	go func() { s.watch(t, g); close(watched) }()
	callers.Wait()
	<-watched
	if (p.total() > warm) != s.fetches {
		t.Errorf("got %d fetches, want any: %t", p.total()-warm, s.fetches)
	}
	checkDebounce(t, p)
	if c.atOnce() > credit.DefaultMaxReads {
		t.Errorf("got %d reads at once, want at most %d", c.atOnce(), credit.DefaultMaxReads)
	}
	if options.Cache != nil {
		<-time.After(25 * time.Hour) // reads that hang end
	}
}

// call decides again and again as one caller.
func (s scenario) call(t *testing.T, g *credit.Gate, seed int) {
	random := rand.New(rand.NewPCG(6, uint64(seed)))
	kinds := []string{"empty-known-", "rich-known-", "empty-new-", "rich-new-", "none-"}
	start := time.Now()
	learned := false
	for time.Since(start) < scenarioTime {
		kind := kinds[random.IntN(len(kinds))]
		subject := fmt.Sprint(kind, random.IntN(10))
		asked := time.Now()
		got := g.Decide(subject)
		waited := time.Since(asked)
		if waited > s.reads {
			t.Errorf("%s: waited %v, want at most %v", subject, waited, s.reads)
		}
		switch {
		case kind == "empty-known-" && got.Blocked != s.blocks:
			t.Errorf("%s after %v: got %+v, want blocked: %t", subject, asked.Sub(start), got, s.blocks)
		case !strings.HasPrefix(kind, "empty-") && got.Blocked:
			t.Errorf("%s: got %+v, want allowed", subject, got)
		}
		learned = learned || kind == "empty-new-" && got.Blocked
		<-time.After(time.Duration(random.IntN(8000)) * time.Millisecond)
	}
	if learned != s.learns {
		t.Errorf("exhausted and not known before: got blocked %t, want %t", learned, s.learns)
	}
}

// watch looks every second whether all that the gate keeps is within its bounds.
func (s scenario) watch(t *testing.T, g *credit.Gate) {
	start := time.Now()
	for time.Since(start) < scenarioTime {
		checkBounds(t, g, credit.Held{
			Entries: 50, Begun: 50, Pending: 50, Queued: 50,
			Workers: credit.DefaultMaxRefreshes, Reads: credit.DefaultMaxReads,
		})
		<-time.After(time.Second)
	}
}

func checkBounds(t testing.TB, g *credit.Gate, most credit.Held) {
	t.Helper()
	h := g.Held()
	if h.Entries > most.Entries || h.Begun > most.Begun || h.Pending > most.Pending ||
		h.Queued > most.Queued || h.Workers > most.Workers || h.Reads > most.Reads {
		t.Errorf("the gate holds %+v, want at most %+v", h, most)
	}
}

// checkDebounce looks whether all fetches for each subject are far enough apart.
func checkDebounce(t testing.TB, p *provider) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for subject, times := range p.asked {
		for i := 1; i < len(times); i++ {
			apart := times[i].Sub(times[i-1])
			if apart < credit.DefaultDebounce {
				t.Errorf("%s: fetches %v apart, want at least 15s", subject, apart)
			}
		}
	}
}

// Ten minutes of traffic on subjects of all sorts, through decisions and reads: no subject is
// fetched more often than its state asks for.
func TestTenMinutesOfTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(up)
		g := open(t, p, nil)
		start := time.Now()
		for time.Since(start) < 10*time.Minute {
			for _, subject := range []string{"rich", "empty-a", "none-a"} {
				g.Decide(subject)
			}
			synctest.Wait()
			for _, subject := range []string{"rich", "empty-a", "none-a"} {
				g.Balance(t.Context(), subject)
			}
			time.Sleep(100 * time.Millisecond)
		}
		// Blocked: every 15 s. Not blocked: when older than 180 s. No such balance: every 60 s.
		for subject, want := range map[string]int{"rich": 4, "empty-a": 40, "none-a": 10} {
			got := p.fetches(subject)
			if got != want {
				t.Errorf("%s: got %d fetches, want %d", subject, got, want)
			}
		}
		checkDebounce(t, p)
	})
}

// More subjects than there is room for, of a provider that is slow: the gate keeps to its bounds,
// no subject is fetched twice within the debounce, and who is dropped comes up again.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(slow(time.Second))
		g := open(t, p, &credit.Options{MaxSubjects: 100, MaxRefreshes: 4, MaxQueued: 20})
		most := credit.Held{Entries: 100, Begun: 100, Pending: 24, Queued: 20, Workers: 4}
		for i := range 20_000 {
			g.Decide(fmt.Sprint("rich-", i%1000))
			checkBounds(t, g, most)
			if i%10 == 0 {
				time.Sleep(50 * time.Millisecond)
			}
		}
		if p.atOnce() != 4 {
			t.Errorf("got %d fetches at once, want 4", p.atOnce())
		}
		checkDebounce(t, p)
		time.Sleep(time.Minute)
		if h := g.Held(); h.Pending != 0 || h.Queued != 0 || h.Workers != 0 {
			t.Errorf("the gate holds %+v, want nothing under way after a minute", h)
		}
		g.Decide("rich-last")
		time.Sleep(time.Second)
		synctest.Wait()
		got := g.Decide("rich-last")
		if !got.Known {
			t.Errorf("got %+v, want a balance: there is room again", got)
		}
	})
}

// A refresh that waited in the queue is dropped if somebody has fetched the subject meanwhile.
func TestQueuedAndFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(func(ctx context.Context, subject string) (credit.Answer, error) {
			if subject == "rich-first" {
				return slow(4*time.Second)(ctx, subject)
			}
			return up(ctx, subject)
		})
		g := open(t, p, &credit.Options{MaxRefreshes: 1})
		g.Decide("rich-first")
		synctest.Wait()
		g.Decide("rich-second") // waits for the first
		g.Balance(t.Context(), "rich-second")
		time.Sleep(10 * time.Second)
		if p.fetches("rich-second") != 1 {
			t.Errorf("got %d fetches, want the one of the cold miss", p.fetches("rich-second"))
		}
	})
}

// Where the times of the last fetches have no room for one more, there is no refresh: it could be
// one within the debounce.
func TestBoundOfDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(failing)
		g := open(t, p, &credit.Options{MaxSubjects: 10})
		for range 40 {
			for i := range 40 {
				g.Decide(fmt.Sprint("subject ", i))
			}
			time.Sleep(time.Second)
		}
		checkDebounce(t, p)
		if p.total() != 30 {
			t.Errorf("got %d fetches in 40 s, want 10 in each 15 s", p.total())
		}
	})
}

// Cold misses are bounded too: who finds no room waits for it.
func TestBoundOfColdMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(slow(4 * time.Second))
		g := open(t, p, &credit.Options{MaxFetches: 2})
		var readers sync.WaitGroup
		var mu sync.Mutex
		known := 0
		start := time.Now()
		for i := range 20 {
			readers.Go(func() {
				got := g.Balance(t.Context(), fmt.Sprint("rich-", i))
				mu.Lock()
				defer mu.Unlock()
				if got.Known {
					known++
				}
			})
		}
		readers.Wait()
		// In 15 s each of the two has time for three, and begins a fourth that nobody waits for.
		if known != 6 || p.atOnce() != 2 || time.Since(start) != 15*time.Second {
			t.Errorf("got %d balances, %d at once, after %v, want 6, 2 at once, after 15s",
				known, p.atOnce(), time.Since(start))
		}
	})
}
