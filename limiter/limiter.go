// Package limiter decides: may this subject do this, now? It holds the policy of the service (what
// a limit is, what a request means, what the caller is told) and leaves the bookkeeping to package
// accounts, where every decision is an entry in a ledger.
//
// A [Request] names one limit or several and is decided as a whole. The answer is a [Decision],
// also where it is no; an [Error] means that the request cannot be decided as sent, or that the
// ledger did not answer. Neither is ever taken for the other.
package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
)

// adminDeadline bounds what admins and readers wait for the ledger.
const adminDeadline = 5 * time.Second

// Options change how a [Limiter] works. The zero value is a limiter that is alone on its ledger.
type Options struct {
	// Lag is how much later than its time-out the ledger gives units back; it is added to every
	// Retry-After. 0 for the embedded ledger.
	Lag time.Duration
	// Shared says that other nodes write to the same ledger.
	Shared bool
	// Spool keeps what is let through while the ledger does not answer, until it can be booked; nil
	// drops and counts it.
	Spool *Spool
	// Logger gets what an operator should know; nil means nobody does.
	Logger *slog.Logger
	// Registerer takes the limiter's metrics; nil keeps none. No label ever holds a subject.
	Registerer prometheus.Registerer
}

// Limiter decides requests against limits, each decision an entry in a ledger. It is safe for
// concurrent use.
//
// Check is the call that matters. It charges all members of a request in one atomic step or none,
// and answers with a [Decision]:
//
//   - never more than the quota of a limit is taken within any window, at any concurrency and over
//     any number of processes on one ledger: a unit taken at t is back at t + window;
//   - a request with an id is charged once, however often it is sent, and answered the same;
//   - a denied request costs nothing anywhere;
//   - RetryAfter is true: who waits that long and asks with a new id is admitted, unless others
//     took the units.
//
// A denial is a Decision. An error is an [*Error]: the request cannot be decided as sent, or the
// ledger did not answer and the limits' [Policy] is not to let it pass. Once a request was sent to
// the ledger, its caller's cancellation does not stop it: a write is finished whoever waits for it.
type Limiter struct {
	book    *accounts.Book
	limits  atomic.Pointer[Limits]
	memory  *memory
	waits   patience
	metrics metrics
	options Options

	late       chan struct{}  // holds one token for each given-up call that is waited for
	waiting    sync.WaitGroup // the same calls
	complained atomic.Uint64  // ledger time of the last log line about units that were dropped
}

// New returns a limiter that charges limits in book. Options may be nil.
func New(book *accounts.Book, limits *Limits, options *Options) (*Limiter, error) {
	l := &Limiter{book: book, late: make(chan struct{}, maxLate)}
	if options != nil {
		l.options = *options
	}
	if l.options.Logger == nil {
		l.options.Logger = slog.New(slog.DiscardHandler)
	}
	memory, err := newMemory(l.options.Shared)
	if err != nil {
		return nil, err
	}
	l.memory = memory
	l.metrics, err = newMetrics(l.options.Registerer)
	if err != nil {
		return nil, err
	}
	l.limits.Store(limits)
	return l, nil
}

// Limits returns the limits in force.
func (l *Limiter) Limits() *Limits { return l.limits.Load() }

// SetLimits puts other limits in force. Requests under way are decided by the old ones. What
// subjects have used stays used; a changed quota is booked when its subject is next seen.
func (l *Limiter) SetLimits(limits *Limits) {
	l.limits.Store(limits)
	l.memory.clear()
	l.waits.clear()
}

// Check decides a request and charges it if it passes. See [Limiter]. The context has no say: a
// request that was begun is finished whoever waits for it, within its limits' deadline.
func (l *Limiter) Check(_ context.Context, r Request) (Decision, error) {
	if r.Hold != 0 {
		return Decision{}, badRequest("a check holds nothing; a reservation does")
	}
	return l.decide(r)
}

// decide is Check or Reserve.
func (l *Limiter) decide(r Request) (Decision, error) {
	q, err := l.resolve(r)
	if err != nil {
		l.metrics.failed(err)
		return Decision{}, err
	}
	ctx := l.waits.begin(deadline(q)) // the caller cannot cancel it
	decision, err := l.check(ctx, q)
	if err != nil {
		l.metrics.failed(err)
		return Decision{}, err
	}
	l.metrics.decided(q.charges, decision)
	l.tryOut(ctx, q, &decision)
	return decision, nil
}

// deadline returns the shortest deadline of the limits that decide; where all are only tried out,
// of those.
func deadline(q asked) time.Duration {
	charges := q.charges
	if len(charges) == 0 {
		charges = q.named
	}
	shortest := maxDeadline
	for _, c := range charges {
		shortest = min(shortest, c.limit.Deadline)
	}
	return shortest
}

// detached returns a context that the caller cannot cancel, with a deadline for the ledger.
func detached(ctx context.Context, deadline time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), deadline)
}

func (l *Limiter) check(ctx context.Context, q asked) (Decision, error) {
	id, charges := q.id, q.charges
	if len(charges) == 0 { // all are only tried out
		return Decision{Allowed: true, Denied: -1, At: instant(l.book.Now())}, nil
	}
	looks := 0
	for _, c := range charges {
		if c.Amount == 0 {
			looks++
		}
	}
	switch {
	case looks == len(charges) && q.hold > 0:
		return Decision{}, badRequest("cost: a reservation holds at least one unit")
	case looks == len(charges):
		return l.look(ctx, charges)
	}
	if q.annotation != nil {
		err := l.owe(ctx, charges)
		if err != nil {
			return Decision{}, failure(err)
		}
	}
	attempt, err := l.attempt(q)
	if err != nil {
		return Decision{}, failure(err)
	}
	decision, decided, err := l.deniedAlready(ctx, q, attempt)
	if err != nil || decided {
		return decision, err
	}
	result, err := l.book.Charge(ctx, attempt)
	if err != nil {
		return l.unanswered(id, charges, &attempt, err)
	}
	switch result.Outcome {
	case accounts.Accepted:
		for _, c := range charges { // what is remembered of a greater cost has changed
			l.memory.forget(c.Account())
		}
		return l.allowed(ctx, charges, result), nil
	case accounts.Replayed:
		return l.allowed(ctx, charges, result), nil
	case accounts.Refused:
		return l.refused(ctx, id, charges, result)
	default:
		return Decision{}, spent(result.Outcome, id)
	}
}

// attempt prepares a check or a reservation.
func (l *Limiter) attempt(q asked) (accounts.Attempt, error) {
	if q.hold == 0 {
		return l.book.NewAttempt(q.id, booked(q.named), q.sent...)
	}
	hold, err := l.book.NewHold(q.id, booked(q.named), uint32(q.hold/time.Second), q.sent...)
	if err != nil || q.annotation == nil {
		return hold, err
	}
	return l.book.WithNotes(hold, q.id, q.annotation), nil
}

// booked returns the charges as the books know them.
func booked(charges []charge) []accounts.Charge {
	list := make([]accounts.Charge, len(charges))
	for i, c := range charges {
		list[i] = c.Charge
	}
	return list
}

// spent is the error for an id that was admitted and cannot be answered again.
func spent(outcome accounts.Outcome, id string) *Error {
	e := &Error{NewIDRequired: true}
	switch outcome {
	case accounts.Conflict:
		e.Code, e.Detail = CodeIDConflict, fmt.Sprintf("id %q was used for another request", id)
	case accounts.Expired:
		e.Code = CodeIDExpired
		e.Detail = fmt.Sprintf("id %q was admitted and what it took has come back since", id)
	case accounts.Ended:
		e.Code = CodeReservationClosed
		e.Detail = fmt.Sprintf("id %q was admitted and what it took was given back or settled", id)
	default:
		panic(fmt.Sprintf("limiter: outcome %d of a charge", outcome))
	}
	return e
}

// look decides a request that takes nothing by reading: no id is recorded.
func (l *Limiter) look(ctx context.Context, charges []charge) (Decision, error) {
	read, err := l.read(ctx, charges, trueWaits)
	if err != nil {
		return l.unanswered("", charges, nil, err)
	}
	result := accounts.Result{
		Refused: firstLacking(charges, read, -1), Timestamp: l.book.Now(),
	}
	if result.Refused < 0 {
		return allow(charges, read, result, result.Timestamp), nil
	}
	return deny(charges, read, result, l.book.Now(), l.options.Lag), nil
}

// allowed answers a request whose charge is booked. Whatever the reading of the balances brings:
// the subject has paid and passes.
func (l *Limiter) allowed(ctx context.Context, charges []charge, result accounts.Result) Decision {
	off := true
	for _, c := range charges {
		off = off && c.limit.RemainingOff
	}
	if off {
		return allow(charges, make([]figures, len(charges)), result, result.Timestamp)
	}
	read, err := l.read(ctx, charges, noWaits)
	if err != nil {
		l.metrics.unread.Inc()
		read = make([]figures, len(charges))
	}
	return allow(charges, read, result, l.book.Now())
}

// refused answers a request that the ledger refused, and remembers what it said. Whatever the
// reading of the balances brings: a denial is never swallowed.
func (l *Limiter) refused(ctx context.Context, id string, charges []charge, result accounts.Result,
) (Decision, error) {
	readings := l.readings(charges)
	read, err := l.read(ctx, charges, trueWaits)
	if err != nil {
		l.metrics.unread.Inc()
		d := deny(charges, make([]figures, len(charges)), result, result.Timestamp, 0)
		d.NewIDRequired = id != ""
		return d, nil //nolint:nilerr // the ledger has decided; only the figures are missing
	}
	e := exceedsQuota(charges, read, id != "")
	if e != nil {
		return Decision{}, e
	}
	for i, c := range charges {
		if need(c.Amount, read[i].Balance) > 0 {
			next := read[i].next
			if c.Limit.Posted && next == 0 { // no time-out gives anything back
				next = math.MaxUint64
			}
			l.memory.denied(c.Account(), readings[i], max(1, c.Amount), result.Timestamp, next,
				read[i].Balance)
		}
	}
	d := deny(charges, read, result, l.book.Now(), l.options.Lag)
	d.NewIDRequired = id != ""
	return d, nil
}

// exceedsQuota returns the error of the first charge that can never pass, nil if all can.
func exceedsQuota(charges []charge, read []figures, burnt bool) *Error {
	for i, c := range charges {
		if !hopeless(c.Charge, read[i].Balance) {
			continue
		}
		bound := "the quota of " + c.limit.text(read[i].Quota)
		if read[i].Margin > 0 {
			closing := read[i].Quota - min(read[i].Margin, read[i].Quota)
			bound = fmt.Sprintf("%s, where the quota of %s closes,",
				c.limit.text(closing), c.limit.text(read[i].Quota))
		}
		return &Error{
			Code: CodeCostExceedsQuota, Limit: c.limit.Name, NewIDRequired: burnt,
			Detail: fmt.Sprintf("cost %s is above %s on limit %q and can never pass",
				c.limit.text(c.Amount), bound, c.limit.Name),
		}
	}
	return nil
}

// tryOut puts the states of the limits that a request names and that are only tried out into its
// decision. What was admitted is charged on each of them by itself, within what is left of the
// request's deadline; whatever comes of it, the decision stands. On a denial they are not asked,
// nor where the ledger did not answer.
func (l *Limiter) tryOut(ctx context.Context, q asked, d *Decision) {
	if len(q.charges) == len(q.named) {
		return
	}
	states := make([]State, len(q.named))
	decided, denied := 0, -1
	var group sync.WaitGroup
	for i, c := range q.named {
		switch {
		case !c.Aside:
			states[i] = d.Limits[decided]
			if decided == d.Denied {
				denied = i
			}
			decided++
		case d.Allowed && !d.Degraded:
			group.Go(func() { states[i] = l.shadow(ctx, q.id, c) })
		default:
			states[i] = state(c, figures{}, l.book.Now())
			if d.Degraded {
				l.metrics.shadow.WithLabelValues(c.limit.Name, "error").Inc()
			}
		}
	}
	group.Wait()
	d.Limits, d.Denied = states, denied
}

// shadow has one limit decide by itself, under the request's id if it has one: sent again it is
// charged once there too. An answer that is given again is not counted again.
func (l *Limiter) shadow(ctx context.Context, id string, c charge) State {
	c.Aside = false
	d, err := l.check(ctx, askedOf(id, []charge{c}))
	s, result := state(c, figures{}, l.book.Now()), "allowed"
	switch {
	case err == nil:
		s = d.Limits[0]
		s.WouldDeny = !d.Allowed
	case codeOf(err) == CodeCostExceedsQuota:
		s.WouldDeny = true
	case codeOf(err) == CodeIDExpired, codeOf(err) == CodeReservationClosed:
		return s // it was admitted before, and what it took is back
	default:
		result = "error"
	}
	if s.WouldDeny {
		result = "denied"
	}
	if !d.Replayed {
		l.metrics.shadow.WithLabelValues(c.limit.Name, result).Inc()
	}
	return s
}
