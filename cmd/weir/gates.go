package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/limiter"
	"weir/limiter/credit"
	"weir/limiter/credit/httpsource"
	"weir/limiter/credit/ledgersource"
)

// Where a gate's balances come from, as a config names it.
const (
	sourceLedger = "ledger"
	sourceHTTP   = "http"
)

const (
	// maxGateTime bounds the times of a gate.
	maxGateTime = 365 * day
	// maxColdWait bounds how long a call with wait=true waits: a server cuts calls off after 30 s.
	maxColdWait = 25 * time.Second
	// maxGateSubjects bounds the subjects that a gate remembers; each takes some 300 bytes.
	maxGateSubjects = 10_000_000
)

// The keys of a gate, and of its provider.
var (
	gateKeys = []string{
		"limit", "source", "enforced", "always_enforced", "http", "read_budget", "stale_after",
		"debounce", "fetch_timeout", "cold_wait", "balance_ttl", "flag_ttl", "none_ttl", "max_subjects",
	}
	providerKeys = []string{
		"url", "token_env", "granted", "usage", "remaining", "unlimited", "enforced",
	}
)

// gateRule is the credit gate of a limit, as a config describes it.
type gateRule struct {
	Limit    string
	Flag     credit.Flag   // of all subjects, where the ledger is the source
	Provider *providerRule // nil where the ledger is the source
	Options  credit.Options
}

// providerRule is how a billing provider is asked.
type providerRule struct {
	URL string
	// TokenEnv names the variable that has the token: no token stands in a config.
	TokenEnv string
	Fields   httpsource.Fields
}

// parseGates reads the list of gates, which are on these limits.
func parseGates(value any, limits *limiter.Limits) ([]gateRule, error) {
	kinds := make(map[string]limiter.Limit)
	for _, l := range limits.All() {
		kinds[l.Name] = l
	}
	taken := make(map[string]bool)
	return parseList("gates", value, gateKeys, func(r *valueReader) gateRule {
		r.need("limit")
		g := parseGate(r)
		l, known := kinds[g.Limit]
		switch {
		case !known:
			r.note("limit", fmt.Errorf("%q: there is no such limit", g.Limit))
		case taken[g.Limit]:
			r.note("limit", fmt.Errorf("%q: has a gate already", g.Limit))
		case l.Shadow:
			r.note("limit", fmt.Errorf("%q: is only tried out, and a gate blocks", g.Limit))
		case g.Provider == nil && l.Kind != limiter.Credits && l.Kind != limiter.Budget:
			r.note("limit", fmt.Errorf("%q: is of kind %s: a gate with source %s is for %s and %s",
				g.Limit, l.Kind, sourceLedger, limiter.Credits, limiter.Budget))
		}
		taken[g.Limit] = true
		return g
	})
}

func parseGate(r *valueReader) gateRule {
	g := gateRule{Limit: read(r, "limit", asText)}
	switch source := read(r, "source", asSource); source {
	case sourceHTTP:
		r.need("http")
		g.Provider = parseProvider(r)
		if r.values["enforced"] != nil {
			r.note("enforced", fmt.Errorf("with source %s the provider says it: name its field by "+
				"http.enforced, or set always_enforced", sourceHTTP))
		}
	default:
		if r.values["http"] != nil {
			r.note("http", fmt.Errorf("means nothing to source %s: set source to %s, or leave it out",
				sourceLedger, sourceHTTP))
		}
		g.Flag = credit.FlagOff
		if read(r, "enforced", asSwitch) {
			g.Flag = credit.FlagOn
		}
	}
	g.Options = credit.Options{
		AlwaysEnforced: read(r, "always_enforced", asSwitch),
		ReadBudget:     read(r, "read_budget", asGateTime),
		StaleAfter:     read(r, "stale_after", asGateTime),
		Debounce:       read(r, "debounce", asGateTime),
		FetchTimeout:   read(r, "fetch_timeout", asGateTime),
		ColdWait:       read(r, "cold_wait", asGateTime),
		BalanceTTL:     read(r, "balance_ttl", asGateTime),
		FlagTTL:        read(r, "flag_ttl", asGateTime),
		NoneTTL:        read(r, "none_ttl", asGateTime),
		MaxSubjects:    read(r, "max_subjects", asSubjects),
	}
	checkGateTimes(r, &g.Options)
	return g
}

// checkGateTimes refuses times that mean nothing beside each other.
func checkGateTimes(r *valueReader, o *credit.Options) {
	stale := cmp.Or(o.StaleAfter, credit.DefaultStaleAfter)
	ttl := cmp.Or(o.BalanceTTL, credit.DefaultBalanceTTL)
	wait := cmp.Or(o.ColdWait, credit.DefaultColdWait)
	switch {
	case stale >= ttl:
		r.note("stale_after", fmt.Errorf("%v: want less than balance_ttl, %v, after which the balance "+
			"is forgotten", stale, ttl))
	case wait > maxColdWait:
		r.note("cold_wait", fmt.Errorf("%v: want at most %v, as no call takes longer", wait, maxColdWait))
	case o.FetchTimeout > wait:
		r.note("fetch_timeout", fmt.Errorf("%v: want at most cold_wait, %v, with which a fetch ends",
			o.FetchTimeout, wait))
	}
}

// parseProvider reads how the provider of a gate is asked. Neither its URL nor the name of the
// token's variable is repeated in an error: somebody may have put a secret there.
func parseProvider(r *valueReader) *providerRule {
	values, ok := r.values["http"].(map[string]any)
	if !ok {
		r.note("http", fmt.Errorf("want keys below it, as in url and remaining"))
		return &providerRule{}
	}
	below := &valueReader{at: r.at + ".http", values: values}
	below.err = checkKeys(below.at+".", values, providerKeys)
	below.need("url")
	p := &providerRule{
		URL: read(below, "url", asText), TokenEnv: read(below, "token_env", asVariable),
		Fields: httpsource.Fields{
			Granted: read(below, "granted", asText), Usage: read(below, "usage", asText),
			Remaining: read(below, "remaining", asText), Unlimited: read(below, "unlimited", asText),
			Enforced: read(below, "enforced", asText),
		},
	}
	_, err := httpsource.New(p.URL, p.Fields, nil)
	switch {
	case below.err != nil:
	case errors.Is(err, httpsource.ErrTemplate):
		below.note("url", httpsource.ErrTemplate)
	case err != nil:
		below.err = fmt.Errorf("%s: %w", below.at, err)
	}
	if r.err == nil {
		r.err = below.err // it has its path
	}
	return p
}

func asSource(value any) (string, error) {
	text, ok := value.(string)
	if !ok || text != sourceLedger && text != sourceHTTP {
		return "", fmt.Errorf("%v: want %s or %s", value, sourceLedger, sourceHTTP)
	}
	return text, nil
}

// asGateTime reads a time of a gate.
func asGateTime(value any) (time.Duration, error) {
	d, err := asDuration(value)
	if err == nil && (d < time.Millisecond || d > maxGateTime) {
		err = fmt.Errorf("%v: want 1ms to %v", d, maxGateTime)
	}
	return d, err
}

// asSubjects reads how many subjects a gate remembers.
func asSubjects(value any) (int, error) {
	n, err := asWhole(value, maxGateSubjects)
	if err == nil && n == 0 {
		err = fmt.Errorf("0: want 1 to %d", maxGateSubjects)
	}
	return int(n), err
}

// variable is how the name of a variable of the environment is written.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// asVariable reads the name of a variable of the environment.
func asVariable(value any) (string, error) {
	name, _ := value.(string)
	if !variable.MatchString(name) {
		return "", fmt.Errorf("want the name of an environment variable, and the token in that")
	}
	return name, nil
}

// printGates shows the credit gates of a config.
func printGates(out io.Writer, rules []gateRule) error {
	if len(rules) == 0 {
		return nil
	}
	var rows []string
	for _, g := range rules {
		source, enforced := sourceLedger, "no"
		switch {
		case g.Options.AlwaysEnforced:
			enforced = "always"
		case g.Provider != nil && g.Provider.Fields.Enforced != "":
			enforced = "as the provider says"
		case g.Flag == credit.FlagOn:
			enforced = "yes"
		}
		if g.Provider != nil {
			source = sourceHTTP
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s", g.Limit, source, enforced))
	}
	return printTable(out, "GATE\tSOURCE\tENFORCED", rows...)
}

// gates are the credit gates of a service, by limit.
type gates struct {
	balances   ledgersource.Balances
	log        *slog.Logger
	registerer prometheus.Registerer
	running    atomic.Pointer[map[string]runningGate]
}

type runningGate struct {
	*credit.Gate
	rule gateRule
}

// of returns the gate of a limit, nil if it has none.
func (g *gates) of(limit string) *credit.Gate { return g.all()[limit].Gate }

func (g *gates) all() map[string]runningGate {
	running := g.running.Load()
	if running == nil {
		return nil
	}
	return *running
}

// open puts the first gates in force.
func (g *gates) open(rules []gateRule) error {
	sources, err := g.sources(rules)
	if err != nil {
		return err
	}
	return g.set(rules, sources)
}

// sources opens what gates are told their balances by. It fails where a token is missing.
func (g *gates) sources(rules []gateRule) ([]credit.Source, error) {
	sources := make([]credit.Source, len(rules))
	for i, rule := range rules {
		if rule.Provider == nil {
			sources[i] = ledgersource.New(g.balances, rule.Limit, rule.Flag)
			continue
		}
		at := fmt.Sprintf("gates[%d].http", i)
		var options httpsource.Options
		if rule.Provider.TokenEnv != "" {
			options.Token = os.Getenv(rule.Provider.TokenEnv)
			if options.Token == "" {
				return nil, fmt.Errorf("%s.token_env: the variable of that name is not set", at)
			}
		}
		source, err := httpsource.New(rule.Provider.URL, rule.Provider.Fields, &options)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		sources[i] = source
	}
	return sources, nil
}

// set puts gates in force. One that is as it was goes on with what it knows; one that is another
// now begins anew.
func (g *gates) set(rules []gateRule, sources []credit.Source) error {
	old, next := g.all(), make(map[string]runningGate, len(rules))
	for _, rule := range rules {
		known, ok := old[rule.Limit]
		if ok && reflect.DeepEqual(known.rule, rule) {
			next[rule.Limit] = known
		}
	}
	for limit, gate := range old {
		if next[limit].Gate == nil {
			gate.Close() // its metrics make way; it still decides, by what it knows
		}
	}
	for i, rule := range rules {
		if next[rule.Limit].Gate != nil {
			continue
		}
		options := rule.Options
		options.Logger, options.Registerer = g.log, g.registerer
		gate, err := credit.New(rule.Limit, sources[i], &options)
		if err != nil {
			return err
		}
		next[rule.Limit] = runningGate{gate, rule}
	}
	g.running.Store(&next)
	return nil
}

// close ends what the gates have under way.
func (g *gates) close() {
	for _, gate := range g.all() {
		gate.Close()
	}
}
