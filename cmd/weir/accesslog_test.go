package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// tidy:table one row for each oddity that access logs are known to hold
func TestParseAccessLine(t *testing.T) {
	noon := time.Date(2015, time.May, 17, 10, 5, 3, 0, time.UTC)
	const stamp = "[17/May/2015:10:05:03 +0000]"
	rows := []struct {
		name string
		line string
		want accessLine
	}{
		// The two formats as servers write them.
		{"Common", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.0" 200 2326`,
			accessLine{"192.0.2.1", noon, 2326}},
		{"Combined", `192.0.2.1 - frank ` + stamp +
			` "GET /a.gif HTTP/1.0" 200 2326 "http://example.com/start" "Mozilla/4.08 [en]"`,
			accessLine{"192.0.2.1", noon, 2326}},
		{"CombinedAndMore", `192.0.2.1 - - ` + stamp +
			` "GET / HTTP/1.1" 200 612 "-" "curl/8" "203.0.113.9" 0.001 upstream`,
			accessLine{"192.0.2.1", noon, 612}},
		{"AgentCutOff", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 612 "-" "Mozil`,
			accessLine{"192.0.2.1", noon, 612}},

		// Clients.
		{"IPv6", `2001:db8::8a2e:370:7334 - - ` + stamp + ` "GET / HTTP/1.1" 200 5`,
			accessLine{"2001:db8::8a2e:370:7334", noon, 5}},
		{"IPv6Zone", `fe80::1%eth0 - - ` + stamp + ` "GET / HTTP/1.1" 200 5`,
			accessLine{"fe80::1%eth0", noon, 5}},
		{"HostName", `crawl-66-249-66-1.Example.com - - ` + stamp + ` "GET / HTTP/1.1" 200 5`,
			accessLine{"crawl-66-249-66-1.Example.com", noon, 5}},

		// Users, who choose what is written here.
		{"UserWithSpaces", `192.0.2.1 - John Q. Doe ` + stamp + ` "GET / HTTP/1.1" 200 5`,
			accessLine{"192.0.2.1", noon, 5}},
		{"UserWithBrackets", `192.0.2.1 - a[b] [c ` + stamp + ` "GET / HTTP/1.1" 200 5`,
			accessLine{"192.0.2.1", noon, 5}},
		{"UserWithStampAndRequest", `192.0.2.1 - [01/Jan/2001:00:00:00 +0000] \"GET /\" 200 9 ` +
			stamp + ` "GET / HTTP/1.1" 200 5`, accessLine{"192.0.2.1", noon, 5}},
		{"UserEmptyQuotes", `192.0.2.1 - "" ` + stamp + ` "GET / HTTP/1.1" 200 5`,
			accessLine{"192.0.2.1", noon, 5}},

		// Requests, which may be anything.
		{"RequestMissing", `192.0.2.1 - - ` + stamp + ` "-" 408 -`, accessLine{"192.0.2.1", noon, 0}},
		{"RequestEmpty", `192.0.2.1 - - ` + stamp + ` "" 400 0`, accessLine{"192.0.2.1", noon, 0}},
		{"RequestTLS", `192.0.2.1 - - ` + stamp + ` "\x16\x03\x01\x02\x00\x01" 400 226`,
			accessLine{"192.0.2.1", noon, 226}},
		{"RequestTLSRaw", "192.0.2.1 - - " + stamp + " \"\x16\x03\x01\x00\xff\xfe\" 400 226",
			accessLine{"192.0.2.1", noon, 226}},
		{"RequestEscapedQuotes", `192.0.2.1 - - ` + stamp + ` "GET /\" 200 99 \"x HTTP/1.1" 404 7`,
			accessLine{"192.0.2.1", noon, 7}},
		{"RequestEndsInBackslash", `192.0.2.1 - - ` + stamp + ` "GET /\\" 404 7`,
			accessLine{"192.0.2.1", noon, 7}},
		{"RequestPlainQuotes", `192.0.2.1 - - ` + stamp + ` "GET /?q="a" b HTTP/1.1" 404 7 "-" "x"`,
			accessLine{"192.0.2.1", noon, 7}},
		{"RequestWithTab", "192.0.2.1 - - " + stamp + " \"GET\t/a\tHTTP/1.1\" 404 7",
			accessLine{"192.0.2.1", noon, 7}},
		{"BetweenTabs", "192.0.2.1\t-\t-\t" + stamp + "\t\"GET / HTTP/1.1\"\t200\t7\t\"-\"",
			accessLine{"192.0.2.1", noon, 7}},

		// Sizes.
		{"SizeDash", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 304 - "-" "x"`,
			accessLine{"192.0.2.1", noon, 0}},
		{"SizeLeadingZeros", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 ` +
			strings.Repeat("0", 40) + `7`, accessLine{"192.0.2.1", noon, 7}},
		{"SizeLargest", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 9223372036854775808`,
			accessLine{"192.0.2.1", noon, 9223372036854775808}},
		{"StatusDash", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" - 12`,
			accessLine{"192.0.2.1", noon, 12}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseAccessLine(row.line)
			if err != nil {
				t.Fatalf("parse %q: %v", row.line, err)
			}
			if got != row.want {
				t.Errorf("parse %q: got %+v, want %+v", row.line, got, row.want)
			}
		})
	}
}

// tidy:table one row for each way in which a line can be wrong
func TestParseAccessLineRefuses(t *testing.T) {
	const stamp = "[17/May/2015:10:05:03 +0000]"
	const tail = ` "GET / HTTP/1.1" 200 5`
	rows := []struct{ name, line string }{
		{"Empty", ""},
		{"JSON", `{"client":"192.0.2.1","time":"` + stamp + `","request":"GET /","status":200}`},
		{"AddressMissing", ` - - ` + stamp + tail},
		{"AddressDash", `- - - ` + stamp + tail},
		{"AddressList", `192.0.2.1, 192.0.2.2 - - ` + stamp + tail},
		{"AddressControl", "192.0.2.1\x00 - - " + stamp + tail},
		{"AddressQuoted", `"192.0.2.1" - - ` + stamp + tail},
		{"AddressTooLong", strings.Repeat("a", 256) + ` - - ` + stamp + tail},
		{"StampMissing", `192.0.2.1 - -` + tail},
		{"StampISO", `192.0.2.1 - - [2015-05-17T10:05:03+00:00]` + tail},
		{"StampNoZone", `192.0.2.1 - - [17/May/2015:10:05:03]` + tail},
		{"StampNoDigit", `192.0.2.1 - - [1x/May/2015:10:05:03 +0000]` + tail},
		{"StampNotClosed", `192.0.2.1 - - [17/May/2015:10:05:03 +0000 ` + tail},
		{"RequestNotQuoted", `192.0.2.1 - - ` + stamp + ` GET / HTTP/1.1 200 5`},
		{"CutInStamp", `192.0.2.1 - - [17/May/20`},
		{"CutAfterStamp", `192.0.2.1 - - ` + stamp},
		{"CutInRequest", `192.0.2.1 - - ` + stamp + ` "GET /`},
		{"CutInEscape", `192.0.2.1 - - ` + stamp + ` "GET /\`},
		{"CutAfterRequest", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1"`},
		{"CutInStatus", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 20`},
		{"SizeMissing", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200`},
		{"SizeMissingBlank", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 `},
		{"SizeMissingCombined", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 "-" "Mozilla"`},
		{"SizeNegative", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 -5`},
		{"SizeSigned", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 +5`},
		{"SizeFraction", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 1.5`},
		{"SizeExponent", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 1e3`},
		{"SizeOver", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 9223372036854775809`},
		{"SizeWraps", `192.0.2.1 - - ` + stamp + ` "GET / HTTP/1.1" 200 18446744073709551617`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseAccessLine(row.line)
			if err == nil {
				t.Fatalf("parse %q: got %+v, want an error", row.line, got)
			}
			if got != (accessLine{}) {
				t.Errorf("parse %q: got %+v beside an error, want nothing", row.line, got)
			}
			if len(err.Error()) > 300 {
				t.Errorf("parse %q: the error has %d bytes", row.line, len(err.Error()))
			}
		})
	}
}

// The wanted times are seconds since 1970 as `date -u -d … +%s` prints them; -1 is refused.
func TestParseAccessLineTime(t *testing.T) {
	rows := []struct {
		stamp string
		want  int64
	}{
		{"17/May/2015:10:05:03 +0000", 1431857103},
		{"17/May/2015:10:05:03 -0000", 1431857103},
		{"17/May/2015:10:05:03 -0700", 1431882303},
		{"17/May/2015:10:05:03 +0530", 1431837303},
		{"01/Jan/2016:00:30:00 +0100", 1451604600},
		{"31/Dec/2015:23:59:59 -0330", 1451618999},

		// Every month, by its English name only.
		{"31/Jan/2023:00:00:00 +0000", 1675123200},
		{"28/Feb/2023:00:00:00 +0000", 1677542400},
		{"31/Mar/2023:00:00:00 +0000", 1680220800},
		{"30/Apr/2023:00:00:00 +0000", 1682812800},
		{"31/May/2023:00:00:00 +0000", 1685491200},
		{"30/Jun/2023:00:00:00 +0000", 1688083200},
		{"31/Jul/2023:00:00:00 +0000", 1690761600},
		{"31/Aug/2023:00:00:00 +0000", 1693440000},
		{"30/Sep/2023:00:00:00 +0000", 1696032000},
		{"31/Oct/2023:00:00:00 +0000", 1698710400},
		{"30/Nov/2023:00:00:00 +0000", 1701302400},
		{"31/Dec/2023:00:00:00 +0000", 1703980800},
		{"17/may/2015:10:05:03 +0000", -1},
		{"17/MAY/2015:10:05:03 +0000", -1},
		{"17/anF/2015:10:05:03 +0000", -1},
		{"17/Mai/2015:10:05:03 +0000", -1},

		// A leap second is the second after it.
		{"31/Dec/2016:23:59:60 +0000", 1483228800},
		{"30/Jun/2015:16:59:60 -0700", 1435708800},
		{"31/Dec/2016:23:59:61 +0000", -1},

		// Days, hours, minutes and zones that do not exist; years out of range.
		{"29/Feb/2024:00:00:00 +0000", 1709164800},
		{"29/Feb/2023:00:00:00 +0000", -1},
		{"31/Apr/2023:00:00:00 +0000", -1},
		{"00/May/2023:00:00:00 +0000", -1},
		{"32/May/2023:00:00:00 +0000", -1},
		{"17/May/2015:24:00:00 +0000", -1},
		{"17/May/2015:10:60:00 +0000", -1},
		{"17/May/2015:10:05:03 +2400", -1},
		{"17/May/2015:10:05:03 +0060", -1},
		{"17/May/2015:10:05:03  0000", -1},
		{"01/Jan/1970:00:00:00 +0000", 0},
		{"01/Jan/1970:00:00:00 +0100", -1},
		{"31/Dec/1969:23:59:59 +0000", -1},
		{"31/Dec/2261:23:59:59 +0000", 9214646399},
		{"01/Jan/2262:00:00:00 +0000", -1},
	}
	for _, row := range rows {
		t.Run(row.stamp, func(t *testing.T) {
			line, err := parseAccessLine("192.0.2.1 - - [" + row.stamp + `] "GET /" 200 5`)
			if row.want == -1 {
				if err == nil {
					t.Fatalf("got %s, want an error", line.Time)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if line.Time.Unix() != row.want || line.Time.Location() != time.UTC {
				t.Errorf("got %d (%s), want %d", line.Time.Unix(), line.Time, row.want)
			}
		})
	}
}

// The figures were taken from the file with awk and sort.
func TestAccessEntriesRealLog(t *testing.T) {
	const (
		wantLines     = 5000
		wantAddresses = 965
		wantBytes     = 1312869333
	)
	wantFirst := time.Date(2015, time.May, 17, 10, 5, 0, 0, time.UTC)
	wantLast := time.Date(2015, time.May, 19, 3, 5, 59, 0, time.UTC)

	lines, sum := 0, uint64(0)
	addresses := map[string]bool{}
	first, last := wantLast, wantFirst
	for entry, err := range accessEntries([]string{"testdata/access.log"}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if entry.Err != nil {
			t.Fatalf("line %d: %v", entry.Line, entry.Err)
		}
		lines++
		if entry.Line != lines || entry.File != "testdata/access.log" {
			t.Fatalf("got place %s:%d, want line %d", entry.File, entry.Line, lines)
		}
		sum += entry.Bytes
		addresses[entry.IP] = true
		if entry.Time.Before(first) {
			first = entry.Time
		}
		if entry.Time.After(last) {
			last = entry.Time
		}
	}
	if lines != wantLines || len(addresses) != wantAddresses || sum != wantBytes {
		t.Errorf("got %d lines, %d addresses, %d bytes; want %d, %d, %d",
			lines, len(addresses), sum, wantLines, wantAddresses, wantBytes)
	}
	if !first.Equal(wantFirst) || !last.Equal(wantLast) {
		t.Errorf("got %s to %s, want %s to %s", first, last, wantFirst, wantLast)
	}
}

// logLine is a good line whose byte count tells it from others.
func logLine(size string) string {
	return `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 ` + size
}

// compressed returns text as one gzip member.
func compressed(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// readEntries collects what accessEntries yields, as file:line:bytes or file:line:unparsed, with
// the files' directory left out.
func readEntries(t testing.TB, files []string, stdin io.Reader) ([]string, error) {
	t.Helper()
	var got []string
	for entry, err := range accessEntries(files, stdin) {
		if err != nil {
			return got, err
		}
		outcome := strconv.FormatUint(entry.Bytes, 10)
		if entry.Err != nil {
			outcome = "unparsed"
		}
		got = append(got, filepath.Base(entry.File)+":"+strconv.Itoa(entry.Line)+":"+outcome)
	}
	return got, nil
}

// tidy:table one row for each way in which lines end and files begin
func TestAccessEntriesLines(t *testing.T) {
	long := logLine("5") + ` "` + strings.Repeat("x", 64<<10)
	rows := []struct {
		name, input, want string
	}{
		{"Empty", "", ""},
		{"OneLine", logLine("1") + "\n", "-:1:1"},
		{"NoLineEnd", logLine("1") + "\n" + logLine("2"), "-:1:1 -:2:2"},
		{"CRLF", logLine("1") + "\r\n" + logLine("2") + "\r\n", "-:1:1 -:2:2"},
		{"CRAtTheEnd", logLine("1") + "\r", "-:1:1"},
		{"EmptyLinesCount", "\n\r\n \t\n" + logLine("1") + "\n\n", "-:4:1"},
		{"UnparsedGoesOn", "what?\n" + logLine("2") + "\n", "-:1:unparsed -:2:2"},
		{"LastLineCut", logLine("1") + "\n192.0.2.1 - - [17/Ma", "-:1:1 -:2:unparsed"},
		{"TooLong", logLine("1") + "\n" + long + "\n" + logLine("3"), "-:1:1 -:2:unparsed -:3:3"},
		{"TooLongLast", logLine("1") + "\n" + long, "-:1:1 -:2:unparsed"},
		{"TooLongByFar", strings.Repeat("x", 1<<20) + "\n" + logLine("2"), "-:1:unparsed -:2:2"},
		{"LongestFits", long[:64<<10] + "\r\n" + logLine("2"), "-:1:5 -:2:2"},
		{"OneByteTooLong", long[:64<<10+1] + "\n" + logLine("2"), "-:1:unparsed -:2:2"},
		{"Gzip", compressed(t, logLine("1")+"\n"+logLine("2")), "-:1:1 -:2:2"},
		{"GzipMembers", compressed(t, logLine("1")+"\n") + compressed(t, logLine("2")), "-:1:1 -:2:2"},
		{"GzipEmpty", compressed(t, ""), ""},
		{"GzipTooLong", compressed(t, long+"\n"+logLine("2")), "-:1:unparsed -:2:2"},
		{"OneByteOfMagic", "\x1f", "-:1:unparsed"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := readEntries(t, nil, iotest.HalfReader(strings.NewReader(row.input)))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, " ") != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestAccessEntriesFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		err := os.WriteFile(path, []byte(content), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain.log", logLine("1")+"\n"+logLine("2"))
	packed := write("packed.log", compressed(t, logLine("3")+"\n")) // told by content, not by name
	named := write("named.log.gz", logLine("4")+"\n")               // and not the other way round
	torn := write("torn.gz", compressed(t, logLine("5")+"\n")[:40])
	noHeader := write("noheader.gz", "\x1f\x8b")
	missing := filepath.Join(dir, "missing.log")

	t.Run("OK", func(t *testing.T) {
		got, err := readEntries(t, []string{plain, packed, "-", named}, strings.NewReader(logLine("9")))
		want := "plain.log:1:1 plain.log:2:2 packed.log:1:3 -:1:9 named.log.gz:1:4"
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})
	t.Run("ErrNotExist", func(t *testing.T) {
		got, err := readEntries(t, []string{plain, missing, packed}, nil)
		if len(got) != 2 || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %q, %v; want the two lines before the missing file and its error", got, err)
		}
	})
	t.Run("ErrDirectory", func(t *testing.T) {
		got, err := readEntries(t, []string{dir}, nil)
		if len(got) != 0 || err == nil {
			t.Errorf("got %q, %v; want an error", got, err)
		}
	})
	t.Run("ErrGzipTorn", func(t *testing.T) {
		_, err := readEntries(t, []string{torn}, nil)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "torn.gz") {
			t.Errorf("got %v, want an unexpected end of torn.gz", err)
		}
	})
	t.Run("ErrGzipHeader", func(t *testing.T) {
		_, err := readEntries(t, []string{noHeader}, nil)
		if err == nil {
			t.Error("got no error, want one")
		}
	})
	t.Run("ErrRead", func(t *testing.T) {
		broken := errors.New("broken pipe")
		input := io.MultiReader(strings.NewReader(logLine("1")+"\n"), iotest.ErrReader(broken))
		got, err := readEntries(t, nil, input)
		if len(got) != 1 || !errors.Is(err, broken) {
			t.Errorf("got %q, %v; want one line and the read error", got, err)
		}
	})
	t.Run("StopsEarly", func(t *testing.T) {
		seen := 0
		for _, err := range accessEntries([]string{plain, missing}, nil) {
			if err != nil {
				t.Fatal(err)
			}
			seen++
			break
		}
		if seen != 1 {
			t.Errorf("got %d entries, want 1", seen)
		}
	})
}

// However long a line is, it must not be held in memory.
func TestAccessEntriesMemory(t *testing.T) {
	const size = 64 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := readEntries(t, nil, io.LimitReader(endless('x'), size))
	runtime.ReadMemStats(&after)
	if err != nil || strings.Join(got, " ") != "-:1:unparsed" {
		t.Fatalf("got %q, %v; want one unparsed line", got, err)
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 1<<20 {
		t.Errorf("allocated %d bytes for a line of %d, want at most 1 MiB", allocated, size)
	}
}

// endless reads as its byte for ever.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// twinPattern is the slow and plain way to read a line: obviously right, and only for tests. The
// parser may find less than it in a line that holds several stamps, and never anything else.
var twinPattern = regexp.MustCompile(`(?s)^[ \t]*([A-Za-z0-9.:_%\[\]-]+)[ \t].*?` +
	`\[(\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\][ \t]*"(?:[^\\]|\\.)*?"` +
	`[ \t]+(?:\d{3}|-)[ \t]+(\d+|-)(?:[ \t]|$)`)

func FuzzParseAccessLine(f *testing.F) {
	const stamp = "[17/May/2015:10:05:03 +0000]"
	f.Add(logLine("5") + ` "-" "Mozilla/5.0"`)
	f.Add(`::1 - a [b] ` + stamp + ` "GET /\" 200 1" 304 -`)
	f.Add(`h - ` + stamp + stamp + ` "a" b" 200 18446744073709551615`)
	f.Add("192.0.2.1\t-\t-\t[31/Dec/2016:23:59:60 -0730]\t\"\x16\x03\xff\"\t-\t7\t")
	f.Fuzz(func(t *testing.T, line string) {
		got, err := parseAccessLine(line)
		if err != nil {
			return
		}
		match := twinPattern.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("parse %q: got %+v, want an error", line, got)
		}
		if got.IP != match[1] {
			t.Errorf("parse %q: got address %q, want %q", line, got.IP, match[1])
		}
		at, known := twinTime(match[2])
		if !known { // the twin stopped at something that only looks like a stamp
			return
		}
		if !got.Time.Equal(at) {
			t.Errorf("parse %q: got time %s, want %s", line, got.Time, at)
		}
		want := uint64(0)
		if match[3] != "-" {
			want, err = strconv.ParseUint(match[3], 10, 64)
		}
		if err != nil || got.Bytes != want || want > 1<<63 {
			t.Errorf("parse %q: got %d bytes, want %s (%v)", line, got.Bytes, match[3], err)
		}
	})
}

// twinTime reads a stamp with the standard library, which knows no leap second.
func twinTime(stamp string) (time.Time, bool) {
	leap := time.Duration(0)
	if stamp[18:20] == "60" {
		stamp = stamp[:18] + "59" + stamp[20:]
		leap = time.Second
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", stamp)
	zoneExists := stamp[22:24] < "24" && stamp[24:26] < "60"
	at = at.Add(leap)
	return at, err == nil && zoneExists && at.Unix() >= 0 && at.Year() < 2262
}

func BenchmarkParseAccessLine(b *testing.B) {
	line := logLine("203023") + ` "-" "Mozilla/5.0 (X11; Linux x86_64)"`
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := parseAccessLine(line)
		if err != nil {
			b.Fatal(err)
		}
	}
}
