// Package strict reads JSON bodies and refuses what encoding/json lets pass although no caller can
// have meant it.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"weir/api/wire"
)

// maxQuoted is how many bytes of a caller's text are repeated to the caller.
const maxQuoted = 64

// Error says, to the caller, what is wrong with a body.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

func refused(format string, args ...any) Error { return Error(fmt.Sprintf(format, args...)) }

// Decode reads a JSON object strictly; see check for what encoding/json lets pass. What is beyond
// levels levels of nesting is only read as JSON and not checked further. The error is an [Error].
func Decode(data []byte, levels int, v any) error {
	if !utf8.Valid(data) {
		return refused("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err != nil {
		return badBody(err, data)
	}
	if len(bytes.TrimLeft(data[d.InputOffset():], " \t\r\n")) > 0 {
		return refused("the body goes on after its JSON object")
	}
	return check(data, levels)
}

// badBody says what is wrong with a body, without naming our types.
func badBody(err error, data []byte) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return refused("the body is empty: want a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refused("the body ends within its JSON object")
	case errors.As(err, &syntax):
		return refused("the body is not JSON: byte %d: %v", syntax.Offset, syntax)
	case errors.As(err, &mismatch):
		field := ourType.ReplaceAllString(mismatch.Field, "")
		if field == "" {
			field = "the body"
		}
		if mismatch.Type.Kind() == reflect.String && strings.HasSuffix(field, freeNames) {
			field = freeField(data, mismatch.Offset)
		}
		return refused("%s: want %s, not %s", field, wanted(mismatch.Type), Clip(mismatch.Value))
	default:
		return refused("%s", Clip(strings.TrimPrefix(err.Error(), "json: ")))
	}
}

// ourType is what encoding/json puts into a path for a struct that is embedded: the names of our
// fields are in lower case.
var ourType = regexp.MustCompile(`\b[A-Z][A-Za-z]*\.`)

// key is the name of a field.
var key = regexp.MustCompile(`"([^"]*)"[ \t\r\n]*:`)

// freeField finds the free name of a value that is no string, which begins or ends at an offset of
// the body: encoding/json does not tell it.
func freeField(data []byte, offset int64) string {
	body := bytes.TrimLeft(data, " \t\r\n")
	keys := key.FindAllSubmatch(body[:min(offset, int64(len(body)))], -1)
	if len(keys) == 0 {
		return freeNames
	}
	return freeNames + "." + Clip(string(keys[len(keys)-1][1]))
}

// wanted names a type in the caller's words.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[wire.Amount]() {
		return fmt.Sprintf(`a whole number from 0 to %d, or money in quotes, as in "1.50"`,
			uint64(wire.MaxAmount))
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// Clip shortens a caller's text.
func Clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
}
