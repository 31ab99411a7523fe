package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"weir/api/wire"
)

// Check asks whether a subject may do something, and charges it if so.
func (c *Client) Check(ctx context.Context, check wire.CheckRequest) (wire.Decision, error) {
	passes := isPassing
	if check.ID == "" {
		passes = isUnsent
	}
	return c.decide(ctx, passes, "/v1/check", check, textsOf(check))
}

// AwaitCheck is a Check that waits: denied, it asks again after the Retry-After, at most as often
// as Retries says and no longer than the context has time. Each attempt has an id of its own: the
// first that of the check, the next ones the same with .2, .3 and so on at its end, so that the
// whole can be asked again; without an id none of them has one. The answer is that of the last
// attempt.
func (c *Client) AwaitCheck(ctx context.Context, check wire.CheckRequest) (wire.Decision, error) {
	id := check.ID
	for n := 0; ; n++ {
		decision, err := c.Check(ctx, check)
		wait := time.Duration(decision.RetryAfterMS) * time.Millisecond
		told := wait > 0 || decision.Replayed // a denial from before tells no wait
		if err != nil || decision.Allowed || !told || !c.await(ctx, n, wait) {
			return decision, err
		}
		check.ID = nextID(id, n)
	}
}

// await waits before attempt n+1, for as long as a denial says and by chance a little longer.
func (c *Client) await(ctx context.Context, n int, wait time.Duration) bool {
	return n < c.options.Retries && pause(ctx, wait+chance(c.options.Backoff))
}

// nextID names the attempt after attempt n, the first of which is 0.
func nextID(id string, n int) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("%s.%d", id, n+2)
}

// newID returns an id that nobody else has.
func newID() string { return rand.Text() }

// CheckBatch asks about up to 1,000 checks that have nothing to do with each other. The results are
// in their order; a denial is a problem with its decision.
func (c *Client) CheckBatch(ctx context.Context, checks []wire.CheckRequest,
) ([]wire.Result, error) {
	passes := isPassing
	if slices.ContainsFunc(checks, func(check wire.CheckRequest) bool { return check.ID == "" }) {
		passes = isUnsent
	}
	for _, check := range checks {
		err := sendable(textsOf(check)...)
		if err != nil {
			return nil, err
		}
	}
	var answer wire.BatchResponse
	_, err := c.callWhere(ctx, passes, http.MethodPost, "/v1/check/batch", c.options.Token,
		wire.BatchRequest{Checks: checks}, &answer)
	if err == nil && len(answer.Results) != len(checks) {
		err = fmt.Errorf("%d checks: %w", len(checks), ErrResults)
	}
	return answer.Results, err
}

// textsOf returns what a check has of the caller's own texts.
func textsOf(check wire.CheckRequest) []string {
	texts := []string{check.Subject, check.ID}
	for _, m := range check.Limits {
		texts = append(texts, m.Subject)
	}
	for _, value := range check.Fields {
		texts = append(texts, value)
	}
	return texts
}

// decide asks for a decision. The texts are what the question has of the caller's own.
func (c *Client) decide(ctx context.Context, passes func(error) bool, path string, question any,
	texts []string,
) (wire.Decision, error) {
	err := sendable(texts...)
	if err != nil {
		return wire.Decision{}, err
	}
	var decision wire.Decision
	_, err = c.callWhere(ctx, passes, http.MethodPost, path, c.options.Token, question, &decision)
	if err != nil {
		return asDecision(err)
	}
	return decision, nil
}

// asDecision turns a denial into the decision it is, and leaves other errors.
func asDecision(err error) (wire.Decision, error) {
	e, answered := errors.AsType[*Error](err)
	if !answered || !e.isDenial() {
		return wire.Decision{}, err
	}
	e.denial.NewIDRequired = e.NewIDRequired
	return *e.denial, nil
}
