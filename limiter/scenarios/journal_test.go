package scenarios_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/limiter"
)

// answer is what a caller got, and when.
type answer struct {
	node               *node
	limit, subject, id string
	sent               time.Time
	took               time.Duration
	limiter.Decision
	err error
}

// kind says in a word what the answer was: allowed, degraded, replayed, denied, or an error's code.
func (a answer) kind() string {
	var e *limiter.Error
	switch {
	case errors.As(a.err, &e):
		return string(e.Code)
	case a.err != nil:
		return a.err.Error()
	case a.Degraded:
		return "degraded"
	case !a.Allowed:
		return "denied"
	case a.Replayed:
		return "replayed"
	default:
		return "allowed"
	}
}

// ask makes a check of cost 1.
func (n *node) ask(limit, subject, id string) answer {
	a := answer{node: n, limit: limit, subject: subject, id: id, sent: time.Now()}
	a.Decision, a.err = n.Check(context.Background(), limiter.Request{ID: id,
		Members: []limiter.Member{{Limit: limit, Subject: subject, Cost: 1}}})
	a.took = time.Since(a.sent)
	return a
}

// tally collects answers, from many callers at once.
type tally struct {
	// late is how much later than usual the ledger may give units back: without a primary it cannot.
	late time.Duration

	mu      sync.Mutex
	answers []answer
}

func (l *tally) add(a answer) answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
	return a
}

// kinds counts the answers by kind.
func (l *tally) kinds() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for _, a := range l.answers {
		counts[a.kind()]++
	}
	return counts
}

// slowest is the longest that any caller waited.
func (l *tally) slowest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var most time.Duration
	for _, a := range l.answers {
		most = max(most, a.took)
	}
	return most
}

// all makes n checks at once, each by ask, and collects the answers.
func (l *tally) all(n int, ask func(i int) answer) {
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() { l.add(ask(i)) })
	}
	callers.Wait()
}

// wantKinds looks at how often each kind of answer came.
func (l *tally) wantKinds(t testing.TB, want map[string]int) {
	t.Helper()
	got := l.kinds()
	if !maps.Equal(got, want) {
		t.Errorf("answers: got %v, want %v", got, want)
	}
}

// hold is a time in which an account's units are taken, by the ledger's clock.
type hold struct {
	from, to uint64
	amount   uint64
	voided   bool // given back by a transfer, and not by its time-out
}

// record is what the journal of one subject on a limit says.
type record struct {
	// charged units were taken from the quota and not given back before their time, and overage
	// units used beyond it.
	charged, overage uint64
	holds            []hold
}

// journal reads all entries of an account.
func journal(t testing.TB, n *node, account ledgers.ID) []ledgers.Transfer {
	t.Helper()
	var all []ledgers.Transfer
	filter := ledgers.AccountFilter{
		AccountID: account, Debits: true, Credits: true, Limit: ledgers.MaxEvents,
	}
	for {
		page, err := n.calls.AccountTransfers(t.Context(), filter)
		if err != nil {
			t.Fatalf("journal: %v", err)
		}
		all = append(all, page...)
		if len(page) < ledgers.MaxEvents {
			return all
		}
		filter.TimestampMin = page[len(page)-1].Timestamp + 1
	}
}

// recordOf works out from the journals of a subject's accounts what it used.
func recordOf(t testing.TB, n *node, limit, subject string) record {
	t.Helper()
	user := n.namespace.UserAccount(limit, subject)
	over := n.namespace.OverageAccount(limit, subject)
	entries := journal(t, n, user)
	ended := map[ledgers.ID]uint64{}
	for _, e := range entries {
		if e.Flags.Has(ledgers.VoidPending) {
			ended[e.PendingID] = e.Timestamp
		}
	}
	var r record
	for _, e := range entries {
		if e.DebitAccountID != user || !e.Flags.Has(ledgers.Pending) ||
			e.Code != accounts.CodeCharge && e.Code != accounts.CodeOverage {
			continue
		}
		h := hold{from: e.Timestamp, to: e.ExpiresAt(), amount: e.Amount.Lo}
		end, voided := ended[e.ID]
		if voided {
			h.to, h.voided = end, true
		} else {
			r.charged += e.Amount.Lo
		}
		r.holds = append(r.holds, h)
	}
	for _, e := range journal(t, n, over) {
		switch {
		case e.DebitAccountID == over && e.Flags.Has(ledgers.Pending):
			r.overage += e.Amount.Lo
		case e.CreditAccountID == over && e.Flags.Has(ledgers.Pending):
			r.overage -= e.Amount.Lo
		}
	}
	return r
}

// taken is what is held at a ledger time.
func (r record) taken(at uint64) uint64 {
	var sum uint64
	for _, h := range r.holds {
		if h.from <= at && at < h.to {
			sum += h.amount
		}
	}
	return sum
}

// prove compares the answers with the journal: units charged + overage + dropped are the answers
// allowed, each id once, and also where all that its caller was told is that it has expired, which
// only an admitted id can; no account ever held more than its quota; and who was denied was denied
// while the quota was taken. The nodes must have settled.
func (l *tally) prove(t testing.TB, nodes ...*node) {
	t.Helper()
	for limit, records := range l.proveUnits(t, nodes...) {
		l.proveQuota(t, limit, quotaOf(nodes[0], limit), records)
	}
}

// proveUnits is what prove says of the units, for subjects whose quota changes as well. It returns
// what the journal says of them, by limit and subject.
func (l *tally) proveUnits(t testing.TB, nodes ...*node) map[string]map[string]record {
	t.Helper()
	all := map[string]map[string]record{}
	allowed := map[string]map[string]uint64{} // by limit and subject
	seen := map[string]bool{}
	for _, a := range l.answers {
		if allowed[a.limit] == nil {
			allowed[a.limit] = map[string]uint64{}
		}
		name := fmt.Sprintf("%s/%s/%s", a.limit, a.subject, a.id)
		admitted := a.err == nil && a.Allowed || a.kind() == string(limiter.CodeIDExpired)
		if admitted && (a.id == "" || !seen[name]) {
			allowed[a.limit][a.subject]++
			seen[name] = true
		} else {
			allowed[a.limit][a.subject] += 0
		}
	}
	for limit, subjects := range allowed {
		var sum, granted, dropped uint64
		records := map[string]record{}
		for subject, units := range subjects {
			r := recordOf(t, nodes[0], limit, subject)
			records[subject] = r
			sum += r.charged + r.overage
			granted += units
			if r.charged+r.overage > units {
				t.Errorf("%s of %s: got %d charged and %d over, want %d as allowed",
					limit, subject, r.charged, r.overage, units)
			}
		}
		for _, n := range nodes {
			dropped += uint64(n.metric(t, "weir_spooled_units_total", limit, "dropped"))
		}
		if sum+dropped != granted {
			t.Errorf("%s: got %d units booked and %d dropped, want %d as allowed",
				limit, sum, dropped, granted)
		}
		t.Logf("proof, %s: %d allowed = %d booked + %d dropped", limit, granted, sum, dropped)
		proveOperator(t, nodes[0], limit, sum)
		all[limit] = records
	}
	return all
}

func quotaOf(n *node, limit string) uint64 {
	all := n.Limits().All()
	i := slices.IndexFunc(all, func(l limiter.Limit) bool { return l.Name == limit })
	return all[i].Quota
}

// proveQuota looks at all moments at which something was taken or refused.
func (l *tally) proveQuota(t testing.TB, limit string, quota uint64, records map[string]record) {
	t.Helper()
	for subject, r := range records {
		for _, h := range r.holds {
			if r.taken(h.from) > quota {
				t.Errorf("%s of %s: got %d taken at %d, want at most %d",
					limit, subject, r.taken(h.from), h.from, quota)
			}
		}
	}
	var most time.Duration
	for _, a := range l.answers {
		if a.limit != limit || a.kind() != "denied" || a.NewIDRequired && a.RetryAfter == 0 {
			continue // an id that was denied before stays denied
		}
		r, at := records[a.subject], uint64(a.At.UnixNano())
		late := r.full(at, quota)
		most = max(most, late)
		if late > 2*lag+l.late {
			t.Errorf("%s of %s: denied at %v with %d of %d taken; units were given back %v late",
				limit, a.subject, a.At, r.taken(at), quota, late)
		}
	}
	t.Logf("proof, %s: where a request was denied, units were given back up to %v late", limit, most)
}

// remembered is for how long an account may be denied after it was full: nodes remember a denial
// for a second, while other nodes give units back.
const remembered = time.Second + lag

// full returns how late the ledger gives units back, if it does so right, where a request of one
// unit is denied at a ledger time: so late that all of the quota was taken then, or when the denial
// may have been remembered from.
func (r record) full(at, quota uint64) time.Duration {
	late := r.lateness(at, quota)
	if late == 0 {
		return 0
	}
	for _, h := range r.holds { // there is never more taken than right after something was
		if h.from <= at && h.from+uint64(remembered) >= at {
			late = min(late, r.lateness(h.from, quota))
		}
	}
	return min(late, r.lateness(at-uint64(remembered), quota))
}

// lateness is how long before a ledger time the last of those units timed out without which not all
// of the quota would have been taken then, 0 if no such unit is needed.
func (r record) lateness(at, quota uint64) time.Duration {
	taken := r.taken(at)
	var ended []hold
	for _, h := range r.holds {
		if h.to <= at && !h.voided {
			ended = append(ended, h)
		}
	}
	slices.SortFunc(ended, func(a, b hold) int { return cmp.Compare(b.to, a.to) })
	var late time.Duration
	for _, h := range ended {
		if taken >= quota {
			return late
		}
		taken += h.amount
		late = time.Duration(at - h.to)
	}
	if taken >= quota {
		return late
	}
	return time.Duration(1<<63 - 1)
}

// proveOperator compares what users and overage accounts gave with what their operator got.
func proveOperator(t testing.TB, n *node, limit string, want uint64) {
	t.Helper()
	operator := n.namespace.OperatorAccount(limit)
	entries := journal(t, n, operator)
	ended := map[ledgers.ID]bool{}
	var got uint64
	for _, e := range entries {
		ended[e.PendingID] = e.Flags.Has(ledgers.VoidPending)
	}
	for _, e := range entries {
		charge := e.Code == accounts.CodeCharge || e.Code == accounts.CodeOverage
		if e.CreditAccountID == operator && charge && e.Flags.Has(ledgers.Pending) && !ended[e.ID] {
			got += e.Amount.Lo
		}
	}
	if got != want {
		t.Errorf("operator of %s: got %d units, want %d as its subjects gave", limit, got, want)
	}
}
