// Package httpsource asks a billing provider over HTTP for the balances of the credit gate. How its
// answers are to be read is configuration, so that it serves for any provider that answers a GET
// with JSON.
package httpsource

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"weir/limiter/credit"
)

const (
	// placeholder stands in a template for the subject.
	placeholder = "{subject}"
	// defaultMaxBody is how many bytes an answer may have unless told otherwise.
	defaultMaxBody = 64 << 10
	// idleConnections is how many connections are kept for the next fetches.
	idleConnections = 16
)

// Options change how a [Source] works.
type Options struct {
	// Token is sent as a bearer token; empty sends none.
	Token string
	// MaxBody is how many bytes an answer may have; 0 means 64 KiB.
	MaxBody int64
	// Transport makes the calls; nil means one like http.DefaultTransport. The gate bounds how long a
	// call takes.
	Transport http.RoundTripper
}

// Source asks a provider for balances. It is safe for concurrent use.
//
// A 200 tells the balance. A 404 says that there is none, but only with a JSON body: what stands in
// front of a provider that is down says 404 too, in text or HTML, and is not to be believed. All
// else is a failure, and the balance unknown.
type Source struct {
	template string
	fields   paths
	options  Options
}

// New returns a source for a URL template such as https://billing.example/v1/customers/{subject},
// where {subject} becomes the percent-encoded subject. Options may be nil.
func New(template string, fields Fields, options *Options) (*Source, error) {
	err := checkTemplate(template)
	if err != nil {
		return nil, err
	}
	s := &Source{template: template}
	s.fields, err = fields.paths()
	if err != nil {
		return nil, err
	}
	if options != nil {
		s.options = *options
	}
	for _, c := range []byte(s.options.Token) {
		if c <= ' ' || c > '~' {
			return nil, ErrToken
		}
	}
	if s.options.MaxBody <= 0 {
		s.options.MaxBody = defaultMaxBody
	}
	if s.options.Transport == nil {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
		standard, ok := http.DefaultTransport.(*http.Transport)
		if ok { // a program may have put something else there
			transport = standard.Clone()
		}
		transport.MaxIdleConnsPerHost = idleConnections
		s.options.Transport = transport
	}
	return s, nil
}

// checkTemplate refuses what is not a URL, what does not ask for a subject, and what a subject
// could turn to another server. A user or a password in it would end up in logs.
func checkTemplate(template string) error {
	if !strings.Contains(template, placeholder) {
		return fmt.Errorf("%q: %w", template, ErrTemplate)
	}
	one, err := url.Parse(strings.ReplaceAll(template, placeholder, "a"))
	if err != nil {
		return fmt.Errorf("%q: %w", template, ErrTemplate)
	}
	other, err := url.Parse(strings.ReplaceAll(template, placeholder, "b"))
	if err != nil {
		return fmt.Errorf("%q: %w", template, ErrTemplate)
	}
	if one.Scheme != "http" && one.Scheme != "https" || one.Host == "" || one.Host != other.Host ||
		one.User != nil || one.Fragment != "" || leavesPath(one) {
		return fmt.Errorf("%q: %w", template, ErrTemplate)
	}
	return nil
}

// leavesPath reports whether a path has parts that mean another place. Servers, and what is in
// front of them, follow such parts also where they or the slashes beside them are encoded.
func leavesPath(u *url.URL) bool {
	parts := strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' || r == '\\' })
	return slices.Contains(parts, ".") || slices.Contains(parts, "..")
}

// url returns the address of a subject.
func (s *Source) url(subject string) (string, error) {
	address := strings.ReplaceAll(s.template, placeholder, encode(subject))
	u, err := url.Parse(address)
	if err != nil || leavesPath(u) {
		return "", ErrSubject
	}
	return address, nil
}

// encode escapes all that is not unreserved in RFC 3986, so that a subject means the same in a path
// and in a query.
func encode(subject string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(subject) {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9',
			c == '-', c == '.', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// Fetch asks the provider for a subject. See [Source].
func (s *Source) Fetch(ctx context.Context, subject string) (credit.Answer, error) {
	address, err := s.url(subject)
	if err != nil {
		return credit.Answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return credit.Answer{}, fmt.Errorf("ask the provider: %w", ErrSubject)
	}
	request.Header.Set("Accept", "application/json")
	if s.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.options.Token)
	}
	// A client would follow redirects, and put the URL or a Location, with the subject and what the
	// query has of secrets, in errors that are logged.
	response, err := s.options.Transport.RoundTrip(request)
	if err != nil {
		return credit.Answer{}, fmt.Errorf("ask the provider: %w", err)
	}
	defer response.Body.Close()
	return s.read(response)
}

func (s *Source) read(response *http.Response) (credit.Answer, error) {
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return credit.Answer{}, fmt.Errorf("%w: %d", ErrStatus, response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, s.options.MaxBody+1))
	if err != nil {
		return credit.Answer{}, fmt.Errorf("read the provider's answer: %w", err)
	}
	if int64(len(body)) > s.options.MaxBody {
		return credit.Answer{}, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.options.MaxBody)
	}
	if response.StatusCode == http.StatusOK {
		return s.fields.answer(body)
	}
	if !json.Valid(body) {
		return credit.Answer{}, fmt.Errorf("%w: 404, not in JSON", ErrStatus)
	}
	return credit.Answer{}, nil
}
