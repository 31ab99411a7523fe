package accounts

import (
	"context"
	"fmt"
	"slices"

	"weir/ledgers"
)

// Note is what a caller keeps in the ledger beside what it books: 96 bits whose meaning is the
// caller's own, in the user data of a transfer that moves nothing.
type Note struct {
	Lo uint64 // user_data_64
	Hi uint32 // user_data_32
}

// MaxNotes is how many notes one attempt, one settlement or one correction may have.
const MaxNotes = 2

// transfer writes a note down on the account of a charge, as the k-th beside something. About is
// the receipt that the note is about, if it is about one.
func (n Note) transfer(ns Namespace, c Charge, beside ledgers.ID, k uint64, about ledgers.ID,
) ledgers.Transfer {
	return ledgers.Transfer{
		ID:              ns.NoteTransfer(beside, k),
		DebitAccountID:  c.account,
		CreditAccountID: c.standing.operator,
		UserData128:     ledgers.Amount(about),
		UserData64:      n.Lo,
		UserData32:      n.Hi,
		Ledger:          c.Limit.Ledger,
		Code:            CodeNote,
	}
}

// noteOf reads a note.
func noteOf(t ledgers.Transfer) Note { return Note{Lo: t.UserData64, Hi: t.UserData32} }

// Annotation is what a caller keeps beside an attempt, a settlement or a correction.
type Annotation struct {
	// Sent is what was sent. In place of the amounts, which the caller may have worked out, it tells
	// the same call sent again from another.
	Sent []string
	// Notes returns the notes, at most [MaxNotes]; it is told whether a settlement, or the one that is
	// corrected, is late.
	Notes func(late bool) []Note
}

// WithNotes returns the attempt, which a caller named id, with notes that are kept on the account
// of its first charge if it is accepted. The id is scoped to that account: as with the amounts,
// what else is charged may be worked out otherwise when the same call is sent again.
func (b *Book) WithNotes(a Attempt, id string, with *Annotation) Attempt {
	a.notes, a.fingerprint = with.Notes(false), b.namespace.fingerprint("noted", nil, with.Sent...)
	if id != "" {
		a.First = b.namespace.attemptTransfer("noted", id, a.charges[:1])
	}
	return a
}

// transfersOf writes notes about a receipt down on the account of a charge, beside something.
func transfersOf(notes []Note, ns Namespace, c Charge, beside, about ledgers.ID,
) []ledgers.Transfer {
	list := make([]ledgers.Transfer, len(notes))
	for k, n := range notes {
		list[k] = n.transfer(ns, c, beside, uint64(k), about)
	}
	return list
}

// noted returns the transfers of the attempt's notes.
func (a Attempt) noted(ns Namespace) []ledgers.Transfer {
	if len(a.notes) == 0 { // a payment may have no charges either
		return nil
	}
	return transfersOf(a.notes, ns, a.charges[0], a.First, a.First)
}

// notesBeside returns the transfers of notes beside what ended a hold, or corrected it.
func (h Hold) notesBeside(ns Namespace, beside ledgers.ID, notes []Note) []ledgers.Transfer {
	return transfersOf(notes, ns, h.Charges[h.noteAt], beside, h.First)
}

// notesOf reads notes.
func notesOf(transfers []ledgers.Transfer) []Note {
	notes := make([]Note, len(transfers))
	for i, t := range transfers {
		notes[i] = noteOf(t)
	}
	return notes
}

// noteIDs are the ids of all notes that there may be beside something.
func (ns Namespace) noteIDs(beside ledgers.ID) []ledgers.ID {
	ids := make([]ledgers.ID, MaxNotes)
	for k := range ids {
		ids[k] = ns.NoteTransfer(beside, uint64(k))
	}
	return ids
}

// notesIn picks the notes beside something out of what a look-up found.
func (ns Namespace) notesIn(found map[ledgers.ID]ledgers.Transfer, beside ledgers.ID,
) []ledgers.Transfer {
	var list []ledgers.Transfer
	for _, id := range ns.noteIDs(beside) {
		t, ok := found[id]
		if ok {
			list = append(list, t)
		}
	}
	return list
}

// withNotes returns the hold with what was noted when it was made.
func (h Hold) withNotes(notes []ledgers.Transfer) Hold {
	h.Notes = notesOf(notes)
	if len(notes) > 0 { // all are on one account
		h.noteAt = max(0, slices.IndexFunc(h.members, func(m ledgers.Transfer) bool {
			return m.DebitAccountID == notes[0].DebitAccountID
		}))
	}
	return h
}

// Note keeps a note on the account of a charge as the n-th of its kind there. It reports false,
// and changes nothing, where there is an n-th already. Again says that the same was asked before
// and not answered: one that is the same is then taken for it.
func (b *Book) Note(ctx context.Context, c Charge, n uint64, note Note, again bool,
) (bool, error) {
	openings, err := b.provision(ctx, []Charge{c})
	if err != nil {
		return false, err
	}
	t := note.transfer(b.namespace, c, c.account, n, ledgers.ID{})
	results, err := b.createTransfers(ctx, append(quotas(openings), t))
	if err != nil {
		return false, err
	}
	err = b.sawOpenings(ctx, openings, results)
	if err != nil {
		return false, err
	}
	switch status := results[len(openings)].Status; {
	case status == ledgers.TransferCreated, again && status == ledgers.TransferExists:
		return true, nil
	case status.Exists():
		return false, nil
	default:
		return false, unexpected(status, t)
	}
}

// NoteEntry is a note as the ledger has it.
type NoteEntry struct {
	Note
	// Timestamp is the ledger's time of the note in nanoseconds since 1970. The notes of one attempt,
	// settlement or correction follow one another without anything between.
	Timestamp uint64
	// About is the receipt of the reservation that the note is about, zero for one that stands alone.
	About ledgers.ID
}

// Notes reads the notes on the account of a charge, oldest first, from the ledger's time from on,
// up to but without to; at most limit, which is at most [MaxPage].
func (b *Book) Notes(ctx context.Context, c Charge, from, to uint64, limit int,
) ([]NoteEntry, error) {
	if from >= to {
		return nil, nil
	}
	list, err := b.driver.AccountTransfers(ctx, ledgers.AccountFilter{
		AccountID: c.account, Code: CodeNote, Debits: true, Limit: uint32(min(limit, MaxPage)),
		TimestampMin: from, TimestampMax: to - 1,
	})
	if err != nil {
		return nil, fmt.Errorf("notes on account %s: %w", c.account, err)
	}
	entries := make([]NoteEntry, len(list))
	for i, t := range list {
		entries[i] = NoteEntry{
			Note: noteOf(t), Timestamp: t.Timestamp, About: ledgers.ID(t.UserData128),
		}
	}
	return entries, nil
}
