package limiter

import (
	"context"
	"sync"
)

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
