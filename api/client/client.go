// Package client asks a weir server over HTTP.
//
// A denial is an answer, a [wire.Decision] that is not allowed; an error means that there is no
// answer. Errors of the server are an [*Error] with its code.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/api/wire"
)

const (
	// defaultTimeout bounds a call, from connecting to the end of the answer.
	defaultTimeout = 10 * time.Second
	// maxAnswer is how many bytes an answer may have; a full page of a journal has about 300 kB.
	maxAnswer = 4 << 20
	// idleConnections is how many connections are kept for the next calls.
	idleConnections = 64
)

// Options change how a [Client] works.
type Options struct {
	// Token is what the server has as WEIR_TOKEN, if it has one; Transfer and Account always want it.
	Token string
	// AdminToken is what the server has as WEIR_ADMIN_TOKEN; each call that says so wants it.
	AdminToken string
	// HTTPClient makes the calls; nil means one that gives up after 10 s and follows no redirects.
	HTTPClient *http.Client
}

// Client asks one weir server. It is safe for concurrent use.
//
// Calls are made once. To ask again after a failure, send the same id: the server charges it once
// and says what became of it; see [Error.SameID].
type Client struct {
	base    string
	options Options
}

// New returns a client for the server at baseURL, such as http://127.0.0.1:8080. Options may be
// nil.
func New(baseURL string, options *Options) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" {
		return nil, fmt.Errorf("server %q: %w", baseURL, ErrBaseURL)
	}
	c := &Client{base: strings.TrimRight(base.String(), "/")}
	if options != nil {
		c.options = *options
	}
	if c.options.HTTPClient == nil {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
		standard, ok := http.DefaultTransport.(*http.Transport)
		if ok { // a program may have put something else there
			transport = standard.Clone()
		}
		transport.MaxIdleConnsPerHost = idleConnections
		c.options.HTTPClient = &http.Client{
			Transport: transport, Timeout: defaultTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, nil
}

// Check asks whether a subject may do something, and charges it if so.
func (c *Client) Check(ctx context.Context, check wire.CheckRequest) (wire.Decision, error) {
	return c.decide(ctx, "/v1/check", check, textsOf(check))
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
func (c *Client) decide(ctx context.Context, path string, question any, texts []string,
) (wire.Decision, error) {
	err := sendable(texts...)
	if err != nil {
		return wire.Decision{}, err
	}
	var decision wire.Decision
	err = c.call(ctx, http.MethodPost, path, c.options.Token, question, &decision)
	if err != nil {
		return asDecision(err)
	}
	return decision, nil
}

// Balance reads what a subject has on a limit. It charges and creates nothing.
func (c *Client) Balance(ctx context.Context, limit, subject string) (wire.Balance, error) {
	var balance wire.Balance
	path := "/v1/balance?" + url.Values{"limit": {limit}, "subject": {subject}}.Encode()
	err := c.call(ctx, http.MethodGet, path, c.options.Token, nil, &balance)
	return balance, err
}

// Limits lists the limits in force.
func (c *Client) Limits(ctx context.Context) ([]wire.Limit, error) {
	var limits wire.Limits
	err := c.call(ctx, http.MethodGet, "/v1/limits", c.options.Token, nil, &limits)
	return limits.Limits, err
}

// Grant raises one subject's quota for good. It wants the admin's token.
func (c *Client) Grant(ctx context.Context, grant wire.ChangeRequest) (wire.Change, error) {
	return c.change(ctx, "/v1/admin/grants", grant)
}

// Revoke lowers one subject's quota for good. It wants the admin's token. Where less is free than
// that, the error's Free says how much is.
func (c *Client) Revoke(ctx context.Context, revoke wire.ChangeRequest) (wire.Change, error) {
	return c.change(ctx, "/v1/admin/revocations", revoke)
}

// Override gives one subject a quota of its own, whatever the config says. It stands until it is
// cleared. It wants the admin's token.
func (c *Client) Override(ctx context.Context, q wire.QuotaRequest) (wire.SubjectQuota, error) {
	err := sendable(q.Subject)
	if err != nil {
		return wire.SubjectQuota{}, err
	}
	var quota wire.SubjectQuota
	err = c.call(ctx, http.MethodPut, "/v1/admin/quota", c.options.AdminToken, q, &quota)
	return quota, err
}

// ClearOverride gives one subject the limit's quota again. It wants the admin's token.
func (c *Client) ClearOverride(ctx context.Context, limit, subject string,
) (wire.SubjectQuota, error) {
	var quota wire.SubjectQuota
	path := "/v1/admin/quota?" + url.Values{"limit": {limit}, "subject": {subject}}.Encode()
	err := c.call(ctx, http.MethodDelete, path, c.options.AdminToken, nil, &quota)
	return quota, err
}

func (c *Client) change(ctx context.Context, path string, r wire.ChangeRequest,
) (wire.Change, error) {
	err := sendable(r.Subject, r.ID)
	if err != nil {
		return wire.Change{}, err
	}
	var change wire.Change
	err = c.call(ctx, http.MethodPost, path, c.options.AdminToken, r, &change)
	return change, err
}

// sendable refuses what encoding/json would send as something else, and so for another subject.
func sendable(texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q: %w", text, ErrNotUTF8)
		}
	}
	return nil
}

// JournalQuery chooses a page of a journal.
type JournalQuery struct {
	Limit   string
	Subject string
	// Cursor is that of the page before; empty asks for the first page.
	Cursor string
	// Reversed asks for the newest entries first.
	Reversed bool
}

// Journal reads a page of the entries of a subject on a limit. It wants the admin's token.
func (c *Client) Journal(ctx context.Context, q JournalQuery) (wire.Journal, error) {
	values := url.Values{"limit": {q.Limit}, "subject": {q.Subject}}
	if q.Cursor != "" {
		values.Set("cursor", q.Cursor)
	}
	if q.Reversed {
		values.Set("reversed", strconv.FormatBool(true))
	}
	var journal wire.Journal
	path := "/v1/admin/journal?" + values.Encode()
	err := c.call(ctx, http.MethodGet, path, c.options.AdminToken, nil, &journal)
	return journal, err
}

// call makes one call and reads its answer, or returns what the server said instead as an [*Error].
func (c *Client) call(ctx context.Context, method, path, token string, question, answer any) error {
	var body io.Reader
	if question != nil {
		data, err := json.Marshal(question)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.options.HTTPClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read answer to %s %s: %w", method, path, err)
	}
	if len(data) > maxAnswer {
		return fmt.Errorf("answer to %s %s: %w", method, path, ErrAnswerTooLarge)
	}
	if response.StatusCode != http.StatusOK {
		return problem(response, data)
	}
	err = json.Unmarshal(data, answer)
	if err != nil {
		return fmt.Errorf("decode answer to %s %s: %w", method, path, err)
	}
	return nil
}

// problem makes an error of an answer that is not a success. One that is not weir's, from something
// in between, has no code.
func problem(response *http.Response, data []byte) *Error {
	e := &Error{Status: response.StatusCode, Detail: http.StatusText(response.StatusCode)}
	seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 32)
	if err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if media != wire.ProblemType {
		return e
	}
	var p wire.Problem
	err = json.Unmarshal(data, &p)
	if err != nil {
		return e
	}
	e.Code, e.Detail, e.Limit, e.NewIDRequired = p.Code, p.Detail, p.Limit, p.NewIDRequired
	if p.Free != nil {
		e.Free = *p.Free
	}
	e.denial = p.Decision
	return e
}

// asDecision turns a denial into the decision it is, and leaves other errors.
func asDecision(err error) (wire.Decision, error) {
	var e *Error
	if !errors.As(err, &e) || e.denial == nil ||
		e.Code != wire.CodeQuotaExceeded && e.Code != wire.CodeCreditsExhausted {
		return wire.Decision{}, err
	}
	e.denial.NewIDRequired = e.NewIDRequired
	return *e.denial, nil
}
