package ledgertest

import (
	"math/rand/v2"
	"time"

	"weir/ledgers"
)

// The ids of a random run: accounts are numbered from 1, transfers from firstTransfer.
const (
	randomAccounts = 15 // a multiple of randomLedgers: account n is on ledger n%randomLedgers
	randomLedgers  = 3
	firstTransfer  = 1000
	randomBatch    = 12
)

// generator makes the steps of a random run. It knows what it sent, not what was answered.
type generator struct {
	*rand.Rand
	// accounts are as they are sent when nothing is wrong with them, by number-1.
	accounts []ledgers.Account
	// sent are the transfers so far, pending the ids of those that were pending.
	sent    []ledgers.Transfer
	pending []ledgers.ID
	next    uint64
}

// randomSequence makes steps from a seed, with the first accounts before them and a look at
// everything after them.
func randomSequence(seed uint64, steps int) []randomStep {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), next: firstTransfer}
	for n := range uint64(randomAccounts) {
		flags := ledgers.AccountFlags(0)
		if g.chance(45) {
			flags = pick(g, ledgers.DebitsMustNotExceedCredits, ledgers.CreditsMustNotExceedDebits)
		}
		if g.chance(20) {
			flags |= ledgers.AccountHistory
		}
		g.accounts = append(g.accounts, ledgers.Account{
			ID: ledgers.ID{Lo: n + 1}, Ledger: 1 + uint32(n)%randomLedgers, Code: 1, Flags: flags,
			UserData64: g.Uint64N(2),
		})
	}
	sequence := []randomStep{{accounts: g.accounts[:randomAccounts-1]}}
	for range steps {
		sequence = append(sequence, g.step())
	}
	all := randomStep{findTransfers: []ledgers.ID{}}
	for id := uint64(firstTransfer); id < g.next && id < firstTransfer+ledgers.MaxEvents; id++ {
		all.findTransfers = append(all.findTransfers, ledgers.ID{Lo: id})
	}
	var accounts randomStep
	for _, a := range g.accounts {
		accounts.lookupAccounts = append(accounts.lookupAccounts, a.ID)
	}
	return append(sequence, all, accounts)
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[V any](g *generator, choices ...V) V { return choices[g.IntN(len(choices))] }

func (g *generator) step() randomStep {
	switch n := g.IntN(100); {
	case n < 55:
		return randomStep{transfers: g.batch()}
	case n < 63:
		return randomStep{accounts: g.accountBatch()}
	case n < 76:
		return randomStep{lookupAccounts: g.accountIDs()}
	case n < 84:
		return randomStep{findTransfers: g.transferIDs()}
	case n < 96:
		return randomStep{filter: g.filter()}
	default:
		return randomStep{advance: time.Duration(1+g.IntN(30)) * 100 * time.Millisecond}
	}
}

func (g *generator) accountBatch() []ledgers.Account {
	batch := make([]ledgers.Account, 1+g.IntN(4))
	for i := range batch {
		a := pick(g, g.accounts...)
		if g.chance(60) {
			g.spoilAccount(&a)
		}
		if g.chance(25) {
			a.Flags |= ledgers.AccountLinked
		}
		batch[i] = a
	}
	return batch
}

// spoilAccount changes one field.
func (g *generator) spoilAccount(a *ledgers.Account) {
	switch g.IntN(12) {
	case 0:
		a.ID = pick(g, ledgers.ID{}, ledgers.MaxID)
	case 1:
		a.Flags ^= 1 << g.IntN(4)
	case 2:
		a.Flags |= ledgers.DebitsMustNotExceedCredits | ledgers.CreditsMustNotExceedDebits
	case 3:
		a.Flags |= 1 << (6 + g.IntN(10))
	case 4:
		a.Flags |= ledgers.AccountClosed
	case 5:
		*pick(g, &a.DebitsPending, &a.DebitsPosted, &a.CreditsPending, &a.CreditsPosted) =
			g.amount()
	case 6:
		a.Ledger = uint32(g.IntN(randomLedgers + 1))
	case 7:
		a.Code = uint16(g.IntN(3))
	case 8:
		a.Timestamp = pick(g, uint64(0), 1, 1<<63)
	case 9:
		a.UserData128 = g.amount()
	case 10:
		a.UserData64 = g.Uint64N(3)
	default:
		a.UserData32 = g.Uint32N(3)
	}
}

func (g *generator) accountIDs() []ledgers.ID {
	ids := make([]ledgers.ID, 1+g.IntN(6))
	for i := range ids {
		ids[i] = ledgers.ID{Lo: g.Uint64N(randomAccounts + 2)}
	}
	return ids
}

func (g *generator) transferIDs() []ledgers.ID {
	ids := make([]ledgers.ID, 1+g.IntN(6))
	for i := range ids {
		ids[i] = ledgers.ID{Lo: firstTransfer + g.Uint64N(g.next-firstTransfer+2)}
		if g.chance(5) {
			ids[i] = pick(g, ledgers.ID{}, ledgers.MaxID)
		}
	}
	return ids
}

func (g *generator) filter() *ledgers.AccountFilter {
	f := &ledgers.AccountFilter{
		AccountID: ledgers.ID{Lo: g.Uint64N(randomAccounts + 2)},
		Limit:     pick[uint32](g, 0, 1, 2, 5, 10, 100, 1<<32-1),
		Debits:    g.chance(80), Credits: g.chance(80), Reversed: g.chance(50),
	}
	if g.chance(30) {
		f.Code = uint16(g.IntN(3))
	}
	if g.chance(40) {
		f.TimestampMin = g.Uint64N(1000)
	}
	if g.chance(40) {
		f.TimestampMax = g.Uint64N(1000)
	}
	return f
}

func (g *generator) batch() []ledgers.Transfer {
	batch := make([]ledgers.Transfer, 1+g.IntN(randomBatch))
	chains := g.chance(50)
	for i := range batch {
		t := g.transfer()
		if g.chance(15) {
			g.spoil(&t)
		}
		last := i == len(batch)-1
		if chains && g.chance(25) && (!last || g.chance(20)) {
			t.Flags |= ledgers.Linked
		}
		batch[i] = t
		g.sent = append(g.sent, t)
		if t.ID.Lo >= firstTransfer && t.Flags.Has(ledgers.Pending) {
			g.pending = append(g.pending, t.ID)
		}
	}
	return batch
}

// transfer makes a transfer that may well be created, or sends an earlier one again.
func (g *generator) transfer() ledgers.Transfer {
	if len(g.sent) > 0 && g.chance(12) {
		again := pick(g, g.sent...)
		if g.chance(60) {
			id := again.ID
			g.spoil(&again)
			again.ID = id
		}
		return again
	}
	t := ledgers.Transfer{ID: ledgers.ID{Lo: g.next}}
	g.next++
	if g.chance(20) {
		t.UserData64 = g.Uint64N(3)
	}
	if len(g.pending) > 0 && g.chance(25) {
		g.end(&t)
		return t
	}
	debit := g.IntN(randomAccounts)
	credit := (debit + randomLedgers*(1+g.IntN(4))) % randomAccounts
	t.DebitAccountID, t.CreditAccountID = g.accounts[debit].ID, g.accounts[credit].ID
	t.Ledger, t.Code, t.Amount = g.accounts[debit].Ledger, uint16(1+g.IntN(2)), g.amount()
	if g.chance(45) {
		t.Flags |= ledgers.Pending
		t.Timeout = pick[uint32](g, 0, 0, 1, 1, 2, 3, 100, 1<<32-1)
		if g.chance(4) {
			t.Flags |= pick(g, ledgers.ClosingDebit, ledgers.ClosingCredit,
				ledgers.ClosingDebit|ledgers.ClosingCredit)
			t.Timeout = pick[uint32](g, 0, 1, 2)
		}
	}
	if g.chance(15) {
		t.Flags |= pick(g, ledgers.BalancingDebit, ledgers.BalancingCredit,
			ledgers.BalancingDebit|ledgers.BalancingCredit)
	}
	return t
}

// end makes a transfer that posts or voids, most often a recent pending one.
func (g *generator) end(t *ledgers.Transfer) {
	from := max(0, len(g.pending)-8)
	if g.chance(20) {
		from = 0
	}
	t.PendingID = g.pending[from+g.IntN(len(g.pending)-from)]
	t.Flags = pick(g, ledgers.PostPending, ledgers.VoidPending)
	if g.chance(60) {
		t.Amount = pick(g, ledgers.MaxAmount, g.amount())
	}
	if g.chance(10) {
		g.misname(t)
	}
}

// misname gives an ending transfer one field that it could have left to the pending transfer.
func (g *generator) misname(t *ledgers.Transfer) {
	switch g.IntN(4) {
	case 0:
		t.DebitAccountID = pick(g, g.accounts...).ID
	case 1:
		t.CreditAccountID = pick(g, g.accounts...).ID
	case 2:
		t.Ledger = g.Uint32N(randomLedgers + 1)
	default:
		t.Code = uint16(g.IntN(3))
	}
}

func (g *generator) amount() ledgers.Amount {
	if g.chance(2) {
		return ledgers.MaxAmount.Sub64(g.Uint64N(12))
	}
	return ledgers.AmountOf(pick[uint64](g, 0, 1, 1, 2, 3, 5, 8, 20, 100))
}

// spoil changes one field.
func (g *generator) spoil(t *ledgers.Transfer) {
	switch g.IntN(13) {
	case 0:
		t.ID = pick(g, ledgers.ID{}, ledgers.MaxID)
	case 1:
		*pick(g, &t.DebitAccountID, &t.CreditAccountID) =
			pick(g, ledgers.ID{}, ledgers.MaxID, ledgers.ID{Lo: randomAccounts + 1})
	case 2:
		t.DebitAccountID = t.CreditAccountID
	case 3:
		t.DebitAccountID, t.CreditAccountID = pick(g, g.accounts...).ID, pick(g, g.accounts...).ID
	case 4:
		t.PendingID = pick(g, ledgers.ID{}, ledgers.MaxID, t.ID, ledgers.ID{Lo: g.next + 100})
	case 5:
		t.Flags &^= ledgers.Pending | ledgers.BalancingDebit | ledgers.BalancingCredit
		t.Flags |= pick(g, ledgers.PostPending, ledgers.VoidPending)
		t.PendingID = ledgers.ID{Lo: firstTransfer + g.Uint64N(g.next-firstTransfer)}
	case 6:
		t.Timeout = g.Uint32N(3)
	case 7:
		t.Flags ^= 1 << g.IntN(8)
	case 8:
		t.Flags |= 1 << (9 + g.IntN(7))
	case 9:
		t.Ledger = g.Uint32N(randomLedgers + 1)
	case 10:
		t.Code = uint16(g.IntN(3))
	case 11:
		t.Amount = g.amount()
	default:
		t.UserData128, t.UserData32 = g.amount(), g.Uint32N(3)
		t.Timestamp = pick(g, uint64(0), 0, 1, 1<<63)
	}
}
