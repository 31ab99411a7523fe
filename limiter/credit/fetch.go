package credit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Source knows the balances of one limit: a billing provider, a ledger. It is called from many
// goroutines at once.
type Source interface {
	// Fetch asks for a subject's balance and enforcement flag. An answer without a known balance says
	// that there is none, for certain; whoever is not certain returns an error, of any kind. It must
	// return soon after the context is done: until then it keeps the place of another fetch.
	Fetch(ctx context.Context, subject string) (Answer, error)
}

// Answer is what a source says of a subject.
type Answer struct {
	// Balance is the subject's. The zero value says that it has none.
	Balance Balance
	// Flag says whether credits are enforced for the subject; FlagMissing if the source does not say.
	Flag Flag
}

// fetchCold fetches what nothing is known of, or joins the fetch that is under way. It returns v,
// the verdict so far, if that does not end in time.
func (g *Gate) fetchCold(ctx context.Context, subject string, v verdict) verdict {
	ctx, cancel := context.WithTimeout(ctx, g.options.ColdWait)
	defer cancel()
	subject = strings.Clone(subject) // which may be a part of a whole request
	flight := g.flights.DoChan(subject, func() (any, error) { return g.flyCold(subject), nil })
	select {
	case result := <-flight:
		learned, ok := result.Val.(verdict)
		if ok {
			v = learned
		}
	case <-ctx.Done():
	}
	return v
}

// flyCold is the one fetch of all who wait for it.
func (g *Gate) flyCold(subject string) verdict {
	ctx, cancel := context.WithTimeout(g.ctx, g.options.ColdWait)
	defer cancel()
	select {
	case g.fetches <- struct{}{}:
		defer func() { <-g.fetches }()
	case <-ctx.Done():
		g.metrics.fetches.dropped.Inc()
		g.warn(errBusy)
		return g.unknown()
	}
	v := g.recall(subject) // somebody else may have learned it since
	if !v.missing || !g.refreshes.enter(subject, g.options.Now()) {
		return v
	}
	defer g.refreshes.running.Done()
	return g.fetch(ctx, subject, &g.metrics.fetches)
}

// fetch asks the source and remembers what it says. A failure changes nothing that is remembered.
// The context ends when nobody is to wait for the fetch any more, should the source not return.
func (g *Gate) fetch(ctx context.Context, subject string, counted *fetchMetrics) verdict {
	stop := context.AfterFunc(ctx, func() { g.flights.Forget(subject) })
	defer stop()
	asked := g.options.Now()
	asking, cancel := context.WithTimeout(ctx, g.options.FetchTimeout)
	defer cancel()
	answer, err := g.source.Fetch(asking, subject)
	if err != nil {
		counted.failed.Inc()
		g.warn(fmt.Errorf("fetch: %w", err))
		return g.recall(subject)
	}
	if answer.Balance.Known {
		counted.known.Inc()
	} else {
		counted.none.Inc()
	}
	return g.learn(subject, answer, asked)
}

// learn remembers an answer. A cache that cannot be read is not written either: what it has of the
// flag would be lost.
func (g *Gate) learn(subject string, answer Answer, asked time.Time) verdict {
	entry, err := g.store.read(subject)
	if err != nil {
		g.metrics.unread(err)
		g.warn(err)
		return g.options.judge(Entry{}.merged(answer, asked, asked), g.options.Now())
	}
	now := g.options.Now()
	entry = entry.merged(answer, asked, now)
	ctx, cancel := context.WithTimeout(g.ctx, g.options.FetchTimeout)
	defer cancel()
	err = g.store.write(ctx, subject, entry)
	if err != nil {
		g.metrics.writeErrors.Inc()
		g.warn(err)
	}
	return g.options.judge(entry, now)
}

// warn logs what went wrong, unless it is that the gate was closed. Logs never hold a subject.
func (g *Gate) warn(err error) {
	if g.ctx.Err() != nil {
		return
	}
	g.options.Logger.Warn("credits stay as they were known", slog.String("limit", g.limit),
		slog.Any("error", err))
}
