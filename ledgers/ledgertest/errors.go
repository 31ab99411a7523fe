package ledgertest

import "errors"

// What can be wrong with a file that a test reads; each is wrapped with the place.
var (
	errNoModule       = errors.New("no go.mod above the working directory")
	errNoTraces       = errors.New("no *.jsonl.gz there")
	errEmptyLine      = errors.New("an empty line")
	errTrailingText   = errors.New("text after the request")
	errUnknownOp      = errors.New("unknown op")
	errUnknownStatus  = errors.New("unknown status")
	errForeignField   = errors.New("a field of another op")
	errIncompleteStep = errors.New("the request or its answer is not whole")
	errNotDecimal     = errors.New("not a decimal number, or too great")
	errUnknownCommand = errors.New("unknown command")
	errUnknownField   = errors.New("unknown field")
	errUnknownFlag    = errors.New("unknown flag")
	errWordMissing    = errors.New("a word is missing")
	errBadSymbol      = errors.New("not an id: want a letter and a number, 0 or max")
	errNotCommitted   = errors.New("rows wait for a commit")
	errMixedCommit    = errors.New("a commit takes rows of one kind, and at least one")
	errNotFound       = errors.New("no such transfer")
	errWrongCount     = errors.New("the ledger does not answer each event")
	errTimeWentBack   = errors.New("a result has no later time than what was answered before it")
	errNeverQuiet     = errors.New("there was always an expiry near")
)
