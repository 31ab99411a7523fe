package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"weir/accounts"
	"weir/api"
	"weir/ledgers"
	"weir/ledgers/guard"
	"weir/limiter"
	"weir/limiter/credit"
	"weir/limiter/spend"
)

const (
	// shutdownTimeout bounds the wait for accepted calls to be answered.
	shutdownTimeout = 30 * time.Second
	// closeTimeout bounds the wait for writes that were given up, at the end.
	closeTimeout = 5 * time.Second
)

func newServeCommand() *cobra.Command {
	var insecure bool
	var logFormat string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the service",
		Long: `Run the service until SIGINT or SIGTERM. SIGHUP reads the limits anew.

When it is ready, it prints one line to standard output; logs go to standard error. Callers need the
token in ` + envToken + `, if that is set, and admins the one in ` + envAdminToken + `.`,
		Args: wantArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reloads := make(chan os.Signal, 1) // one that waits stands for all
			signal.Notify(reloads, syscall.SIGHUP)
			defer signal.Stop(reloads)
			logger, err := newLogger(cmd.ErrOrStderr(), logFormat)
			if err != nil {
				return err
			}
			c, err := configOf(cmd)
			if err != nil {
				return err
			}
			token := os.Getenv(envToken)
			if token == "" && !insecure && !isLoopback(c.Listen) {
				return fmt.Errorf("listen: %s is not loopback: set %s, or add --insecure to serve "+
					"everyone who can reach it", c.Listen, envToken)
			}
			s, err := newService(cmd.Context(), c, logger, token, os.Getenv(envAdminToken))
			if err != nil {
				return err
			}
			s.load = func() (*config, error) { return configOf(cmd) }
			return s.run(cmd.Context(), reloads, cmd.OutOrStdout())
		},
	}
	addConfigFlag(cmd)
	cmd.Flags().String("listen", "", "`host:port` to listen on (default "+defaultListen+")")
	cmd.Flags().String("data", "", "`directory` of the embedded ledger (default "+defaultData+")")
	cmd.Flags().BoolVar(&insecure, "insecure", false,
		"listen off loopback although "+envToken+" is not set")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "`format` of logs: text or json")
	return cmd
}

func newLogger(out io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, nil)), nil
	default:
		return nil, fmt.Errorf("--log-format %q: want text or json", format)
	}
}

// isLoopback reports whether only this machine can reach an address to listen on.
func isLoopback(listen string) bool {
	address, err := net.ResolveTCPAddr("tcp", listen)
	return err == nil && address.IP != nil && address.IP.IsLoopback()
}

// service is a running weir, from the ledger at the bottom to the listener on top.
type service struct {
	config   *config
	log      *slog.Logger
	driver   ledgers.Driver // of the ledger, for watchLedger
	ledger   *guard.Guard   // around the driver, for all others
	deadline time.Duration  // of a call to the ledger
	book     *accounts.Book
	spool    *limiter.Spool
	limiter  *limiter.Limiter
	gates    gates
	spend    *spend.Breaker
	server   *api.Server
	listener net.Listener
	// registry has all metrics, spooled only those of the limiter, which are quicker to read alone.
	registry, spooled *prometheus.Registry
	// assets are all that were ever in force, by code, and assetsChecked whether the ledger has said
	// that the money which it has is theirs.
	assets        map[string]limiter.Asset
	assetsChecked atomic.Bool
	// load reads the config anew.
	load         func() (*config, error)
	reloadFailed prometheus.Gauge
}

// newService builds a service bottom up. If it cannot be whole, what was opened is closed.
func newService(ctx context.Context, c *config, logger *slog.Logger, token, adminToken string,
) (*service, error) {
	s := &service{
		config: c, log: logger, registry: prometheus.NewRegistry(), spooled: prometheus.NewRegistry(),
		assets: make(map[string]limiter.Asset),
	}
	s.deadline = longestDeadline(c.Limits)
	s.keepAssets(c.Limits)
	s.reloadFailed = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_config_reload_failed",
		Help: "1 if the config was unsound when it was last read anew, so that older rules hold.",
	})
	s.registry.MustRegister(s.reloadFailed, s.spooled, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	s.driver, err = c.Driver.open(c, logger, s.registry)
	if err != nil {
		return nil, err
	}
	s.ledger, err = guard.New(s.driver, &guard.Options{
		Deadline: s.deadline, Name: c.Driver.describe(c), Logger: logger, Registerer: s.registry,
	})
	if err != nil {
		return nil, errors.Join(err, s.driver.Close())
	}
	err = s.build(ctx, token, adminToken)
	if err != nil {
		s.gates.close()
		return nil, errors.Join(err, s.spool.Close(), closeLedger(s.ledger, logger))
	}
	return s, nil
}

// longestDeadline is the longest that any limit waits for the ledger. No call is waited for longer,
// those that are for no request included.
func longestDeadline(limits *limiter.Limits) time.Duration {
	deadline := guard.DefaultDeadline
	for _, l := range limits.All() {
		deadline = max(deadline, l.Deadline)
	}
	return deadline
}

// build builds what stands on the ledger.
func (s *service) build(ctx context.Context, token, adminToken string) error {
	var err error
	shared := s.config.Driver.shared
	s.book, err = accounts.NewBook(s.ledger, s.config.Namespace, &accounts.Options{
		Shared: shared, Differs: s.newDiffers(),
	})
	if err != nil {
		return err
	}
	s.spool, err = limiter.OpenSpool(filepath.Join(s.config.Data, "spool"))
	if errors.Is(err, limiter.ErrSpoolInUse) {
		return fmt.Errorf("data: %w: every weir needs a directory of its own", err)
	}
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	s.limiter, err = limiter.New(s.book, s.config.Limits, &limiter.Options{
		Lag: s.config.Driver.lag, Shared: shared, Spool: s.spool, Logger: s.log,
		Registerer: s.spooled,
	})
	if err != nil {
		return err
	}
	err = s.checkFirstAssets(ctx)
	if err != nil {
		return err
	}
	s.gates.balances, s.gates.log, s.gates.registerer = s.limiter, s.log, s.registry
	err = s.gates.open(s.config.Gates)
	if err != nil {
		return err
	}
	s.spend, err = spend.New(s.limiter, s.config.Spend, &spend.Options{Registerer: s.registry})
	if err != nil {
		return err
	}
	s.server, err = api.New(s.limiter, &api.Options{
		Token: token, AdminToken: adminToken, Ready: s.ledger.Ready, LedgerUp: s.ledger.Up,
		Gate: s.gates.of, Spend: s.spend, Registry: s.registry, Logger: s.log, Drain: s.config.Drain,
	})
	if err != nil {
		return err
	}
	var listening net.ListenConfig
	s.listener, err = listening.Listen(ctx, "tcp", s.config.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

// address is where the service listens.
func (s *service) address() string { return "http://" + s.listener.Addr().String() }

// run serves until the context ends or a part fails, which stops the others. Then, top down, it
// turns readiness off, answers what it accepted and closes the ledger.
func (s *service) run(ctx context.Context, reloads <-chan os.Signal, out io.Writer) error {
	var group run.Group
	var cutOff error
	group.Add(func() error { return s.server.Serve(s.listener) }, func(error) {
		s.log.Info("shutting down")
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx),
			s.config.Drain+shutdownTimeout)
		defer cancel()
		cutOff = s.server.Shutdown(late)
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Add(func() error { s.reloadOn(ctx, reloads); return nil }, func(error) { stop() })
	group.Add(func() error { return s.watchLedger(ctx) }, func(error) { stop() })
	group.Add(func() error { s.upkeep(ctx); return nil }, func(error) { stop() })
	group.Add(func() error { s.spend.Run(ctx); return nil }, func(error) { stop() })
	group.Add(func() error { return s.announce(ctx, out) }, func(error) { stop() })
	err := group.Run()
	return errors.Join(err, cutOff, s.close())
}

// announce says that the service is ready, once the ledger was reached or has had its time.
func (s *service) announce(ctx context.Context, out io.Writer) error {
	s.reachLedger(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // told to end before it was ready
	}
	_, err := fmt.Fprintf(out, "weir ready on %s, ledger %s\n", s.address(),
		s.config.Driver.describe(s.config))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// close finishes what the limiter has left to do, and closes what stands below it.
func (s *service) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.gates.close()
	s.spend.Close(ctx)
	err := s.limiter.Close(ctx)
	if err != nil {
		s.log.Warn("the ledger may still take charges that were given up, and nobody gives them back: "+
			"they stand until their window is over; those of credits for good",
			"cause", err)
	}
	return errors.Join(s.spool.Close(), closeLedger(s.ledger, s.log))
}

// reloadOn reads the config anew whenever it is told to, until the context ends.
func (s *service) reloadOn(ctx context.Context, reloads <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-reloads:
			s.reload()
		}
	}
}

// reload puts the limits of the config in force. If it is unsound, the limits stay what they are.
func (s *service) reload() {
	var sources []credit.Source
	next, err := s.load()
	if err == nil {
		err = s.checkReload(next)
	}
	if err == nil {
		sources, err = s.gates.sources(next.Gates)
	}
	if err != nil {
		s.reloadFailed.Set(1)
		s.log.Error("the config was not read anew, the old limits hold", "error", err)
		return
	}
	s.keepAssets(next.Limits)
	s.limiter.SetLimits(next.Limits) // before the gates, which read them, and the budgets
	s.spend.SetPlan(next.Spend)
	err = s.gates.set(next.Gates, sources)
	if err != nil {
		s.reloadFailed.Set(1)
		s.log.Error("the gates were not made anew", "error", err)
		return
	}
	s.reloadFailed.Set(0)
	s.log.Info("the config was read anew", "limits", len(next.Limits.All()))
}

// keepAssets remembers assets, also those that a later config leaves out.
func (s *service) keepAssets(limits *limiter.Limits) {
	for _, a := range limits.Assets() {
		s.assets[a.Code] = a
	}
}

// checkReload refuses limits that the ledger as it was opened cannot serve, and warns of settings
// that a running process does not change.
func (s *service) checkReload(next *config) error {
	for _, l := range next.Limits.All() {
		if s.config.Retention > 0 && l.Longest() > s.config.Retention {
			return fmt.Errorf("transfers are kept for %v, which is shorter than %s: restart weir to "+
				"keep them longer", s.config.Retention, span(l))
		}
	}
	for _, a := range next.Limits.Assets() {
		known, ok := s.assets[a.Code]
		if ok && known != a {
			return fmt.Errorf("asset %q: its scale and its ledger never change: they say what the money "+
				"is that there is", a.Code)
		}
	}
	err := s.checkAssets(context.Background(), next.Limits) // the guard bounds it
	if err != nil {
		return err
	}
	if deadline := longestDeadline(next.Limits); deadline > s.deadline {
		return fmt.Errorf("a limit's deadline, %v, is longer than the ledger is waited for, %v: "+
			"restart weir to wait longer", deadline, s.deadline)
	}
	old := s.config
	if next.Listen != old.Listen || next.Data != old.Data || next.Namespace != old.Namespace ||
		next.Retention != old.Retention || next.Drain != old.Drain ||
		next.Driver.describe(next) != old.Driver.describe(old) {
		s.log.Warn("settings other than revision and rules change with a restart only")
	}
	return nil
}
