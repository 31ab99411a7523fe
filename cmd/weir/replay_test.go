package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var accessLog = filepath.Join("testdata", "access.log")

// replayed runs `weir replay --json` and reads its report.
func replayed(t testing.TB, args ...string) replayReport {
	t.Helper()
	command := []string{"replay", "--config", shipped, "--json"}
	return decodeReport(t, weir(t, append(command, args...)...))
}

func decodeReport(t testing.TB, got outcome) replayReport {
	t.Helper()
	if got.status != 0 {
		t.Fatalf("got exit status %d: %s", got.status, got.err)
	}
	var report replayReport
	decoder := json.NewDecoder(strings.NewReader(got.out))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&report)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// The figures were worked out by another program, which keeps a queue of what each address took.
func TestReplayRealTraffic(t *testing.T) {
	rows := []struct {
		name  string
		args  []string
		want  replayReport
		first replayDenied
	}{
		{"RequestRate", []string{"--limit", "api-requests"},
			replayReport{Lines: 5000, Subjects: 965, Allowed: 4203, Denied: 797},
			replayDenied{"198.18.0.96", 219}},
		{"Bandwidth", []string{"--limit", "egress", "--quota", "1000000", "--by", "ip"},
			replayReport{Lines: 5000, Subjects: 965, Allowed: 4757, Denied: 160, CostExceedsQuota: 83},
			replayDenied{"198.18.1.71", 25}},
		{"Hour", []string{"--limit", "api-requests", "--quota", "30", "--window", "3600s"},
			replayReport{Lines: 5000, Subjects: 965, Allowed: 4732, Denied: 268},
			replayDenied{"198.18.0.96", 146}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := replayed(t, append(row.args, accessLog)...)
			if len(got.Top) != 10 || got.Top[0] != row.first {
				t.Errorf("got top %v, want ten, the first of them %v", got.Top, row.first)
			}
			got.Top = nil
			if fmt.Sprint(got) != fmt.Sprint(row.want) {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

// Subjects refused equally often stand by name, whatever they were refused for.
func TestReplayTopTies(t *testing.T) {
	got := replayed(t, "--limit", "egress", "--quota", "1MB", accessLog).Top
	want := "[{198.18.1.71 25} {198.18.0.96 24} {198.18.1.120 24} {198.18.0.79 14} " +
		"{198.18.3.37 12} {198.18.3.93 11} {198.18.0.0 10} {198.18.0.189 10} {198.18.3.190 10} " +
		"{198.18.3.47 10}]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// line is a line of a log, some seconds after noon.
func line(ip string, second, size int) string {
	at := time.Date(2026, time.May, 17, 12, 0, second, 0, time.UTC)
	return fmt.Sprintf(`%s - - [%s] "GET / HTTP/1.1" 200 %d`, ip,
		at.Format("02/Jan/2006:15:04:05 -0700"), size) + "\n"
}

func replayText(t testing.TB, text string, args ...string) replayReport {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return replayed(t, append(args, path)...)
}

// tidy:table one row for each rule of a replay's clock and costs
func TestReplayRules(t *testing.T) {
	requests := []string{"--limit", "api-requests", "--quota", "2", "--window", "60s"}
	bytes := []string{"--limit", "egress", "--quota", "1000", "--window", "60s"}
	rows := []struct {
		name                    string
		args                    []string
		text                    string
		allowed, denied, exceed uint64
	}{
		{"FreeOneWindowLater", requests,
			line("a", 0, 1) + line("a", 0, 1) + line("a", 59, 1) + line("a", 60, 1) + line("a", 60, 1) +
				line("a", 60, 1), 4, 2, 0},
		{"ManyLinesOfOneSecond", requests,
			strings.Repeat(line("a", 0, 1), 500) + line("b", 0, 1) + line("a", 60, 1), 4, 498, 0},
		{"EarlierStampAtLatest", requests, // the two of second 0 are judged at second 30
			line("b", 30, 1) + line("a", 0, 1) + line("a", 0, 1) + line("a", 60, 1) + line("a", 90, 1),
			4, 1, 0},
		{"DeniedCostsNothing", bytes,
			line("a", 0, 600) + line("a", 1, 600) + line("a", 2, 400) + line("a", 60, 600), 3, 1, 0},
		{"CostAboveQuota", bytes, line("a", 0, 1001) + line("a", 0, 1000), 1, 0, 1},
		{"CostZeroPasses", bytes, line("a", 0, 1000) + line("a", 1, 0) + line("a", 1, 1), 2, 1, 0},
		{"CostBeyondAllQuotas", bytes,
			strings.Replace(line("a", 0, 77), " 77", " 9000000000000000000", 1) + line("a", 0, 1), 1, 0, 1},
		{"QuotaZero", []string{"--limit", "egress", "--quota", "0"},
			line("a", 0, 1) + line("a", 0, 0), 1, 1, 0},
		{"Year1970", requests,
			strings.ReplaceAll(strings.Repeat(line("a", 0, 1), 3), "17/May/2026:12", "01/Jan/1970:00"),
			2, 1, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := replayText(t, row.text, row.args...)
			if got.Allowed != row.allowed || got.Denied != row.denied ||
				got.CostExceedsQuota != row.exceed {
				t.Errorf("got %d allowed, %d denied, %d above the quota, want %d, %d, %d", got.Allowed,
					got.Denied, got.CostExceedsQuota, row.allowed, row.denied, row.exceed)
			}
		})
	}
}

func TestReplayNothing(t *testing.T) {
	got := weir(t, "replay", "--config", shipped, "--limit", "api-requests", "--json")
	want := `{"lines":0,"unparsed":0,"subjects":0,"allowed":0,"denied":0,` +
		`"cost_exceeds_quota":0,"top":[]}` + "\n"
	if got.status != 0 || got.out != want {
		t.Errorf("got %d, %s, want 0, %s", got.status, got.out, want)
	}
}

// Lines that cannot be parsed are counted, the first few shown, and never fatal.
func TestReplayUnparsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	err := os.WriteFile(path, []byte(strings.Repeat("nonsense\n", 20)+line("a", 0, 1)), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	got := weir(t, "replay", "--config", shipped, "--limit", "api-requests", "--json", path)
	report := decodeReport(t, got)
	if report.Unparsed != 20 || report.Lines != 1 || report.Allowed != 1 {
		t.Errorf("got %+v, want 20 unparsed and 1 line, allowed", report)
	}
	if shown := strings.Count(got.err, "\n"); shown != shownUnparsed {
		t.Errorf("got %d lines shown, want %d:\n%s", shown, shownUnparsed, got.err)
	}
	if !strings.Contains(got.err, path+" line 1: ") {
		t.Errorf("got %q, want it to name the place of the first", got.err)
	}
}

func TestReplayCompressedStandardInput(t *testing.T) {
	text, err := os.ReadFile(accessLog)
	if err != nil {
		t.Fatal(err)
	}
	var packed, out, errOut bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(text)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	status := runCommand(t.Context(),
		[]string{"replay", "--config", shipped, "--limit", "api-requests", "--json", "-"},
		&packed, &out, &errOut)
	report := decodeReport(t, outcome{status, out.String(), errOut.String()})
	if report.Allowed != 4203 {
		t.Errorf("got %+v, want 4203 allowed as from the plain file", report)
	}
}

func TestReplayProgress(t *testing.T) {
	text := strings.Repeat(line("a", 0, 0), progressEvery)
	path := filepath.Join(t.TempDir(), "access.log")
	err := os.WriteFile(path, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	got := weir(t, "replay", "--config", shipped, "--limit", "egress", path)
	if want := "100000 lines, up to 2026-05-17T12:00:00Z: 100000 allowed\n"; got.err != want {
		t.Errorf("got progress %q, want %q", got.err, want)
	}
}

func TestReplayTable(t *testing.T) {
	got := weir(t, "replay", "--config", shipped, "--limit", "api-requests", accessLog)
	for _, want := range []string{"allowed             4203\n", "198.18.0.96   219\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("got\n%s\nwant it to contain %q", got.out, want)
		}
	}
}

// A replay leaves nothing behind.
func TestReplayThrowsLedgerAway(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	replayed(t, "--limit", "api-requests", accessLog)
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Errorf("got %v, %v in the directory for temporary files, want nothing", left, err)
	}
}

func TestReplayRefuses(t *testing.T) {
	rows := []struct {
		name string
		args []string
		want string
	}{
		{"ErrNoLimit", []string{accessLog}, `"limit" not set`},
		{"ErrUnknownLimit", []string{"--limit", "b", accessLog}, `no limit "b"`},
		{"ErrBy", []string{"--limit", "egress", "--by", "user", accessLog}, `--by "user": want ip`},
		{"ErrQuota", []string{"--limit", "egress", "--quota", "lots", accessLog}, `--quota: "lots"`},
		{"ErrWindow", []string{"--limit", "egress", "--window", "60", accessLog},
			"--window: 60: has no unit"},
		{"ErrWindowZero", []string{"--limit", "egress", "--window", "0", accessLog},
			"--window: 0s: want 1 s"},
		{"ErrNoFile", []string{"--limit", "egress", "nowhere.log"}, "nowhere.log"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := weir(t, append([]string{"replay", "--config", shipped}, row.args...)...)
			if got.status != exitError || !strings.Contains(got.err, row.want) {
				t.Errorf("got %d, %q, want 2 and %q", got.status, got.err, row.want)
			}
		})
	}
}
