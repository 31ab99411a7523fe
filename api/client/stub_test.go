package client_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

// inProcess makes calls to a handler without a network, so that they can be made in a bubble of
// testing/synctest, where nothing takes time but what waits.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	p.ServeHTTP(recorder, r)
	err := r.Context().Err()
	if err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

func (p inProcess) client() *http.Client { return &http.Client{Transport: p} }

// within returns a client of a handler in this process.
func within(t testing.TB, handler http.Handler, options client.Options) *client.Client {
	t.Helper()
	options.HTTPClient = inProcess{handler}.client()
	return connectWith(t, options)
}

func connectWith(t testing.TB, options client.Options) *client.Client {
	t.Helper()
	c, err := client.New("http://weir.invalid", &options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unreachable is a network on which nobody can be reached.
type unreachable struct{ calls *int }

func (u unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	*u.calls++
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

// call is one that a script was asked for.
type call struct {
	at           time.Time
	method, path string
	body         string
}

// script answers calls with one step after the other, and the last one for ever.
type script struct {
	steps []http.HandlerFunc

	mu    sync.Mutex
	calls []call
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	n := min(len(s.calls), len(s.steps)-1)
	s.calls = append(s.calls, call{time.Now(), r.Method, r.URL.Path, string(body)})
	s.mu.Unlock()
	s.steps[n](w, r)
}

// says answers with a body that is a success.
func says(answer any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { send(w, http.StatusOK, answer) }
}

func send(w http.ResponseWriter, status int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// fails answers with a problem of weir's.
func fails(code wire.Code, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		meaning, _ := wire.MeaningOf(code)
		w.Header().Set("Content-Type", wire.ProblemType)
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		send(w, meaning.Status, wire.Problem{Status: meaning.Status, Code: code, Detail: "why"})
	}
}

// denies answers a check with a denial.
func denies(d wire.Decision) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wire.ProblemType)
		send(w, http.StatusTooManyRequests, wire.Problem{
			Status: http.StatusTooManyRequests, Code: wire.CodeQuotaExceeded,
			NewIDRequired: d.NewIDRequired, Decision: &d,
		})
	}
}

// proxies answers as something in between does.
func proxies(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// hangs answers when nobody waits any more.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// idOf returns the id in the body of a call.
func idOf(t testing.TB, c call) string {
	t.Helper()
	var body struct {
		ID string `json:"id"`
	}
	err := json.Unmarshal([]byte(c.body), &body)
	if err != nil {
		t.Fatal(err)
	}
	return body.ID
}

// serverRoutes reads the list of the server's routes, as METHOD path.
func serverRoutes(t testing.TB) []string {
	t.Helper()
	source, err := os.ReadFile("../routes.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\{http\.Method(\w+), "([^"]+)"`).FindAllSubmatch(source, -1)
	var routes []string
	for _, match := range found {
		routes = append(routes, string(match[1])+" "+string(match[2]))
	}
	if len(routes) < 20 {
		t.Fatalf("found only %d routes: %q", len(routes), routes)
	}
	return routes
}
