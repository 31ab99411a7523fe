package credit_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/limiter/credit"
)

// The tests of this file are the contract of the gate, line by line. They are what stops a later
// change from taking unknown for exhausted.

// tidy:table the truth table, all of it
func TestContract1Compute(t *testing.T) {
	known := func(remaining int64, unlimited bool) credit.Balance {
		return credit.Balance{
			Known: true, Granted: 10, Usage: 10 - remaining, Remaining: remaining, Unlimited: unlimited,
		}
	}
	rows := []struct {
		name               string
		balance            credit.Balance
		enforced           bool
		exhausted, blocked bool
	}{
		{"unknown", credit.Balance{}, false, false, false},
		{"unknown, enforced", credit.Balance{}, true, false, false},
		{"left", known(1, false), false, false, false},
		{"left, enforced", known(1, false), true, false, false},
		{"empty", known(0, false), false, true, false},
		{"empty, enforced", known(0, false), true, true, true},
		{"overdrawn", known(-1, false), false, true, false},
		{"overdrawn, enforced", known(-1, false), true, true, true},
		{"unlimited, left", known(1, true), true, false, false},
		{"unlimited, empty", known(0, true), true, false, false},
		{"unlimited, overdrawn", known(-1, true), true, false, false},
		{"unlimited, not enforced", known(0, true), false, false, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			want := credit.Decision{
				Blocked: row.blocked, Exhausted: row.exhausted, Enforced: row.enforced,
				Known: row.balance.Known, Granted: row.balance.Granted, Usage: row.balance.Usage,
				Remaining: row.balance.Remaining, Unlimited: row.balance.Unlimited,
			}
			got := credit.Compute(row.balance, row.enforced)
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
	t.Run("figures of what is unknown", func(t *testing.T) {
		unknown := credit.Balance{Granted: 7, Usage: 9, Remaining: -2, Unlimited: true}
		got := credit.Compute(unknown, true)
		if got != (credit.Decision{Enforced: true}) {
			t.Errorf("got %+v, want no figures and nothing blocked", got)
		}
	})
}

// tidy:table one subtest for each layer
func TestContract2LayersAllow(t *testing.T) {
	empty := remaining(0)
	t.Run("flag missing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := open(t, newProvider(func(context.Context, string) (credit.Answer, error) {
				return credit.Answer{Balance: empty.Balance}, nil
			}), nil)
			got := g.Balance(t.Context(), "a")
			if got.Blocked || got.Enforced || !got.Exhausted {
				t.Errorf("got %+v, want exhausted, neither enforced nor blocked", got)
			}
			got = g.Decide("a")
			if got.Blocked || !got.Exhausted {
				t.Errorf("got %+v, want exhausted and not blocked", got)
			}
		})
	})
	t.Run("balance unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := open(t, newProvider(func(context.Context, string) (credit.Answer, error) {
				return credit.Answer{Flag: credit.FlagOn}, nil
			}), nil)
			got := g.Balance(t.Context(), "a")
			if got != (credit.Decision{Enforced: true, None: true}) {
				t.Errorf("got %+v, want enforced, none, and nothing else", got)
			}
		})
	})
	t.Run("fetch failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log logged
			g := open(t, newProvider(failing), &credit.Options{Logger: log.logger()})
			g.Decide("a")
			synctest.Wait()
			if log.warnings() != 1 {
				t.Errorf("got %d warnings, want 1", log.warnings())
			}
			got := g.Decide("a")
			if got != (credit.Decision{}) {
				t.Errorf("got %+v, want unknown", got)
			}
		})
	})
	t.Run("failed fetch keeps what is known", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, nil)
			g.Balance(t.Context(), "empty-a")
			p.now(failing)
			time.Sleep(time.Minute)
			g.Decide("empty-a")
			synctest.Wait()
			got := g.Decide("empty-a")
			if !got.Blocked || p.total() != 2 {
				t.Errorf("got %+v after %d fetches, want blocked after 2", got, p.total())
			}
		})
	})
	t.Run("cache slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			c := &cache{}
			g := open(t, newProvider(up), &credit.Options{Cache: c, Registerer: registry})
			g.Balance(t.Context(), "empty-a")
			for _, row := range []struct {
				takes, waits time.Duration
				blocked      bool
			}{
				{24 * time.Millisecond, 24 * time.Millisecond, true},
				{26 * time.Millisecond, 25 * time.Millisecond, false},
				{time.Hour, 25 * time.Millisecond, false},
			} {
				c.now(func(context.Context) error { <-time.After(row.takes); return nil })
				start := time.Now()
				got := g.Decide("empty-a")
				waited := time.Since(start)
				if got.Blocked != row.blocked || got.Unread == row.blocked || waited != row.waits {
					t.Errorf("read of %v: got %+v after %v, want blocked %t after %v",
						row.takes, got, waited, row.blocked, row.waits)
				}
			}
			got := metric(t, registry, "weir_credit_read_timeouts_total", "")
			if got != 2 {
				t.Errorf("got %v read time-outs, want 2", got)
			}
			time.Sleep(time.Hour)
		})
	})
	t.Run("cache fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			c := &cache{}
			g := open(t, newProvider(up), &credit.Options{Cache: c, Registerer: registry})
			g.Balance(t.Context(), "empty-a")
			c.now(func(context.Context) error { return errDown })
			got := g.Decide("empty-a")
			if got != (credit.Decision{Unread: true}) {
				t.Errorf("got %+v, want unread and nothing else", got)
			}
			n := metric(t, registry, "weir_credit_cache_errors_total", "read")
			if n != 1 {
				t.Errorf("got %v failed reads, want 1", n)
			}
		})
	})
}

func TestContract3AlwaysEnforced(t *testing.T) {
	for _, flag := range []credit.Flag{credit.FlagMissing, credit.FlagOff, credit.FlagOn} {
		t.Run(fmt.Sprint("flag ", flag), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(func(ctx context.Context, subject string) (credit.Answer, error) {
					answer, err := up(ctx, subject)
					answer.Flag = flag
					return answer, err
				})
				g := open(t, p, &credit.Options{AlwaysEnforced: true})
				got := g.Decide("empty-a")
				if got.Blocked || !got.Enforced {
					t.Errorf("unknown: got %+v, want enforced and not blocked", got)
				}
				synctest.Wait()
				got = g.Decide("empty-a")
				if !got.Blocked {
					t.Errorf("known exhausted: got %+v, want blocked", got)
				}
				g.Balance(t.Context(), "none-a")
				got = g.Decide("none-a")
				if got.Blocked || got.Known {
					t.Errorf("no such balance: got %+v, want unknown and not blocked", got)
				}
			})
		})
	}
}

// A decision returns at once, on a clock that stands still while it does, whatever else is stuck:
// a refresh, a cold miss that many wait for, and a write of the cache.
func TestContract4OnlyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(up)
		g := open(t, p, nil)
		g.Balance(t.Context(), "empty-a")
		p.now(dead)
		start := time.Now()
		var readers sync.WaitGroup
		for range 10 {
			readers.Go(func() { g.Balance(t.Context(), "cold") })
		}
		synctest.Wait()
		time.Sleep(credit.DefaultDebounce - time.Since(start))
		readers.Wait()
		start = time.Now()
		before := p.total()
		for range 10 {
			readers.Go(func() { g.Balance(t.Context(), "cold") })
		}
		synctest.Wait()
		blocked, cold := g.Decide("empty-a"), g.Decide("cold")
		if !blocked.Blocked || cold.Blocked || time.Since(start) != 0 {
			t.Errorf("got %+v and %+v after %v, want blocked and unknown at once",
				blocked, cold, time.Since(start))
		}
		synctest.Wait()
		if p.total() != before+2 {
			t.Errorf("got %d fetches, want the cold one and the refresh", p.total()-before)
		}
		blocked, cold = g.Decide("empty-a"), g.Decide("cold")
		if !blocked.Blocked || cold.Blocked || time.Since(start) != 0 {
			t.Errorf("fetching: got %+v and %+v after %v, want blocked and unknown at once",
				blocked, cold, time.Since(start))
		}
		readers.Wait()
	})
}

// A write that is stuck keeps no decision waiting either, nor does anything a refresh whose source
// does not return.
func TestContract4WriteStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cache{}
		g := open(t, newProvider(up), &credit.Options{Cache: c})
		g.Balance(t.Context(), "empty-a")
		stuck := make(chan struct{})
		c.stickWrites(stuck)
		time.Sleep(credit.DefaultDebounce)
		g.Decide("empty-a") // its refresh learns something and cannot write it
		synctest.Wait()
		start := time.Now()
		blocked, cold := g.Decide("empty-a"), g.Decide("cold")
		if !blocked.Blocked || cold.Blocked || time.Since(start) != 0 {
			t.Errorf("got %+v and %+v after %v, want blocked and unknown at once",
				blocked, cold, time.Since(start))
		}
		close(stuck)
	})
}

// tidy:table one subtest for each reason to refresh or not
func TestContract5Refresh(t *testing.T) {
	rows := []struct {
		name, subject string
		age           time.Duration // since the balance was fetched
		refreshed     bool
	}{
		{"fresh", "rich", 20 * time.Second, false},
		{"fresh at its last moment", "rich", 180 * time.Second, false},
		{"stale", "rich", 180*time.Second + 1, true},
		{"blocked within the debounce", "empty-a", 15*time.Second - 1, false},
		{"blocked", "empty-a", 15 * time.Second, true},
		{"no such balance within its time", "none-a", 60*time.Second - 1, false},
		{"no such balance", "none-a", 60 * time.Second, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProvider(up)
				g := open(t, p, nil)
				g.Balance(t.Context(), row.subject)
				time.Sleep(row.age)
				g.Decide(row.subject)
				synctest.Wait()
				got := p.fetches(row.subject) - 1
				if (got == 1) != row.refreshed || got > 1 {
					t.Errorf("got %d refreshes, want one: %t", got, row.refreshed)
				}
			})
		})
	}
	t.Run("exhausted and not enforced", func(t *testing.T) { // which is no answer "blocked"
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(func(context.Context, string) (credit.Answer, error) {
				return credit.Answer{Balance: remaining(0).Balance, Flag: credit.FlagOff}, nil
			})
			g := open(t, p, nil)
			g.Balance(t.Context(), "a")
			time.Sleep(credit.DefaultStaleAfter)
			g.Decide("a")
			synctest.Wait()
			if p.total() != 1 {
				t.Errorf("got %d fetches, want no refresh before it is stale", p.total())
			}
		})
	})
	t.Run("missing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, nil)
			g.Decide("empty-a")
			synctest.Wait()
			got := g.Decide("empty-a")
			if !got.Blocked || p.total() != 1 {
				t.Errorf("got %+v after %d fetches, want blocked after 1", got, p.total())
			}
		})
	})
	t.Run("debounce", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(failing)
			g := open(t, p, nil)
			for range 2 * 150 { // 30 s, and not the first moment of the next refresh
				g.Decide("a")
				time.Sleep(100 * time.Millisecond)
			}
			if p.total() != 2 {
				t.Errorf("got %d fetches in 30 s, want 2", p.total())
			}
		})
	})
	t.Run("topped up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, nil)
			g.Balance(t.Context(), "empty-a")
			p.now(func(context.Context, string) (credit.Answer, error) { return remaining(5), nil })
			start := time.Now()
			for g.Decide("empty-a").Blocked {
				time.Sleep(time.Second)
			}
			if time.Since(start) > 16*time.Second {
				t.Errorf("blocked for %v after the top-up, want one debounce", time.Since(start))
			}
		})
	})
	t.Run("nothing after a failed read", func(t *testing.T) {
		for name, before := range map[string]func(context.Context) error{
			"failed": func(context.Context) error { return errDown },
			"timed out": func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, c := newProvider(up), &cache{before: before}
					g := open(t, p, &credit.Options{Cache: c})
					for range 100 {
						g.Decide("a")
						g.Balance(t.Context(), "a")
						time.Sleep(time.Second)
					}
					if p.total() != 0 {
						t.Errorf("got %d fetches, want none", p.total())
					}
				})
			})
		}
	})
}

func TestContract6StaleBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(up)
		registry := prometheus.NewRegistry()
		g := open(t, p, &credit.Options{Registerer: registry})
		g.Balance(t.Context(), "empty-a")
		g.Balance(t.Context(), "rich")
		p.now(dead)
		time.Sleep(59 * time.Minute)
		start := time.Now()
		empty, rich := g.Decide("empty-a"), g.Decide("rich")
		if !empty.Blocked || !empty.Stale || empty.Age != 59*time.Minute {
			t.Errorf("exhausted: got %+v, want blocked, stale, 59 minutes old", empty)
		}
		if rich.Blocked || !rich.Stale || rich.Remaining != 40 {
			t.Errorf("left: got %+v, want allowed, stale, 40 remaining", rich)
		}
		rich = g.Balance(t.Context(), "rich")
		if !rich.Stale || rich.Remaining != 40 || time.Since(start) != 0 {
			t.Errorf("read: got %+v after %v, want the stale one at once", rich, time.Since(start))
		}
		got := metric(t, registry, "weir_credit_stale_total", "")
		if got != 2 {
			t.Errorf("got %v stale decisions, want 2", got)
		}
		synctest.Wait()
		if p.total() != 4 {
			t.Errorf("got %d fetches, want 2 and a refresh of each", p.total())
		}
		p.now(up)
		time.Sleep(credit.DefaultDebounce)
		g.Balance(t.Context(), "rich")
		synctest.Wait()
		rich = g.Decide("rich")
		if rich.Stale {
			t.Errorf("got %+v, want it refreshed after a read, too", rich)
		}
	})
}

// tidy:table one subtest for each promise about cold misses
func TestContract7ColdMiss(t *testing.T) {
	t.Run("one fetch for all", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(slow(3 * time.Second))
			g := open(t, p, nil)
			var readers sync.WaitGroup
			for i := range 1000 {
				readers.Go(func() {
					got := g.Balance(t.Context(), fmt.Sprint("subject ", i%10))
					if !got.Known || got.Remaining != 40 {
						t.Errorf("got %+v, want 40 remaining", got)
					}
				})
			}
			readers.Wait()
			if p.total() != 10 {
				t.Errorf("got %d fetches, want 10", p.total())
			}
		})
	})
	t.Run("cache is read again inside", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// The read outside finds nothing; by the read inside, another node has written.
			p, c := newProvider(failing), &cache{}
			c.now(func(context.Context) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.reads == 2 {
					c.entries = map[string]credit.Entry{"a": {
						Balance: remaining(3).Balance, Checked: time.Now(),
					}}
				}
				return nil
			})
			g := open(t, p, &credit.Options{Cache: c})
			got := g.Balance(t.Context(), "a")
			if got.Remaining != 3 || p.total() != 0 {
				t.Errorf("got %+v after %d fetches, want 3 remaining after none", got, p.total())
			}
		})
	})
	t.Run("waits at most 15 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{}) // a source that does not listen to its context
			p := newProvider(func(context.Context, string) (credit.Answer, error) {
				<-stuck
				return remaining(1), nil
			})
			g := open(t, p, nil)
			start := time.Now()
			got := g.Balance(t.Context(), "a")
			if got.Known || time.Since(start) != 15*time.Second {
				t.Errorf("got %+v after %v, want unknown after 15s", got, time.Since(start))
			}
			synctest.Wait()
			p.now(up)
			got = g.Balance(t.Context(), "a") // does not join what is stuck
			if got.Remaining != 40 || time.Since(start) != 15*time.Second {
				t.Errorf("got %+v after %v, want 40 remaining at once", got, time.Since(start))
			}
			time.Sleep(time.Minute)
			close(stuck)
			synctest.Wait()
			got = g.Decide("a")
			if got.Remaining != 40 {
				t.Errorf("got %+v, want what was learned later", got)
			}
		})
	})
	t.Run("does not join a refresh that is stuck for 15 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{})
			p := newProvider(func(context.Context, string) (credit.Answer, error) {
				<-stuck
				return remaining(1), nil
			})
			g := open(t, p, nil)
			g.Decide("a")
			time.Sleep(15 * time.Second)
			synctest.Wait()
			p.now(up)
			start := time.Now()
			got := g.Balance(t.Context(), "a")
			if got.Remaining != 40 || time.Since(start) != 0 {
				t.Errorf("got %+v after %v, want 40 remaining at once", got, time.Since(start))
			}
			close(stuck)
		})
	})
	t.Run("caller gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(slow(2 * time.Second))
			g := open(t, p, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got := g.Balance(ctx, "a")
			if got.Known {
				t.Errorf("got %+v, want unknown", got)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			got = g.Decide("a") // the fetch went on without it
			if got.Remaining != 40 || p.total() != 1 {
				t.Errorf("got %+v after %d fetches, want 40 remaining after 1", got, p.total())
			}
		})
	})
	t.Run("no such balance is remembered for 60 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, nil)
			for range 60 {
				got := g.Balance(t.Context(), "none-a")
				if got.Known || !got.None {
					t.Errorf("got %+v, want that there is none", got)
				}
				time.Sleep(time.Second)
			}
			p.now(failing)
			got := g.Decide("none-a")
			if got.None {
				t.Errorf("after 60 s: got %+v, want unknown", got)
			}
			synctest.Wait()
			p.now(up)
			if p.total() != 2 {
				t.Errorf("got %d fetches, want 1 in 60 s and the refresh", p.total())
			}
			g.Balance(t.Context(), "none-a")
			if p.total() != 3 {
				t.Errorf("got %d fetches after 60 s, want 3", p.total())
			}
		})
	})
	t.Run("failed fetch leaves no marker", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(failing)
			g := open(t, p, nil)
			failed := g.Balance(t.Context(), "a")
			p.now(dead)
			silent := g.Balance(t.Context(), "a")
			if failed.None || silent.None {
				t.Errorf("got %+v and %+v, want nothing said for certain", failed, silent)
			}
			p.now(up)
			got := g.Balance(t.Context(), "a")
			if got.Remaining != 40 || p.total() != 3 {
				t.Errorf("got %+v after %d fetches, want 40 remaining after 3", got, p.total())
			}
		})
	})
}

// tidy:table one subtest for each figure that no other line shows
func TestContract8Figures(t *testing.T) {
	t.Run("defaults", func(t *testing.T) {
		got := []time.Duration{
			credit.DefaultReadBudget, credit.DefaultStaleAfter, credit.DefaultDebounce,
			credit.DefaultFetchTimeout, credit.DefaultColdWait, credit.DefaultBalanceTTL,
			credit.DefaultFlagTTL, credit.DefaultNoneTTL,
		}
		want := "25ms 3m0s 15s 5s 15s 1h0m0s 24h0m0s 1m0s"
		if strings.Trim(fmt.Sprint(got), "[]") != want {
			t.Errorf("got %v, want %s", got, want)
		}
	})
	t.Run("fetch times out after 5 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := open(t, newProvider(dead), nil)
			start := time.Now()
			got := g.Balance(t.Context(), "a")
			if got.Known || time.Since(start) != 5*time.Second {
				t.Errorf("got %+v after %v, want unknown after 5s", got, time.Since(start))
			}
		})
	})
	t.Run("balance lives 1 h", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, nil)
			g.Balance(t.Context(), "empty-a")
			p.now(failing)
			time.Sleep(time.Hour - 1)
			got := g.Decide("empty-a")
			if !got.Blocked {
				t.Errorf("before 1 h: got %+v, want blocked", got)
			}
			time.Sleep(time.Nanosecond)
			got = g.Decide("empty-a")
			if got != (credit.Decision{Enforced: true}) {
				t.Errorf("after 1 h: got %+v, want unknown, and enforced still", got)
			}
		})
	})
	t.Run("flag lives 1 day", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, nil)
			g.Balance(t.Context(), "empty-a")
			p.now(func(context.Context, string) (credit.Answer, error) {
				return credit.Answer{Balance: remaining(0).Balance}, nil // and nothing about the flag
			})
			time.Sleep(24*time.Hour - 1)
			g.Balance(t.Context(), "empty-a")
			got := g.Decide("empty-a")
			if !got.Blocked {
				t.Errorf("before a day: got %+v, want blocked", got)
			}
			time.Sleep(time.Nanosecond)
			got = g.Decide("empty-a")
			if got.Blocked || !got.Exhausted {
				t.Errorf("after a day: got %+v, want exhausted and not blocked", got)
			}
		})
	})
	t.Run("settings of what is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, &credit.Options{NoneTTL: 5 * time.Second, FlagTTL: time.Minute})
			g.Balance(t.Context(), "none-a")
			g.Balance(t.Context(), "empty-a")
			p.now(failing)
			time.Sleep(5*time.Second - 1)
			g.Balance(t.Context(), "none-a")
			time.Sleep(time.Nanosecond)
			g.Balance(t.Context(), "none-a")
			if p.fetches("none-a") != 2 {
				t.Errorf("got %d fetches, want the second after 5 s", p.fetches("none-a"))
			}
			time.Sleep(55*time.Second - 1)
			before := g.Decide("empty-a")
			time.Sleep(time.Nanosecond)
			after := g.Decide("empty-a")
			if !before.Blocked || after.Blocked {
				t.Errorf("got %+v, then %+v, want the flag gone after a minute", before, after)
			}
		})
	})
	t.Run("settings of waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &cache{}
			g := open(t, newProvider(dead), &credit.Options{
				Cache: c, ReadBudget: 7 * time.Millisecond, ColdWait: 2 * time.Second,
			})
			start := time.Now()
			g.Balance(t.Context(), "a")
			if time.Since(start) != 2*time.Second {
				t.Errorf("a read waited %v, want 2s", time.Since(start))
			}
			c.now(hangs(time.Minute))
			start = time.Now()
			g.Decide("a")
			if time.Since(start) != 7*time.Millisecond {
				t.Errorf("a decision waited %v, want 7ms", time.Since(start))
			}
			time.Sleep(time.Hour)
		})
	})
	t.Run("settings", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProvider(up)
			g := open(t, p, &credit.Options{
				StaleAfter: 10 * time.Second, Debounce: time.Second, BalanceTTL: time.Minute,
				FetchTimeout: 2 * time.Second,
			})
			g.Balance(t.Context(), "rich")
			p.now(dead)
			time.Sleep(11 * time.Second)
			got := g.Decide("rich")
			if !got.Stale {
				t.Errorf("got %+v, want stale after 10 s", got)
			}
			time.Sleep(3 * time.Second)
			g.Decide("rich")
			synctest.Wait()
			if p.total() != 3 {
				t.Errorf("got %d fetches, want a refresh again after 2 s", p.total())
			}
			time.Sleep(46 * time.Second)
			got = g.Decide("rich")
			if got.Known {
				t.Errorf("got %+v, want unknown after a minute", got)
			}
		})
	})
}
