// Package api is the HTTP face of weir. It holds no policy: a handler reads a request strictly,
// makes one call to the limiter and writes what it said, in the words of package wire.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"weir/limiter"
	"weir/limiter/credit"
	"weir/limiter/spend"
)

// What a connection may take.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second // headers and body
	writeTimeout      = 30 * time.Second // from the end of the headers to the end of the answer
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// Options change how a [Server] works. The zero value serves everyone, without the admin's routes.
type Options struct {
	// Token, if set, is required on every /v1 route that is not the admin's.
	Token string
	// AdminToken opens /v1/admin; without one these routes answer 403.
	AdminToken string
	// Ready says whether the ledger was reached since the start; nil means always.
	Ready func() bool
	// LedgerUp says whether the ledger answers now; nil means always. While it does not, the server
	// is unready only if no limit can be answered by policy.
	LedgerUp func() bool
	// Gate returns the credit gate of a limit, nil for one that has none. nil means that none has.
	Gate func(limit string) *credit.Gate
	// Spend authorizes and settles calls on spend budgets; nil means that there are none.
	Spend *spend.Breaker
	// Registry takes the server's metrics and is what /metrics shows; nil means one of its own.
	Registry *prometheus.Registry
	// Logger takes a line for each call: at level debug for successes and denials, info for what
	// callers did wrong, error for what weir could not do. Never a token, a subject or an id. nil
	// logs nothing.
	Logger *slog.Logger
	// Drain is how long a server that is shut down goes on taking connections, so that those who
	// send it calls can notice that it is no longer ready.
	Drain time.Duration
	// Now is the clock by which calls are timed; nil means time.Now.
	Now func() time.Time
}

// Server answers HTTP calls with what a limiter decides.
//
// Handler alone is enough to serve calls by other means. Serve takes connections until Shutdown,
// which first turns readiness off, then stops taking connections, and returns when every call that
// was accepted has been answered.
type Server struct {
	limiter *limiter.Limiter
	options Options
	log     *slog.Logger
	metrics metrics
	user    gate
	admin   gate

	echo     *echo.Echo
	http     *http.Server
	draining atomic.Bool
	reported atomic.Int64 // when an outage was last logged, in nanoseconds since 1970
	stop     sync.Once
	stopped  chan struct{}
}

// New returns a server for a limiter. Options may be nil. It fails if the registry already has
// metrics of these names.
func New(l *limiter.Limiter, options *Options) (*Server, error) {
	s := &Server{limiter: l, stopped: make(chan struct{})}
	if options != nil {
		s.options = *options
	}
	if s.options.Ready == nil {
		s.options.Ready = func() bool { return true }
	}
	if s.options.LedgerUp == nil {
		s.options.LedgerUp = func() bool { return true }
	}
	if s.options.Gate == nil {
		s.options.Gate = func(string) *credit.Gate { return nil }
	}
	if s.options.Now == nil {
		s.options.Now = time.Now
	}
	if s.options.Registry == nil {
		s.options.Registry = prometheus.NewRegistry()
	}
	s.log = s.options.Logger
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.options.Spend == nil {
		s.options.Spend, err = noSpend(l)
		if err != nil {
			return nil, err
		}
	}
	s.metrics, err = newMetrics(s.options.Registry)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s.user, s.admin = newGate(s.options.Token), newGate(s.options.AdminToken)
	s.echo = s.router()
	s.http = &http.Server{
		Handler:           s.echo,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(connectionLog{s.log}, "", 0),
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	return s, nil
}

// Handler answers calls without a listener of its own.
func (s *Server) Handler() http.Handler { return s.echo }

// Serve answers calls on the listener until [Server.Shutdown] is called and has finished, and
// returns nil then. It closes the listener. Any other end is an error.
func (s *Server) Serve(listener net.Listener) error {
	err := s.http.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-s.stopped
		return nil
	}
	return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
}

// Shutdown turns readiness off, waits for Options.Drain, stops taking connections and waits until
// every accepted call is answered. If the context ends before, what is left is cut off and the
// context's error is returned. Only the first call does anything; later ones return nil at its end.
func (s *Server) Shutdown(ctx context.Context) error {
	var err error
	s.stop.Do(func() {
		defer close(s.stopped)
		s.draining.Store(true)
		drain := time.NewTimer(s.options.Drain)
		defer drain.Stop()
		select {
		case <-drain.C:
		case <-ctx.Done():
		}
		err = s.http.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, s.http.Close())
		}
	})
	return err
}

// connectionLog takes what net/http has to say of connections that did not become calls.
type connectionLog struct{ log *slog.Logger }

// Write logs one line.
func (c connectionLog) Write(line []byte) (int, error) {
	c.log.Debug("connection", "message", string(line))
	return len(line), nil
}
