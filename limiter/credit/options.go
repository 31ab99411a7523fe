package credit

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The defaults of [Options].
const (
	DefaultReadBudget   = 25 * time.Millisecond
	DefaultStaleAfter   = 180 * time.Second
	DefaultDebounce     = 15 * time.Second
	DefaultFetchTimeout = 5 * time.Second
	DefaultColdWait     = 15 * time.Second
	DefaultBalanceTTL   = time.Hour
	DefaultFlagTTL      = 24 * time.Hour
	DefaultNoneTTL      = time.Minute

	DefaultMaxSubjects  = 1 << 16
	DefaultMaxRefreshes = 16
	DefaultMaxQueued    = 1024
	DefaultMaxFetches   = 64
	DefaultMaxReads     = 256
)

// MaxSubject is the most bytes of a subject. The gate knows nothing of longer ones, nor of an empty
// one, and lets them pass.
const MaxSubject = 1024

// Options change how a [Gate] works. Every figure that is 0 or less means its default.
type Options struct {
	// AlwaysEnforced enforces the limit whatever the flag says. What is unknown passes all the same.
	AlwaysEnforced bool

	// ReadBudget bounds what a decision waits for a Cache that is slow; 0 means 25 ms.
	ReadBudget time.Duration
	// StaleAfter is the age from which a balance is refreshed after a decision; 0 means 180 s.
	StaleAfter time.Duration
	// Debounce is the least time between a fetch for a subject and a refresh of it; 0 means 15 s.
	Debounce time.Duration
	// FetchTimeout bounds one call of the source; 0 means 5 s.
	FetchTimeout time.Duration
	// ColdWait bounds what Balance waits for the fetch of a cold miss; 0 means 15 s.
	ColdWait time.Duration
	// BalanceTTL is the age from which a balance is unknown again; 0 means 1 h.
	BalanceTTL time.Duration
	// FlagTTL is the age from which an enforcement flag is missing again; 0 means 1 day.
	FlagTTL time.Duration
	// NoneTTL is how long it is remembered that there is no such balance; 0 means 60 s.
	NoneTTL time.Duration

	// MaxSubjects bounds the subjects that are remembered in memory, and those whose last fetch is;
	// 0 means 65,536. A forgotten one is unknown, and passes.
	MaxSubjects int
	// MaxRefreshes bounds the refreshes under way; 0 means 16.
	MaxRefreshes int
	// MaxQueued bounds the refreshes that wait for one of those to end; 0 means 1,024. One that finds
	// the queue full is dropped, and comes up again with the next decision.
	MaxQueued int
	// MaxFetches bounds the fetches of cold misses under way; 0 means 64.
	MaxFetches int
	// MaxReads bounds the reads of Cache under way, also those that were given up; 0 means 256.
	MaxReads int

	// Cache keeps what was learned; nil means the memory of this process.
	Cache Cache
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// Logger takes a warning for every fetch that failed; nil logs nothing.
	Logger *slog.Logger
	// Registerer takes the gate's metrics; nil keeps none. No label ever holds a subject.
	Registerer prometheus.Registerer
}

// withDefaults returns the options with all that was left out.
func (o *Options) withDefaults() Options {
	var filled Options
	if o != nil {
		filled = *o
	}
	orDefault(&filled.ReadBudget, DefaultReadBudget)
	orDefault(&filled.StaleAfter, DefaultStaleAfter)
	orDefault(&filled.Debounce, DefaultDebounce)
	orDefault(&filled.FetchTimeout, DefaultFetchTimeout)
	orDefault(&filled.ColdWait, DefaultColdWait)
	orDefault(&filled.BalanceTTL, DefaultBalanceTTL)
	orDefault(&filled.FlagTTL, DefaultFlagTTL)
	orDefault(&filled.NoneTTL, DefaultNoneTTL)
	orDefault(&filled.MaxSubjects, DefaultMaxSubjects)
	orDefault(&filled.MaxRefreshes, DefaultMaxRefreshes)
	orDefault(&filled.MaxQueued, DefaultMaxQueued)
	orDefault(&filled.MaxFetches, DefaultMaxFetches)
	orDefault(&filled.MaxReads, DefaultMaxReads)
	if filled.Now == nil {
		filled.Now = time.Now
	}
	if filled.Logger == nil {
		filled.Logger = slog.New(slog.DiscardHandler)
	}
	return filled
}

func orDefault[T int | time.Duration](figure *T, value T) {
	if *figure <= 0 {
		*figure = value
	}
}
