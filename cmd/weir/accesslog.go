package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"
)

const (
	// maxAccessLineBytes bounds one line of a log without its line end. A longer one is passed over.
	maxAccessLineBytes = 64 << 10
	// maxAddressBytes bounds a client's address: the longest a DNS name can be.
	maxAddressBytes = 255
	// maxResponseBytes bounds a byte count: 2^63, more than any one response can have carried.
	maxResponseBytes = 1 << 63
	// maxStampYear is the last whole year that 64 bits of nanoseconds since 1970 can count.
	maxStampYear = 2261
	// maxExcerptBytes bounds what an error quotes of a line that may hold anything.
	maxExcerptBytes = 40

	// stdinName is the file name that stands for standard input.
	stdinName = "-"
	// stampLayout shows the form of a time stamp; every digit has its fixed place in it.
	stampLayout = "17/May/2015:10:05:03 +0000"
	monthNames  = "JanFebMarAprMayJunJulAugSepOctNovDec"
	gzipMagic   = "\x1f\x8b"
)

// accessLine is what a line of an access log says about a request.
type accessLine struct {
	IP    string    // the client: an address or, where the server looked it up, a host name
	Time  time.Time // when the server noted the request, in UTC
	Bytes uint64    // of the response's body; 0 where the log has "-"
}

// accessEntry is a line with the place it came from. Err says why the line could not be parsed;
// only the place is set then.
type accessEntry struct {
	accessLine
	File string // as it was named, "-" for standard input
	Line int    // from 1, empty lines counted
	Err  error
}

// accessEntries reads the lines of files, in order; "-", and no file at all, is stdin. A file may
// be compressed by gzip whatever its name: its first bytes tell. Empty lines are passed over. A
// line that cannot be parsed is an entry with Err set and does not end the sequence; a file that
// cannot be read does, as an error. Memory does not grow with the input.
func accessEntries(files []string, stdin io.Reader) iter.Seq2[accessEntry, error] {
	if len(files) == 0 {
		files = []string{stdinName}
	}
	return func(yield func(accessEntry, error) bool) {
		for _, name := range files {
			more, err := readAccessFile(name, stdin, yield)
			if err != nil {
				yield(accessEntry{File: name}, fmt.Errorf("read access log %s: %w", name, err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// readAccessFile yields the lines of one file and reports whether the reader wants more.
func readAccessFile(
	name string, stdin io.Reader, yield func(accessEntry, error) bool,
) (bool, error) {
	raw := stdin
	if name != stdinName {
		file, err := os.Open(name)
		if err != nil {
			return false, err
		}
		defer func() { _ = file.Close() }() // only read from: nothing to lose
		raw = file
	}
	lines, err := unpacked(raw)
	if err != nil {
		return false, err
	}
	for number := 1; ; number++ {
		text, fits, err := readBoundedLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		atEnd := err != nil
		entry := accessEntry{File: name, Line: number}
		switch {
		case !fits:
			entry.Err = fmt.Errorf("line is longer than %d bytes", maxAccessLineBytes)
		case len(bytes.TrimSpace(text)) == 0:
			if atEnd {
				return true, nil
			}
			continue
		default:
			entry.accessLine, entry.Err = parseAccessLine(string(text))
		}
		if !yield(entry, nil) {
			return false, nil
		}
		if atEnd {
			return true, nil
		}
	}
}

// unpacked returns a reader of the text in r, which may be compressed, with room for one line.
func unpacked(r io.Reader) (*bufio.Reader, error) {
	const lineEnd = len("\r\n")
	plain := bufio.NewReaderSize(r, maxAccessLineBytes+lineEnd)
	magic, err := plain.Peek(len(gzipMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(magic) != gzipMagic {
		return plain, nil
	}
	text, err := gzip.NewReader(plain)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(text, maxAccessLineBytes+lineEnd), nil
}

// readBoundedLine returns the next line without its end, and whether it fits the bound; one that
// does not is read to its end and dropped. The text is good until the next read. With the last
// line, which may be empty, comes io.EOF.
func readBoundedLine(r *bufio.Reader) ([]byte, bool, error) {
	text, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		return nil, false, err
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	text = bytes.TrimSuffix(text, []byte("\r"))
	if len(text) > maxAccessLineBytes {
		return nil, false, err
	}
	return text, true, err
}

// parseAccessLine reads a line in the common or the combined log format:
//
//	address ident user [stamp] "request" status bytes "referer" "agent" more
//
// It is strict about what it returns and lenient about the rest: the user may hold spaces and
// brackets, the request may be anything, and what follows the byte count is not looked at. The
// address is the first field, so a log that begins with the virtual host has to lose that first.
func parseAccessLine(line string) (accessLine, error) {
	ip, rest, err := cutAddress(line)
	if err != nil {
		return accessLine{}, err
	}
	at, rest, err := cutStamp(rest)
	if err != nil {
		return accessLine{}, err
	}
	size, err := cutByteCount(rest)
	if err != nil {
		return accessLine{}, err
	}
	n, err := parseByteCount(size)
	if err != nil {
		return accessLine{}, err
	}
	// A copy, so that a caller who keeps the address does not keep the whole line.
	return accessLine{IP: strings.Clone(ip), Time: at, Bytes: n}, nil
}

// cutAddress takes the first field. It must look like an address or a host name, so that a list
// of addresses or a line of another format is not taken for a client.
func cutAddress(line string) (string, string, error) {
	ip, rest := cutField(line)
	if ip == "" || ip == "-" {
		return "", "", fmt.Errorf("line begins with no client address: %s", excerpt(line))
	}
	if len(ip) > maxAddressBytes {
		return "", "", fmt.Errorf("client address is longer than %d bytes", maxAddressBytes)
	}
	for i := range len(ip) {
		if !isAddressByte(ip[i]) {
			return "", "", fmt.Errorf("client address %s is none", excerpt(ip))
		}
	}
	return ip, rest, nil
}

// isAddressByte reports whether c may stand in an IPv4 or IPv6 address (with zone, port or
// brackets) or a host name.
func isAddressByte(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		strings.IndexByte(".:-_%[]", c) >= 0
}

// cutStamp finds the time stamp and returns what follows the quote that opens the request. A user
// name may hold brackets, even a stamp, but servers escape a quote in it; so the stamp is the first
// that a quote follows.
func cutStamp(text string) (time.Time, string, error) {
	rest := text
	for {
		start := strings.IndexByte(rest, '[')
		if start < 0 {
			break
		}
		rest = rest[start+1:]
		if len(rest) <= len(stampLayout) || rest[len(stampLayout)] != ']' {
			continue
		}
		request := strings.TrimLeft(rest[len(stampLayout)+1:], " \t")
		if !strings.HasPrefix(request, `"`) {
			continue
		}
		at, ok := parseStamp(rest[:len(stampLayout)])
		if ok {
			return at, request[1:], nil
		}
	}
	return time.Time{}, "", fmt.Errorf(
		"no time stamp like [%s] before a quoted request: %s", stampLayout, excerpt(text))
}

// parseStamp reads a stamp of the form of stampLayout. Second 60 is a leap second and becomes the
// second after it, as Go's time has none.
func parseStamp(s string) (time.Time, bool) {
	const digits = "dd/___/dddd:dd:dd:dd _dddd"
	for i := range len(digits) {
		switch digits[i] {
		case 'd':
			if !isDigit(s[i]) {
				return time.Time{}, false
			}
		case '_': // a letter of the month, or the zone's sign: looked at below
		default:
			if s[i] != digits[i] {
				return time.Time{}, false
			}
		}
	}
	month := strings.Index(monthNames, s[3:6])
	if month%3 != 0 || s[21] != '+' && s[21] != '-' {
		return time.Time{}, false
	}
	day, year := twoDigits(s), 100*twoDigits(s[7:])+twoDigits(s[9:])
	hour, minute, second := twoDigits(s[12:]), twoDigits(s[15:]), twoDigits(s[18:])
	zoneHours, zoneMinutes := twoDigits(s[22:]), twoDigits(s[24:])
	if hour > 23 || minute > 59 || second > 60 || zoneHours > 23 || zoneMinutes > 59 ||
		year > maxStampYear {
		return time.Time{}, false
	}
	local := time.Date(year, time.Month(month/3+1), day, hour, minute, 0, 0, time.UTC)
	if local.Day() != day { // a day that the month does not have
		return time.Time{}, false
	}
	offset := time.Duration(zoneHours)*time.Hour + time.Duration(zoneMinutes)*time.Minute
	if s[21] == '+' {
		offset = -offset
	}
	at := local.Add(time.Duration(second)*time.Second + offset)
	return at, at.Unix() >= 0 // a ledger's time has no years before 1970
}

// cutByteCount finds the end of the request and returns the byte count, the second field after it.
// Some servers leave quotes in the request as they came; so its end is the first quote, not
// escaped, that a status follows.
func cutByteCount(request string) (string, error) {
	for i := 0; i < len(request)-1; i++ {
		switch {
		case request[i] == '\\':
			i++ // whatever is escaped is no end
		case request[i] == '"' && isBlank(request[i+1]):
			status, rest := cutField(request[i+1:])
			if isStatus(status) {
				size, _ := cutField(rest)
				return size, nil
			}
		}
	}
	return "", fmt.Errorf("no status after the request: %s", excerpt(request))
}

// isStatus reports whether s is three digits or the "-" of a request that got no answer.
func isStatus(s string) bool {
	return s == "-" || len(s) == 3 && isDigit(s[0]) && isDigit(s[1]) && isDigit(s[2])
}

// parseByteCount reads a number of bytes; "-" is how the common format writes 0.
func parseByteCount(s string) (uint64, error) {
	if s == "-" {
		return 0, nil
	}
	if s == "" {
		return 0, fmt.Errorf("byte count is missing")
	}
	var n uint64
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, fmt.Errorf("byte count %s is no number", excerpt(s))
		}
		digit := uint64(s[i] - '0')
		if n > (maxResponseBytes-digit)/10 {
			return 0, fmt.Errorf("byte count %s is over 2^63", excerpt(s))
		}
		n = 10*n + digit
	}
	return n, nil
}

// cutField returns the next field of s, which blanks may precede, and what follows it.
func cutField(s string) (string, string) {
	s = strings.TrimLeft(s, " \t")
	end := strings.IndexAny(s, " \t")
	if end < 0 {
		return s, ""
	}
	return s[:end], s[end:]
}

// excerpt quotes the beginning of s.
func excerpt(s string) string {
	if len(s) > maxExcerptBytes {
		return fmt.Sprintf("%q...", s[:maxExcerptBytes])
	}
	return fmt.Sprintf("%q", s)
}

// twoDigits reads the first two bytes of s, which are digits.
func twoDigits(s string) int { return 10*int(s[0]-'0') + int(s[1]-'0') }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
