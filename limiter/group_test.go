package limiter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// tiers are three limits for one call: of a user within a tenant, of the tenant, and of all.
func tiers() limiter.Rules {
	return limiter.Rules{
		Limits: patient([]limiter.Limit{
			rate("user", 2, time.Minute), rate("tenant", 3, time.Minute), rate("all", 100, time.Minute),
			slotsOf("slots", 1),
			{Name: "bytes", Kind: limiter.Bandwidth, Quota: 10, Window: time.Minute},
			{Name: "pay", Kind: limiter.TransferAmount, Asset: "USD", Quota: 10, Window: time.Minute},
		}),
		Assets: []limiter.Asset{{Code: "USD", Scale: 2}},
		Groups: []limiter.Group{
			{Name: "api", Limits: []limiter.GroupMember{
				{Limit: "all", Fields: []string{"region"}},
				{Limit: "tenant", Fields: []string{"tenant"}},
				{Limit: "user", Fields: []string{"tenant", "user"}},
			}},
			{Name: "mixed", Limits: []limiter.GroupMember{
				{Limit: "user", Fields: []string{"user"}}, {Limit: "bytes", Fields: []string{"user"}},
			}},
			{Name: "jobs", Limits: []limiter.GroupMember{
				{Limit: "slots", Fields: []string{"tenant"}}, {Limit: "bytes", Fields: []string{"tenant"}},
			}},
		},
	}
}

// grouped puts rules in force on a limiter.
func grouped(t testing.TB, l *limiter.Limiter, rules limiter.Rules) {
	t.Helper()
	rules.Limits = patient(rules.Limits)
	set, err := limiter.NewRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	l.SetLimits(set)
}

// call is a request of the group "api".
func call(user, tenant string) limiter.Request {
	return limiter.Request{
		Group:  "api",
		Fields: map[string]string{"user": user, "tenant": tenant, "region": "eu"},
		Cost:   limiter.DefaultCost,
	}
}

// A group is decided as its members are: all or nothing, and a denial names its limit.
func TestGroup(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock)
	grouped(t, l, tiers())
	d := check(t, l, call("ann", "acme"))
	var got []string
	for _, s := range d.Limits {
		got = append(got, fmt.Sprint(s.Limit, " ", s.Subject, " ", s.Cost, " ", s.Remaining))
	}
	want := []string{"all eu 1 99", "tenant acme 1 2", "user acme/ann 1 1"}
	if !d.Allowed || !slices.Equal(got, want) {
		t.Errorf("first: got %q, want %q", got, want)
	}
	check(t, l, call("ann", "acme"))
	d = check(t, l, call("ann", "acme")) // the user's third of 2
	if d.Allowed || d.Limits[d.Denied].Limit != "user" ||
		d.RetryAfter.Round(time.Second) != time.Minute {
		t.Errorf("third of the user: got %+v, want denied on user for a minute", d)
	}
	check(t, l, call("bob", "acme"))
	d = check(t, l, call("bob", "acme")) // the tenant's fourth of 3
	if d.Allowed || d.Limits[d.Denied].Limit != "tenant" {
		t.Errorf("fourth of the tenant: got %+v, want denied on tenant", d)
	}
	wantBalance(t, l, "all", "eu", 100, 3, 97)
	wantBalance(t, l, "tenant", "acme", 3, 3, 0)
	wantBalance(t, l, "user", "acme/bob", 2, 1, 1)
	d = check(t, l, call("ann", "other")) // another user by that name
	if !d.Allowed || d.Limits[2].Remaining != 1 {
		t.Errorf("the same name of another tenant: got %+v, want allowed", d)
	}
}

// The subject of several fields: the golden texts are RFC 3986's, written by hand.
func TestGroupSubjects(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock)
	grouped(t, l, tiers())
	for _, row := range []struct{ tenant, user, want string }{
		{"acme", "ann", "acme/ann"},
		{"a/b", "c", "a%2Fb/c"},
		{"a", "b/c", "a/b%2Fc"},
		{"50%", "%2F", "50%25/%252F"},
		{"~a-b._", "0Zz9", "~a-b._/0Zz9"},
		{"a b", "a+b", "a%20b/a%2Bb"},
		{"é", "\u65e5", "%C3%A9/%E6%97%A5"},
		{"\U0001F600", "!*'();:", "%F0%9F%98%80/%21%2A%27%28%29%3B%3A"},
		{"@&=$,", "?#[]", "%40%26%3D%24%2C/%3F%23%5B%5D"},
	} {
		d := check(t, l, call(row.user, row.tenant))
		if got := d.Limits[2].Subject; got != row.want {
			t.Errorf("%q and %q: got %q, want %q", row.tenant, row.user, got, row.want)
		}
		if got := d.Limits[1].Subject; got != row.tenant { // a single one is the subject as it is
			t.Errorf("%q alone: got %q", row.tenant, got)
		}
	}
}

// An id is that of the request as it was sent: in a group, by fields, with its cost.
func TestGroupIDs(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock)
	grouped(t, l, tiers())
	first := check(t, l, named("a", call("ann", "acme")))
	again := check(t, l, named("a", call("ann", "acme")))
	if !again.Replayed || again.Transfer != first.Transfer || !again.At.Equal(first.At) {
		t.Errorf("again: got %+v, want a replay of %+v", again, first)
	}
	explicit := call("ann", "acme")
	explicit.Cost = 1 // the same for each member, but not what was sent
	wantCode(t, l, named("a", explicit), limiter.CodeIDConflict)
	members := limiter.Request{ID: "a", Members: []limiter.Member{
		{Limit: "all", Subject: "eu", Cost: 1}, {Limit: "tenant", Subject: "acme", Cost: 1},
		{Limit: "user", Subject: "acme/ann", Cost: 1},
	}}
	wantCode(t, l, members, limiter.CodeIDConflict)
	if d := check(t, l, named("a", call("bob", "acme"))); !d.Allowed || d.Replayed {
		t.Errorf("the id of other subjects: got %+v, want a decision of its own", d)
	}
	wantBalance(t, l, "all", "eu", 100, 2, 98)
}

// What was sent of a group is kept as a published promise: a node of another version has to tell
// the same request from another. The golden values were computed apart from this code, as those of
// the ids: SHA-256 over the namespace and the parts, each behind its length. The parts are the
// kind; of each account, in the order of their ids, the limit, the subject and the cost; of a hold
// its seconds; then "group", its name, the names and values of the fields in the order of the
// names, and the cost as it was sent.
func TestGroupFingerprints(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock)
	grouped(t, l, tiers())
	costly := call("ann", "acme")
	costly.Cost = 2
	for name, row := range map[string]struct {
		request limiter.Request
		want    string
	}{
		"Check":     {named("a", call("ann", "acme")), "01c1d8b7ecd48ed1898ad092dc434039"},
		"CheckCost": {named("b", costly), "9eaf20cad1ce8e6397e052ecce606e71"},
		"Hold": {holding(30*time.Second, named("c", call("ann", "acme"))),
			"9e19bc7ee4668e5dab98ab5f29c026b9"},
	} {
		ask := l.Check
		if row.request.Hold > 0 {
			ask = l.Reserve
		}
		clock.Advance(time.Hour)
		d, err := ask(t.Context(), row.request)
		if err != nil || !d.Allowed {
			t.Fatalf("%s: got %+v, %v, want it allowed", name, d, err)
		}
		found, err := driver.LookupTransfers(t.Context(), []ledgers.ID{d.Transfer})
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: got %v, %v, want its first transfer", name, found, err)
		}
		if got := ledgers.ID(found[0].UserData128).String(); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
	}
}

func TestGroupRequestsRefused(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock)
	grouped(t, l, tiers())
	with := func(field, value string) limiter.Request {
		r := call("ann", "acme")
		r.Fields[field] = value
		return r
	}
	missing := call("ann", "acme")
	delete(missing.Fields, "tenant")
	both := call("ann", "acme")
	both.Members = one("user", "ann", 1).Members
	noGroup := limiter.Request{Fields: map[string]string{"user": "ann"}, Cost: 1}
	noCost := limiter.Request{
		Group: "mixed", Fields: map[string]string{"user": "ann"}, Cost: limiter.DefaultCost,
	}
	jobs := limiter.Request{Group: "jobs", Fields: map[string]string{"tenant": "acme"}, Cost: 1}
	for name, row := range map[string]struct {
		request limiter.Request
		says    string
	}{
		"MissingField":   {missing, "fields.tenant is missing"},
		"UnknownField":   {with("usr", "x"), `"usr" is unknown`},
		"EmptyField":     {with("user", ""), "fields.user is empty"},
		"ControlInField": {with("user", "a\nb"), "fields.user"},
		"NotUTF8InField": {with("tenant", "a\xff"), "fields.tenant"},
		"LongField":      {with("user", strings.Repeat("a", 1025)), "fields.user"},
		"LongSubject": { // acme/ and 6 each
			with("user", strings.Repeat("é", 512)),
			`fields.tenant, fields.user: on limit "user" the subject has 3077 bytes`,
		},
		"WithMembers":  {both, "either limits, or a group"},
		"NoGroup":      {noGroup, "either limits, or a group"},
		"NoCost":       {noCost, `limit "bytes"`},
		"CheckOfSlots": {jobs, `limit "slots"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Check(t.Context(), row.request)
			e := wantError(t, err, limiter.CodeBadRequest)
			if !strings.Contains(e.Detail, row.says) {
				t.Errorf("got %q, want it to say %q", e.Detail, row.says)
			}
		})
	}
	unknown := call("ann", "acme")
	unknown.Group = "none"
	wantCode(t, l, unknown, limiter.CodeUnknownLimit)
}

// Each way in which a group cannot be names its key.
func TestGroupsRefused(t *testing.T) {
	member := func(limit string, fields ...string) limiter.GroupMember {
		return limiter.GroupMember{Limit: limit, Fields: fields}
	}
	group := func(name string, members ...limiter.GroupMember) limiter.Group {
		return limiter.Group{Name: name, Limits: members}
	}
	for name, row := range map[string]struct {
		group limiter.Group
		at    string
	}{
		"NoName":      {group("", member("all", "a")), "name"},
		"SameName":    {group("api", member("all", "a")), "name"},
		"Empty":       {group("g"), "limits"},
		"TooMany":     {group("g", make([]limiter.GroupMember, 17)...), "limits"},
		"NoSuchLimit": {group("g", member("no", "a")), "limits[0].limit"},
		"LimitTwice":  {group("g", member("all", "a"), member("all", "b")), "limits[1].limit"},
		"Money":       {group("g", member("pay", "a")), "limits[0].limit"},
		"NoFields":    {group("g", member("all")), "limits[0].fields"},
		"BadField":    {group("g", member("all", "a"), member("user", "a", "b c")), "limits[1].fields"},
		"EmptyField":  {group("g", member("all", "")), "limits[0].fields"},
		"LongField":   {group("g", member("all", strings.Repeat("a", 65))), "limits[0].fields"},
		"FieldTwice":  {group("g", member("all", "a", "b", "a")), "limits[0].fields"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := tiers()
			rules.Groups = []limiter.Group{rules.Groups[0], row.group}
			_, err := limiter.NewRules(rules)
			e, ok := errors.AsType[*limiter.LimitError](err)
			if !ok || !strings.HasPrefix(e.Error(), "groups[1]."+row.at+": ") {
				t.Errorf("got %v, want an error at groups[1].%s", err, row.at)
			}
		})
	}
}

// A group can be reserved from, slots with the rest.
func TestGroupReserved(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock)
	grouped(t, l, tiers())
	request := holding(10*time.Second, named("job", limiter.Request{
		Group: "jobs", Fields: map[string]string{"tenant": "acme"}, Cost: 1,
	}))
	d := reserved(t, l, request)
	if again := reserved(t, l, request); !again.Replayed || again.Transfer != d.Transfer {
		t.Errorf("again: got %+v, want a replay of %+v", again, d)
	}
	other := request
	other.ID = "other"
	if got := reserve(t, l, other); got.Allowed || got.Limits[got.Denied].Limit != "slots" {
		t.Errorf("the second job: got %+v, want denied on slots", got)
	}
	settle(t, l, d.Transfer, 4)
	wantBalance(t, l, "slots", "acme", 1, 0, 1)
	wantBalance(t, l, "bytes", "acme", 10, 4, 6)
	nothing := request
	nothing.ID, nothing.Cost = "", 0
	_, err := l.Reserve(t.Context(), nothing)
	wantError(t, err, limiter.CodeBadRequest)
}

// What was let through under an id is the same request when it has been booked, also by another
// process.
func TestGroupSpooled(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	dir := t.TempDir()
	before := spooling(t, faulty, clock, dir)
	grouped(t, before.Limiter, tiers())
	back := away(faulty)
	if d := check(t, before.Limiter, named("a", call("ann", "acme"))); !d.Degraded {
		t.Fatalf("got %+v, want degraded", d)
	}
	before.stop(t)
	back()
	l := spooling(t, faulty, clock, dir)
	grouped(t, l.Limiter, tiers())
	l.book(t)
	l.wantUnits(t, 3, 0, 0)
	if d := check(t, l.Limiter, named("a", call("ann", "acme"))); !d.Replayed {
		t.Errorf("the id again: got %+v, want a replay", d)
	}
	explicit := named("a", call("ann", "acme"))
	explicit.Cost = 1
	wantCode(t, l.Limiter, explicit, limiter.CodeIDConflict)
	wantBalance(t, l.Limiter, "user", "acme/ann", 2, 1, 1)
}
