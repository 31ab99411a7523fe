package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"weir/limiter"
)

// wants returns what the first lines of a config say of it: "# want: ...".
func wants(t testing.TB, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var list []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		want, ok := strings.CutPrefix(lines.Text(), "# want: ")
		if !ok {
			break
		}
		list = append(list, want)
	}
	if len(list) == 0 {
		t.Fatalf("%s: does not begin with a line # want: ...", path)
	}
	return list
}

func configFiles(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "config", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: found no files (%v)", pattern, err)
	}
	return files
}

// Every busted file is one way to be wrong, and says with what words it is refused.
func TestConfigBusted(t *testing.T) {
	for _, path := range configFiles(t, "busted_*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := loadConfig(path, nil)
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range []string{path, wants(t, path)[0]} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

// Every working file is one way to be right, and says what limits it makes.
func TestConfigWorking(t *testing.T) {
	for _, path := range configFiles(t, "working_*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c := mustLoad(t, path, nil)
			var got []string
			for _, l := range c.Limits.All() {
				remaining := "on"
				if l.RemainingOff {
					remaining = "off"
				}
				line := fmt.Sprintf("%s %s %d %v %s", l.Name, l.Kind, l.Quota, l.Window, remaining)
				if l.OnFailure != limiter.Open || l.Deadline != 250*time.Millisecond {
					line += fmt.Sprintf(" %s %v", l.OnFailure, l.Deadline)
				}
				if l.Align != "" {
					line += fmt.Sprintf(" by %s in %q", l.Align, l.Timezone)
				}
				if l.CloseAt > 0 {
					line += fmt.Sprintf(" closes at %d", l.CloseAt)
				}
				if l.Asset != "" {
					line += " of " + l.Asset
				}
				if l.Shadow {
					line += " in the shadow"
				}
				got = append(got, line)
			}
			for _, g := range c.Limits.Groups() {
				var members []string
				for _, m := range g.Limits {
					members = append(members, fmt.Sprintf("%s by %v", m.Limit, m.Fields))
				}
				got = append(got, "group "+g.Name+" of "+strings.Join(members, " and "))
			}
			for _, g := range c.Gates {
				got = append(got, describeGate(g))
			}
			got = append(got, describeSpend(c)...)
			want := wants(t, path)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got limits\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// describeSpend says all that a config says of what calls may spend and cost.
func describeSpend(c *config) []string {
	var lines []string
	for _, b := range c.Spend.Budgets() {
		lines = append(lines, fmt.Sprint("spend ", b.Name, " ", b.Tokens, " ", b.USD, " ", b.CloseAt,
			" ", b.Hold))
	}
	for _, m := range c.Models {
		lines = append(lines, fmt.Sprint("model ", m.Name, " ", m.Number, " ", m.Input, " ", m.Output,
			" ", m.Cached))
	}
	return lines
}

// describeGate says all that a config says of a gate.
func describeGate(g gateRule) string {
	line := "gate " + g.Limit + " by ledger"
	if g.Provider != nil {
		line = fmt.Sprintf("gate %s by %s with %s, %v", g.Limit, g.Provider.URL, g.Provider.TokenEnv,
			g.Provider.Fields)
	}
	line += fmt.Sprintf(", flag %d", g.Flag)
	o := g.Options
	if o.AlwaysEnforced {
		line += " always"
	}
	if o.ReadBudget > 0 {
		line += fmt.Sprint(", ", o.ReadBudget, " ", o.StaleAfter, " ", o.Debounce, " ", o.FetchTimeout,
			" ", o.ColdWait, " ", o.BalanceTTL, " ", o.FlagTTL, " ", o.NoneTTL, " ", o.MaxSubjects)
	}
	return line
}

func mustLoad(t testing.TB, path string, flags *pflag.FlagSet) *config {
	t.Helper()
	c, err := loadConfig(path, flags)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigDefaults(t *testing.T) {
	c := mustLoad(t, filepath.Join("testdata", "config", "working_plain.yaml"), nil)
	got := fmt.Sprintln(c.Listen, c.Driver.describe(c), c.Retention)
	want := "127.0.0.1:8080 embedded in ./weir-data 720h0m0s\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The default retention gives way to a longer window: what is taken stands in the transfers kept.
func TestConfigDefaultRetentionHoldsLongestWindow(t *testing.T) {
	path := filepath.Join("testdata", "config", "working_durations.yaml")
	got := mustLoad(t, path, nil).Retention
	if got != 4294967295*time.Second {
		t.Errorf("got %v, want that of the longest window, 4294967295 s", got)
	}
}

func TestConfigEverything(t *testing.T) {
	c := mustLoad(t, filepath.Join("testdata", "config", "working_everything.yaml"), nil)
	got := fmt.Sprintln(c.Listen, c.Driver.describe(c), c.Retention, c.Limits.All()[0].Ledger)
	want := "[::1]:9090 embedded in /var/lib/weir 48h0m0s 4294967295\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What says where a TigerBeetle is comes from the file or, all of it, from the environment.
func TestConfigTigerBeetle(t *testing.T) {
	want := func(path, want string) {
		t.Helper()
		c := mustLoad(t, path, nil)
		got := c.Driver.describe(c)
		if got != want || !c.Driver.shared || c.Retention != 0 {
			t.Errorf("%s: got %q, shared %t, retention %v, want %q, shared, and that all is kept", path,
				got, c.Driver.shared, c.Retention, want)
		}
	}
	large := "340282366920938463463374607431768211455"
	configs := filepath.Join("testdata", "config")
	want(filepath.Join(configs, "working_tigerbeetle.yaml"),
		"tigerbeetle cluster 0 at 127.0.0.1:3001")
	want(filepath.Join(configs, "working_tigerbeetle_text.yaml"),
		"tigerbeetle cluster "+large+" at 127.0.0.1:3001,[::1]:3002")
	want(filepath.Join(configs, "working_tigerbeetle_large.yaml"),
		"tigerbeetle cluster "+large+" at 127.0.0.1:3001")
	plain := filepath.Join(configs, "working_plain.yaml")
	t.Setenv("WEIR_LEDGER_CLUSTER", "7")
	wantError(t, plain, "ledger.cluster: means nothing", "WEIR_LEDGER_CLUSTER is set")
	t.Setenv("WEIR_LEDGER_DRIVER", "tigerbeetle")
	wantError(t, plain, "ledger.addresses: is missing")
	t.Setenv("WEIR_LEDGER_ADDRESSES", "10.0.0.1:3000,10.0.0.2:3000")
	wantError(t, plain, "namespace: is missing")
	t.Setenv("WEIR_NAMESPACE", "0d4ac4b8-6a0b-4f4c-8a53-0f6f3e1a2b4c")
	t.Setenv("WEIR_REVISION", "0")
	want(plain, "tigerbeetle cluster 7 at 10.0.0.1:3000,10.0.0.2:3000")
	t.Setenv("WEIR_LEDGER_ADDRESSES", "tigerbeetle:3000")
	wantError(t, plain, "ledger.addresses: tigerbeetle:3000: want an IP address",
		"WEIR_LEDGER_ADDRESSES is set")
}

// A flag counts more than the environment, and that more than the file.
func TestConfigPrecedence(t *testing.T) {
	path := filepath.Join("testdata", "config", "working_everything.yaml")
	t.Setenv("WEIR_LISTEN", "127.0.0.1:1")
	t.Setenv("WEIR_DATA", "/env")
	t.Setenv("WEIR_RETENTION", "72h")
	t.Setenv("WEIR_LEDGER_DRIVER", "embedded")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("listen", "", "")
	flags.String("data", "", "")
	err := flags.Parse([]string{"--listen", "127.0.0.1:2"})
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, path, flags)
	got := fmt.Sprintln(c.Listen, c.Data, c.Retention)
	if want := "127.0.0.1:2 /env 72h0m0s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConfigErrors(t *testing.T) {
	plain := filepath.Join("testdata", "config", "working_plain.yaml")
	t.Run("ErrAbsent", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		wantError(t, path, "there is no config "+path, "--config")
	})
	t.Run("ErrDirectory", func(t *testing.T) {
		wantError(t, t.TempDir(), "is a directory")
	})
	t.Run("ErrTooLong", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		err := os.WriteFile(path, []byte(strings.Repeat("# a comment\n", maxConfigBytes/12+1)), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, path, path, "longer than 1048576 bytes")
	})
	t.Run("ErrEnvironment", func(t *testing.T) {
		t.Setenv("WEIR_REVISION", "two")
		wantError(t, plain, "revision: two: want a whole number", "WEIR_REVISION")
	})
}

func wantError(t testing.TB, path string, wants ...string) {
	t.Helper()
	_, err := loadConfig(path, nil)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got error %q, want it to contain %q", err, want)
		}
	}
}

// The example that ships is sound and has the limits that it is known for.
func TestConfigShipped(t *testing.T) {
	c := mustLoad(t, filepath.Join("..", "..", "weir.yaml"), nil)
	found := map[string]string{}
	for _, l := range c.Limits.All() {
		found[l.Name] = fmt.Sprintf("%s %d %v", l.Kind, l.Quota, l.Window)
	}
	for name, want := range map[string]string{
		"api-requests": "request-rate 10 1m0s",
		"egress":       "bandwidth 10000000 1m0s",
	} {
		if found[name] != want {
			t.Errorf("limit %s: got %q, want %q", name, found[name], want)
		}
	}
}
