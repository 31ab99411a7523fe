package limiter_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"weir/ledgers"
	"weir/limiter"
)

// pick draws a receipt that was handed out, and what it stands for.
func (m *mix) pick(hold bool) (q *twinRequest, receipt ledgers.ID, generation int) {
	over := rapid.IntRange(0, 3).Draw(m.t, "over") == 0
	var list []*twinRequest
	for _, q := range m.admitted {
		if (q.hold > 0 || !hold) && (q.ended == "" || over) {
			list = append(list, q)
		}
	}
	if len(list) == 0 {
		return nil, ledgers.ID{}, 0
	}
	back := rapid.IntRange(0, min(len(list)-1, 5)).Draw(m.t, "which") // one of the newest
	q = list[len(list)-1-back]
	generation = rapid.IntRange(0, len(q.receipts)-1).Draw(m.t, "generation")
	receipt, err := ledgers.ParseID(q.receipts[generation])
	if err != nil {
		m.t.Fatal(err)
	}
	return q, receipt, generation
}

// gone drops what a request holds.
func (q *twinRequest) gone() {
	for i, p := range q.parts {
		if p.entry != nil {
			p.account.drop(p.entry)
			q.parts[i].entry = nil
		}
	}
}

func (m *mix) settle() {
	q, receipt, _ := m.pick(true)
	if q == nil {
		return
	}
	n := m.node()
	s := limiter.Settlement{Receipt: receipt}
	actual := make([]uint64, len(q.parts))
	for i, p := range q.parts {
		if p.cost > 0 && !p.account.limit.slots() {
			actual[i] = rapid.SampledFrom([]uint64{0, 1, p.cost, p.cost + 1, p.cost + 5}).Draw(m.t, "actual")
			s.Members = append(s.Members, limiter.Member{
				Limit: p.account.limit.name, Subject: p.account.subject, Cost: actual[i],
			})
		}
	}
	if len(s.Members) == 0 {
		s.CostIn = costing(0)
	}
	got, err := n.limiter.Settle(context.Background(), s)
	now := m.clock.Now()
	switch {
	case len(s.Members) == 0:
		m.wantCode(err, limiter.CodeBadRequest)
	case q.ended == "settle" && slices.Equal(q.actual, actual):
		m.wantSettled(n, q, got, err, true)
	case q.ended != "":
		m.wantCode(err, limiter.CodeReservationClosed)
	default:
		if err != nil {
			m.t.Fatalf("settle: got %v, want it settled", err)
		}
		q.ended, q.actual, q.late = "settle", actual, !q.expires.After(now)
		q.overage = make([]uint64, len(q.parts))
		q.gone()
		for i, p := range q.parts {
			if actual[i] > 0 {
				q.overage[i] = m.book(p, actual[i], q, entryOf(got, p.account).Overage)
			}
		}
		m.wantSettled(n, q, got, err, false)
	}
}

// book notes what a settlement books, and returns how much of it the quota did not have: between
// what the twin knows of.
func (m *mix) book(p twinPart, actual uint64, q *twinRequest, overage uint64) uint64 {
	now := m.clock.Now()
	a := p.account
	end := a.limit.booked(now, q.made)
	paid := actual
	if q.late || actual > p.cost {
		least, most := a.pays(now)
		least, most = min(least, actual), min(most, actual)
		paid = least
		if actual-overage >= least && actual-overage <= most {
			paid = actual - overage
		}
	}
	owed := a.owed
	if paid > 0 {
		a.take(paid, end)
	}
	a.owed = owed
	if actual > paid {
		a.overage = append(a.overage, &twinEntry{amount: actual - paid, end: end})
	}
	return actual - paid
}

func entryOf(s limiter.Settled, a *twinAccount) limiter.SettledLimit {
	for _, l := range s.Limits {
		if l.Limit == a.limit.name && l.Subject == a.subject {
			return l
		}
	}
	return limiter.SettledLimit{}
}

func (m *mix) wantSettled(n *mixNode, q *twinRequest, got limiter.Settled, err error, again bool) {
	if err != nil || got.Replayed != again || got.Late != q.late ||
		got.Transfer.String() != q.receipts[len(q.receipts)-1] {
		m.t.Fatalf("got %+v, %v, want replayed %v, late %v, receipts %v",
			got, err, again, q.late, q.receipts)
	}
	held := 0
	for i, p := range q.parts {
		if p.cost == 0 {
			continue
		}
		held++
		want := limiter.SettledLimit{
			Limit: p.account.limit.name, Subject: p.account.subject, Kind: p.account.limit.kind,
			Held: p.cost, Known: true, Remaining: p.account.remaining(n, m.clock.Now()),
		}
		if q.ended == "settle" {
			want.Booked, want.Overage = q.actual[i], q.overage[i]
		}
		e := entryOf(got, p.account)
		if q.hold == 0 && e.Limit == "" {
			continue // a node that has not met the subject cannot name it
		}
		if e != want {
			m.t.Fatalf("got %+v, want %+v", e, want)
		}
	}
	if len(got.Limits) != held {
		m.t.Fatalf("got %+v, want %d limits", got, held)
	}
}

func (m *mix) release() {
	q, receipt, _ := m.pick(false)
	if q == nil {
		return
	}
	n := m.node()
	got, err := n.limiter.Release(context.Background(), receipt)
	now := m.clock.Now()
	live, _ := q.out(now)
	prepaid := slices.ContainsFunc(q.parts, func(p twinPart) bool {
		return q.hold == 0 && p.cost > 0 && p.account.limit.prepaid()
	})
	switch {
	case prepaid:
		m.wantCode(err, limiter.CodeReservationClosed)
	case q.ended == "release" && q.hold == 0:
		if code(err) != limiter.CodeIDExpired { // what came back by itself leaves no trace
			m.wantSettled(n, q, got, err, true)
		}
	case q.ended == "release":
		m.wantSettled(n, q, got, err, true)
	case q.ended != "":
		m.wantCode(err, limiter.CodeReservationClosed)
	case live == 0:
		m.wantCode(err, limiter.CodeIDExpired)
	default:
		q.ended = "release"
		q.gone()
		m.wantSettled(n, q, got, err, false)
	}
}

func (m *mix) renew() {
	q, receipt, generation := m.pick(rapid.IntRange(0, 7).Draw(m.t, "check") > 0)
	if q == nil {
		return
	}
	n := m.node()
	hold := rapid.SampledFrom([]time.Duration{2 * time.Second, 5 * time.Second}).Draw(m.t, "hold")
	d, err := n.limiter.Renew(context.Background(), receipt, hold)
	now := m.clock.Now()
	newest := len(q.receipts) - 1
	again := generation < newest && q.renewals[generation].hold == hold
	switch {
	case q.hold == 0:
		m.wantCode(err, limiter.CodeBadRequest)
	case q.ended != "":
		m.wantCode(err, limiter.CodeReservationClosed)
	case !q.expires.After(now):
		m.wantCode(err, limiter.CodeIDExpired)
	case err != nil || !d.Allowed || d.Replayed != again:
		m.t.Fatalf("got %+v, %v, want renewed, replayed %v", d, err, again)
	case again:
		if d.Transfer.String() != q.receipts[newest] {
			m.t.Fatalf("got %+v, want the newest of %v", d, q.receipts)
		}
		m.wantTime("expires at", d.ExpiresAt, q.expires)
	default:
		q.receipts = append(q.receipts, d.Transfer.String())
		q.renewals = append(q.renewals, mixRenewal{hold})
		q.made, q.expires = now, now.Add(hold)
		for _, p := range q.parts {
			if p.entry != nil {
				p.entry.end = q.expires
			}
		}
		m.wantTime("at", d.At, now)
		m.wantTime("expires at", d.ExpiresAt, q.expires)
	}
}

func (m *mix) account() *twinAccount {
	limit := rapid.SampledFrom(m.played).Draw(m.t, "limit")
	return m.accounts[limit.name+"/"+rapid.SampledFrom([]string{"a", "b"}).Draw(m.t, "subject")]
}

// change is a grant or a revocation.
func (m *mix) change() {
	n, a := m.node(), m.account()
	amount := rapid.Int64Range(1, 5).Draw(m.t, "amount")
	id := rapid.StringMatching(`[1-9]`).Draw(m.t, "change id")
	signed, do := amount, n.limiter.Grant
	if rapid.Bool().Draw(m.t, "revoke") {
		signed, do = -amount, n.limiter.Revoke
	}
	m.driver.wrote = false
	got, err := do(context.Background(), limiter.Change{
		Limit: a.limit.name, Subject: a.subject, Amount: uint64(amount), ID: id,
	})
	now := m.clock.Now()
	m.met(n, []twinPart{{account: a}})
	known, again := a.changes[id]
	switch {
	case again && known != signed:
		m.wantCode(err, limiter.CodeIDConflict)
		return
	case !again && signed < 0 && uint64(amount) > a.remaining(n, now):
		m.wantCode(err, limiter.CodeQuotaInUse)
		return
	case !again:
		a.changes[id] = signed
		a.granted += signed
		if signed > 0 {
			m.payOverage(n, a)
		}
	}
	if err != nil || got.Replayed != again || got.Quota != a.quota(n) ||
		got.Remaining != a.remaining(n, now) {
		m.t.Fatalf("got %+v, %v, want replayed %v, quota %d, remaining %d",
			got, err, again, a.quota(n), a.remaining(n, now))
	}
}

// payOverage has a grant pay first what was used beyond a prepaid balance.
func (m *mix) payOverage(n *mixNode, a *twinAccount) {
	now := m.clock.Now()
	outstanding := sum(a.overage, now)
	if !a.limit.prepaid() || outstanding == 0 {
		return
	}
	least, most := a.pays(now)
	paid := min(least, outstanding)
	if least != most { // a lowered quota may have been paid first or not
		b, err := n.limiter.Balance(context.Background(), a.limit.name, a.subject)
		if err != nil {
			m.t.Fatal(err)
		}
		paid = max(paid, min(most, outstanding-min(outstanding, b.Overage)))
	}
	a.overage = []*twinEntry{{amount: outstanding - paid}}
	a.taken = append(a.taken, &twinEntry{amount: paid})
}

// override sets or clears a subject's own quota.
func (m *mix) override() {
	n, a := m.node(), m.account()
	quota := rapid.Uint64Range(0, 12).Draw(m.t, "override")
	cleared := rapid.IntRange(0, 2).Draw(m.t, "clear") == 0
	var got limiter.SubjectQuota
	var err error
	if cleared {
		got, err = n.limiter.ClearOverride(context.Background(), a.limit.name, a.subject)
	} else {
		got, err = n.limiter.Override(context.Background(), a.limit.name, a.subject, quota)
	}
	if a.limit.prepaid() {
		m.wantCode(err, limiter.CodeBadRequest)
		return
	}
	a.meet(n)
	again := cleared != a.override && (cleared || a.target == quota)
	switch {
	case cleared && a.override:
		a.step(n.quotas[a.limit.name], n.revision, false)
	case !cleared:
		a.step(quota, n.revision, true)
	}
	m.refresh()
	if err != nil || got.Quota != a.quota(n) || got.Remaining != a.remaining(n, m.clock.Now()) ||
		got.Replayed != again || got.Overridden == cleared {
		m.t.Fatalf("got %+v, %v, want quota %d, replayed %v", got, err, a.quota(n), again)
	}
}

// config changes a limit's quota on one node, or gives a node the newest config.
func (m *mix) config() {
	n := m.node()
	newest := slices.MaxFunc(m.nodes, func(a, b *mixNode) int {
		return int(a.revision) - int(b.revision)
	})
	if n != newest && rapid.Bool().Draw(m.t, "adopt") {
		n.revision = newest.revision
		maps.Copy(n.quotas, newest.quotas)
	} else {
		quotas := maps.Clone(newest.quotas)
		limit := rapid.SampledFrom(m.played).Draw(m.t, "limit")
		quotas[limit.name] = rapid.Uint64Range(0, 12).Draw(m.t, "quota")
		n.quotas = quotas
		if n.shared || rapid.Bool().Draw(m.t, "revised") {
			n.revision = newest.revision + 1
		}
	}
	m.t.Logf("node %d has revision %d of %v", n.place, n.revision, n.quotas)
	n.limiter.SetLimits(m.rules(n))
}

// mixMove is what became of an id of a deposit, a withdrawal or a payment.
type mixMove struct {
	what string // all that was sent
	ok   bool
	id   ledgers.ID
}

func dollars(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// move is a deposit or a withdrawal.
func (m *mix) move() {
	n := m.node()
	subject := rapid.SampledFrom([]string{"a", "a", "b", "c"}).Draw(m.t, "subject")
	cents := rapid.Int64Range(1, 20).Draw(m.t, "cents")
	id := rapid.StringMatching(`[1-9]`).Draw(m.t, "move id")
	withdraw := rapid.IntRange(0, 3).Draw(m.t, "withdraw") == 0
	do, signed := n.limiter.Deposit, cents
	if withdraw {
		do, signed = n.limiter.Withdraw, -cents
	}
	got, err := do(context.Background(), limiter.Movement{
		Asset: "USD", Subject: subject, Amount: dollars(cents), ID: id,
	})
	held, open := m.funds[subject]
	key, what := "move "+subject+" "+id, fmt.Sprint(signed)
	known := m.moves[key]
	switch {
	case withdraw && !open:
		m.wantCode(err, limiter.CodeAccountUnknown)
		return
	case known != nil && known.ok && known.what != what, known != nil && !known.ok && !withdraw:
		m.wantCode(err, limiter.CodeIDConflict)
		return
	case known != nil && !known.ok, known == nil && signed < -held:
		m.wantCode(err, limiter.CodeInsufficientFunds)
		m.moves[key] = &mixMove{what: what}
		return
	case known == nil:
		m.funds[subject] += signed
		m.moves[key] = &mixMove{what: what, ok: true}
	}
	if err != nil || got.Replayed != (known != nil) || got.Balance != dollars(m.funds[subject]) {
		m.t.Fatalf("got %+v, %v, want balance %s", got, err, dollars(m.funds[subject]))
	}
}

// transfer moves money within limits, or tries to, anew or again.
func (m *mix) transfer() {
	n := m.node()
	var t limiter.Transfer
	if len(m.sent) > 0 && rapid.IntRange(0, 2).Draw(m.t, "again") == 0 {
		t = rapid.SampledFrom(m.sent).Draw(m.t, "transfer")
	} else {
		t = m.payment()
		m.sent = append(m.sent, t)
	}
	var cents int64
	_, err := fmt.Sscanf(strings.Replace(t.Amount, ".", "", 1), "%d", &cents)
	if err != nil {
		m.t.Fatal(err)
	}
	members := []limiter.Member{{Limit: t.Limit, Subject: t.From, Cost: uint64(cents)}}
	for _, member := range t.Members {
		member.Subject = t.From
		if member.Cost == limiter.DefaultCost {
			member.Cost = uint64(cents)
		}
		members = append(members, member)
	}
	m.driver.wrote = false
	d, err := n.limiter.Transfer(context.Background(), t)
	m.t.Logf("node %d: %+v: %v %v", n.place, t, d.Allowed, err)
	m.paid(n, t, cents, m.parts(members), d, err)
}

// payment draws a transfer.
func (m *mix) payment() limiter.Transfer {
	t := limiter.Transfer{
		Limit:  "pay",
		From:   rapid.SampledFrom([]string{"a", "a", "b"}).Draw(m.t, "from"),
		To:     rapid.SampledFrom([]string{"a", "b", "b", "c"}).Draw(m.t, "to"),
		Amount: dollars(rapid.Int64Range(1, 5).Draw(m.t, "cents")),
		ID:     rapid.StringMatching(`[1-9]`).Draw(m.t, "transfer id"),
	}
	if t.From == t.To {
		t.To = "c"
	}
	if rapid.Bool().Draw(m.t, "payday") {
		t.Members = append(t.Members, limiter.Member{Limit: "payday", Cost: limiter.DefaultCost})
	}
	if rapid.IntRange(0, 2).Draw(m.t, "further") == 0 {
		t.Members = append(t.Members, limiter.Member{
			Limit: rapid.SampledFrom([]string{"rate", "close", "day", "credits"}).Draw(m.t, "limit"),
			Cost:  rapid.Uint64Range(0, 3).Draw(m.t, "cost"),
		})
	}
	return t
}

func (m *mix) paid(n *mixNode, t limiter.Transfer, cents int64, parts []twinPart,
	d limiter.Decision, err error,
) {
	now := m.clock.Now()
	m.met(n, parts)
	held, from := m.funds[t.From]
	_, to := m.funds[t.To]
	what := t.To + " " + t.Amount
	for _, p := range parts {
		what += fmt.Sprintf(" %s %d", p.account.limit.name, p.cost)
	}
	key := "pay " + t.From + " " + t.ID
	known := m.moves[key]
	v := m.verdict(n, parts, now)
	switch {
	case known != nil && known.ok && known.what != what:
		m.wantCode(err, limiter.CodeIDConflict)
	case !from || !to:
		m.wantCode(err, limiter.CodeAccountUnknown)
	case known != nil && known.ok:
		if err != nil || !d.Allowed || !d.Replayed || d.Transfer != known.id {
			m.t.Fatalf("got %+v, %v, want a replay", d, err)
		}
		m.wantFigures(n, d, parts)
	case known != nil: // what is said of the denial is as of today
		if c := code(err); c != limiter.CodeCostExceedsQuota && c != limiter.CodeInsufficientFunds &&
			(err != nil || d.Allowed || !d.NewIDRequired) {
			m.t.Fatalf("%+v: got %+v, %v, want denied as before", t, d, err)
		}
	case v.hopeless:
		m.wantCode(err, limiter.CodeCostExceedsQuota)
		m.moves[key] = &mixMove{}
	case v.allowed && held < cents:
		m.wantCode(err, limiter.CodeInsufficientFunds)
		m.moves[key] = &mixMove{}
	case err != nil || d.Allowed != v.allowed:
		m.t.Fatalf("%+v: got %+v, %v, want %+v", t, d, err, v)
	case !d.Allowed:
		m.wantDenied(n, d, v)
		m.moves[key] = &mixMove{}
	default:
		m.funds[t.From] -= cents
		m.funds[t.To] += cents
		for _, p := range parts {
			p.account.owed = 0
			if p.cost > 0 {
				p.account.take(p.cost, p.account.limit.back(now))
			}
		}
		m.wantTime("at", d.At, now)
		m.wantFigures(n, d, parts)
		m.moves[key] = &mixMove{what: what, ok: true, id: d.Transfer}
	}
}
