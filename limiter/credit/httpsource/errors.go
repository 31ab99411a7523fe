package httpsource

import "errors"

var (
	// ErrTemplate is returned by New for what is not a URL template with {subject} in its path or
	// query.
	ErrTemplate = errors.New("want an http or https URL with {subject} in its path or query")
	// ErrFields is returned by New where the fields cannot tell what remains.
	ErrFields = errors.New("want a path for remaining, or for both granted and usage")
	// ErrPath is returned by New for a path with an empty part.
	ErrPath = errors.New("want names and numbers with single dots between them")
	// ErrToken is returned by New for a token that no header can carry. It does not say the token.
	ErrToken = errors.New("the token has characters that a header cannot carry")
	// ErrSubject is returned by Fetch for a subject that would lead to another place on the server.
	ErrSubject = errors.New("the subject cannot be part of a path")
	// ErrStatus is returned by Fetch for an answer that is neither 200 nor a 404 in JSON.
	ErrStatus = errors.New("the provider answered with an unexpected status")
	// ErrTooLarge is returned by Fetch for an answer with more bytes than Options.MaxBody.
	ErrTooLarge = errors.New("the provider's answer is too large")
	// ErrAnswer is returned by Fetch for an answer without the fields that were asked for, or with
	// others than numbers and booleans in them.
	ErrAnswer = errors.New("the provider's answer is not understood")
)
