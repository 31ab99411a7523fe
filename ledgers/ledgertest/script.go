package ledgertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/ledgers"
)

// A script tells one subject of the ledger in rows, each with what the ledger must answer. The
// files are testdata/scripts/*.txt, and every driver plays all of them. The grammar:
//
//	# prose                                                      to the reader; so are empty lines
//	account  ID LEDGER CODE FLAGS [FIELD=VALUE ...]              -> STATUS
//	transfer ID DEBIT CREDIT AMOUNT LEDGER CODE FLAGS [FIELD=VALUE ...] -> STATUS
//	commit                                 sends the rows since the last commit as one batch
//	tick     DURATION                      moves the ledger's clock by at least this
//	balance  ID                            -> PENDING/POSTED debits, PENDING/POSTED credits, FLAGS
//	find     ID                            -> DEBIT CREDIT AMOUNT LEDGER CODE FLAGS [FIELD=VALUE ...]
//	journal  ID FLAGS [FIELD=VALUE ...]    -> ID ...
//
// The words of a row stand apart by any number of spaces. An answer of nothing is `none`.
//
//	ID        a letter and a number, such as A1 or T1, the same id all through the script and
//	          another one in each run; 0; max
//	AMOUNT    a number; max, which is 2^128-1; max-N. So are user_data_128 and the sums
//	FLAGS     names joined by |, or - for none. Of accounts: linked, debits<=credits,
//	          credits<=debits, history, imported, closed; of transfers: linked, pending, post, void,
//	          balancing_debit, balancing_credit, closing_debit, closing_credit, imported; `reserved`
//	          is a bit that means nothing. Of a journal: debits, credits, reversed
//	FIELD     the other fields under TigerBeetle's names; pending_id is an ID. Of a journal: limit
//	          (10 if left out), code, min and max (IDs of transfers, whose timestamps are meant)
//	STATUS    TigerBeetle's name of the status
//	DURATION  as time.ParseDuration reads it

// scriptRow is one line of a script.
type scriptRow struct {
	number int
	// text is the line up to the arrow, spaces at its end included; want is what follows.
	text string
	want string
	// words are the words of text; none for a comment.
	words []string
}

// arrow stands before what the ledger must answer.
const arrow = "-> "

// parseScript cuts a script into rows.
func parseScript(script string) []scriptRow {
	var rows []scriptRow
	for i, text := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		row := scriptRow{number: i + 1, text: text}
		if !strings.HasPrefix(text, "#") {
			row.text, row.want, _ = strings.Cut(text, arrow)
			row.words = strings.Fields(row.text)
		}
		rows = append(rows, row)
	}
	return rows
}

// formatScript is the reverse of parseScript, with new answers by the numbers of their rows.
func formatScript(rows []scriptRow, answers map[int]string) string {
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(row.text)
		answer, ok := answers[row.number]
		if ok {
			b.WriteString(arrow + answer)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// player plays one script on a ledger.
type player struct {
	harness Harness
	ids     idSpace
	names   map[ledgers.ID]string
	answers map[int]string
	// accounts and transfers wait for the next commit; queued are their rows.
	accounts  []ledgers.Account
	transfers []ledgers.Transfer
	queued    []int
}

// playScript plays rows and returns the ledger's answers by the number of the row.
func playScript(ctx context.Context, h Harness, rows []scriptRow) (map[int]string, error) {
	p := &player{
		harness: h, ids: newIDSpace(), names: map[ledgers.ID]string{}, answers: map[int]string{},
	}
	for _, row := range rows {
		if len(row.words) == 0 {
			continue
		}
		err := p.play(ctx, row)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", row.number, err)
		}
	}
	if len(p.queued) > 0 {
		return nil, fmt.Errorf("line %d: %w", p.queued[0], errNotCommitted)
	}
	return p.answers, nil
}

func (p *player) play(ctx context.Context, row scriptRow) error {
	command, words := row.words[0], &wordReader{player: p, words: row.words[1:]}
	queues := command == "account" || command == "transfer" || command == "commit"
	if !queues && len(p.queued) > 0 {
		return fmt.Errorf("line %d: %w", p.queued[0], errNotCommitted)
	}
	var answer string
	var err error
	switch command {
	case "account":
		p.accounts = append(p.accounts, words.account())
		p.queued = append(p.queued, row.number)
		return words.err
	case "transfer":
		p.transfers = append(p.transfers, words.transfer())
		p.queued = append(p.queued, row.number)
		return words.err
	case "commit":
		return p.commit(ctx)
	case "tick":
		d, err := time.ParseDuration(words.next())
		if err != nil {
			return fmt.Errorf("tick: %w", err)
		}
		p.harness.Advance(d)
		return words.err
	case "balance":
		answer, err = p.balance(ctx, words.id())
	case "find":
		answer, err = p.find(ctx, words.id())
	case "journal":
		answer, err = p.journal(ctx, words)
	default:
		return fmt.Errorf("%q: %w", command, errUnknownCommand)
	}
	if err != nil {
		return err
	}
	p.answers[row.number] = answer
	return words.err
}

// commit sends the rows that wait, which must be of one kind.
func (p *player) commit(ctx context.Context) error {
	if (len(p.accounts) == 0) == (len(p.transfers) == 0) {
		return errMixedCommit
	}
	var statuses []string
	if len(p.accounts) > 0 {
		results, err := p.harness.Driver.CreateAccounts(ctx, p.accounts)
		if err != nil {
			return err
		}
		for _, r := range results {
			statuses = append(statuses, r.Status.String())
		}
	} else {
		results, err := p.harness.Driver.CreateTransfers(ctx, p.transfers)
		if err != nil {
			return err
		}
		for _, r := range results {
			statuses = append(statuses, r.Status.String())
		}
	}
	if len(statuses) != len(p.queued) {
		return fmt.Errorf("%d results for %d events: %w",
			len(statuses), len(p.queued), errWrongCount)
	}
	for i, number := range p.queued {
		p.answers[number] = statuses[i]
	}
	p.accounts, p.transfers, p.queued = nil, nil, nil
	return nil
}

func (p *player) balance(ctx context.Context, id ledgers.ID) (string, error) {
	found, err := p.harness.Driver.LookupAccounts(ctx, []ledgers.ID{id})
	if err != nil || len(found) == 0 {
		return "none", err
	}
	a := found[0]
	return fmt.Sprintf("%v/%v debits, %v/%v credits, %s", a.DebitsPending, a.DebitsPosted,
		a.CreditsPending, a.CreditsPosted, accountFlagNames.format(uint16(a.Flags))), nil
}

func (p *player) find(ctx context.Context, id ledgers.ID) (string, error) {
	found, err := p.harness.Driver.LookupTransfers(ctx, []ledgers.ID{id})
	if err != nil || len(found) == 0 {
		return "none", err
	}
	t := found[0]
	var l line
	_, _ = fmt.Fprintf(&l, "%s %s %v %d %d %s", p.name(t.DebitAccountID), p.name(t.CreditAccountID),
		t.Amount, t.Ledger, t.Code, transferFlagNames.format(uint16(t.Flags)))
	l.add("pending_id", p.name(t.PendingID), t.PendingID.IsZero())
	l.number("timeout", uint64(t.Timeout))
	l.amount("user_data_128", t.UserData128)
	l.number("user_data_64", t.UserData64)
	l.number("user_data_32", uint64(t.UserData32))
	return l.String(), nil
}

func (p *player) journal(ctx context.Context, words *wordReader) (string, error) {
	filter, err := p.filter(ctx, words)
	if err != nil {
		return "", err
	}
	found, err := p.harness.Driver.AccountTransfers(ctx, filter)
	if err != nil || len(found) == 0 {
		return "none", err
	}
	names := make([]string, len(found))
	for i, t := range found {
		names[i] = p.name(t.ID)
	}
	return strings.Join(names, " "), nil
}

func (p *player) filter(ctx context.Context, words *wordReader) (ledgers.AccountFilter, error) {
	filter := ledgers.AccountFilter{AccountID: words.id(), Limit: 10}
	flags := words.flags(journalFlagNames)
	filter.Debits, filter.Credits, filter.Reversed = flags&1 != 0, flags&2 != 0, flags&4 != 0
	for words.more() {
		field, value := words.field()
		switch field {
		case "limit":
			filter.Limit = uint32(words.number(value, 32))
		case "code":
			filter.Code = uint16(words.number(value, 16))
		case "min", "max":
			found, err := p.harness.Driver.LookupTransfers(ctx, []ledgers.ID{p.id(value, words)})
			if err != nil {
				return filter, err
			}
			if len(found) == 0 {
				return filter, fmt.Errorf("%q: %w", value, errNotFound)
			}
			if field == "min" {
				filter.TimestampMin = found[0].Timestamp
			} else {
				filter.TimestampMax = found[0].Timestamp
			}
		default:
			words.fail(field, errUnknownField)
		}
	}
	return filter, words.err
}

// id gives a symbol its id.
func (p *player) id(symbol string, words *wordReader) ledgers.ID {
	switch symbol {
	case "0":
		return ledgers.ID{}
	case "max":
		return ledgers.MaxID
	}
	number, err := strconv.ParseUint(symbol[min(1, len(symbol)):], 10, 24)
	if err != nil || symbol[0] < 'A' || symbol[0] > 'Z' {
		words.fail(symbol, errBadSymbol)
		return ledgers.ID{}
	}
	id := p.ids.id(uint64(symbol[0])<<24 | number)
	p.names[id] = symbol
	return id
}

// name is the reverse of id.
func (p *player) name(id ledgers.ID) string {
	name, ok := p.names[id]
	switch {
	case ok:
		return name
	case id.IsZero():
		return "0"
	default:
		return id.String()
	}
}
