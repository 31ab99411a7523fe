package api

import (
	"net/http"
	"strconv"
	"time"

	"weir/limiter"
)

// Values of headers that are the same on every answer. Headers are set by key and not with Set,
// which would write RateLimit as Ratelimit and WWW-Authenticate as Www-Authenticate.
var (
	noStore     = []string{"no-store"}
	closing     = []string{"close"}
	plainJSON   = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}
	askForToken = []string{`Bearer realm="weir"`}
	refuseToken = []string{`Bearer realm="weir", error="invalid_token"`}
)

// describe sets RateLimit-Policy and RateLimit, of draft-ietf-httpapi-ratelimit-headers-11, for the
// limit that denied or is closest to empty, and Retry-After on a denial whose wait is known. Both
// fields want what was read of the balance: without it they are left out.
func describe(header http.Header, d *limiter.Decision) {
	if !d.Allowed && d.RetryAfter > 0 {
		header["Retry-After"] = []string{strconv.FormatInt(wholeSeconds(d.RetryAfter), 10)}
	}
	at := d.Tightest()
	if at < 0 || !d.Limits[at].Known {
		return
	}
	state := &d.Limits[at]
	// Two names of at most 64 bytes, and numbers.
	b := make([]byte, 0, 192)
	b = append(append(append(b, '"'), state.Limit...), '"') // a limit's name needs no escapes
	name := b
	b = strconv.AppendUint(append(b, ";q="...), state.Quota, 10)
	b = strconv.AppendInt(append(b, ";w="...), int64(state.Window/time.Second), 10)
	policy := len(b)
	b = strconv.AppendUint(append(append(b, name...), ";r="...), state.Remaining, 10)
	b = strconv.AppendInt(append(b, ";t="...), int64(state.Reset/time.Second), 10)
	both := string(b)
	values := []string{both[:policy], both[policy:]}
	header["RateLimit-Policy"], header["RateLimit"] = values[:1:1], values[1:]
}

// wholeSeconds rounds up, to at least 1.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}
