package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"weir/accounts"
	"weir/ledgers/embedded"
	"weir/limiter"
)

const (
	// replayStep parts the lines of a log in time, so that a unit used by a line stamped t is free
	// for every line stamped t + window: the ledger gives each entry a time of its own.
	replayStep = 100 * time.Nanosecond
	// maxReplaySubjects bounds the subjects, which are all that a replay keeps in memory: about
	// 200 bytes each.
	maxReplaySubjects = 2_000_000
	// topSubjects is how many of those refused most are reported.
	topSubjects = 10
	// shownUnparsed is how many lines that could not be parsed are shown.
	shownUnparsed = 5
	// progressEvery is after how many lines a replay says how far it is.
	progressEvery = 100_000
)

// replayReport is what a limit would have done.
type replayReport struct {
	Lines            uint64         `json:"lines"` // that could be parsed
	Unparsed         uint64         `json:"unparsed"`
	Subjects         int            `json:"subjects"`
	Allowed          uint64         `json:"allowed"`
	Denied           uint64         `json:"denied"`
	CostExceedsQuota uint64         `json:"cost_exceeds_quota"`
	Top              []replayDenied `json:"top"` // by lines denied or above the quota
}

// replayDenied is a subject that would have been refused.
type replayDenied struct {
	Subject string `json:"subject"`
	Denied  uint64 `json:"denied"`
}

func newReplayCommand() *cobra.Command {
	var name, by, quota, window string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay --limit NAME [FILE...]",
		Short: "Tell what a limit would have done to the traffic of an access log",
		Long: `Tell what a limit would have done to the traffic of an access log in the common or the
combined format. Files may be compressed by gzip; - or none is standard input. The log is judged by
the limiter itself, over a ledger that is thrown away, on the log's own clock: a line whose stamp is
earlier than one before it is judged at the later stamp. Each line costs 1 on a request-rate limit
and the bytes of the response on a bandwidth limit.`,
		Example: `  weir replay --limit api-requests access.log
  weir replay --limit egress --quota 1MB --window 60s access.log.*.gz`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if by != "ip" {
				return fmt.Errorf("--by %q: want ip", by)
			}
			c, err := configOf(cmd)
			if err != nil {
				return err
			}
			limit, err := replayLimit(c.Limits.All(), name, quota, window)
			if err != nil {
				return err
			}
			entries := accessEntries(files, cmd.InOrStdin())
			report, err := replay(cmd.Context(), limit, entries, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
			}
			return printReport(cmd.OutOrStdout(), limit, report)
		},
	}
	addConfigFlag(cmd)
	cmd.Flags().StringVar(&name, "limit", "", "the limit's `name` in the config")
	cmd.Flags().StringVar(&by, "by", "ip", "what the subject is: ip, the client's address")
	cmd.Flags().StringVar(&quota, "quota", "", "`units` to try instead of the limit's")
	cmd.Flags().StringVar(&window, "window", "", "`duration` to try instead of the limit's")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.MarkFlagRequired("limit") // fails for an unknown flag only
	return cmd
}

// replayLimit returns the limit to try: one of the config, with another quota or window if given.
func replayLimit(limits []limiter.Limit, name, quota, window string) (limiter.Limit, error) {
	at := slices.IndexFunc(limits, func(l limiter.Limit) bool { return l.Name == name })
	if at < 0 {
		return limiter.Limit{}, fmt.Errorf("--limit: the config has no limit %q", name)
	}
	limit := limits[at]
	limit.RemainingOff = true // nobody looks at it
	var err error
	if quota != "" {
		limit.Quota, err = asQuota(quota, limit.Kind)
		if err != nil {
			return limit, fmt.Errorf("--quota: %w", err)
		}
	}
	if window != "" {
		limit.Window, err = asDuration(window)
		if err != nil {
			return limit, fmt.Errorf("--window: %w", err)
		}
	}
	return limit, nil
}

// replay judges the entries of a log. What it has to say on the way goes to notes.
func replay(ctx context.Context, limit limiter.Limit, entries iter.Seq2[accessEntry, error],
	notes io.Writer,
) (report replayReport, err error) {
	dir, err := os.MkdirTemp("", "weir-replay-")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, err := newReplayer(dir, limit)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, r.ledger.Close()) }()
	for entry, err := range entries {
		switch {
		case err != nil:
			return report, err
		case ctx.Err() != nil:
			return report, fmt.Errorf("replay: %w", ctx.Err())
		case entry.Err != nil:
			r.passOver(entry, notes)
			continue
		}
		err = r.judge(ctx, entry.accessLine)
		if err != nil {
			return report, fmt.Errorf("%s line %d: %w", entry.File, entry.Line, err)
		}
		if r.report.Lines%progressEvery == 0 {
			_, _ = fmt.Fprintf(notes, "%d lines, up to %s: %d allowed\n", r.report.Lines,
				entry.Time.Format(time.RFC3339), r.report.Allowed)
		}
	}
	r.report.Subjects = len(r.refused)
	r.report.Top = topRefused(r.refused)
	return r.report, nil
}

// replayer judges line by line.
type replayer struct {
	limit   limiter.Limit
	ledger  *embedded.Ledger
	limiter *limiter.Limiter
	clock   logClock
	latest  time.Time // newest stamp seen
	refused map[string]uint64
	report  replayReport
}

func newReplayer(dir string, limit limiter.Limit) (*replayer, error) {
	r := &replayer{limit: limit, refused: make(map[string]uint64), latest: time.Unix(0, 0)}
	limits, err := limiter.NewLimits(0, []limiter.Limit{limit})
	refused, isLimit := errors.AsType[*limiter.LimitError](err)
	if isLimit {
		return nil, fmt.Errorf("--%s: %s", refused.Key, refused.Reason)
	}
	if err != nil {
		return nil, err
	}
	namespace, err := accounts.ParseNamespace(defaultNamespace)
	if err != nil {
		return nil, err
	}
	r.ledger, err = embedded.Open(dir, &embedded.Options{
		Now: r.clock.now, Elapsed: r.clock.elapsed, Volatile: true, Retention: limit.Window,
		KeepCodes: accounts.QuotaCodes(),
	})
	if err != nil {
		return nil, err
	}
	book, err := accounts.NewBook(r.ledger, namespace, &accounts.Options{Now: r.clock.now})
	if err == nil {
		r.limiter, err = limiter.New(book, limits, nil)
	}
	if err != nil {
		return nil, errors.Join(err, r.ledger.Close())
	}
	return r, nil
}

// passOver counts a line that cannot be parsed, and shows the first few.
func (r *replayer) passOver(entry accessEntry, notes io.Writer) {
	r.report.Unparsed++
	if r.report.Unparsed <= shownUnparsed {
		_, _ = fmt.Fprintf(notes, "%s line %d: %v\n", entry.File, entry.Line, entry.Err)
	}
}

// judge decides one line at its time.
func (r *replayer) judge(ctx context.Context, line accessLine) error {
	if line.Time.After(r.latest) {
		r.latest = line.Time
	}
	r.report.Lines++
	r.clock.set(r.latest.Add(time.Duration(r.report.Lines) * replayStep))
	refused, seen := r.refused[line.IP]
	if !seen && len(r.refused) == maxReplaySubjects {
		return fmt.Errorf("there are more than %d subjects: replay the log in parts",
			maxReplaySubjects)
	}
	allowed, err := r.decide(ctx, line)
	if err != nil {
		return err
	}
	if allowed {
		r.report.Allowed++
	} else {
		refused++
	}
	r.refused[line.IP] = refused
	return nil
}

// decide reports whether a line is allowed, and counts it if not.
func (r *replayer) decide(ctx context.Context, line accessLine) (bool, error) {
	cost := uint64(1)
	if r.limit.Kind == limiter.Bandwidth {
		cost = line.Bytes
	}
	switch {
	case cost == 0: // takes nothing, so it passes; to the limiter it would be a look
		return true, nil
	case cost > limiter.MaxCost:
		r.report.CostExceedsQuota++
		return false, nil
	}
	decision, err := r.limiter.Check(ctx, limiter.Request{Members: []limiter.Member{
		{Limit: r.limit.Name, Subject: line.IP, Cost: cost},
	}})
	var never *limiter.Error
	switch {
	case errors.As(err, &never) && never.Code == limiter.CodeCostExceedsQuota:
		r.report.CostExceedsQuota++
	case err != nil:
		return false, err
	case !decision.Allowed:
		r.report.Denied++
	}
	return err == nil && decision.Allowed, nil
}

// topRefused returns the subjects refused most, those refused as often by name.
func topRefused(refused map[string]uint64) []replayDenied {
	top := make([]replayDenied, 0, topSubjects+1)
	for subject, denied := range refused {
		if denied == 0 {
			continue
		}
		row := replayDenied{subject, denied}
		at, _ := slices.BinarySearchFunc(top, row, func(a, b replayDenied) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Subject, b.Subject))
		})
		if at < topSubjects {
			top = slices.Insert(top, at, row)
			top = top[:min(len(top), topSubjects)]
		}
	}
	return top
}

func printReport(out io.Writer, limit limiter.Limit, r replayReport) error {
	rows := []string{
		fmt.Sprintf("lines\t%d", r.Lines),
		fmt.Sprintf("unparsed\t%d", r.Unparsed),
		fmt.Sprintf("subjects\t%d", r.Subjects),
		fmt.Sprintf("allowed\t%d", r.Allowed),
		fmt.Sprintf("denied\t%d", r.Denied),
		fmt.Sprintf("cost exceeds quota\t%d", r.CostExceedsQuota),
	}
	if len(r.Top) > 0 {
		rows = append(rows, "", "REFUSED MOST\tLINES")
	}
	for _, subject := range r.Top {
		rows = append(rows, fmt.Sprintf("%s\t%d", subject.Subject, subject.Denied))
	}
	heading := fmt.Sprintf("limit\t%s, %s, %d in %v", limit.Name, limit.Kind, limit.Quota,
		limit.Window)
	return printTable(out, heading, rows...)
}

// logClock is a clock that stands where the log is.
type logClock struct{ nanos atomic.Int64 }

func (c *logClock) set(at time.Time) { c.nanos.Store(at.UnixNano()) }

func (c *logClock) now() time.Time { return time.Unix(0, c.nanos.Load()) }

// elapsed is the clock as a monotonic one: it never runs backwards.
func (c *logClock) elapsed() time.Duration { return time.Duration(c.nanos.Load()) }
