package limiter

import (
	"cmp"
	"fmt"
	"slices"
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
	// TransferAmount counts the money that a subject passes on, in the smallest units of an asset.
	// Only transfers are charged on it.
	TransferAmount Kind = "transfer-amount"
)

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

// kinds are all kinds there are.
var kinds = []Kind{RequestRate, Bandwidth, TransferAmount}

// maxName bounds the length of a limit's name.
const maxName = 64

// Limit is a rule: how many units a subject may take within any window.
type Limit struct {
	// Name identifies the limit: 1 to 64 of A-Z a-z 0-9 . _ : -
	Name string
	Kind Kind
	// Quota is the number of units, at most accounts.MaxQuota; with 0 nothing is ever admitted.
	Quota uint64
	// Window is how long a taken unit stays taken: whole seconds from 1 to 2^32-1.
	Window time.Duration
	// Asset is the code of the asset whose units a transfer-amount limit counts, empty on others.
	Asset string
	// Ledger is the number of the limit's ledger; 0 derives it from the name.
	Ledger uint32
	// RemainingOff saves the reading of the balance after a charge; allowed answers then say neither
	// what remains nor when units return.
	RemainingOff bool
	// OnFailure is what happens when the ledger does not answer; empty means Open, and Closed on a
	// transfer-amount limit, which has no choice.
	OnFailure Policy
	// Deadline is how long a request waits for the ledger, up to a minute; 0 means 250 ms. Of several
	// limits in one request, the shortest counts.
	Deadline time.Duration
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

// check returns what is wrong with a limit, or empty texts.
func (l Limit) check() (key, reason string) {
	switch {
	case !validName(l.Name):
		return "name", fmt.Sprintf("%q: want 1 to %d of A-Z a-z 0-9 . _ : -", l.Name, maxName)
	case !slices.Contains(kinds, l.Kind):
		return "kind", fmt.Sprintf("%q: want one of %v", l.Kind, kinds)
	case l.Kind == TransferAmount && l.Asset == "":
		return "asset", fmt.Sprintf("missing: kind %s wants one", l.Kind)
	case l.Kind != TransferAmount && l.Asset != "":
		return "asset", fmt.Sprintf("%q: kind %s has none", l.Asset, l.Kind)
	case l.Quota > accounts.MaxQuota:
		return "quota", fmt.Sprintf("%d: want at most %d", l.Quota, uint64(accounts.MaxQuota))
	case l.Window < time.Second || l.Window > (1<<32-1)*time.Second:
		return "window", fmt.Sprintf("%v: want 1 s to 4,294,967,295 s", l.Window)
	case l.Window%time.Second != 0:
		return "window", fmt.Sprintf("%v: want whole seconds", l.Window)
	case l.OnFailure != "" && l.OnFailure != Open && l.OnFailure != Closed:
		return "on_failure", fmt.Sprintf("%q: want %s or %s", l.OnFailure, Open, Closed)
	case l.OnFailure == Open && l.Kind == TransferAmount:
		return "on_failure", fmt.Sprintf("%q: kind %s is always %s", l.OnFailure, l.Kind, Closed)
	case l.Deadline < 0 || l.Deadline > maxDeadline:
		return "deadline", fmt.Sprintf("%v: want 1ms to %v", l.Deadline, maxDeadline)
	}
	return "", ""
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
}

// Rules are what a config says: limits, and what they refer to.
type Rules struct {
	// Revision is that of the config: where nodes share a ledger, the higher one's quotas stand.
	Revision uint32
	Limits   []Limit
	Assets   []Asset
}

// NewLimits is [NewRules] for limits that need nothing else.
func NewLimits(revision uint32, limits []Limit) (*Limits, error) {
	return NewRules(Rules{Revision: revision, Limits: limits})
}

// NewRules checks rules and returns them as a set. A limit or an asset that cannot be is a
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
		_, defined := set.assets[l.Asset]
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
			l.OnFailure = Open
			if l.Kind == TransferAmount {
				l.OnFailure = Closed
			}
		}
		if l.Deadline == 0 {
			l.Deadline = defaultDeadline
		}
		if l.Ledger == 0 {
			l.Ledger = accounts.LedgerNumber(l.Name)
		}
		set.byName[l.Name] = i
		set.list = append(set.list, l)
		set.books = append(set.books, accounts.Limit{
			Name: l.Name, Ledger: l.Ledger, Quota: l.Quota, Revision: revision,
			WindowSeconds: uint32(l.Window / time.Second),
		})
	}
	err = accounts.CheckLedgers(set.books, set.moneyBooks()...)
	if err != nil {
		return nil, err
	}
	return set, nil
}

// All returns the limits in the order they were given. The slice is the caller's.
func (s *Limits) All() []Limit { return append([]Limit(nil), s.list...) }

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
