package ledgertest

import "errors"

// What can be wrong with a file that a test reads; each is wrapped with the place.
var (
	errNoModule       = errors.New("no go.mod above the working directory")
	errNoTraces       = errors.New("no *.jsonl.gz there")
	errTrailingText   = errors.New("text after the request")
	errUnknownOp      = errors.New("unknown op")
	errUnknownStatus  = errors.New("unknown status")
	errForeignField   = errors.New("a field of another op")
	errIncompleteStep = errors.New("the request or its answer is not whole")
	errNotDecimal     = errors.New("not a decimal number of 128 bits")
)
