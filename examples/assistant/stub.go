package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"

	"weir/api/wire"
)

// behaviors are how a stub can behave: answer at once or piece by piece, leave out the usage, break
// off in the middle, never answer, or turn callers away.
var behaviors = []string{"answers", "streams", "omits", "breaks", "hangs", "limits"}

// startStub starts a model that behaves as told.
func startStub(behavior string) (*httptest.Server, error) {
	if !slices.Contains(behaviors, behavior) {
		return nil, fmt.Errorf("-stub %s: want one of %q", behavior, behaviors)
	}
	return httptest.NewServer(stub(behavior)), nil
}

// stub is a model that has read one book.
type stub string

func (s stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q question
	err := json.NewDecoder(r.Body).Decode(&q)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	took := &usage{InputTokens: wire.EstimateTokens(q.Prompt), OutputTokens: 3}
	switch s {
	case "answers":
		write(w, piece{Text: "Forty-two, they say.", Usage: took, Done: true})
	case "streams":
		write(w, piece{Text: "Forty-"}, piece{Text: "two, "}, piece{Text: "they say."},
			piece{Usage: took, Done: true})
	case "omits":
		write(w, piece{Text: "Forty-two, they say.", Done: true})
	case "breaks":
		write(w, piece{Text: "Forty-"})
	case "hangs":
		write(w, piece{Text: "Forty-"})
		<-r.Context().Done()
	case "limits":
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// write sends each piece when it is there.
func write(w http.ResponseWriter, pieces ...piece) {
	lines := json.NewEncoder(w)
	for _, p := range pieces {
		err := lines.Encode(p)
		if err != nil {
			return // nobody reads it any more
		}
		_ = http.NewResponseController(w).Flush()
	}
}
