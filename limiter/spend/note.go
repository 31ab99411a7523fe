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
	nodeShift  = 40
	nodes      = 1 << 20
	countMask  = 1<<nodeShift - 1

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

// callNotes are what the two notes of a call say.
type callNotes struct {
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

// pack makes notes, which may be of a settlement that is late.
func (n callNotes) pack(isLate bool) []accounts.Note {
	kind := number(kinds, n.kind)
	first := accounts.Note{
		Lo: kind<<kindShift | number(failures, n.failure)<<errorShift | n.input<<inputShift | n.output,
		Hi: uint32(number(routes, n.route))<<routeShift | uint32(n.cached),
	}
	if n.estimated {
		first.Hi |= estimated
	}
	if isLate {
		first.Hi |= late
	}
	return []accounts.Note{first, {
		Lo: (kind|secondNote)<<kindShift | n.usd,
		Hi: uint32(n.model)<<modelShift | uint32(n.hold),
	}}
}

// unpack reads notes, false where they are not the two of a call.
func unpack(notes []accounts.Note) (callNotes, bool) {
	if len(notes) != 2 || notes[0].Lo>>kindShift|secondNote != notes[1].Lo>>kindShift {
		return callNotes{}, false
	}
	first, second := notes[0], notes[1]
	return callNotes{
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

// closedNote packs how many calls a node turned away, and why and for which model the last one was.
func closedNote(node, count uint64, model uint16, reason Reason) accounts.Note {
	return accounts.Note{
		Lo: number(kinds, Closed)<<kindShift | node<<nodeShift | min(count, countMask),
		Hi: uint32(model)<<modelShift | uint32(number(reasons, reason)),
	}
}
