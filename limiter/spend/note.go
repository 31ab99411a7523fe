package spend

import "weir/accounts"

// The kinds of events, as notes have them.
const (
	kindAuthorize = 1 + iota
	kindSettle
	kindClosed
	kindCorrection

	// secondNote is added to the kind in the second note of a call.
	secondNote = 8
)

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
	kind int
	tokens
	usd       uint64
	model     uint16
	hold      uint16 // seconds
	route     int
	failure   int
	estimated bool
	late      bool
}

// notes packs a record, which may be of a settlement that is late.
func (r record) notes(isLate bool) []accounts.Note {
	first := accounts.Note{
		Lo: uint64(r.kind)<<kindShift | uint64(r.failure)<<errorShift | r.input<<inputShift | r.output,
		Hi: uint32(r.route)<<routeShift | uint32(r.cached),
	}
	if r.estimated {
		first.Hi |= estimated
	}
	if isLate {
		first.Hi |= late
	}
	return []accounts.Note{first, {
		Lo: uint64(r.kind|secondNote)<<kindShift | r.usd,
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
		kind: int(first.Lo >> kindShift),
		tokens: tokens{
			input:  first.Lo >> inputShift & tokenMask,
			output: first.Lo & tokenMask,
			cached: uint64(first.Hi) & tokenMask,
		},
		usd:       second.Lo & moneyMask,
		model:     uint16(second.Hi >> modelShift),
		hold:      uint16(second.Hi & lowMask),
		route:     int(first.Hi >> routeShift),
		failure:   int(first.Lo >> errorShift & 0xf),
		estimated: first.Hi&estimated != 0,
		late:      first.Hi&late != 0,
	}, true
}

// closedNote packs how many calls were turned away, and why and for which model the last one was.
func closedNote(count uint64, model uint16, reason int) accounts.Note {
	return accounts.Note{
		Lo: kindClosed<<kindShift | min(count, countMask),
		Hi: uint32(model)<<modelShift | uint32(reason),
	}
}
