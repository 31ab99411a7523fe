package credit_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"weir/limiter/credit"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		p := newProvider(up)
		g := open(t, p, &credit.Options{Registerer: registry})
		g.Balance(t.Context(), "empty-a") // fetched: known
		g.Balance(t.Context(), "none-a")  // fetched: none
		g.Decide("empty-a")               // blocked
		g.Decide("none-a")                // allowed, unknown
		g.Decide("rich")                  // allowed, unknown, refreshed: known
		synctest.Wait()
		g.Decide("rich") // allowed
		p.now(failing)
		g.Balance(t.Context(), "other") // fetched: failed
		time.Sleep(200 * time.Second)
		g.Decide("rich") // allowed, stale, refreshed: failed
		synctest.Wait()
		for _, row := range []struct {
			name, label string
			want        float64
		}{
			{"weir_credit_decisions_total", "allowed", 4},
			{"weir_credit_decisions_total", "blocked", 1},
			{"weir_credit_unknown_total", "", 2},
			{"weir_credit_stale_total", "", 1},
			{"weir_credit_refreshes_total", "known", 1},
			{"weir_credit_refreshes_total", "none", 0},
			{"weir_credit_refreshes_total", "failed", 1},
			{"weir_credit_refreshes_total", "dropped", 0},
			{"weir_credit_fetches_total", "known", 1},
			{"weir_credit_fetches_total", "none", 1},
			{"weir_credit_fetches_total", "failed", 1},
			{"weir_credit_fetches_total", "dropped", 0},
			{"weir_credit_read_timeouts_total", "", 0},
			{"weir_credit_cache_errors_total", "read", 0},
			{"weir_credit_cache_errors_total", "write", 0},
		} {
			got := metric(t, registry, row.name, row.label)
			if got != row.want {
				t.Errorf("%s %s: got %v, want %v", row.name, row.label, got, row.want)
			}
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, label := range []string{"empty-a", "none-a", "rich", "other"} {
				if strings.Contains(family.String(), label) {
					t.Errorf("%s: a label holds the subject %s", family.GetName(), label)
				}
			}
		}
	})
}

// Gates of several limits share a registerer, and a gate can be replaced by one with other options.
func TestGatesShareRegisterer(t *testing.T) {
	registry := prometheus.NewRegistry()
	options := &credit.Options{Registerer: registry}
	first, err := credit.New("credits", newProvider(up), options)
	if err != nil {
		t.Fatal(err)
	}
	other, err := credit.New("budget", newProvider(up), options)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, err = credit.New("credits", newProvider(up), options)
	if err == nil {
		t.Fatal("got no error for a second gate of the same limit")
	}
	first.Close()
	again, err := credit.New("credits", newProvider(up), options)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// A subject that cannot be one is unknown; nobody is asked about it.
func TestSubjects(t *testing.T) {
	for name, subject := range map[string]string{
		"empty": "", "long": strings.Repeat("a", credit.MaxSubject+1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(func(context.Context, string) (credit.Answer, error) {
					return remaining(0), nil
				})
				g := open(t, p, &credit.Options{AlwaysEnforced: true})
				decided, read := g.Decide(subject), g.Balance(t.Context(), subject)
				synctest.Wait()
				want := credit.Decision{Enforced: true}
				if decided != want || read != want || p.total() != 0 {
					t.Errorf("got %+v and %+v after %d fetches, want unknown after none",
						decided, read, p.total())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		longest := strings.Repeat("a", credit.MaxSubject)
		g := open(t, newProvider(up), nil)
		got := g.Balance(t.Context(), longest)
		if !got.Known {
			t.Errorf("got %+v, want a balance for the longest subject", got)
		}
	})
}

// Closing ends what is under way, without a warning for it; what is known stays.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		p := newProvider(up)
		g := open(t, p, &credit.Options{Logger: log.logger()})
		g.Balance(t.Context(), "empty-a")
		time.Sleep(time.Minute)
		p.now(dead)
		g.Decide("empty-a")
		start := time.Now()
		cold := make(chan credit.Decision, 1)
		go func() { cold <- g.Balance(t.Context(), "b") }()
		synctest.Wait()
		g.Close()
		got := <-cold
		if got.Known || time.Since(start) != 0 || log.warnings() != 0 {
			t.Errorf("got %+v after %v and %d warnings, want unknown at once and none",
				got, time.Since(start), log.warnings())
		}
		asked := p.total()
		time.Sleep(time.Minute)
		empty, read := g.Decide("empty-a"), g.Balance(t.Context(), "c")
		synctest.Wait()
		if !empty.Blocked || read.Known || p.total() != asked {
			t.Errorf("closed: got %+v, %+v and %d fetches, want blocked, unknown and none",
				empty, read, p.total()-asked)
		}
	})
}

// Close returns when the source has: whoever closes a gate may then close what the source uses.
func TestCloseWaits(t *testing.T) {
	for name, begin := range map[string]func(*credit.Gate){
		"refresh": func(g *credit.Gate) { g.Decide("a") },
		"cold miss": func(g *credit.Gate) {
			go g.Balance(context.Background(), "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(func(ctx context.Context, _ string) (credit.Answer, error) {
					<-ctx.Done()
					<-time.After(time.Second)
					return credit.Answer{}, ctx.Err()
				})
				g := open(t, p, nil)
				begin(g)
				synctest.Wait()
				start := time.Now()
				g.Close()
				if time.Since(start) != time.Second {
					t.Errorf("closed after %v, want the second that the source takes", time.Since(start))
				}
			})
		})
	}
}

// A subject may be a part of a large text, such as a request: what the gate keeps is a copy, so
// that the text goes.
func TestSubjectIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("x", 1000) + "decided" + "read"
		decided, read := text[1000:1007], text[1007:]
		c := &cache{}
		g := open(t, newProvider(up), &credit.Options{Cache: c})
		g.Decide(decided)
		synctest.Wait()
		g.Balance(t.Context(), read)
		for i, subject := range []string{decided, read} {
			if c.written[i] != subject || unsafe.StringData(c.written[i]) == unsafe.StringData(subject) {
				t.Errorf("got %q, want a copy of %q", c.written[i], subject)
			}
		}
	})
}

// A cache that cannot be read again after a fetch is not written, or the flag that it has would be
// lost; the answer is still the answer to who waits for it.
func TestCacheUnreadableAfterFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		registry := prometheus.NewRegistry()
		c := &cache{}
		c.now(func(context.Context) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.reads == 3 {
				return errDown
			}
			return nil
		})
		g := open(t, newProvider(up), &credit.Options{
			Cache: c, Logger: log.logger(), Registerer: registry,
		})
		got := g.Balance(t.Context(), "empty-a")
		n := metric(t, registry, "weir_credit_cache_errors_total", "read")
		if !got.Blocked || log.warnings() != 1 || n != 1 || len(c.written) != 0 {
			t.Errorf("got %+v, %d warnings, %v failed reads, %d writes, want blocked, 1, 1, none",
				got, log.warnings(), n, len(c.written))
		}
	})
}

// A clock that is set back by a day neither hides what is known nor keeps it from being refreshed.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back time.Duration
		p := newProvider(up)
		g := open(t, p, &credit.Options{Now: func() time.Time { return time.Now().Add(-back) }})
		g.Balance(t.Context(), "empty-a")
		back = 24 * time.Hour
		got := g.Decide("empty-a")
		if !got.Blocked || !got.Stale || got.Age != 0 {
			t.Errorf("got %+v, want blocked and stale", got)
		}
		p.now(func(context.Context, string) (credit.Answer, error) { return remaining(9), nil })
		time.Sleep(credit.DefaultDebounce)
		g.Decide("empty-a")
		synctest.Wait()
		got = g.Decide("empty-a")
		if got.Blocked || got.Stale || got.Remaining != 9 {
			t.Errorf("got %+v, want 9 remaining, fresh", got)
		}
	})
}

// An answer that cannot be remembered is still the answer to who waits for it.
func TestCacheUnwritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		registry := prometheus.NewRegistry()
		g := open(t, newProvider(up), &credit.Options{
			Cache: &cache{unwritable: true}, Logger: log.logger(), Registerer: registry,
		})
		got := g.Balance(t.Context(), "empty-a")
		if !got.Blocked || log.warnings() != 1 {
			t.Errorf("got %+v and %d warnings, want blocked and 1", got, log.warnings())
		}
		n := metric(t, registry, "weir_credit_cache_errors_total", "write")
		if n != 1 {
			t.Errorf("got %v failed writes, want 1", n)
		}
	})
}

// The flag that a source told once is kept where its next answers do not tell it, and goes when it
// says so.
func TestFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(up)
		g := open(t, p, nil)
		g.Balance(t.Context(), "empty-a")
		for _, row := range []struct {
			flag    credit.Flag
			blocked bool
		}{
			{credit.FlagMissing, true}, {credit.FlagOff, false}, {credit.FlagMissing, false},
			{credit.FlagOn, true},
		} {
			p.now(func(context.Context, string) (credit.Answer, error) {
				return credit.Answer{Balance: remaining(0).Balance, Flag: row.flag}, nil
			})
			time.Sleep(200 * time.Second)
			g.Decide("empty-a")
			synctest.Wait()
			got := g.Decide("empty-a")
			if got.Blocked != row.blocked {
				t.Errorf("flag %d: got %+v, want blocked: %t", row.flag, got, row.blocked)
			}
		}
	})
}
