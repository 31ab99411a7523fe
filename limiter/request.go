package limiter

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	// Group names, instead of members, a [Group]. Fields are what its members' subjects are made of,
	// each that any of them wants and no other, and Cost is what each member takes, as a
	// [Member.Cost]; both are of use only with a group.
	Group  string
	Fields map[string]string
	Cost   uint64
	// ID names this attempt, at most [MaxID] bytes: sent again it is answered the same and charged
	// once. Empty makes every request an attempt of its own.
	ID string
	// Annotation is kept in the ledger with what is taken, on the account of the first member. It is
	// for limits that say [Limit.Spend], which want it.
	Annotation *accounts.Annotation
	// ReadFirst has the balances read first, and the request denied where they lack units, so that a
	// flood of denials writes nothing. What passes is the ledger's decision all the same.
	ReadFirst bool
	// Hold makes it a reservation: what is taken is held for so long, whole seconds up to
	// [MaxHold], unless it is settled, released or renewed. 0 is a check.
	Hold time.Duration
}

// charge pairs what the books charge with the rule behind it.
type charge struct {
	accounts.Charge
	limit *Limit
}

// newCharge is what a request takes of one account. On a limit that is only tried out, it is put
// aside.
func (l *Limiter) newCharge(limit *Limit, book accounts.Limit, subject string, cost uint64) charge {
	c := charge{Charge: l.book.NewCharge(book, subject, cost), limit: limit}
	c.Aside = limit.Shadow
	return c
}

// asked is a checked request.
type asked struct {
	id    string
	hold  time.Duration
	named []charge // all that it names, one for each account, in the order sent
	// charges are those of named that decide: all but what is put aside.
	charges    []charge
	sent       []string // what was sent that the charges do not say
	annotation *accounts.Annotation
	readFirst  bool
}

// askedOf completes a request.
func askedOf(id string, named []charge) asked {
	q := asked{id: id, named: named, charges: named}
	aside := func(c charge) bool { return c.Aside }
	if slices.ContainsFunc(named, aside) {
		q.charges = slices.DeleteFunc(slices.Clone(named), aside)
	}
	return q
}

// resolve checks a request and finds its limits.
func (l *Limiter) resolve(r Request) (asked, error) {
	set := l.limits.Load()
	members, sent := r.Members, []string(nil)
	if r.Group != "" || len(r.Fields) > 0 {
		var err error
		members, sent, err = set.expand(r)
		if err != nil {
			return asked{}, err
		}
	}
	if len(members) == 0 || len(members) > MaxMembers {
		return asked{}, badRequest("a request names 1 to %d limits, not %d", MaxMembers, len(members))
	}
	err := checkID(r.ID, false)
	if err != nil {
		return asked{}, err
	}
	charges := make([]charge, 0, len(members))
	for _, m := range members {
		limit, book, err := set.find(m.Limit)
		if err != nil {
			return asked{}, err
		}
		err = serves(limit, r.Hold > 0, r.Annotation != nil)
		if err != nil {
			return asked{}, err
		}
		cost, err := costOn(limit, m.Cost)
		if err != nil {
			return asked{}, err
		}
		err = CheckSubject(m.Subject)
		if err != nil {
			return asked{}, err
		}
		charges, err = merge(charges, l.newCharge(limit, book, m.Subject, cost))
		if err != nil {
			return asked{}, err
		}
	}
	q := askedOf(r.ID, charges)
	q.hold, q.sent, q.annotation, q.readFirst = r.Hold, sent, r.Annotation, r.ReadFirst
	return q, nil
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

// serves refuses limits that a check, or a reservation, or one with notes, cannot name.
func serves(limit *Limit, hold, noted bool) error {
	t := traits[limit.Kind]
	switch {
	case limit.Spend && !noted:
		return spendOnly(limit)
	case noted && !limit.Spend:
		return badRequest("limit %q keeps no notes", limit.Name)
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

// CheckSubject says whether a text can be a subject: 1 to [MaxSubject] bytes of UTF-8 without
// control characters. The error is a *Error of CodeBadRequest.
func CheckSubject(subject string) error {
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

// Group is a named set of limits: a request names it and says who it is about once, by fields.
type Group struct {
	// Name is as a limit's name.
	Name string
	// Limits are its members, 1 to [MaxMembers], each limit once.
	Limits []GroupMember

	fields []string // all that its members want, sorted
}

// GroupMember is a limit in a group, and whom a request is about there.
type GroupMember struct {
	Limit string
	// Fields are the names of the fields whose values make the subject, 1 to [MaxMembers], each
	// written as a limit's name. The value of a single one is the subject. The values of several are
	// percent-encoded, every byte but A-Z a-z 0-9 - . _ ~, and joined by a slash in this order.
	Fields []string
}

// Groups returns the groups in the order they were given. They are not to be changed.
func (s *Limits) Groups() []Group { return slices.Clone(s.groups) }

// addGroups checks groups, whose limits are known.
func (s *Limits) addGroups(groups []Group) error {
	for i, g := range groups {
		refuse := func(key, format string, args ...any) error {
			return &LimitError{
				List: "groups", Index: i, Key: key, Reason: fmt.Sprintf(format, args...),
			}
		}
		if !validName(g.Name) {
			return refuse("name", "%q: want 1 to %d of A-Z a-z 0-9 . _ : -", g.Name, maxName)
		}
		first := slices.IndexFunc(s.groups, func(o Group) bool { return o.Name == g.Name })
		if first >= 0 {
			return refuse("name", "%q is that of groups[%d]", g.Name, first)
		}
		if len(g.Limits) == 0 || len(g.Limits) > MaxMembers {
			return refuse("limits", "want 1 to %d, not %d", MaxMembers, len(g.Limits))
		}
		g.fields = nil
		for k, m := range g.Limits {
			key, reason := s.checkMember(g.Limits[:k], m)
			if key != "" {
				return refuse(fmt.Sprintf("limits[%d].%s", k, key), "%s", reason)
			}
			g.fields = append(g.fields, m.Fields...)
		}
		slices.Sort(g.fields)
		g.fields = slices.Compact(g.fields)
		s.groups = append(s.groups, g)
	}
	return nil
}

// checkMember returns what is wrong with a member that follows others, or empty texts.
func (s *Limits) checkMember(before []GroupMember, m GroupMember) (key, reason string) {
	at, known := s.byName[m.Limit]
	twice := slices.ContainsFunc(before, func(o GroupMember) bool { return o.Limit == m.Limit })
	switch {
	case !known:
		return "limit", fmt.Sprintf("there is no limit %q", m.Limit)
	case s.list[at].Kind == TransferAmount:
		return "limit", fmt.Sprintf("%q is of kind %s: only transfers are charged on it",
			m.Limit, TransferAmount)
	case s.list[at].Spend:
		return "limit", fmt.Sprintf("%q is a spend budget's: only calls are charged on it", m.Limit)
	case twice:
		return "limit", fmt.Sprintf("%q is named twice", m.Limit)
	case len(m.Fields) == 0 || len(m.Fields) > MaxMembers:
		return "fields", fmt.Sprintf("want 1 to %d, not %d", MaxMembers, len(m.Fields))
	}
	for i, field := range m.Fields {
		if !validName(field) {
			return "fields", fmt.Sprintf("%q: want 1 to %d of A-Z a-z 0-9 . _ : -", field, maxName)
		}
		if slices.Contains(m.Fields[:i], field) {
			return "fields", fmt.Sprintf("%q is named twice", field)
		}
	}
	return "", ""
}

// expand returns the members that a request of a group stands for, and what was sent: the id of a
// request by a group is not that of one by its members.
func (s *Limits) expand(r Request) (members []Member, sent []string, err error) {
	if len(r.Members) > 0 || r.Group == "" {
		return nil, nil, badRequest("want either limits, or a group and its fields")
	}
	at := slices.IndexFunc(s.groups, func(g Group) bool { return g.Name == r.Group })
	if at < 0 {
		return nil, nil, &Error{
			Code: CodeUnknownLimit, Detail: fmt.Sprintf("there is no group %q", r.Group),
		}
	}
	group := &s.groups[at]
	sent = []string{"group", group.Name}
	for _, field := range slices.Sorted(maps.Keys(r.Fields)) {
		err = group.checkField(field, r.Fields[field])
		if err != nil {
			return nil, nil, err
		}
		sent = append(sent, field, r.Fields[field])
	}
	for _, field := range group.fields {
		_, given := r.Fields[field]
		if !given {
			return nil, nil, badRequest("fields.%s is missing: group %q wants it", field, group.Name)
		}
	}
	for _, m := range group.Limits {
		subject := m.subject(r.Fields)
		err = CheckSubject(subject)
		e, bad := errors.AsType[*Error](err)
		if bad { // only together they are too long
			return nil, nil, badRequest("fields.%s: on limit %q the %s",
				strings.Join(m.Fields, ", fields."), m.Limit, e.Detail)
		}
		members = append(members, Member{Limit: m.Limit, Subject: subject, Cost: r.Cost})
	}
	cost := ""
	if r.Cost != DefaultCost {
		cost = strconv.FormatUint(r.Cost, 10)
	}
	return members, append(sent, cost), nil
}

// checkField refuses a field that the group does not know, or what cannot be a subject.
func (g *Group) checkField(field, value string) error {
	_, known := slices.BinarySearch(g.fields, field)
	switch {
	case !known:
		return badRequest("fields: %q is unknown: group %q wants %s",
			field, g.Name, strings.Join(g.fields, ", "))
	case value == "":
		return badRequest("fields.%s is empty", field)
	}
	err := CheckSubject(value)
	e, bad := errors.AsType[*Error](err)
	if bad {
		return badRequest("fields.%s: %s", field, e.Detail)
	}
	return nil
}

// subject is whom a request is about, by the values of its fields.
func (m GroupMember) subject(values map[string]string) string {
	if len(m.Fields) == 1 {
		return values[m.Fields[0]]
	}
	parts := make([]string, len(m.Fields))
	for i, field := range m.Fields {
		// This escapes every byte but those that are to stay, and a space.
		parts[i] = strings.ReplaceAll(url.QueryEscape(values[field]), "+", "%20")
	}
	return strings.Join(parts, "/")
}
