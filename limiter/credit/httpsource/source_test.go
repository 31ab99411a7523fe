package httpsource_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/limiter/credit"
	"weir/limiter/credit/httpsource"
)

// fields are those of a provider with everything in one object.
var fields = httpsource.Fields{
	Granted: "balance.granted", Usage: "balance.usage", Remaining: "balance.remaining",
	Unlimited: "balance.unlimited", Enforced: "enforced",
}

// serve starts a provider and returns its address.
func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// says is a provider that always answers the same.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// source returns a source for a template.
func source(t testing.TB, template string, fields httpsource.Fields, options *httpsource.Options,
) *httpsource.Source {
	t.Helper()
	s, err := httpsource.New(template, fields, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tidy:table one row for each way to be right or wrong
func TestNew(t *testing.T) {
	only := httpsource.Fields{Remaining: "r"}
	rows := []struct {
		name, template string
		fields         httpsource.Fields
		token          string
		want           error
	}{
		{"OK", "https://billing.example/v1/customers/{subject}", only, "t", nil},
		{"OK in a query", "http://127.0.0.1:8080/?customer={subject}&x=1", only, "", nil},
		{"OK twice", "http://billing.example/{subject}/{subject}", only, "", nil},
		{"OK difference", "http://billing.example/{subject}",
			httpsource.Fields{Granted: "a.0.b", Usage: "c"}, "", nil},
		{"ErrTemplate no subject", "http://billing.example/customers", only, "", httpsource.ErrTemplate},
		{"ErrTemplate no scheme", "billing.example/{subject}", only, "", httpsource.ErrTemplate},
		{"ErrTemplate other scheme", "ftp://billing.example/{subject}", only, "", httpsource.ErrTemplate},
		{"ErrTemplate no host", "http:///{subject}", only, "", httpsource.ErrTemplate},
		{"ErrTemplate in host", "http://{subject}.example/", only, "", httpsource.ErrTemplate},
		{"ErrTemplate in port", "http://billing.example:{subject}/", only, "", httpsource.ErrTemplate},
		{"ErrTemplate user", "http://u:p@billing.example/{subject}", only, "", httpsource.ErrTemplate},
		{"ErrTemplate fragment", "http://billing.example/#{subject}", only, "", httpsource.ErrTemplate},
		{"ErrTemplate dots", "http://billing.example/../{subject}", only, "", httpsource.ErrTemplate},
		{"ErrTemplate encoded dots", "http://billing.example/%2e%2E/{subject}", only, "",
			httpsource.ErrTemplate},
		{"ErrTemplate escape", "http://billing.example/%zz{subject}", only, "", httpsource.ErrTemplate},
		{"ErrFields none", "http://billing.example/{subject}", httpsource.Fields{}, "",
			httpsource.ErrFields},
		{"ErrFields half", "http://billing.example/{subject}", httpsource.Fields{Granted: "a"}, "",
			httpsource.ErrFields},
		{"ErrPath", "http://billing.example/{subject}", httpsource.Fields{Remaining: "a..b"}, "",
			httpsource.ErrPath},
		{"ErrToken", "http://billing.example/{subject}", only, "a\nb", httpsource.ErrToken},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := httpsource.New(row.template, row.fields, &httpsource.Options{Token: row.token})
			if !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

// A subject reaches the provider as it is, wherever it stands in the URL, and leads nowhere else.
func TestSubject(t *testing.T) {
	var path, query, host string
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		path, query, host = r.URL.EscapedPath(), r.URL.RawQuery, r.Host
		io.WriteString(w, `{"r":1}`)
	})
	s := source(t, address+"/a/{subject}/b?q={subject}", httpsource.Fields{Remaining: "r"}, nil)
	for subject, escaped := range map[string]string{
		"alice":             "alice",
		"a.b_c~d-e":         "a.b_c~d-e",
		"...":               "...",
		"a/b..c/.d":         "a%2Fb..c%2F.d",
		"?x=1&y#z":          "%3Fx%3D1%26y%23z",
		"a b+c%20":          "a%20b%2Bc%2520",
		"é\x00":             "%C3%A9%00",
		"{subject}":         "%7Bsubject%7D",
		"@evil.example:80/": "%40evil.example%3A80%2F",
	} {
		_, err := s.Fetch(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		if path != "/a/"+escaped+"/b" || query != "q="+escaped || "http://"+host != address {
			t.Errorf("%q: got %s?%s at %s, want %s in both", subject, path, query, host, escaped)
		}
	}
	for _, subject := range []string{".", "..", "a/../b", "../admin", "./a", `..\admin`, "a/.."} {
		path = ""
		_, err := s.Fetch(t.Context(), subject)
		if !errors.Is(err, httpsource.ErrSubject) || path != "" {
			t.Errorf("%q: got %v after asking %q, want ErrSubject after nothing", subject, err, path)
		}
	}
}

func TestToken(t *testing.T) {
	var got string
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		io.WriteString(w, `{"r":1}`)
	})
	for token, want := range map[string]string{"": "", "secret": "Bearer secret"} {
		s := source(t, address+"/{subject}", httpsource.Fields{Remaining: "r"},
			&httpsource.Options{Token: token})
		_, err := s.Fetch(t.Context(), "a")
		if err != nil || got != want {
			t.Errorf("got %q and %v, want %q", got, err, want)
		}
	}
}

// tidy:table one row for each answer of a provider
func TestFetch(t *testing.T) {
	known := func(granted, usage, remaining int64) credit.Balance {
		return credit.Balance{Known: true, Granted: granted, Usage: usage, Remaining: remaining}
	}
	unlimited := credit.Balance{Known: true, Unlimited: true}
	difference := httpsource.Fields{Granted: "g", Usage: "u"}
	list := httpsource.Fields{Remaining: "balances.1.left"}
	rows := []struct {
		name   string
		fields httpsource.Fields
		status int
		body   string
		want   credit.Answer
		err    error
	}{
		{"OK", fields, 200, `{"balance":{"granted":100,"usage":60,"remaining":40},"enforced":true}`,
			credit.Answer{Balance: known(100, 60, 40), Flag: credit.FlagOn}, nil},
		{"OK exhausted", fields, 200, `{"balance":{"remaining":0},"enforced":false}`,
			credit.Answer{Balance: known(0, 0, 0), Flag: credit.FlagOff}, nil},
		{"OK overdrawn", fields, 200, `{"balance":{"remaining":-7}}`,
			credit.Answer{Balance: known(0, 0, -7)}, nil},
		{"OK unlimited without amounts", fields, 200, `{"balance":{"unlimited":true}}`,
			credit.Answer{Balance: unlimited}, nil},
		{"OK unlimited with nothing left", fields, 200, `{"balance":{"unlimited":true,"remaining":0}}`,
			credit.Answer{Balance: unlimited}, nil},
		{"OK null flags", fields, 200,
			`{"balance":{"remaining":1,"unlimited":null},"enforced":null}`,
			credit.Answer{Balance: known(0, 0, 1)}, nil},
		{"OK text", fields, 200, `{"balance":{"granted":"10","usage":"4.5","remaining":"5.5"}}`,
			credit.Answer{Balance: known(10, 5, 6)}, nil},
		{"OK a fraction left", fields, 200, `{"balance":{"remaining":0.01}}`,
			credit.Answer{Balance: known(0, 0, 1)}, nil},
		{"OK a fraction overdrawn", fields, 200, `{"balance":{"remaining":-0.01}}`,
			credit.Answer{Balance: known(0, 0, 0)}, nil},
		{"OK exponent", fields, 200, `{"balance":{"remaining":1.5e3}}`,
			credit.Answer{Balance: known(0, 0, 1500)}, nil},
		{"OK largest", fields, 200, `{"balance":{"remaining":9223372036854775807}}`,
			credit.Answer{Balance: known(0, 0, math.MaxInt64)}, nil},
		{"OK larger", fields, 200, `{"balance":{"remaining":1e999}}`,
			credit.Answer{Balance: known(0, 0, math.MaxInt64)}, nil},
		{"OK smaller", fields, 200, `{"balance":{"remaining":-1e30}}`,
			credit.Answer{Balance: known(0, 0, math.MinInt64)}, nil},
		{"OK difference", difference, 200, `{"g":10,"u":12}`,
			credit.Answer{Balance: known(10, 12, -2)}, nil},
		{"OK difference of fractions", difference, 200, `{"g":10,"u":9.5}`,
			credit.Answer{Balance: known(10, 10, 1)}, nil},
		{"OK difference that overflows", difference, 200, `{"g":9223372036854775807,"u":-1}`,
			credit.Answer{Balance: known(math.MaxInt64, -1, math.MaxInt64)}, nil},
		{"OK list", list, 200, `{"balances":[{"left":1},{"left":2}]}`,
			credit.Answer{Balance: known(0, 0, 2)}, nil},
		{"OK no such balance", fields, 404, `{"error":"no such customer"}`, credit.Answer{}, nil},

		{"ErrStatus 404 of what stands in front", fields, 404, "404 page not found\n", credit.Answer{},
			httpsource.ErrStatus},
		{"ErrStatus 404 without a body", fields, 404, "", credit.Answer{}, httpsource.ErrStatus},
		{"ErrStatus 500", fields, 500, `{"balance":{"remaining":0}}`, credit.Answer{},
			httpsource.ErrStatus},
		{"ErrStatus 401", fields, 401, `{}`, credit.Answer{}, httpsource.ErrStatus},
		{"ErrStatus 204", fields, 204, ``, credit.Answer{}, httpsource.ErrStatus},
		{"ErrStatus 302", fields, 302, ``, credit.Answer{}, httpsource.ErrStatus},
		{"ErrAnswer no JSON", fields, 200, `<html>`, credit.Answer{}, httpsource.ErrAnswer},
		{"ErrAnswer empty", fields, 200, ``, credit.Answer{}, httpsource.ErrAnswer},
		{"ErrAnswer two", fields, 200, `{"balance":{"remaining":1}}{}`, credit.Answer{},
			httpsource.ErrAnswer},
		{"ErrAnswer cut", fields, 200, `{"balance":{"remaining":1}`, credit.Answer{},
			httpsource.ErrAnswer},
		{"ErrAnswer nothing remains to be read", fields, 200, `{"balance":{"granted":5,"usage":5}}`,
			credit.Answer{}, httpsource.ErrAnswer},
		{"ErrAnswer null", fields, 200, `{"balance":{"remaining":null}}`, credit.Answer{},
			httpsource.ErrAnswer},
		{"ErrAnswer null document", fields, 200, `null`, credit.Answer{}, httpsource.ErrAnswer},
		{"ErrAnswer half a difference", difference, 200, `{"g":1}`, credit.Answer{},
			httpsource.ErrAnswer},
		{"ErrAnswer no number", fields, 200, `{"balance":{"remaining":true}}`, credit.Answer{},
			httpsource.ErrAnswer},
		{"ErrAnswer text that is no number", fields, 200, `{"balance":{"remaining":"NaN"}}`,
			credit.Answer{}, httpsource.ErrAnswer},
		{"ErrAnswer infinity", fields, 200, `{"balance":{"remaining":"-Infinity"}}`,
			credit.Answer{}, httpsource.ErrAnswer},
		{"ErrAnswer empty text", fields, 200, `{"balance":{"remaining":""}}`, credit.Answer{},
			httpsource.ErrAnswer},
		{"ErrAnswer no boolean", fields, 200, `{"balance":{"remaining":1},"enforced":"yes"}`,
			credit.Answer{}, httpsource.ErrAnswer},
		{"ErrAnswer beyond the list", list, 200, `{"balances":[{"left":1}]}`, credit.Answer{},
			httpsource.ErrAnswer},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := source(t, serve(t, says(row.status, row.body))+"/{subject}", row.fields, nil)
			got, err := s.Fetch(t.Context(), "a")
			if !errors.Is(err, row.err) || got != row.want {
				t.Errorf("got %+v and %v, want %+v and %v", got, err, row.want, row.err)
			}
		})
	}
}

// A redirect is not followed: the token is for the provider alone.
func TestRedirect(t *testing.T) {
	asked := false
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere, http.StatusFound)
	})
	s := source(t, address+"/{subject}", fields, &httpsource.Options{Token: "secret"})
	_, err := s.Fetch(t.Context(), "a")
	if !errors.Is(err, httpsource.ErrStatus) || asked {
		t.Errorf("got %v, followed: %t, want ErrStatus and not", err, asked)
	}
}

// What a provider answers does not bring the subject into an error, which is logged.
func TestRedirectNowhere(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://[bad"+r.URL.Path)
		w.WriteHeader(http.StatusFound)
	})
	_, err := source(t, address+"/{subject}", fields, nil).Fetch(t.Context(), "alice")
	if !errors.Is(err, httpsource.ErrStatus) || strings.Contains(err.Error(), "alice") {
		t.Errorf("got %v, want ErrStatus without the subject", err)
	}
}

// A body that comes a byte at a time ends with the context like one that stalls.
func TestDrip(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			io.WriteString(w, " ")
			http.NewResponseController(w).Flush()
		}
	})
	s := source(t, address+"/{subject}", fields, &httpsource.Options{MaxBody: 1 << 40})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Fetch(ctx, "a")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

func TestBodyBound(t *testing.T) {
	body := `{"r":1,"x":"` + strings.Repeat("x", 1000) + `"}`
	address := serve(t, says(200, body)) + "/{subject}"
	only := httpsource.Fields{Remaining: "r"}
	s := source(t, address, only, &httpsource.Options{MaxBody: int64(len(body))})
	_, err := s.Fetch(t.Context(), "a")
	if err != nil {
		t.Errorf("at the bound: got %v, want no error", err)
	}
	s = source(t, address, only, &httpsource.Options{MaxBody: int64(len(body)) - 1})
	_, err = s.Fetch(t.Context(), "a")
	if !errors.Is(err, httpsource.ErrTooLarge) {
		t.Errorf("above the bound: got %v, want ErrTooLarge", err)
	}
}

// A fetch ends with its context, before the answer begins and in the middle of it, and its error
// says nothing of the URL.
func TestContext(t *testing.T) {
	for name, begin := range map[string]string{"silent": "", "stalled": `{"r":`} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			address := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if begin != "" {
					io.WriteString(w, begin)
					http.NewResponseController(w).Flush()
				}
				<-done
			})
			defer close(done)
			s := source(t, address+"/{subject}?key=secret", httpsource.Fields{Remaining: "r"}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := s.Fetch(ctx, "a")
			if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want the deadline without the URL", err)
			}
		})
	}
}

// No body makes a fetch panic, and no answer comes with an error.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"balance":{"granted":1e400,"usage":"0x1p-2","remaining":-0}}`))
	f.Add([]byte(`[[[[`))
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(body)
	}))
	f.Cleanup(server.Close)
	s := source(f, server.URL+"/{subject}", fields, nil)
	f.Fuzz(func(t *testing.T, text []byte) {
		body = text
		got, err := s.Fetch(t.Context(), "a")
		if err != nil && got != (credit.Answer{}) || err == nil && !got.Balance.Known {
			t.Errorf("%q: got %+v and %v", text, got, err)
		}
	})
}
