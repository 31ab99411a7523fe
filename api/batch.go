package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"weir/api/wire"
)

// Bounds of a batch.
const (
	maxChecks     = 1000 // in one batch
	parallelBatch = 64   // of them under way at once
)

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
