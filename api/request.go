package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/labstack/echo/v4"

	"weir/api/strict"
	"weir/api/wire"
)

// Bounds of a body, in bytes.
const (
	maxBody      = 64 << 10
	maxBatchBody = 1 << 20
)

// buffers hold bodies while they are read and answers while they are written.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// release gives a buffer back, unless it has grown beyond the usual.
func release(b *bytes.Buffer) {
	if b.Cap() > maxBody {
		return
	}
	b.Reset()
	buffers.Put(b)
}

// readBody reads a body of at most limit bytes and has it decoded. The data is of use until then.
func readBody(c echo.Context, limit int64, decode func(data []byte) error) error {
	_, err := query(c, nil)
	if err != nil {
		return err
	}
	b := buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // it holds nothing else
	defer release(b)
	// MaxBytesReader closes the connection of a body that is too large, if it is given net/http's
	// own writer.
	_, err = b.ReadFrom(http.MaxBytesReader(c.Response().Writer, c.Request().Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return err
	case err != nil:
		return badRequest("the body could not be read to its end")
	}
	return decode(b.Bytes())
}

// readJSON reads the body of a call that is not a batch.
func readJSON(c echo.Context, body any) error {
	return readBody(c, maxBody, func(data []byte) error { return decode(data, allLevels, body) })
}

// readNamed reads the body of a call, and the call's id, which may be in the body.
func readNamed(c echo.Context, body any, inBody *string) (id string, err error) {
	err = readJSON(c, body)
	if err != nil {
		return "", err
	}
	return idOf(c, *inBody)
}

// decodeCheck reads a check.
func decodeCheck(data []byte, body *wire.CheckRequest) error {
	if plainCheck(data, body) {
		return nil
	}
	*body = wire.CheckRequest{}
	return decode(data, allLevels, body)
}

// decode reads a JSON object strictly; see strict.Decode.
func decode(data []byte, levels int, v any) error {
	err := strict.Decode(data, levels, v)
	if err != nil {
		return badRequest("%v", err)
	}
	return nil
}

// query reads the query parameters of a call: each of the required ones and perhaps some of the
// optional ones, once, and nothing else.
func query(c echo.Context, required []string, optional ...string) (url.Values, error) {
	raw := c.Request().URL.RawQuery
	if raw == "" && len(required) == 0 {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, badRequest("the query is not well encoded")
	}
	for name, sent := range values {
		switch {
		case !slices.Contains(required, name) && !slices.Contains(optional, name):
			return nil, badRequest("unknown query parameter %q", strict.Clip(name))
		case len(sent) > 1:
			return nil, badRequest("query parameter %q is given %d times", name, len(sent))
		case sent[0] == "":
			return nil, badRequest("query parameter %q is empty", name)
		}
	}
	for _, name := range required {
		if !values.Has(name) {
			return nil, badRequest("query parameter %q is missing", name)
		}
	}
	return values, nil
}

// idOf returns the id of a call, which comes in the body or in the header Idempotency-Key.
func idOf(c echo.Context, inBody string) (string, error) {
	headers := c.Request().Header["Idempotency-Key"]
	if len(headers) == 0 {
		return inBody, nil
	}
	if len(headers) > 1 {
		return "", badRequest("the header Idempotency-Key is given %d times", len(headers))
	}
	id, ok := unquote(headers[0])
	switch {
	case !ok:
		return "", badRequest("Idempotency-Key: want a String of RFC 9651, or an id without quotes")
	case inBody != "" && inBody != id:
		return "", badRequest("the id in the body is not the one in the header Idempotency-Key")
	}
	return id, nil
}

// unquote reads a String of RFC 9651, section 3.3.3, or takes a text that starts without a quote as
// it is. A String's parameters are refused: none are defined.
func unquote(s string) (string, bool) {
	if s == "" || s[0] != '"' {
		return s, s != ""
	}
	var text []byte
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return string(text), i == len(s)-1 && len(text) > 0
		case c < 0x20 || c > 0x7e:
			return "", false
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
			text = append(text, s[i])
		default:
			text = append(text, c)
		}
	}
	return "", false
}

// send writes an answer. Nothing is written before all of it is known: an error leaves the call to
// be answered in another way.
func send(c echo.Context, status int, contentType []string, v any) error {
	b := buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // it holds nothing else
	defer release(b)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	respond(c, status, contentType, b.Bytes())
	return nil
}

// respond writes an answer that is encoded.
func respond(c echo.Context, status int, contentType []string, data []byte) {
	response := c.Response()
	response.Header()["Content-Type"] = contentType
	response.WriteHeader(status)
	_, _ = response.Write(data) // whoever has gone cannot be told
}
