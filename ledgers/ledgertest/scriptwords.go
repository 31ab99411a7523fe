package ledgertest

import (
	"fmt"
	"strings"

	"weir/ledgers"
)

// flagNames are the names of flags in scripts, from the lowest bit.
type flagNames []string

var (
	accountFlagNames = flagNames{
		"linked", "debits<=credits", "credits<=debits", "history", "imported", "closed", "reserved",
	}
	transferFlagNames = flagNames{
		"linked", "pending", "post", "void", "balancing_debit", "balancing_credit",
		"closing_debit", "closing_credit", "imported", "reserved",
	}
	journalFlagNames = flagNames{"debits", "credits", "reversed"}
)

// format writes flags as scripts do.
func (names flagNames) format(flags uint16) string {
	var set []string
	for bit, name := range names {
		if flags&(1<<bit) != 0 {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return "-"
	}
	return strings.Join(set, "|")
}

// wordReader reads the words of a row one by one. The first fault is kept in err; what is read
// after it is zero.
type wordReader struct {
	player *player
	words  []string
	err    error
}

func (r *wordReader) fail(word string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%q: %w", word, err)
	}
}

func (r *wordReader) more() bool { return len(r.words) > 0 && r.err == nil }

func (r *wordReader) next() string {
	if len(r.words) == 0 {
		r.fail("", errWordMissing)
		return "0"
	}
	word := r.words[0]
	r.words = r.words[1:]
	return word
}

func (r *wordReader) id() ledgers.ID { return r.player.id(r.next(), r) }

// field reads NAME=VALUE.
func (r *wordReader) field() (name, value string) {
	word := r.next()
	name, value, ok := strings.Cut(word, "=")
	if !ok {
		r.fail(word, errUnknownField)
	}
	return name, value
}

// amount reads a number, max or max-N.
func (r *wordReader) amount(word string) ledgers.Amount {
	less, ok := strings.CutPrefix(word, "max")
	if !ok {
		n, err := parseAmount(word)
		if err != nil {
			r.fail(word, err)
		}
		return n
	}
	n, err := parseAmount("0" + strings.TrimPrefix(less, "-"))
	if err != nil {
		r.fail(word, err)
	}
	return ledgers.MaxAmount.Sub(n)
}

// number reads a number that must fit into so many bits.
func (r *wordReader) number(word string, bits int) uint64 {
	n, err := parseAmount(word)
	if err != nil || n.Len() > bits {
		r.fail(word, errNotDecimal)
	}
	return n.Lo
}

func (r *wordReader) flags(names flagNames) uint16 {
	word := r.next()
	if word == "-" {
		return 0
	}
	var flags uint16
next:
	for name := range strings.SplitSeq(word, "|") {
		for bit, known := range names {
			if name == known {
				flags |= 1 << bit
				continue next
			}
		}
		r.fail(name, errUnknownFlag)
	}
	return flags
}

// account reads what follows the command `account`.
func (r *wordReader) account() ledgers.Account {
	a := ledgers.Account{
		ID:     r.id(),
		Ledger: uint32(r.number(r.next(), 32)),
		Code:   uint16(r.number(r.next(), 16)),
		Flags:  ledgers.AccountFlags(r.flags(accountFlagNames)),
	}
	for r.more() {
		field, value := r.field()
		switch field {
		case "debits_pending":
			a.DebitsPending = r.amount(value)
		case "debits_posted":
			a.DebitsPosted = r.amount(value)
		case "credits_pending":
			a.CreditsPending = r.amount(value)
		case "credits_posted":
			a.CreditsPosted = r.amount(value)
		case "user_data_128":
			a.UserData128 = r.amount(value)
		case "user_data_64":
			a.UserData64 = r.number(value, 64)
		case "user_data_32":
			a.UserData32 = uint32(r.number(value, 32))
		case "timestamp":
			a.Timestamp = r.number(value, 64)
		default:
			r.fail(field, errUnknownField)
		}
	}
	return a
}

// transfer reads what follows the command `transfer`.
func (r *wordReader) transfer() ledgers.Transfer {
	t := ledgers.Transfer{
		ID:              r.id(),
		DebitAccountID:  r.id(),
		CreditAccountID: r.id(),
		Amount:          r.amount(r.next()),
		Ledger:          uint32(r.number(r.next(), 32)),
		Code:            uint16(r.number(r.next(), 16)),
		Flags:           ledgers.TransferFlags(r.flags(transferFlagNames)),
	}
	for r.more() {
		field, value := r.field()
		switch field {
		case "pending_id":
			t.PendingID = r.player.id(value, r)
		case "timeout":
			t.Timeout = uint32(r.number(value, 32))
		case "user_data_128":
			t.UserData128 = r.amount(value)
		case "user_data_64":
			t.UserData64 = r.number(value, 64)
		case "user_data_32":
			t.UserData32 = uint32(r.number(value, 32))
		case "timestamp":
			t.Timestamp = r.number(value, 64)
		default:
			r.fail(field, errUnknownField)
		}
	}
	return t
}
