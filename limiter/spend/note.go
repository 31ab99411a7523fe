package spend

import (
	"slices"

	"weir/accounts"
)

// What notes say by a number: its place here.
var (
	kinds    = []Kind{"", Authorized, Settled, Closed, Correction}
	routes   = []Route{"", RouteModel, RouteFallback, RouteError}
	reasons  = []Reason{"", TokenBudget, USDBudget}
	failures = []string{"", "timeout", "rate-limited", "provider-error", "canceled", "other"}
)

// secondNote is added to the kind in the second note of a call.
const secondNote = 8

// number returns the number of what is in a list.
func number[T comparable](list []T, of T) uint64 { return uint64(slices.Index(list, of)) }

// numbered returns what has a number in a list, the zero value for a number that nothing has.
func numbered[T any](list []T, number uint64) T {
	if number >= uint64(len(list)) {
		number = 0
	}
	return list[number]
}

// Where the parts of a note stand; see the package's comment.
const (
	kindShift  = 60
	errorShift = 56
	inputShift = 28
	tokenMask  = MaxTokens
	moneyMask  = 1<<50 - 1
	countMask  = 1<<60 - 1

	routeShift = 30
	estimated  = 1 << 29
	late       = 1 << 28

	modelShift = 16
	lowMask    = 1<<16 - 1
)

// tokens are those of a call. Cached are a part of input.
type tokens struct {
	input, output, cached uint64
}

func (t tokens) sum() uint64 { return t.input + t.output }

// record is what the two notes of a call say.
type record struct {
	kind Kind
	tokens
	usd       uint64
	model     uint16
	hold      uint16 // seconds
	route     Route
	failure   string
	estimated bool
	late      bool
}

// notes packs a record, which may be of a settlement that is late.
func (r record) notes(isLate bool) []accounts.Note {
	kind := number(kinds, r.kind)
	first := accounts.Note{
		Lo: kind<<kindShift | number(failures, r.failure)<<errorShift | r.input<<inputShift | r.output,
		Hi: uint32(number(routes, r.route))<<routeShift | uint32(r.cached),
	}
	if r.estimated {
		first.Hi |= estimated
	}
	if isLate {
		first.Hi |= late
	}
	return []accounts.Note{first, {
		Lo: (kind|secondNote)<<kindShift | r.usd,
		Hi: uint32(r.model)<<modelShift | uint32(r.hold),
	}}
}

// recordOf unpacks two notes, false where they are not a record's.
func recordOf(notes []accounts.Note) (record, bool) {
	if len(notes) != 2 || notes[0].Lo>>kindShift|secondNote != notes[1].Lo>>kindShift {
		return record{}, false
	}
	first, second := notes[0], notes[1]
	return record{
		kind: numbered(kinds, first.Lo>>kindShift),
		tokens: tokens{
			input:  first.Lo >> inputShift & tokenMask,
			output: first.Lo & tokenMask,
			cached: uint64(first.Hi) & tokenMask,
		},
		usd:       second.Lo & moneyMask,
		model:     uint16(second.Hi >> modelShift),
		hold:      uint16(second.Hi & lowMask),
		route:     numbered(routes, uint64(first.Hi>>routeShift)),
		failure:   numbered(failures, first.Lo>>errorShift&0xf),
		estimated: first.Hi&estimated != 0,
		late:      first.Hi&late != 0,
	}, true
}

// closedNote packs how many calls were turned away, and why and for which model the last one was.
func closedNote(count uint64, model uint16, reason Reason) accounts.Note {
	return accounts.Note{
		Lo: number(kinds, Closed)<<kindShift | min(count, countMask),
		Hi: uint32(model)<<modelShift | uint32(number(reasons, reason)),
	}
}
