package api // what is read and written here has to be what encoding/json makes of it

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"weir/api/wire"
	"weir/ledgers"
	"weir/limiter"
)

func TestPlainCheck(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		cost := func(n uint64) *wire.Amount { return new(wire.Count(n)) }
		for text, want := range map[string]wire.CheckRequest{
			`{"limit":"a","subject":"b/c d"}`:          {Limit: "a", Subject: "b/c d"},
			`{"id":"1","cost":0}`:                      {ID: "1", Cost: cost(0)},
			"\t{ \"cost\" : 12 ,\r\n\"id\":\"<&>\" } ": {ID: "<&>", Cost: cost(12)},
			`{"cost":999999999999999}`:                 {Cost: cost(wire.MaxAmount)},
		} {
			var got wire.CheckRequest
			if !plainCheck([]byte(text), &got) || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, want %+v", text, got, want)
			}
		}
	})
	t.Run("Left", func(t *testing.T) { // to encoding/json, which takes some of these
		for _, text := range []string{
			``, `{`, `{}`, `{"`, `{"id`, `{"id"`, `{"id":`, `{"id":"`, `{"id":"1`, `{"id":"1"`,
			`{"id":"1"}x`, `{"id":"1",}`, `{"id":"1" "limit":"a"}`, `[]`, `null`, `{"id":null}`,
			`{"id":""}`, `{"id":"\u0031"}`, `{"id":"é"}`, `{"id":"1","id":"1"}`, `{"ID":"1"}`,
			"{\"id\":\"1\n\"}", "{\"id\":\"\x7f\"}", `{"id":1}`, `{"limits":[]}`, `{"x":"1"}`,
			`{"cost":"1"}`, `{"cost":01}`, `{"cost":-1}`, `{"cost":1.0}`, `{"cost":1e3}`, `{"cost":}`,
			`{"cost":1000000000000000}`, `{"cost":1,"cost":1}`, `{"cost":1`, `{"cost":`,
		} {
			if plainCheck([]byte(text), &wire.CheckRequest{}) {
				t.Errorf("%s: got it taken, want it left", text)
			}
		}
	})
}

// FuzzPlainCheck says that what is taken as plain is sound, and means the same to encoding/json.
func FuzzPlainCheck(f *testing.F) {
	f.Add([]byte(`{"limit":"a","subject":"u","cost":10,"id":"x"}`))
	f.Add([]byte(`{ "cost" : 0 }`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want wire.CheckRequest
		if !plainCheck(data, &got) {
			return
		}
		err := decode(data, allLevels, &want)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v and error %v", data, got, want, err)
		}
	})
}

// TestAppendAllowed compares admissions with what encoding/json writes of them.
func TestAppendAllowed(t *testing.T) {
	state := limiter.State{Limit: "a.b_c:d-e", Subject: "<u> & 'v'/~", Window: time.Minute}
	known := state
	known.Known, known.Cost, known.Quota, known.Remaining = true, 3, 999_999_999_999_999, 7
	known.Reset = 59 * time.Second
	daily := known
	daily.ResetsAt = time.Date(2026, 3, 2, 0, 0, 0, 0, time.FixedZone("", 3600))
	tried, denying := state, known
	tried.Shadow, denying.Shadow, denying.WouldDeny = true, true, true
	at := time.Date(2026, 3, 1, 12, 0, 0, 1000, time.FixedZone("", 3600))
	for name, d := range map[string]limiter.Decision{
		"Known":    {At: at, Transfer: ledgers.ID{Lo: 1, Hi: 1 << 63}, Limits: []limiter.State{known}},
		"Held":     {At: at, ExpiresAt: at.Add(time.Minute), Limits: []limiter.State{known}},
		"Shadow":   {At: at, Limits: []limiter.State{tried, known, denying}},
		"Calendar": {At: at, Limits: []limiter.State{daily, state}},
		"Several":  {At: at, Replayed: true, Limits: []limiter.State{state, known, state}},
		"Degraded": {At: at, Degraded: true, Limits: []limiter.State{state}},
	} {
		t.Run(name, func(t *testing.T) {
			d.Allowed, d.Denied = true, -1
			var want bytes.Buffer
			e := json.NewEncoder(&want)
			e.SetEscapeHTML(false)
			err := e.Encode(decisionOf(&d))
			if err != nil {
				t.Fatal(err)
			}
			got, plain := appendAllowed(nil, &d)
			if !plain || string(got) != want.String() {
				t.Errorf("got %s, want %s", got, want.String())
			}
		})
	}
	for _, subject := range []string{`"`, `\`, "é", "\x7f", "a\nb"} {
		_, plain := appendAllowed(nil, &limiter.Decision{Limits: []limiter.State{{Subject: subject}}})
		if plain {
			t.Errorf("subject %q: got it written, want it left", subject)
		}
	}
}
