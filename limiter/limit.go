package limiter

import (
	"cmp"
	"fmt"
	"time"

	"weir/accounts"
)

// Kind says what a limit counts.
type Kind string

// The kinds of limits.
const (
	// RequestRate counts requests; a check that names no cost takes 1.
	RequestRate Kind = "request-rate"
	// Bandwidth counts bytes; a check has to name its cost.
	Bandwidth Kind = "bandwidth"
	// Budget counts any unit, or an asset's; it may close before all of it is used.
	Budget Kind = "budget"
	// Credits are a prepaid balance: what is used does not come back.
	Credits Kind = "credits"
	// Concurrency counts slots: they are only reserved, and come back when the reservation ends.
	Concurrency Kind = "concurrency"
	// TransferAmount bounds what a subject pays of an asset; only transfers are charged to it.
	TransferAmount Kind = "transfer-amount"
)

// trait is what sets a kind apart.
type trait struct {
	onePerRequest bool // a request that names no cost takes 1
	window        bool // units come back after a window, or with a calendar's period
	checks        bool // a check may name it
	holds         bool // a reservation may name it
	open          bool // unless told otherwise, requests pass while the ledger does not answer
	asset         bool // its units may be an asset's
	closes        bool // it may close before all of it is used
}

var traits = map[Kind]trait{
	RequestRate:    {onePerRequest: true, window: true, checks: true, holds: true, open: true},
	Bandwidth:      {window: true, checks: true, holds: true, open: true},
	Budget:         {window: true, checks: true, holds: true, asset: true, closes: true},
	Credits:        {checks: true, holds: true, asset: true},
	Concurrency:    {onePerRequest: true, holds: true},
	TransferAmount: {window: true, asset: true},
}

// Kinds returns all kinds, as they are written in a config.
func Kinds() []Kind {
	return []Kind{RequestRate, Bandwidth, Budget, Credits, Concurrency, TransferAmount}
}

// Policy says what a limit answers when the ledger does not.
type Policy string

// The policies.
const (
	// Open lets the request pass, degraded, and books it when the ledger is back.
	Open Policy = "open"
	// Closed refuses to decide: the request is answered with CodeLedgerUnavailable.
	Closed Policy = "closed"
)

// Bounds of a limit's deadline.
const (
	defaultDeadline = 250 * time.Millisecond
	maxDeadline     = time.Minute
)

// maxName bounds the length of a limit's name.
const maxName = 64

// Limit is a rule: how many units a subject may take within any window.
type Limit struct {
	// Name identifies the limit: 1 to 64 of A-Z a-z 0-9 . _ : -
	Name string
	Kind Kind
	// Quota is the number of units, at most accounts.MaxQuota; with 0 nothing is ever admitted.
	Quota uint64
	// Window is how long a taken unit stays taken: whole seconds from 1 to 2^32-1. Kinds whose units
	// do not come back by themselves, and limits with Align, have none.
	Window time.Duration
	// Align, instead of a window, has all units come back when the period ends that they were taken
	// in: day, week (from Monday on) or month, on the clocks of Timezone.
	Align string
	// Timezone is the IANA name of Align's time zone; empty means UTC.
	Timezone string
	// CloseAt is the part of a budget past which nothing is taken, in millionths; 0 means all of it.
	// The rest absorbs what requests really cost.
	CloseAt uint32
	// Asset is the code of the asset whose smallest units are counted; required for
	// TransferAmount, none means plain units.
	Asset string
	// Shadow says that the limit is only tried out. It takes no part in the decision, denies nothing
	// and has no say when the ledger does not answer. What was admitted without it is then charged on
	// it by itself, as far as it would have admitted it; a reservation as a check is.
	Shadow bool
	// Spend says that only requests with notes are charged: what is booked is told from the ledger by
	// them. Package spend makes such limits of its budgets.
	Spend bool
	// Ledger is the number of the limit's ledger; 0 derives it from the name.
	Ledger uint32
	// RemainingOff saves the reading of the balance after a charge; allowed answers then say neither
	// what remains nor when units return.
	RemainingOff bool
	// OnFailure is what happens when the ledger does not answer; empty means Open for RequestRate
	// and Bandwidth, Closed for the rest. TransferAmount has no choice.
	OnFailure Policy
	// Deadline is how long a request waits for the ledger, up to a minute; 0 means 250 ms. Of several
	// limits in one request, the shortest counts.
	Deadline time.Duration

	asset *Asset // the one that Asset names
}

// LimitError says which key of which limit cannot be, and why. It wraps [ErrLimit].
type LimitError struct {
	// List is where Index counts, as it is written in the config; empty means "limits".
	List string
	// Index of the limit in the list that it came in.
	Index int
	// Key is the setting at fault, as it is written in the config.
	Key    string
	Reason string
}

// Error names the key's path and the reason.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s[%d].%s: %s", cmp.Or(e.List, "limits"), e.Index, e.Key, e.Reason)
}

// Unwrap returns [ErrLimit].
func (e *LimitError) Unwrap() error { return ErrLimit }

// wholeBudget as a CloseAt is all of the budget.
const wholeBudget = 1_000_000

// check returns what is wrong with a limit, or empty texts.
func (l Limit) check() (key, reason string) {
	t, known := traits[l.Kind]
	switch {
	case !validName(l.Name):
		return "name", fmt.Sprintf("%q: want 1 to %d of A-Z a-z 0-9 . _ : -", l.Name, maxName)
	case !known:
		return "kind", fmt.Sprintf("%q: want one of %v", l.Kind, Kinds())
	case l.Quota > accounts.MaxQuota:
		return "quota", fmt.Sprintf("%d: want at most %d", l.Quota, uint64(accounts.MaxQuota))
	case l.CloseAt > 0 && !t.closes:
		return "close_at", fmt.Sprintf("only a limit of kind %s has one", Budget)
	case l.CloseAt > wholeBudget:
		return "close_at", fmt.Sprintf("%g: want more than 0, at most 1", float64(l.CloseAt)/wholeBudget)
	case l.Asset != "" && !t.asset:
		return "asset", fmt.Sprintf("a limit of kind %s has none", l.Kind)
	case l.Asset == "" && l.Kind == TransferAmount:
		return "asset", "is missing"
	case l.OnFailure != "" && l.OnFailure != Open && l.OnFailure != Closed:
		return "on_failure", fmt.Sprintf("%q: want %s or %s", l.OnFailure, Open, Closed)
	case l.OnFailure == Open && l.Kind == TransferAmount:
		return "on_failure", fmt.Sprintf("money is never let through: want %s", Closed)
	case l.Shadow && l.Kind == TransferAmount:
		return "shadow", "money is not moved for trying a limit out"
	case l.Shadow && l.Kind == Concurrency:
		return "shadow", "slots come back with the reservation, which a tried out limit is no part of"
	case l.Deadline < 0 || l.Deadline > maxDeadline:
		return "deadline", fmt.Sprintf("%v: want 1ms to %v", l.Deadline, maxDeadline)
	}
	return l.checkWindow(t.window)
}

// checkWindow returns what is wrong with when units come back.
func (l Limit) checkWindow(wanted bool) (key, reason string) {
	switch {
	case !wanted && l.Window != 0:
		return "window", fmt.Sprintf("a limit of kind %s has none", l.Kind)
	case !wanted && l.Align != "":
		return "align", fmt.Sprintf("a limit of kind %s has none", l.Kind)
	case l.Align == "" && l.Timezone != "":
		return "timezone", "is of use only with align"
	case !wanted:
		return "", ""
	case l.Align != "" && l.Window != 0:
		return "align", "want either window or align"
	case l.Align != "":
		return "", "" // the calendar says
	case l.Window < time.Second || l.Window > (1<<32-1)*time.Second:
		return "window", fmt.Sprintf("%v: want 1 s to 4,294,967,295 s", l.Window)
	case l.Window%time.Second != 0:
		return "window", fmt.Sprintf("%v: want whole seconds", l.Window)
	}
	return "", ""
}

// longestPeriods are longer than any period of a calendar.
var longestPeriods = map[string]time.Duration{
	"day": 2 * 24 * time.Hour, "week": 8 * 24 * time.Hour, "month": 32 * 24 * time.Hour,
}

// Longest returns a time after which a taken unit is surely back; 0 where none comes back by
// itself.
func (l Limit) Longest() time.Duration { return max(l.Window, longestPeriods[l.Align]) }

// book returns what the books know of a limit. The error is that of its calendar.
func (l Limit) book(revision uint32) (accounts.Limit, error) {
	book := accounts.Limit{
		Name: l.Name, Ledger: l.Ledger, Quota: l.Quota, Revision: revision,
		WindowSeconds: uint32(l.Longest() / time.Second), Posted: l.Kind == Credits,
		CloseAt: l.CloseAt,
	}
	if l.Align == "" {
		return book, nil
	}
	calendar, err := accounts.NewCalendar(l.Align, l.Timezone)
	if err != nil {
		return accounts.Limit{}, err
	}
	book.Calendar = calendar
	return book, nil
}

func validName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

// Limits is a checked set of limits. It never changes; a [Limiter] is given another set instead.
type Limits struct {
	revision uint32
	list     []Limit
	byName   map[string]int
	books    []accounts.Limit
	money    []Asset
	assets   map[string]Asset // by code
	groups   []Group
}

// Rules are what a config says: limits, and what they refer to.
type Rules struct {
	// Revision is that of the config: where nodes share a ledger, the higher one's quotas stand.
	Revision uint32
	Limits   []Limit
	Assets   []Asset
	Groups   []Group
}

// NewLimits is [NewRules] for limits that need nothing else.
func NewLimits(revision uint32, limits []Limit) (*Limits, error) {
	return NewRules(Rules{Revision: revision, Limits: limits})
}

// NewRules checks rules and returns them as a set. A limit, an asset or a group that cannot be is a
// [LimitError]; limits or assets that would share a ledger are an accounts.ErrLedgerNumber.
func NewRules(rules Rules) (*Limits, error) {
	revision, limits := rules.Revision, rules.Limits
	set := &Limits{revision: revision, byName: make(map[string]int, len(limits))}
	err := set.addAssets(rules.Assets)
	if err != nil {
		return nil, err
	}
	for i, l := range limits {
		key, reason := l.check()
		asset, defined := set.assets[l.Asset]
		if key == "" && l.Asset != "" && !defined {
			key, reason = "asset", fmt.Sprintf("there is no asset %q", l.Asset)
		}
		if key != "" {
			return nil, &LimitError{Index: i, Key: key, Reason: reason}
		}
		first, twice := set.byName[l.Name]
		if twice {
			return nil, &LimitError{
				Index: i, Key: "name", Reason: fmt.Sprintf("%q is that of limits[%d]", l.Name, first),
			}
		}
		if l.OnFailure == "" {
			l.OnFailure = Closed
			if traits[l.Kind].open {
				l.OnFailure = Open
			}
		}
		if l.Deadline == 0 {
			l.Deadline = defaultDeadline
		}
		if defined {
			l.asset = &asset
		}
		if l.Ledger == 0 {
			l.Ledger = accounts.LedgerNumber(l.Name)
		}
		set.byName[l.Name] = i
		set.list = append(set.list, l)
		book, err := l.book(revision)
		if err != nil {
			return nil, &LimitError{Index: i, Key: "align", Reason: err.Error()}
		}
		set.books = append(set.books, book)
	}
	err = accounts.CheckLedgers(set.books, set.moneyBooks()...)
	if err != nil {
		return nil, err
	}
	err = set.addGroups(rules.Groups)
	if err != nil {
		return nil, err
	}
	return set, nil
}

// All returns the limits in the order they were given. The slice is the caller's.
func (s *Limits) All() []Limit { return append([]Limit(nil), s.list...) }

// on returns what the books know of the limit on a ledger.
func (s *Limits) on(ledger uint32) (accounts.Limit, bool) {
	for _, book := range s.books {
		if book.Ledger == ledger {
			return book, true
		}
	}
	return accounts.Limit{}, false
}

// find returns a limit and what the books know of it.
func (s *Limits) find(name string) (*Limit, accounts.Limit, error) {
	i, ok := s.byName[name]
	if !ok {
		return nil, accounts.Limit{}, &Error{
			Code: CodeUnknownLimit, Detail: fmt.Sprintf("there is no limit %q", name), Limit: name,
		}
	}
	return &s.list[i], s.books[i], nil
}
