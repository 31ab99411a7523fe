package credit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/limiter/credit"
)

var errDown = errors.New("down")

// provider is a source on cue. It counts what it is asked.
type provider struct {
	mu    sync.Mutex
	fetch func(ctx context.Context, subject string) (credit.Answer, error)
	// asked has the times of the fetches of each subject.
	asked map[string][]time.Time
	// running is how many fetches are under way, and most the highest that was.
	running, most int
}

func newProvider(fetch func(context.Context, string) (credit.Answer, error)) *provider {
	return &provider{fetch: fetch, asked: map[string][]time.Time{}}
}

func (p *provider) Fetch(ctx context.Context, subject string) (credit.Answer, error) {
	p.mu.Lock()
	p.asked[subject] = append(p.asked[subject], time.Now())
	p.running++
	p.most = max(p.most, p.running)
	fetch := p.fetch
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.running--
		p.mu.Unlock()
	}()
	return fetch(ctx, subject)
}

// now makes the provider answer otherwise from now on.
func (p *provider) now(fetch func(context.Context, string) (credit.Answer, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetch = fetch
}

// fetches is how often the provider was asked for a subject.
func (p *provider) fetches(subject string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked[subject])
}

// total is how often the provider was asked for anything.
func (p *provider) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, times := range p.asked {
		n += len(times)
	}
	return n
}

// atOnce is the most fetches that were under way at a time.
func (p *provider) atOnce() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// remaining is an enforced balance of 100 granted.
func remaining(n int64) credit.Answer {
	return credit.Answer{
		Balance: credit.Balance{Known: true, Granted: 100, Usage: 100 - n, Remaining: n},
		Flag:    credit.FlagOn,
	}
}

// up answers at once: subjects called empty-… have nothing left, none-… do not exist.
func up(_ context.Context, subject string) (credit.Answer, error) {
	switch {
	case strings.HasPrefix(subject, "empty-"):
		return remaining(0), nil
	case strings.HasPrefix(subject, "none-"):
		return credit.Answer{}, nil
	}
	return remaining(40), nil
}

// failing fails at once.
func failing(context.Context, string) (credit.Answer, error) { return credit.Answer{}, errDown }

// dead never answers.
func dead(ctx context.Context, _ string) (credit.Answer, error) {
	<-ctx.Done()
	return credit.Answer{}, ctx.Err()
}

// slow answers as up does, after a while.
func slow(after time.Duration) func(context.Context, string) (credit.Answer, error) {
	return func(ctx context.Context, subject string) (credit.Answer, error) {
		select {
		case <-time.After(after):
			return up(ctx, subject)
		case <-ctx.Done():
			return credit.Answer{}, ctx.Err()
		}
	}
}

// cache is a Cache on cue.
type cache struct {
	mu      sync.Mutex
	entries map[string]credit.Entry
	// before, if not nil, runs before every read.
	before func(ctx context.Context) error
	// unwritable fails every write.
	unwritable bool
	// stuck, if not nil, keeps every write until it is closed.
	stuck chan struct{}
	reads int
	// written has the subjects of all writes, as they came.
	written []string
	// running is how many reads are under way, and most the highest that was.
	running, most int
}

func (c *cache) Read(ctx context.Context, subject string) (credit.Entry, error) {
	c.mu.Lock()
	c.reads++
	c.running++
	c.most = max(c.most, c.running)
	before := c.before
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.running--
		c.mu.Unlock()
	}()
	if before != nil {
		err := before(ctx)
		if err != nil {
			return credit.Entry{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[subject], nil
}

func (c *cache) Write(_ context.Context, subject string, entry credit.Entry) error {
	c.mu.Lock()
	stuck := c.stuck
	c.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = append(c.written, subject)
	if c.unwritable {
		return errDown
	}
	if c.entries == nil {
		c.entries = map[string]credit.Entry{}
	}
	c.entries[subject] = entry
	return nil
}

// now makes the cache behave otherwise from now on.
func (c *cache) now(before func(ctx context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

// stickWrites keeps writes from now on until a channel is closed.
func (c *cache) stickWrites(until chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = until
}

// atOnce is the most reads that were under way at a time.
func (c *cache) atOnce() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

// logged collects what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) warnings() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "level=WARN")
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// open returns a gate that the test closes.
func open(t testing.TB, source credit.Source, options *credit.Options) *credit.Gate {
	t.Helper()
	g, err := credit.New("credits", source, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// metric reads a counter: its name, and the value of its label beside the limit if it has one.
func metric(t testing.TB, registry *prometheus.Registry, name, value string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := m.GetLabel()
			if value == "" && len(labels) == 1 {
				return m.GetCounter().GetValue()
			}
			for _, label := range labels {
				if label.GetName() != "limit" && label.GetValue() == value {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("there is no metric %s %q", name, value)
	return 0
}
