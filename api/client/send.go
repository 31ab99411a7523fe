package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"weir/api/wire"
)

// maxAnswer is how many bytes an answer may have; a full page of a journal has about 300 kB.
const maxAnswer = 4 << 20

// request is a call that can be made more than once.
type request struct {
	method, path, token string
	body                []byte // JSON, nil of a call that has none
}

// call makes a call that may be repeated and reads its answer, or returns what the server said
// instead as an [*Error].
func (c *Client) call(ctx context.Context, method, path, token string, question, answer any) error {
	_, err := c.callWhere(ctx, isPassing, method, path, token, question, answer)
	return err
}

// callWhere is a call that is made again only after a failure that passes. It returns the headers
// of the answer, too, nil where there was none.
func (c *Client) callWhere(ctx context.Context, passes func(error) bool,
	method, path, token string, question, answer any,
) (http.Header, error) {
	r := request{method: method, path: path, token: token}
	if question != nil {
		body, err := json.Marshal(question)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", method, path, err)
		}
		r.body = body
	}
	var header http.Header
	err := c.repeat(ctx, passes, func() error {
		var err error
		header, err = c.try(ctx, r, answer)
		return err
	})
	return header, err
}

// try makes a call once, and returns the headers of its answer beside it.
func (c *Client) try(ctx context.Context, r request, answer any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	question, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		question.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		question.Header.Set("Authorization", "Bearer "+r.token)
	}
	response, err := c.options.HTTPClient.Do(question)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%w: read that to %s %s: %w", ErrNoAnswer, r.method, r.path, err)
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("answer to %s %s: %w", r.method, r.path, ErrAnswerTooLarge)
	}
	if response.StatusCode != http.StatusOK {
		return response.Header, problem(response, data)
	}
	err = json.Unmarshal(data, answer)
	if err != nil {
		return nil, fmt.Errorf("decode answer to %s %s: %w", r.method, r.path, err)
	}
	return response.Header, nil
}

// problem makes an error of an answer that is not a success. One that is not weir's, from something
// in between, has no code.
func problem(response *http.Response, data []byte) *Error {
	e := &Error{Status: response.StatusCode, Detail: http.StatusText(response.StatusCode)}
	seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 32)
	if err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if media != wire.ProblemType {
		return e
	}
	var p wire.Problem
	err = json.Unmarshal(data, &p)
	if err != nil {
		return e
	}
	e.Code, e.Detail, e.Limit, e.NewIDRequired = p.Code, p.Detail, p.Limit, p.NewIDRequired
	if p.Free != nil {
		e.Free = *p.Free
	}
	e.denial = p.Decision
	return e
}
