package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"weir/accounts"
	"weir/limiter"
	"weir/limiter/spend"
)

// What holds where neither the config nor the environment nor a flag says otherwise.
const (
	defaultConfig    = "./weir.yaml"
	defaultListen    = "127.0.0.1:8080"
	defaultData      = "./weir-data"
	defaultDrain     = "500ms"
	defaultRetention = 30 * day

	// defaultNamespace is that of every embedded ledger. Ids are derived from it, so it never
	// changes; only deployments that share a ledger need others.
	defaultNamespace = "6f1c3b5e-9d0a-4f6b-8c55-7e2d1a904b37"

	day = 24 * time.Hour
	// maxDrain bounds how long an end may be put off.
	maxDrain = 10 * time.Minute
	// maxConfigBytes bounds the config file.
	maxConfigBytes = 1 << 20
)

// The environment beside the settings of the config, which are WEIR_LISTEN, WEIR_DATA and so on.
// Tokens come from nowhere else, so that none stands in a file or in a list of processes.
const (
	envPrefix     = "WEIR"
	envConfig     = "WEIR_CONFIG"
	envServer     = "WEIR_SERVER"
	envToken      = "WEIR_TOKEN"
	envAdminToken = "WEIR_ADMIN_TOKEN"
)

// The keys of the config.
var (
	configKeys = []string{
		"listen", "data", "drain", "ledger", "namespace", "revision", "retention",
		"assets", "limits", "groups", "gates", "spend",
	}
	ledgerKeys = []string{"driver", "cluster", "addresses"}
	// settings are the keys that the environment and flags may override.
	settings = []string{
		"listen", "data", "drain", "ledger.driver", "ledger.cluster", "ledger.addresses",
		"namespace", "revision", "retention",
	}
)

// config is a config that was found to be sound.
type config struct {
	Path      string        // of the file
	Listen    string        // host:port
	Data      string        // directory of an embedded ledger, and of what waits for any ledger
	Drain     time.Duration // how long calls are taken after readiness is off
	Driver    driver
	Cluster   cluster // with a driver that needs one
	Namespace accounts.Namespace
	Retention time.Duration   // how long transfers are kept; 0 keeps all
	Limits    *limiter.Limits // those of the spend budgets included
	Gates     []gateRule
	Spend     *spend.Plan
	Models    []spend.Model // of the plan
}

// loadConfig reads the config from a file, from the environment and from flags, of which the last
// count most; flags may be nil. Nothing is overlooked: a key that is not known, a limit that cannot
// be, a number that is not exact is an error, which names the key's path.
func loadConfig(path string, flags *pflag.FlagSet) (*config, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	file, err := parseYAML(text)
	if err != nil {
		return nil, &unsoundError{path, err}
	}
	c, err := parseConfig(file, flags)
	if err != nil {
		return nil, &unsoundError{path, err}
	}
	c.Path = path
	return c, nil
}

// unsoundError says what is wrong with a config that was read.
type unsoundError struct {
	path  string
	cause error
}

// Error names the file and the cause.
func (e *unsoundError) Error() string { return fmt.Sprintf("config %s: %v", e.path, e.cause) }

// Unwrap returns the cause.
func (e *unsoundError) Unwrap() error { return e.cause }

// readConfig returns the text of the file. Its errors say nothing about whether it is sound.
func readConfig(path string) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no config %s: make one, or name it by --config", path)
	}
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from: nothing to lose
	text, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxConfigBytes {
		return nil, &unsoundError{path, fmt.Errorf("is longer than %d bytes", maxConfigBytes)}
	}
	return text, nil
}

// parseConfig makes a config of the values of a file, the environment and flags.
func parseConfig(file map[string]any, flags *pflag.FlagSet) (*config, error) {
	err := checkAllKeys(file)
	if err != nil {
		return nil, err
	}
	s, err := newSettingReader(file, flags)
	if err != nil {
		return nil, err
	}
	c := &config{Listen: s.text("listen"), Data: s.text("data"), Drain: s.duration("drain")}
	if c.Drain < 0 || c.Drain > maxDrain {
		s.note("drain", fmt.Errorf("%v: want 0 to %v", c.Drain, maxDrain))
	}
	c.readLedger(s)
	namespace := s.text("namespace")
	revision := s.whole("revision", 1<<32-1)
	retention := s.duration("retention")
	if s.err != nil {
		return nil, s.err
	}
	c.Namespace, err = accounts.ParseNamespace(namespace)
	if err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	_, err = net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %q: want host:port, as in %s", c.Listen, defaultListen)
	}
	c.Spend, c.Models, err = parseSpend(file["spend"])
	if err != nil {
		return nil, err
	}
	c.Limits, err = parseRules(file, uint32(revision), c.Spend)
	if err != nil {
		return nil, err
	}
	c.Gates, err = parseGates(file["gates"], c.Limits)
	if err != nil {
		return nil, err
	}
	if c.Driver.keepsAll {
		return c, nil
	}
	c.Retention, err = retentionFor(retention, s.given("retention"), c.Limits)
	if err != nil {
		return nil, err
	}
	for _, b := range c.Spend.Budgets() { // what is noted of a call is wanted when it ends
		if c.Retention > 0 && c.Retention < b.Hold {
			return nil, fmt.Errorf("retention: %v is shorter than the hold of spend budget %q, %v",
				c.Retention, b.Name, b.Hold)
		}
	}
	return c, nil
}

// retentionFor returns how long transfers are kept: at least as long as the longest window or
// period, since what is taken stands in them.
func retentionFor(wanted time.Duration, given bool, limits *limiter.Limits) (time.Duration, error) {
	var longest limiter.Limit
	for _, l := range limits.All() {
		if l.Longest() > longest.Longest() {
			longest = l
		}
	}
	switch {
	case !given:
		return max(defaultRetention, longest.Longest()), nil
	case wanted < 0:
		return 0, fmt.Errorf("retention: %v: want a positive duration, or 0 to keep all", wanted)
	case wanted > 0 && wanted < longest.Longest():
		return 0, fmt.Errorf("retention: %v is shorter than %s", wanted, span(longest))
	}
	return wanted, nil
}

// span says how long what is taken from a limit may stay taken.
func span(l limiter.Limit) string {
	if l.Align == "" {
		return fmt.Sprintf("the window of limit %q, %v", l.Name, l.Window)
	}
	return fmt.Sprintf("the longest %s of limit %q, for which %v are kept", l.Align, l.Name,
		l.Longest())
}

// settingReader reads the settings that stand alone. It remembers the first error.
type settingReader struct {
	v   *viper.Viper
	err error
}

func newSettingReader(file map[string]any, flags *pflag.FlagSet) (*settingReader, error) {
	v := viper.New()
	v.SetEnvPrefix(envPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	for _, key := range settings {
		err := v.BindEnv(key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if flags == nil || flags.Lookup(key) == nil {
			continue
		}
		err = v.BindPFlag(key, flags.Lookup(key))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	alone := maps.Clone(file)
	for _, list := range []string{"assets", "limits", "groups", "gates", "spend"} {
		delete(alone, list) // viper would change the case of keys in them
	}
	err := v.MergeConfigMap(alone)
	if err != nil {
		return nil, err
	}
	return &settingReader{v: v}, nil
}

// given reports whether a setting is made anywhere.
func (s *settingReader) given(key string) bool { return s.v.IsSet(key) }

// get returns a setting, or its default.
func (s *settingReader) get(key string) any {
	defaults := map[string]any{
		"listen": defaultListen, "data": defaultData, "drain": defaultDrain,
		"ledger.driver": driverEmbedded, "namespace": defaultNamespace, "revision": "0", "retention": "0",
	}
	if !s.given(key) {
		return defaults[key]
	}
	return s.v.Get(key)
}

// note keeps an error, with the variable that the value came from if it was one.
func (s *settingReader) note(key string, err error) {
	if err == nil || s.err != nil {
		return
	}
	variable := envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	if os.Getenv(variable) != "" {
		err = fmt.Errorf("%w (%s is set)", err, variable)
	}
	s.err = fmt.Errorf("%s: %w", key, err)
}

func (s *settingReader) text(key string) string {
	text, err := asText(s.get(key))
	s.note(key, err)
	return text
}

func (s *settingReader) whole(key string, most uint64) uint64 {
	n, err := asWhole(s.get(key), most)
	s.note(key, err)
	return n
}

func (s *settingReader) duration(key string) time.Duration {
	d, err := asDuration(s.get(key))
	s.note(key, err)
	return d
}

// checkAllKeys checks the keys of a config but for those in its lists.
func checkAllKeys(file map[string]any) error {
	err := checkKeys("", file, configKeys)
	if err != nil {
		return err
	}
	ledger, given := file["ledger"]
	if !given {
		return nil
	}
	keys, ok := ledger.(map[string]any)
	if !ok {
		return fmt.Errorf("ledger: want keys below it, as in driver: %s", driverEmbedded)
	}
	return checkKeys("ledger.", keys, ledgerKeys)
}

// checkKeys refuses keys that are not known or have no value. Keys are told apart by case, unlike
// viper's, so that of two spellings none is lost.
func checkKeys(parent string, values map[string]any, known []string) error {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		switch {
		case !slices.Contains(known, key):
			return fmt.Errorf("%s%s: no such key: want one of %s",
				parent, key, strings.Join(known, ", "))
		case values[key] == nil:
			return fmt.Errorf("%s%s: has no value", parent, key)
		}
	}
	return nil
}
