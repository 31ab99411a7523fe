package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"weir/api/wire"
)

// defaultCheckTimeout bounds what a request waits for its check.
const defaultCheckTimeout = time.Second

// checkHeaders are the headers that weir describes a limit by, of
// draft-ietf-httpapi-ratelimit-headers-11 and RFC 9110. They are set as they are spelled there.
var checkHeaders = []string{"RateLimit-Policy", "RateLimit", "Retry-After"}

// MiddlewareOptions change how [Client.Middleware] works.
type MiddlewareOptions struct {
	// Cost says how much a request takes; nil leaves it to weir, which on request-rate means 1.
	Cost func(*http.Request) uint64
	// FailOpen lets requests pass while weir is away; see [IsAway]. Without it they are answered with
	// status 503.
	FailOpen bool
	// Timeout bounds how long a request waits for weir, retries included; 0 means 1 s.
	Timeout time.Duration
	// OnError is told of each request that weir did not decide, and why; nil means nobody. What was
	// let pass by FailOpen is among them.
	OnError func(*http.Request, error)
}

// Middleware returns middleware of net/http that charges each request to a limit. The subject
// function says who makes it, such as the name that an authentication before has found. A request
// that is admitted goes on, with RateLimit-Policy and RateLimit set on its answer as weir sends
// them. One that is denied is answered here, with Retry-After and a problem document, and so is one
// that weir could not decide: with status 400 or 422 where the subject or the cost can never pass,
// 503 while nobody can say, and 500 where weir refuses this program, by its token or the limit's
// name; the options' OnError is told why. Options may be nil. Around echo it goes by
// echo.WrapMiddleware.
func (c *Client) Middleware(limit string, subject func(*http.Request) string,
	options *MiddlewareOptions,
) func(http.Handler) http.Handler {
	m := &middleware{client: c, limit: limit, subject: subject}
	if options != nil {
		m.options = *options
	}
	m.options.Timeout = orDefault(m.options.Timeout, defaultCheckTimeout)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if m.admit(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

type middleware struct {
	client  *Client
	limit   string
	subject func(*http.Request) string
	options MiddlewareOptions
}

// admit reports whether a request goes on, and answers it if not.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) bool {
	header, err := m.check(r)
	for _, name := range checkHeaders {
		values := header.Values(name)
		if len(values) > 0 {
			w.Header()[name] = values
		}
	}
	if err == nil {
		return true
	}
	e, answered := errors.AsType[*Error](err)
	if answered && e.isDenial() {
		m.refuse(w, r, e)
		return false
	}
	if m.options.OnError != nil && !isGone(r.Context()) {
		m.options.OnError(r, err)
	}
	if m.options.FailOpen && IsAway(err) && !isGone(r.Context()) {
		return true
	}
	m.refuse(w, r, undecided(err))
	return false
}

// check asks weir, and returns the headers of its answer.
func (m *middleware) check(r *http.Request) (http.Header, error) {
	check := wire.CheckRequest{Limit: m.limit, Subject: m.subject(r)}
	if m.options.Cost != nil {
		check.Cost = new(wire.Count(m.options.Cost(r)))
	}
	err := sendable(check.Subject)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), m.options.Timeout)
	defer cancel()
	var decision wire.Decision
	header, err := m.client.callWhere(ctx, isUnsent, http.MethodPost, "/v1/check",
		m.client.options.Token, check, &decision)
	if err == nil && !decision.Allowed {
		return nil, ErrNoDecision
	}
	e, answered := errors.AsType[*Error](err)
	if err == nil || answered && e.Code != "" {
		return header, err
	}
	return nil, err // what something in between has in its headers is not about the limit
}

// undecided makes of an error what the sender of a request is told.
func undecided(err error) *Error {
	e, answered := errors.AsType[*Error](err)
	switch {
	case answered && (e.Code == wire.CodeBadRequest || e.Code == wire.CodeCostExceedsQuota ||
		e.Code == wire.CodeBusy || e.Code == wire.CodeLedgerUnavailable):
		return e
	case errors.Is(err, ErrNotUTF8):
		return &Error{Code: wire.CodeBadRequest, Detail: "the name of who asks is not UTF-8"}
	case IsAway(err) || errors.Is(err, context.Canceled):
		return &Error{Code: wire.CodeLedgerUnavailable, Detail: "the limit cannot be asked just now"}
	}
	return &Error{Code: wire.CodeInternal, Detail: "the limit could not be asked"}
}

// refuse answers a request in place of its handler.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, e *Error) {
	meaning, _ := wire.MeaningOf(e.Code)
	p := wire.Problem{
		Title: meaning.Title, Status: meaning.Status, Detail: e.Detail,
		Instance: r.URL.EscapedPath(), Code: e.Code,
	}
	if e.isDenial() {
		p.ViolatedPolicies = []string{m.limit}
	}
	if e.Code == wire.CodeQuotaExceeded {
		p.Type = wire.TypeQuotaExceeded
	}
	header := w.Header()
	if meaning.RetryAfterSeconds > 0 && header.Get("Retry-After") == "" {
		header.Set("Retry-After", strconv.Itoa(meaning.RetryAfterSeconds))
	}
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", wire.ProblemType)
	w.WriteHeader(meaning.Status)
	_ = json.NewEncoder(w).Encode(p) // who does not read it has gone
}
