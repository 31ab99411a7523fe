// Package client asks a weir server over HTTP.
//
// A denial is an answer, a [wire.Decision] that is not allowed; an error means that there is no
// answer. Errors of the server are an [*Error] with its code.
package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/api/wire"
)

const (
	// defaultTimeout bounds one try of a call, from connecting to the end of the answer.
	defaultTimeout = 10 * time.Second
	// idleConnections is how many connections are kept for the next calls.
	idleConnections = 64
)

// Options change how a [Client] works.
type Options struct {
	// Token is what the server has as WEIR_TOKEN, if it has one; Transfer and Account always want it.
	Token string
	// AdminToken is what the server has as WEIR_ADMIN_TOKEN; each call that says so wants it.
	AdminToken string
	// HTTPClient makes the calls; nil means one that follows no redirects.
	HTTPClient *http.Client
	// Timeout bounds one try of a call, from connecting to the end of the answer; 0 means 10 s. All
	// tries and the pauses between them are bounded by the context of the call, and those of a Track
	// by Timeout, too.
	Timeout time.Duration
	// Retries is how often a call that may be repeated is made again after a failure that passes; 0
	// means 2, and what is below 0 none.
	Retries int
	// Backoff is the pause before the first retry; 0 means 100 ms. It doubles with each retry up to
	// 30 s, and a random part of as much again comes on top. A longer Retry-After is obeyed.
	Backoff time.Duration
	// UsageQueue is how much usage is kept in this process while weir is away, see [Client.Track]; 0
	// means 10,000. With what is below 0 none is kept, and a Track fails as other calls do.
	UsageQueue int
	// UsageRefused is told of usage that weir refused after it was kept, so that it is not booked:
	// until it returns, the rest waits. Nil means a warning to the default logger of log/slog, without
	// the subject.
	UsageRefused func(usage wire.TrackRequest, err error)
}

// Client asks one weir server. It is safe for concurrent use.
//
// A call to which there was no answer, or that weir or something in between could not serve just
// now (502, 503 or 504), is made again where that is safe: where it reads, is about a receipt, or
// has an id, by which the server charges it once and says what became of it. A Reserve or an
// Authorize without one is given one. A Check without an id, and a batch with such a check, is made
// again only where it was never sent, and gets no id of its own: an id has its denial kept in the
// ledger, a price that the caller decides on. A denial is an answer, and is never asked for again
// under the same id. After a retry, Replayed may say that it was the first try that counted.
type Client struct {
	base    string
	options Options
	usage   usageQueue
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
	c.options.Timeout = orDefault(c.options.Timeout, defaultTimeout)
	c.options.Backoff = max(orDefault(c.options.Backoff, defaultBackoff), 1) // it has to double
	c.options.Retries = orDefault(c.options.Retries, defaultRetries)
	c.options.UsageQueue = orDefault(c.options.UsageQueue, defaultUsageQueue)
	if c.options.UsageRefused == nil {
		c.options.UsageRefused = logRefused
	}
	if c.options.HTTPClient == nil {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
		standard, ok := http.DefaultTransport.(*http.Transport)
		if ok { // a program may have put something else there
			transport = standard.Clone()
		}
		transport.MaxIdleConnsPerHost = idleConnections
		c.options.HTTPClient = &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return c, nil
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

// Health asks whether the server is alive. It is asked once: the next answer is as good.
func (c *Client) Health(ctx context.Context) (wire.Health, error) {
	return c.health(ctx, "/healthz")
}

// Ready asks whether the server can serve. It is asked once. One that cannot is an error,
// wire.CodeNotReady.
func (c *Client) Ready(ctx context.Context) (wire.Health, error) {
	return c.health(ctx, "/readyz")
}

func (c *Client) health(ctx context.Context, path string) (wire.Health, error) {
	var health wire.Health
	_, err := c.try(ctx, request{method: http.MethodGet, path: path}, &health)
	return health, err
}
