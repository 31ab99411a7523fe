package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
	"weir/api"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

const namespace = "6f0d3c6e-7c1e-4b57-9a55-0f6f6c1f7d11"

// clock is moved by the test alone.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	elapsed time.Duration
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.elapsed += d
}

// Elapsed is the time that has passed, which no step changes.
func (c *clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// Step sets the wall clock to another time, in none.
func (c *clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// testLimits need the ledger, but for one.
//
// tidy:table the limits of all tests
func testLimits() []limiter.Limit {
	const minute, day = time.Minute, 24 * time.Hour
	limits := []limiter.Limit{
		{Name: "api-requests", Kind: limiter.RequestRate, Quota: 10, Window: minute},
		{Name: "site", Kind: limiter.RequestRate, Quota: 1000, Window: time.Hour},
		{Name: "slow", Kind: limiter.RequestRate, Quota: 1, Window: 2 * time.Second},
		{Name: "none", Kind: limiter.RequestRate, Quota: 0, Window: minute},
		{Name: "bytes", Kind: limiter.Bandwidth, Quota: 1_000_000, Window: minute},
		{Name: "most", Kind: limiter.Bandwidth, Quota: 999_999_999_999_999, Window: minute},
		{Name: "blind", Kind: limiter.RequestRate, Quota: 5, Window: minute, RemainingOff: true},
		{Name: "a", Kind: limiter.RequestRate, Quota: 1, Window: minute},
		{Name: "a:b", Kind: limiter.RequestRate, Quota: 1, Window: minute},
		{Name: "a.b", Kind: limiter.RequestRate, Quota: 1, Window: minute},
		{Name: "a_b", Kind: limiter.RequestRate, Quota: 1, Window: minute},
		{Name: "a-b", Kind: limiter.RequestRate, Quota: 1, Window: minute},
		{Name: "five", Kind: limiter.RequestRate, Quota: 5, Window: minute},
		{Name: "ten", Kind: limiter.RequestRate, Quota: 10, Window: 10 * time.Second},
		{Name: "minute", Kind: limiter.RequestRate, Quota: 60, Window: minute},
		{Name: "hundred", Kind: limiter.RequestRate, Quota: 100, Window: minute},
		{Name: "hour", Kind: limiter.RequestRate, Quota: 100, Window: time.Hour},
		{Name: "fast", Kind: limiter.RequestRate, Quota: 6000, Window: time.Second},
		{Name: "open", Kind: limiter.RequestRate, Quota: 10, Window: minute, OnFailure: limiter.Open},
		{Name: "daily-usd", Kind: limiter.TransferAmount, Asset: "USD", Quota: 100_000, Window: day},
		{Name: "no-usd", Kind: limiter.TransferAmount, Asset: "USD", Quota: 0, Window: day},
		{Name: "payments", Kind: limiter.RequestRate, Quota: 2, Window: time.Hour},
		{Name: "spend", Kind: limiter.Budget, Asset: "USD", Quota: 10_000, Window: time.Hour},
		{Name: "tokens", Kind: limiter.Budget, Quota: 100, Window: minute, CloseAt: 950_000},
		{Name: "credits", Kind: limiter.Credits, Quota: 10},
		{Name: "slots", Kind: limiter.Concurrency, Quota: 2},
		{Name: "tried", Kind: limiter.RequestRate, Quota: 1, Window: minute, Shadow: true},
		{Name: "berlin", Kind: limiter.RequestRate, Quota: 5, Align: "day", Timezone: "Europe/Berlin"},
	}
	for i := range limits {
		limits[i].Deadline = 10 * time.Second // a busy machine is not a ledger that is away
		if limits[i].OnFailure == "" {
			limits[i].OnFailure = limiter.Closed
		}
	}
	return limits
}

// testRules are the limits and what they refer to.
func testRules() limiter.Rules {
	users, tenants := []string{"User-ID"}, []string{"tenant"}
	return limiter.Rules{
		Limits: testLimits(), Assets: []limiter.Asset{{Code: "USD", Scale: 2}},
		Groups: []limiter.Group{
			{Name: "tiers", Limits: []limiter.GroupMember{
				{Limit: "five", Fields: []string{"User-ID", "tenant"}},
				{Limit: "ten", Fields: tenants}, {Limit: "tried", Fields: users},
			}},
			{Name: "spending", Limits: []limiter.GroupMember{{Limit: "spend", Fields: users}}},
			{Name: "mixed", Limits: []limiter.GroupMember{
				{Limit: "spend", Fields: users}, {Limit: "tokens", Fields: users},
			}},
		},
	}
}

// service is a server under test, on a ledger of its own.
type service struct {
	testing.TB
	clock    *clock
	ledger   *ledgertest.Faulty
	limiter  *limiter.Limiter
	server   *api.Server
	registry *prometheus.Registry
	logs     *logBuffer
	url      string
	spool    *limiter.Spool
}

// newService serves on the embedded ledger over a loopback connection.
func newService(t testing.TB, options api.Options) *service {
	t.Helper()
	c := newClock()
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{
		Now: c.Now, Elapsed: c.Elapsed, Volatile: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newServiceOn(t, ledger, c, options)
	listener := httptest.NewServer(s.server.Handler())
	t.Cleanup(listener.Close)
	s.url = listener.URL
	return s
}

// newServiceOn makes a server that does not listen.
func newServiceOn(t testing.TB, driver ledgers.Driver, c *clock, options api.Options) *service {
	t.Helper()
	s := &service{
		TB: t, clock: c, ledger: ledgertest.NewFaulty(driver), registry: prometheus.NewRegistry(),
		logs: &logBuffer{},
	}
	t.Cleanup(func() {
		err := s.ledger.Close()
		if err != nil {
			t.Error(err)
		}
	})
	options.Registry, options.Now = s.registry, c.Now
	if options.Logger == nil {
		handler := slog.NewJSONHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})
		options.Logger = slog.New(handler)
	}
	s.spool = openSpool(t)
	s.limiter = newLimiter(t, s.ledger, c, s.registry, s.spool)
	server, err := api.New(s.limiter, &options)
	if err != nil {
		t.Fatal(err)
	}
	s.server = server
	return s
}

func openSpool(t testing.TB) *limiter.Spool {
	t.Helper()
	spool, err := limiter.OpenSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { spool.Close() })
	return spool
}

func newLimiter(t testing.TB, driver ledgers.Driver, c *clock, r prometheus.Registerer,
	spool *limiter.Spool,
) *limiter.Limiter {
	t.Helper()
	id, err := accounts.ParseNamespace(namespace)
	if err != nil {
		t.Fatal(err)
	}
	book, err := accounts.NewBook(driver, id, &accounts.Options{Now: c.Now, Elapsed: c.Elapsed})
	if err != nil {
		t.Fatal(err)
	}
	limits, err := limiter.NewRules(testRules())
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, limits, &limiter.Options{Registerer: r, Spool: spool})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// answer is what a server said.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any // numbers are json.Number
}

// call makes a call. Headers are "Name: value".
func (s *service) call(method, path, body string, headers ...string) answer {
	s.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	return readAnswer(s, response)
}

func readAnswer(t testing.TB, response *http.Response) answer {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: response.StatusCode, header: response.Header, text: string(text)}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if strings.Contains(a.header.Get("Content-Type"), "json") && len(text) > 0 {
		err = d.Decode(&a.body)
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	return a
}

func (s *service) check(body string, headers ...string) answer {
	s.Helper()
	return s.call(http.MethodPost, "/v1/check", body, headers...)
}

// field digs into a body: field(b, "limits", 0, "remaining"). What is not there is "".
func (a answer) field(path ...any) string {
	var at any = a.body
	for _, step := range path {
		switch key := step.(type) {
		case string:
			object, _ := at.(map[string]any)
			at = object[key]
		case int:
			list, _ := at.([]any)
			if key >= len(list) {
				return ""
			}
			at = list[key]
		}
	}
	switch value := at.(type) {
	case nil:
		return ""
	case string:
		return value
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
}

// want compares a status and some fields, given as path and value.
func (a answer) want(t testing.TB, status int, fields ...any) {
	t.Helper()
	if a.status != status {
		t.Errorf("got status %d, want %d: %s", a.status, status, a.text)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		path, ok := fields[i].([]any)
		if !ok {
			path = []any{fields[i]}
		}
		got, want := a.field(path...), fields[i+1].(string)
		if got != want {
			t.Errorf("got %v %q, want %q in %s", path, got, want, a.text)
		}
	}
}

// wantHeader compares a header; "" wants none.
func (a answer) wantHeader(t testing.TB, name, want string) {
	t.Helper()
	got := strings.Join(a.header.Values(name), " | ")
	if got != want {
		t.Errorf("got %s %q, want %q", name, got, want)
	}
}

func TestShutdown(t *testing.T) {
	t.Run("ReadinessFirst", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			twin := ledgertest.NewTwin(func() uint64 { return uint64(c.Now().UnixNano()) })
			s := newServiceOn(t, twin, c, api.Options{Drain: 5 * time.Second})
			s.direct("GET", "/readyz", "").want(t, 200, "status", "ready")

			ended := make(chan error, 1)
			go func() { ended <- s.server.Shutdown(t.Context()) }()
			synctest.Wait()
			s.direct("GET", "/readyz", "").want(t, 503, "code", "not-ready", "ledger", "up")
			s.direct("GET", "/healthz", "").want(t, 200, "status", "ok")
			// Calls that still come are answered, and their connections end with them.
			a := s.direct("POST", "/v1/check", `{"limit":"api-requests","subject":"u"}`)
			a.want(t, 200, "allowed", "true")
			a.wantHeader(t, "Connection", "close")

			time.Sleep(4 * time.Second) // tidy:sleep the bubble's time, which costs nothing
			synctest.Wait()
			select {
			case err := <-ended:
				t.Errorf("the shutdown ended before the drain, with error %v", err)
			default:
			}
			time.Sleep(time.Second) // tidy:sleep the bubble's time, which costs nothing
			synctest.Wait()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("got error %v", err)
				}
			default:
				t.Error("the shutdown did not end with the drain")
			}
		})
	})
	t.Run("AcceptedCallsAnswered", testAcceptedCallsAnswered)
	t.Run("ErrContext", testShutdownCutOff)
}

// direct makes a call without a connection.
func (s *service) direct(method, path, body string, headers ...string) answer {
	s.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	s.server.Handler().ServeHTTP(recorder, request)
	return readAnswer(s, recorder.Result())
}

// testAcceptedCallsAnswered shuts a server down while calls wait for the ledger.
func testAcceptedCallsAnswered(t *testing.T) {
	s := newService(t, api.Options{})
	released := make(chan struct{})
	s.ledger.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, WaitBefore: ledgertest.Until(released),
		Times: ledgertest.Always,
	})
	url, served := s.listen()
	const calls = 8
	answers := make(chan int, calls)
	for range calls {
		go func() {
			response, err := http.Post(url+"/v1/check", "application/json",
				strings.NewReader(`{"limit":"api-requests","subject":"u"}`))
			if err != nil {
				t.Error(err)
				answers <- 0
				return
			}
			answers <- readAnswer(t, response).status
		}()
	}
	for s.ledger.Calls(ledgertest.CallCreateTransfers) < calls {
		waitABit()
	}
	ended := make(chan error, 1)
	go func() { ended <- s.server.Shutdown(context.Background()) }()
	for s.direct("GET", "/readyz", "").status == http.StatusOK {
		waitABit()
	}
	select {
	case err := <-ended:
		t.Fatalf("the shutdown ended with calls unanswered, with error %v", err)
	case err := <-served:
		t.Fatalf("Serve returned with calls unanswered, with error %v", err)
	default:
	}
	close(released)
	for range calls {
		status := <-answers
		if status != http.StatusOK {
			t.Errorf("got status %d, want 200", status)
		}
	}
	for _, done := range []chan error{ended, served} {
		err := <-done
		if err != nil {
			t.Errorf("got error %v, want none", err)
		}
	}
}

// testShutdownCutOff shuts down with a context that ends before the ledger answers.
func testShutdownCutOff(t *testing.T) {
	s := newService(t, api.Options{})
	released := make(chan struct{})
	s.ledger.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, WaitBefore: ledgertest.Until(released),
	})
	url, served := s.listen()
	cut := make(chan error, 1)
	go func() {
		response, err := http.Post(url+"/v1/check", "application/json",
			strings.NewReader(`{"limit":"api-requests","subject":"u"}`))
		if err == nil {
			response.Body.Close()
		}
		cut <- err
	}()
	for s.ledger.Calls(ledgertest.CallCreateTransfers) == 0 {
		waitABit()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.server.Shutdown(ctx)
	if err == nil {
		t.Error("got no error, want the context's")
	}
	if <-cut == nil {
		t.Error("the call was answered, want it cut off")
	}
	err = <-served
	if err != nil {
		t.Errorf("Serve: got error %v, want none", err)
	}
	close(released)
}

// listen serves on a loopback port until the server is shut down.
func (s *service) listen() (url string, served chan error) {
	s.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	served = make(chan error, 1)
	go func() { served <- s.server.Serve(listener) }()
	return "http://" + listener.Addr().String(), served
}

// waitABit lets other goroutines go on while a test waits for what they do.
func waitABit() {
	timer := time.NewTimer(time.Millisecond)
	<-timer.C
}

func TestServeErrListener(t *testing.T) {
	s := newService(t, api.Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	err = s.server.Serve(listener)
	if err == nil {
		t.Error("got no error from a closed listener")
	}
}

// pipes is a listener whose connections do not leave the process, so that their time-outs run on
// the time of a bubble.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestTimeouts has callers that stop in the middle.
func TestTimeouts(t *testing.T) {
	const request = "POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 40\r\n"
	tests := map[string]struct {
		sent  string
		after time.Duration
	}{
		"Headers": {request, 5 * time.Second},
		"Body":    {request + "\r\n{", 15 * time.Second},
		"Idle":    {"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n", 2 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				twin := ledgertest.NewTwin(func() uint64 { return uint64(c.Now().UnixNano()) })
				s := newServiceOn(t, twin, c, api.Options{})
				listener := pipes{make(chan net.Conn), make(chan struct{})}
				served := make(chan error, 1)
				go func() { served <- s.server.Serve(listener) }()
				here, there := net.Pipe()
				listener.connections <- there
				start := time.Now()
				go func() { _, _ = io.WriteString(here, test.sent) }()
				_, err := io.Copy(io.Discard, here) // until the server hangs up
				if err != nil {
					t.Error(err)
				}
				took := time.Since(start)
				if took < test.after || took > test.after+time.Second {
					t.Errorf("the server hung up after %v, want %v", took, test.after)
				}
				err = s.server.Shutdown(t.Context())
				if err != nil {
					t.Error(err)
				}
				err = <-served
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}
