package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

// question is what a provider is asked.
type question struct {
	Model           string `json:"model"`
	Prompt          string `json:"prompt"`
	MaxOutputTokens uint64 `json:"max_output_tokens"`
}

// piece is a line of the answer: some text, or at the end what it all took.
type piece struct {
	Text  string `json:"text,omitempty"`
	Usage *usage `json:"usage,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

type usage struct {
	InputTokens  uint64 `json:"input_tokens"`
	OutputTokens uint64 `json:"output_tokens"`
}

// provider is a model behind HTTP. With a provider's own SDK, this is what turns its answers and
// errors into the guard's.
type provider struct{ url string }

// complete asks the model and reads its answer to the end. With an error, too, it returns the usage
// as far as that is known: the output of a stream that broke off was paid for.
func (p provider) complete(ctx context.Context, prompt string) (string, wire.SpendUsage, error) {
	body, err := json.Marshal(question{model, prompt, maxOutputTokens})
	if err != nil {
		return "", wire.SpendUsage{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return "", wire.SpendUsage{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", wire.SpendUsage{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 where there is none
		return "", wire.SpendUsage{}, &client.ProviderError{
			Status: response.StatusCode, RetryAfter: time.Duration(seconds) * time.Second,
		}
	}
	return read(response.Body)
}

// read reads the pieces of an answer.
func read(stream io.Reader) (string, wire.SpendUsage, error) {
	var text strings.Builder
	var took wire.SpendUsage
	for lines := json.NewDecoder(stream); ; {
		var p piece
		err := lines.Decode(&p)
		if errors.Is(err, io.EOF) { // before it was done
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			if took.OutputTokens == nil { // the input is estimated by the guard
				took.OutputTokens = new(wire.Count(wire.EstimateTokens(text.String())))
			}
			return "", took, fmt.Errorf("read the answer: %w", err)
		}
		text.WriteString(p.Text)
		if p.Usage != nil {
			took.InputTokens = new(wire.Count(p.Usage.InputTokens))
			took.OutputTokens = new(wire.Count(p.Usage.OutputTokens))
		}
		if p.Done {
			return text.String(), took, nil
		}
	}
}
