package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

func TestTrack(t *testing.T) {
	c := connect(t, start(t, fixed))
	usage := wire.TrackRequest{Limit: "credits", Subject: "u", Amount: new(wire.Count(12)), ID: "one"}
	for range 2 {
		got, err := c.Track(t.Context(), usage)
		if err != nil || got.Booked != wire.Count(10) || got.Overage != wire.Count(2) ||
			got.Amount != wire.Count(12) || got.Spooled || got.Dropped {
			t.Errorf("got %+v and error %v, want 10 booked and 2 over", got, err)
		}
	}
	usage.Amount = new(wire.Count(1))
	_, err := c.Track(t.Context(), usage)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != wire.CodeIDConflict {
		t.Errorf("got error %v, want id-conflict", err)
	}
	usage.ID = ""
	_, err = c.Track(t.Context(), usage)
	if !errors.Is(err, client.ErrNoID) {
		t.Errorf("got error %v, want %v", err, client.ErrNoID)
	}
	usage.ID, usage.Subject = "three", "\xff"
	_, err = c.Track(t.Context(), usage)
	if !errors.Is(err, client.ErrNotUTF8) {
		t.Errorf("got error %v, want %v", err, client.ErrNotUTF8)
	}
}

// used is usage of one unit under an id.
func used(id string) wire.TrackRequest {
	return wire.TrackRequest{Limit: "credits", Subject: "u", Amount: new(wire.Count(1)), ID: id}
}

// ledger books usage, each id once, while it is not away.
type ledger struct {
	away atomic.Pointer[http.HandlerFunc]

	mu     sync.Mutex
	calls  int
	booked map[string]int // how often an id was sent and answered
	bodies map[string]bool
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	id := idOfBody(body.String())
	l.mu.Lock()
	l.calls++
	l.mu.Unlock()
	away := l.away.Load()
	if away != nil {
		(*away)(w, r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.HasPrefix(id, "bad") {
		fails(wire.CodeIDConflict, "")(w, r)
		return
	}
	if l.booked == nil {
		l.booked, l.bodies = map[string]int{}, map[string]bool{}
	}
	l.booked[id]++
	l.bodies[body.String()] = true
	says(wire.Tracked{Booked: wire.Count(1)})(w, r)
}

func (l *ledger) goes(away http.HandlerFunc) { l.away.Store(&away) }

func (l *ledger) comesBack() { l.away.Store(nil) }

// sent returns how often it was called, and how often an id was answered.
func (l *ledger) sent(id string) (calls, answered int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls, l.booked[id]
}

func idOfBody(body string) string {
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// wantTracked tracks usage, which is to be kept or dropped, in at most a time.
func wantTracked(t testing.TB, c *client.Client, id string, spooled bool, most time.Duration) {
	t.Helper()
	start := time.Now()
	got, err := c.Track(t.Context(), used(id))
	if err != nil || got.Spooled != spooled || got.Dropped == spooled || got.Subject != "u" ||
		got.Limit != "credits" || got.Amount != wire.Count(1) || time.Since(start) > most {
		t.Errorf("%s: got %+v and error %v after %v, want spooled %t within %v", id, got, err,
			time.Since(start), spooled, most)
	}
}

// Whatever way weir is away, the caller is told so in time, and the usage is sent until weir has
// answered, once.
func TestTrackAway(t *testing.T) {
	for name, away := range map[string]http.HandlerFunc{
		"hang": hangs, "busy": fails(wire.CodeBusy, "1"), "502": proxies(502), "503": proxies(503),
		"ledger":     fails(wire.CodeLedgerUnavailable, "3600"),
		"spool full": says(wire.Tracked{Dropped: true}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{}
				l.goes(away)
				c := within(t, l, client.Options{})
				usage := used("a")
				got, err := c.Track(t.Context(), usage)
				if err != nil || !got.Spooled || got.Dropped {
					t.Errorf("got %+v and error %v, want it spooled", got, err)
				}
				wantTracked(t, c, "b", true, 10*time.Second)
				*usage.Amount = wire.Count(7) // is the caller's
				time.Sleep(time.Hour)
				calls, _ := l.sent("a")
				if calls < 40 || calls > 200 { // at least every 70 s, at most every 30
					t.Errorf("got %d calls in an hour, want some 80", calls)
				}
				l.comesBack()
				time.Sleep(70 * time.Second)
				synctest.Wait()
				for _, id := range []string{"a", "b"} {
					_, answered := l.sent(id)
					if answered != 1 {
						t.Errorf("%s: got it answered %d times, want once", id, answered)
					}
				}
				want := `{"limit":"credits","subject":"u","amount":1,"id":"a"}`
				if !l.bodies[want] {
					t.Errorf("got sent %v, want %s among it", l.bodies, want)
				}
				before, _ := l.sent("a")
				time.Sleep(time.Hour)
				after, _ := l.sent("a")
				if before != after {
					t.Errorf("got %d calls with nothing to send", after-before)
				}
			})
		})
	}
	t.Run("Caller", func(t *testing.T) { // is gone, and has used it all the same
		synctest.Test(t, func(t *testing.T) {
			for _, end := range []time.Duration{0, time.Second} {
				l := &ledger{}
				l.goes(hangs)
				c := within(t, l, client.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(end, cancel)
				got, err := c.Track(ctx, used("a"))
				if err != nil || !got.Spooled {
					t.Errorf("got %+v and error %v, want it spooled", got, err)
				}
				l.comesBack()
				err = c.Flush(t.Context())
				_, answered := l.sent("a")
				if err != nil || answered != 1 {
					t.Errorf("got it answered %d times and error %v, want once", answered, err)
				}
			}
		})
	})
}

// The same usage in the queue, in it again and sent by a caller is booked once by a real weir.
func TestTrackTwice(t *testing.T) {
	away := &outage{}
	away.on.Store(true)
	c, err := client.New(start(t, fixed), &client.Options{
		Token: "user", Backoff: time.Millisecond, HTTPClient: &http.Client{Transport: away},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "a"} {
		got, err := c.Track(t.Context(), used(id))
		if err != nil || !got.Spooled || got.Transfer != "" {
			t.Errorf("%s: got %+v and error %v, want it spooled", id, got, err)
		}
	}
	away.on.Store(false)
	got, err := c.Track(t.Context(), used("a"))
	if err != nil || got.Booked != wire.Count(1) || got.Spooled {
		t.Errorf("got %+v and error %v, want it booked", got, err)
	}
	err = c.Flush(t.Context())
	if err != nil {
		t.Error(err)
	}
	b, err := c.Balance(t.Context(), "credits", "u")
	if err != nil || b.Used != wire.Count(2) {
		t.Errorf("got %+v and error %v, want a and b used", b, err)
	}
}

// outage is a network that is down for a while.
type outage struct{ on atomic.Bool }

func (o *outage) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.on.Load() {
		return unreachable{new(int)}.RoundTrip(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// What there is no place for is dropped; once some is sent there is place again, also for what was
// dropped, and new usage does not wait for what is kept.
func TestTrackQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		l.goes(proxies(503))
		c := within(t, l, client.Options{UsageQueue: 3})
		for i := range 5 {
			wantTracked(t, c, fmt.Sprint(i), i < 3, time.Second)
		}
		l.comesBack()
		got, err := c.Track(t.Context(), used("new"))
		_, answered := l.sent("0")
		if err != nil || got.Spooled || got.Dropped || answered != 0 {
			t.Errorf("got %+v and error %v, want it booked before the others", got, err)
		}
		err = c.Flush(t.Context())
		if err != nil {
			t.Error(err)
		}
		l.goes(proxies(503))
		for i := range 4 {
			wantTracked(t, c, fmt.Sprint("again", i), i < 3, time.Second)
		}
		l.comesBack()
		err = c.Flush(t.Context())
		if err != nil {
			t.Error(err)
		}
		for id, want := range map[string]int{"0": 1, "2": 1, "3": 0, "new": 1, "again2": 1, "again3": 0} {
			_, answered := l.sent(id)
			if answered != want {
				t.Errorf("%s: got it answered %d times, want %d", id, answered, want)
			}
		}
	})
	t.Run("Default", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{}
			l.goes(proxies(503))
			c := within(t, l, client.Options{Retries: -1, Backoff: time.Hour})
			for i := range 10_001 {
				wantTracked(t, c, fmt.Sprint(i), i < 10_000, 0)
			}
			l.comesBack()
			time.Sleep(2 * time.Hour)
			err := c.Flush(t.Context())
			calls, answered := l.sent("9999")
			if err != nil || answered != 1 || calls != 20_001 {
				t.Errorf("got %d calls, the last answered %d times, and error %v", calls, answered, err)
			}
		})
	})
	t.Run("None", func(t *testing.T) {
		l := &ledger{}
		l.goes(proxies(503))
		c := within(t, l, client.Options{UsageQueue: -1, Retries: -1})
		_, err := c.Track(t.Context(), used("a"))
		if !client.IsAway(err) {
			t.Errorf("got error %v, want it to say that weir is away", err)
		}
	})
}

// Many callers while weir comes and goes: each use is booked.
func TestTrackConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		c := within(t, l, client.Options{Timeout: time.Second})
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				for j := range 20 {
					got, err := c.Track(t.Context(), used(fmt.Sprintf("%d-%d", i, j)))
					if err != nil || got.Dropped {
						t.Errorf("got %+v and error %v", got, err)
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
				}
			})
		}
		for range 10 {
			l.goes(hangs)
			time.Sleep(2 * time.Second)
			l.comesBack()
			time.Sleep(100 * time.Millisecond)
		}
		group.Wait()
		err := c.Flush(t.Context())
		if err != nil || len(l.booked) != 50*20 {
			t.Errorf("got %d booked and error %v, want 1000", len(l.booked), err)
		}
	})
}

// A refusal is an error when it comes at once, and is told of when it comes later; what is behind
// it is sent all the same.
func TestTrackRefused(t *testing.T) {
	track := func(t *testing.T, options client.Options) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{}
			c := within(t, l, options)
			_, err := c.Track(t.Context(), used("bad-0"))
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Code != wire.CodeIDConflict {
				t.Errorf("got error %v, want id-conflict", err)
			}
			l.goes(proxies(502))
			for _, id := range []string{"a", "bad-1", "b"} {
				wantTracked(t, c, id, true, 10*time.Second)
			}
			l.comesBack()
			err = c.Flush(t.Context())
			if err != nil || len(l.booked) != 2 {
				t.Errorf("got %v booked and error %v, want a and b", l.booked, err)
			}
		})
	}
	t.Run("Told", func(t *testing.T) {
		var told []string
		track(t, client.Options{UsageRefused: func(usage wire.TrackRequest, err error) {
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Code != wire.CodeIDConflict || *usage.Amount != wire.Count(1) {
				t.Errorf("got %+v and error %v, want id-conflict", usage, err)
			}
			told = append(told, usage.ID)
		}})
		if len(told) != 1 || told[0] != "bad-1" {
			t.Errorf("got told of %q, want bad-1", told)
		}
	})
	t.Run("Logged", func(t *testing.T) {
		var log bytes.Buffer
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		track(t, client.Options{})
		if strings.Count(log.String(), "\n") != 1 || strings.Contains(log.String(), "subject") ||
			!strings.Contains(log.String(), "id=bad-1") ||
			!strings.Contains(log.String(), "id-conflict") {
			t.Errorf("got the log %q, want one warning about bad-1", log.String())
		}
	})
}

func TestFlush(t *testing.T) {
	t.Run("Empty", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := within(t, &ledger{}, client.Options{}).Flush(ctx)
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("Hurries", func(t *testing.T) { // after a long outage, when the pauses are long
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{}
			l.goes(proxies(502))
			c := within(t, l, client.Options{})
			wantTracked(t, c, "a", true, 10*time.Second)
			time.Sleep(time.Hour)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			time.AfterFunc(time.Second, l.comesBack)
			start := time.Now()
			err := c.Flush(ctx)
			_, answered := l.sent("a")
			if err != nil || answered != 1 || time.Since(start) < time.Second {
				t.Errorf("got it answered %d times after %v and error %v", answered, time.Since(start), err)
			}
		})
	})
	t.Run("ErrDeadline", func(t *testing.T) { // the process ends while weir is away
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{}
			l.goes(hangs)
			c := within(t, l, client.Options{})
			for _, id := range []string{"a", "b"} {
				wantTracked(t, c, id, true, 10*time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			err := c.Flush(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 are kept") ||
				time.Since(start) != 5*time.Second {
				t.Errorf("got error %v after %v, want it to say that 2 are kept", err, time.Since(start))
			}
			l.comesBack()
			err = c.Flush(t.Context()) // which is the end of all that runs
			if err != nil || len(l.booked) != 2 {
				t.Errorf("got %v booked and error %v, want a and b", l.booked, err)
			}
		})
	})
}
