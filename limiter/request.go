package limiter

import (
	"math"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/accounts"
)

// Bounds of a request.
const (
	// MaxMembers is how many limits one request may name.
	MaxMembers = 16
	// MaxSubject is how many bytes a subject may have.
	MaxSubject = 1024
	// MaxID is how many bytes an id may have.
	MaxID = 255
	// MaxCost is the greatest cost, and the greatest amount of a grant.
	MaxCost = accounts.MaxQuota
	// MaxHold is how long a reservation may hold.
	MaxHold = 30 * 24 * time.Hour
)

// DefaultCost as a cost means that the request names none: 1 on a request-rate or concurrency
// limit, refused on others.
const DefaultCost = math.MaxUint64

// Member is what a request wants of one limit.
type Member struct {
	Limit   string
	Subject string
	// Cost in the limit's units, at most [MaxCost]. With 0 the subject only has to have a unit left.
	Cost uint64
}

// Request asks whether a subject may do something. It is decided over all its members at once: all
// are charged, or none. Members that name one account are summed.
type Request struct {
	Members []Member
	// ID names this attempt, at most [MaxID] bytes: sent again it is answered the same and charged
	// once. Empty makes every request an attempt of its own.
	ID string
	// Hold makes it a reservation: what is taken is held for so long, whole seconds up to
	// [MaxHold], unless it is settled, released or renewed. 0 is a check.
	Hold time.Duration
}

// charge pairs what the books charge with the rule behind it.
type charge struct {
	accounts.Charge
	limit *Limit
}

// resolve checks a request and finds its limits: one charge for each account, in the order sent.
func (l *Limiter) resolve(r Request) ([]charge, error) {
	if len(r.Members) == 0 || len(r.Members) > MaxMembers {
		return nil, badRequest("a request names 1 to %d limits, not %d", MaxMembers, len(r.Members))
	}
	err := checkID(r.ID, false)
	if err != nil {
		return nil, err
	}
	set := l.limits.Load()
	charges := make([]charge, 0, len(r.Members))
	for _, m := range r.Members {
		limit, book, err := set.find(m.Limit)
		if err != nil {
			return nil, err
		}
		err = serves(limit, r.Hold > 0)
		if err != nil {
			return nil, err
		}
		cost, err := costOn(limit, m.Cost)
		if err != nil {
			return nil, err
		}
		err = checkSubject(m.Subject)
		if err != nil {
			return nil, err
		}
		c := charge{Charge: l.book.NewCharge(book, m.Subject, cost), limit: limit}
		charges, err = merge(charges, c)
		if err != nil {
			return nil, err
		}
	}
	return charges, nil
}

// merge adds a charge, or its cost to that of the same account.
func merge(charges []charge, c charge) ([]charge, error) {
	for i := range charges {
		if charges[i].Account() != c.Account() {
			continue
		}
		charges[i].Amount += c.Amount
		if charges[i].Amount > MaxCost {
			return nil, badRequest("cost on limit %q: want at most %d", c.limit.Name, uint64(MaxCost))
		}
		return charges, nil
	}
	return append(charges, c), nil
}

// serves refuses limits that a check, or a reservation, cannot name.
func serves(limit *Limit, hold bool) error {
	t := traits[limit.Kind]
	switch {
	case hold && !t.holds:
		return badRequest("limit %q is of kind %s: nothing can be reserved from it",
			limit.Name, limit.Kind)
	case !hold && !t.checks && t.holds:
		return badRequest("limit %q is of kind %s: it can only be reserved from",
			limit.Name, limit.Kind)
	case !hold && !t.checks:
		return badRequest("limit %q is of kind %s: only transfers are charged on it",
			limit.Name, limit.Kind)
	}
	return nil
}

func costOn(limit *Limit, cost uint64) (uint64, error) {
	switch {
	case cost == DefaultCost && traits[limit.Kind].onePerRequest:
		return 1, nil
	case cost == DefaultCost:
		return 0, badRequest("cost: limit %q is of kind %s and wants one", limit.Name, limit.Kind)
	case cost > MaxCost:
		return 0, badRequest("cost: want at most %d", uint64(MaxCost))
	default:
		return cost, nil
	}
}

func checkSubject(subject string) error {
	switch {
	case subject == "":
		return badRequest("subject is missing")
	case len(subject) > MaxSubject:
		return badRequest("subject has %d bytes: want at most %d", len(subject), MaxSubject)
	case !plain(subject):
		return badRequest("subject: want UTF-8 without control characters")
	}
	return nil
}

func checkID(id string, required bool) error {
	switch {
	case id == "" && required:
		return badRequest("id is missing")
	case len(id) > MaxID:
		return badRequest("id has %d bytes: want at most %d", len(id), MaxID)
	case !plain(id):
		return badRequest("id: want UTF-8 without control characters")
	}
	return nil
}

// plain reports whether a text is UTF-8 without control characters.
func plain(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}
