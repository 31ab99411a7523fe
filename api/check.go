package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"weir/api/wire"
	"weir/limiter"
)

// allLevels has every level of a body checked: no body has more.
const allLevels = 8

// Bounds of a batch.
const (
	maxChecks     = 1000 // in one batch
	parallelBatch = 64   // of them under way at once
)

// check decides one request.
func (s *Server) check(c echo.Context) error {
	var body wire.CheckRequest
	err := readBody(c, maxBody, func(data []byte) error { return decodeCheck(data, &body) })
	if err != nil {
		return err
	}
	request, err := s.requestOf(&body)
	if err != nil {
		return err
	}
	request.ID, err = idOf(c, body.ID)
	if err != nil {
		return err
	}
	d, err := s.limiter.Check(c.Request().Context(), request)
	if err != nil {
		return err
	}
	return s.sendDecision(c, &d)
}

// requestOf reads the three forms of a check.
func (s *Server) requestOf(body *wire.CheckRequest) (limiter.Request, error) {
	request := limiter.Request{ID: body.ID}
	if body.Group != "" || body.Fields != nil {
		return s.groupOf(body)
	}
	if body.Limits == nil {
		if body.Limit == "" {
			return limiter.Request{}, badRequest("limit is missing")
		}
		cost, err := s.costOf(body.Limit, body.Cost)
		if err != nil {
			return limiter.Request{}, err
		}
		request.Members = []limiter.Member{{Limit: body.Limit, Subject: body.Subject, Cost: cost}}
		return request, nil
	}
	if body.Limit != "" || body.Cost != nil {
		return limiter.Request{}, badRequest("a check with limits has no limit or cost of its own")
	}
	members, err := s.membersOf(body.Limits, body.Subject)
	if err != nil {
		return limiter.Request{}, err
	}
	request.Members = members
	return request, nil
}

// groupOf reads a check of a group. Its limits have one cost, so that they have to count the same.
func (s *Server) groupOf(body *wire.CheckRequest) (limiter.Request, error) {
	request := limiter.Request{
		ID: body.ID, Group: body.Group, Fields: body.Fields, Cost: limiter.DefaultCost,
	}
	switch {
	case body.Group == "":
		return limiter.Request{}, badRequest("fields are those of a group: group is missing")
	case body.Limit != "" || body.Limits != nil || body.Subject != "":
		return limiter.Request{}, badRequest("a check of a group has no limit, limits or subject")
	case body.Cost == nil:
		return request, nil
	}
	request.Cost = body.Cost.Units
	for _, group := range s.limiter.Limits().Groups() {
		if group.Name != body.Group {
			continue
		}
		for i, m := range group.Limits {
			units, err := s.unitsOf("cost", m.Limit, *body.Cost)
			if err != nil {
				return limiter.Request{}, err
			}
			if i > 0 && units != request.Cost {
				return limiter.Request{}, badRequest("cost: the limits of group %q do not count the same",
					body.Group)
			}
			request.Cost = units
		}
	}
	return request, nil
}

// membersOf reads what is wanted of several limits, those that name no subject for the one given.
func (s *Server) membersOf(limits []wire.Member, subject string) ([]limiter.Member, error) {
	if len(limits) > limiter.MaxMembers {
		return nil, badRequest("a request names at most %d limits, not %d",
			limiter.MaxMembers, len(limits))
	}
	members := make([]limiter.Member, len(limits))
	for i, m := range limits {
		if m.Limit == "" {
			return nil, badRequest("limits[%d]: limit is missing", i)
		}
		if m.Subject == "" {
			m.Subject = subject
		}
		cost, err := s.costOf(m.Limit, m.Cost)
		if err != nil {
			return nil, err
		}
		members[i] = limiter.Member{Limit: m.Limit, Subject: m.Subject, Cost: cost}
	}
	return members, nil
}

// costOf reads a cost on a limit, the kind's own where there is none.
func (s *Server) costOf(limit string, cost *wire.Amount) (uint64, error) {
	if cost == nil {
		return limiter.DefaultCost, nil
	}
	return s.unitsOf("cost", limit, *cost)
}

// batchBody is a wire.BatchRequest whose checks are read one by one: what is wrong with one of them
// is no matter of the others.
type batchBody struct {
	Checks []json.RawMessage `json:"checks"`
}

// batch decides checks that have nothing to do with each other.
func (s *Server) batch(c echo.Context) error {
	if len(c.Request().Header["Idempotency-Key"]) > 0 {
		return badRequest("a batch takes no Idempotency-Key: each check has its own id")
	}
	var body batchBody
	err := readBody(c, maxBatchBody, func(data []byte) error { return decode(data, 1, &body) })
	if err != nil {
		return err
	}
	if len(body.Checks) == 0 || len(body.Checks) > maxChecks {
		return badRequest("a batch has 1 to %d checks, not %d", maxChecks, len(body.Checks))
	}
	ctx := c.Request().Context()
	path := c.Request().URL.EscapedPath()
	answer := wire.BatchResponse{Results: make([]wire.Result, len(body.Checks))}
	var group errgroup.Group
	group.SetLimit(parallelBatch)
	for i, check := range body.Checks {
		if ctx.Err() != nil {
			break // nobody is left to read the answer: what was not begun is not charged
		}
		group.Go(func() error {
			answer.Results[i] = s.one(ctx, check, fmt.Sprintf("%s#/checks/%d", path, i))
			return nil
		})
	}
	_ = group.Wait() // no check fails the others
	return send(c, http.StatusOK, plainJSON, &answer)
}

// one decides one check of a batch. It runs beside the others, where run would not see a panic.
func (s *Server) one(ctx context.Context, check []byte, instance string) (result wire.Result) {
	fail := func(err error) wire.Result {
		s.report(err)
		return wire.Result{Problem: new(s.problemOf(err, instance))}
	}
	defer func() {
		thrown := recover()
		if thrown != nil {
			result = fail(s.panicked(thrown))
		}
	}()
	var body wire.CheckRequest
	err := decodeCheck(check, &body)
	if err != nil {
		return fail(err)
	}
	request, err := s.requestOf(&body)
	if err != nil {
		return fail(err)
	}
	d, err := s.limiter.Check(ctx, request)
	if err != nil {
		return fail(err)
	}
	decision := decisionOf(&d)
	if d.Allowed {
		return wire.Result{Decision: &decision}
	}
	return wire.Result{Problem: new(denialOf(&d, &decision, instance))}
}
