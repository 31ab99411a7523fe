package wire_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/api/wire"
)

func TestAmount(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		for text, want := range map[string]wire.Amount{
			`0`: wire.Count(0), `"0"`: wire.Money(0, 0), `1`: wire.Count(1), `"10"`: wire.Money(10, 0),
			`4294967296`: wire.Count(4294967296), `"\u0031"`: wire.Money(1, 0),
			`999999999999999`:   wire.Count(999_999_999_999_999),
			`"999999999999999"`: wire.Money(999_999_999_999_999, 0),
			`"9.99"`:            wire.Money(999, 2), `"0.004"`: wire.Money(4, 3), `"0.0"`: wire.Money(0, 1),
			`"1.000000000000"`: wire.Money(1_000_000_000_000, 12),
		} {
			var got wire.Amount
			err := json.Unmarshal([]byte(text), &got)
			if err != nil || got != want {
				t.Errorf("%s: got %+v and error %v, want %+v", text, got, err, want)
			}
			data, err := json.Marshal(got)
			if err != nil || string(data) != strings.Replace(text, `\u0031`, "1", 1) {
				t.Errorf("%s: written as %s, error %v", text, data, err)
			}
		}
	})
	t.Run("ErrType", func(t *testing.T) {
		for _, text := range []string{
			`-1`, `-0`, `0.5`, `1.0`, `1e3`, `1E3`, `1000000000000000`, `9007199254740993`,
			`18446744073709551616`, `18446744073709551617`, `null`, `true`, `false`, `[]`, `[1]`, `{}`,
			`""`, `"-1"`, `"+1"`, `" 1"`, `"1 "`, `"01"`, `"00"`, `"1."`, `"1e3"`, `"0x1"`, `"1_000"`,
			`".5"`, `"."`, `"1.2.3"`, `"00.5"`, `"-0.5"`, `"1.5e3"`, `"0.0000000000000000001"`, `"1,5"`,
			`"1000000000000.000"`,
			`"１"`, `"NaN"`, `"1000000000000000"`, `"340282366920938463463374607431768211456"`,
		} {
			got := wire.Count(7)
			err := json.Unmarshal([]byte(text), &got)
			var mismatch *json.UnmarshalTypeError
			if !errors.As(err, &mismatch) || got != wire.Count(7) {
				t.Errorf("%s: got %+v and error %v, want a type error and nothing read", text, got, err)
			}
		}
	})
	t.Run("ErrField", func(t *testing.T) { // the error names where it was
		var check wire.CheckRequest
		err := json.Unmarshal([]byte(`{"limits":[{"limit":"a","cost":-1}]}`), &check)
		var mismatch *json.UnmarshalTypeError
		if !errors.As(err, &mismatch) || mismatch.Field != "limits.cost" {
			t.Errorf("got error %v, want one of the field limits.cost", err)
		}
	})
	t.Run("ErrNotJSON", func(t *testing.T) {
		for _, text := range []string{"", `"`, "x"} {
			var a wire.Amount
			err := a.UnmarshalJSON([]byte(text))
			if err == nil {
				t.Errorf("%q: got no error", text)
			}
		}
	})
}

func TestTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 0, 0, 1000, time.FixedZone("", 3600))
	data, err := json.Marshal(wire.Time{Time: at})
	if err != nil || string(data) != `"2026-03-01T12:00:00.000001000Z"` {
		t.Errorf("got %s and error %v, want UTC with nine digits", data, err)
	}
	var back wire.Time
	err = json.Unmarshal(data, &back)
	if err != nil || !back.Equal(at) {
		t.Errorf("got %v and error %v, want %v", back, err, at)
	}
}

// TestOmitted pins what an answer says where little is known, and where zeros are known.
func TestOmitted(t *testing.T) {
	at := wire.Time{Time: time.Unix(0, 1).UTC()}
	unknown := wire.Decision{Allowed: true, Degraded: true, At: at, Limits: []wire.State{
		{Limit: "a", Subject: "u", Cost: wire.Count(1), WindowSeconds: 60},
	}}
	known := wire.Decision{At: at, NewIDRequired: true, IDRecorded: new(false), RetryAfterMS: 5,
		Limits: []wire.State{{Limit: "a", Subject: "u", WindowSeconds: 60, Quota: new(wire.Count(0)),
			Remaining: new(wire.Count(0)), ResetSeconds: new(int64(0))}}}
	for want, decision := range map[string]wire.Decision{
		`{"allowed":true,"replayed":false,"degraded":true,"at":"1970-01-01T00:00:00.000000001Z",` +
			`"limits":[{"limit":"a","subject":"u","cost":1,"window_seconds":60}]}`: unknown,
		`{"allowed":false,"replayed":false,"degraded":false,"at":"1970-01-01T00:00:00.000000001Z",` +
			`"limits":[{"limit":"a","subject":"u","cost":0,"quota":0,"remaining":0,` +
			`"window_seconds":60,"reset_seconds":0}],"retry_after_ms":5,"new_id_required":true,` +
			`"id_recorded":false}`: known,
	} {
		got, err := json.Marshal(decision)
		if err != nil || string(got) != want {
			t.Errorf("got %s and error %v, want %s", got, err, want)
		}
	}
}

func TestResult(t *testing.T) {
	decision := wire.Decision{Allowed: true, At: wire.Time{Time: time.Unix(5, 0).UTC()}}
	denied := decision
	denied.Allowed = false
	batch := wire.BatchResponse{Results: []wire.Result{
		{Decision: &decision},
		{Problem: &wire.Problem{Status: 429, Code: wire.CodeQuotaExceeded, Decision: &denied}},
		{Problem: &wire.Problem{Status: 404, Code: wire.CodeUnknownLimit, Limit: "zz"}},
	}}
	data, err := json.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	var back wire.BatchResponse
	err = json.Unmarshal(data, &back)
	if err != nil || !reflect.DeepEqual(back, batch) {
		t.Errorf("got %+v and error %v from %s", back, err, data)
	}
}

// TestMeanings compares the table of codes with what it stands for in HTTP.
func TestMeanings(t *testing.T) {
	renamed := map[int]string{ // by RFC 9110, after net/http had their phrases
		413: "Content Too Large",
		422: "Unprocessable Content",
	}
	seen := map[wire.Code]bool{}
	for _, m := range wire.Meanings() {
		if seen[m.Code] {
			t.Errorf("code %s is in the table twice", m.Code)
		}
		seen[m.Code] = true
		back, known := wire.MeaningOf(m.Code)
		if !known || back != m {
			t.Errorf("code %s: got %+v, want %+v", m.Code, back, m)
		}
		title := http.StatusText(m.Status)
		if renamed[m.Status] != "" {
			title = renamed[m.Status]
		}
		if m.Code != wire.CodeQuotaExceeded && m.Title != title {
			t.Errorf("code %s: got title %q, want the status phrase %q", m.Code, m.Title, title)
		}
		if (m.Status == 503) != (m.RetryAfterSeconds > 0) {
			t.Errorf("code %s: got Retry-After %d with status %d", m.Code, m.RetryAfterSeconds, m.Status)
		}
	}
	_, known := wire.MeaningOf("no-such-code")
	if known {
		t.Error("an unknown code has a meaning")
	}
}

// TestREADME compares the table of codes with the one that people read.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| code | status | title | Retry-After | same id again? |\n"
	rows := map[wire.Code][]string{}
	_, table, _ := strings.Cut(string(text), head)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 {
			break // the table's end
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		code := wire.Code(strings.Trim(cells[1], "`"))
		if rows[code] != nil {
			t.Errorf("code %s is in the README twice", code)
		}
		rows[code] = cells[2:6]
	}
	delete(rows, "---")
	for _, m := range wire.Meanings() {
		row := rows[m.Code]
		if row == nil {
			t.Errorf("code %s is not in the README", m.Code)
			continue
		}
		delete(rows, m.Code)
		if row[0] != strconv.Itoa(m.Status) || row[1] != m.Title {
			t.Errorf("code %s: the README says %s %q, want %d %q", m.Code, row[0], row[1], m.Status, m.Title)
		}
		if !retryAfterCell(row[2], m) {
			t.Errorf("code %s: the README says Retry-After %q, want %d", m.Code, row[2], m.RetryAfterSeconds)
		}
		same, _, _ := strings.Cut(strings.NewReplacer(",", " ", ":", " ").Replace(row[3]), " ")
		if same != map[bool]string{true: "yes", false: "no"}[m.SameID] {
			t.Errorf("code %s: the README says of the same id %q, want %t", m.Code, row[3], m.SameID)
		}
	}
	for code := range rows {
		t.Errorf("code %s of the README does not exist", code)
	}
}

// retryAfterCell compares a cell with what a code's answers have: nothing, a number or, on denials,
// words.
func retryAfterCell(cell string, m wire.Meaning) bool {
	switch {
	case m.Code == wire.CodeQuotaExceeded:
		return strings.HasPrefix(cell, "when ")
	case m.RetryAfterSeconds == 0:
		return cell == ""
	default:
		return cell == strconv.Itoa(m.RetryAfterSeconds)
	}
}

// A text counts as a token for every four characters, whatever their bytes.
func TestEstimateTokens(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "a": 1, "abcd": 1, "abcde": 2, "éééé": 1, "日本語の": 1, "\xff\xff\xff\xff\xff": 2,
	} {
		got := wire.EstimateTokens(text)
		if got != want {
			t.Errorf("%q: got %d tokens, want %d", text, got, want)
		}
	}
}
