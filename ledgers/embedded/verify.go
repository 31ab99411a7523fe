package embedded

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"weir/ledgers"
)

// maxProblems bounds the problems that a Report lists.
const maxProblems = 1000

// Report is what Verify has found.
type Report struct {
	// AsOf is the last ledger time, in nanoseconds since 1970.
	AsOf uint64
	// Accounts, Transfers and Burnt (ids of refused transfers) are counted as stored, Live are the
	// pending transfers that were neither ended nor timed out.
	Accounts, Transfers, Burnt, Live int
	// Problems says in words what is wrong, the first 1,000; none means that the ledger is sound.
	Problems []string
	// More counts the problems beyond those.
	More int
}

func (r *Report) problem(format string, args ...any) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// Verify reads the ledger in dir, which must not be open, and changes nothing. It checks that in
// every ledger debits are credits, pending and posted; that no account is past its flag; that each
// account's sums are those of its transfers, pending ones as far as they are live; and that the
// indexes hold the transfers and nothing else. What is wrong is in the report; an error means that
// the ledger could not be read: ErrInUse, ErrFormat, ErrCorrupt or the system's. It needs about 200
// bytes of memory for each account.
func Verify(dir string) (Report, error) { return verify(dir, vfs.Default) }

func verify(dir string, files vfs.FS) (report Report, err error) {
	_, err = files.Stat(dir)
	if err != nil {
		return Report{}, describe(dir, err, errOpen)
	}
	lock, err := lockDir(dir, files)
	if err != nil {
		return Report{}, describe(dir, err, errOpen)
	}
	defer lock.Close()
	err = checkLog(dir, files)
	if err != nil {
		return Report{}, describe(dir, err, errOpen)
	}
	fatal := func(error) {}
	options := pebbleOptions(files, lock, memTableBytes, fatal)
	options.ReadOnly = true
	db, err := pebble.Open(dir, options)
	if err != nil {
		return Report{}, describe(dir, err, errOpen)
	}
	v := &verifier{l: &Ledger{dir: dir, db: db, options: (&Options{
		CacheAccounts: math.MaxInt, fs: files,
	}).withDefaults()}}
	err = errors.Join(v.run(), db.Close())
	if err != nil {
		return v.report, describe(dir, err, errOpen)
	}
	return v.report, nil
}

// verifier goes through a ledger kind by kind.
type verifier struct {
	l      *Ledger
	report Report
	seed   maphash.Seed
	// accounts are the sums that the transfers make.
	accounts map[ledgers.ID]*ledgers.Account
	// expected are checksums of the keys that the transfers ask for, by kind. They do not depend on
	// the order.
	expected [256]checksum
}

type checksum struct {
	sum   uint64
	count int
}

func (c *checksum) add(seed maphash.Seed, key, value []byte) {
	c.sum += maphash.Bytes(seed, key)*31 + maphash.Bytes(seed, value)
	c.count++
}

func (v *verifier) run() (err error) {
	defer func() {
		problem := recover()
		if problem != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, problem)
		}
	}()
	format, err := readNumber(v.l.db, keyFormat)
	if err != nil {
		return err
	}
	if format > formatVersion {
		return ErrFormat
	}
	v.seed = maphash.MakeSeed()
	v.accounts = map[ledgers.ID]*ledgers.Account{}
	// The recovery that an opening would do stays in memory: the cache has no bound here.
	v.l.store = &diskStore{db: v.l.db, cache: newAccountCache(math.MaxInt)}
	defer v.l.store.endReads()
	v.report.AsOf, err = v.l.recoverAccounts(true)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		v.readAccounts, v.readTransfers, v.compareAccounts, v.compareIndexes,
	} {
		err = step()
		if err != nil {
			return err
		}
	}
	return v.l.store.err
}

// scan calls visit with every key of a kind.
func (v *verifier) scan(kind byte, visit func(key, value []byte) error) error {
	it, err := v.l.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kind}, UpperBound: []byte{kind + 1},
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		err = visit(it.Key(), it.Value())
		if err != nil {
			return err
		}
	}
	return it.Error()
}

// readAccounts notes which accounts there are, with empty sums.
func (v *verifier) readAccounts() error {
	return v.scan(kindAccount, func(key, value []byte) error {
		high, _ := keyUint64(key, 1)
		low, err := keyUint64(key, 9)
		if err != nil {
			return err
		}
		a, err := decodeAccount(value, ledgers.ID{Hi: high, Lo: low})
		if err != nil {
			return err
		}
		v.report.Accounts++
		v.accounts[a.ID] = &ledgers.Account{ID: a.ID, Timestamp: a.Timestamp}
		return nil
	})
}

// readTransfers sums up the transfers and notes which index entries they ask for.
func (v *verifier) readTransfers() error {
	return v.scan(kindTransfer, func(key, value []byte) error {
		timestamp, err := keyUint64(key, 1)
		if err != nil {
			return err
		}
		t, whole, err := decodeTransfer(value, timestamp)
		if err != nil {
			return err
		}
		v.expect(appendIDKey(nil, kindTransferID, t.ID), appendTimeKey(nil, 0, timestamp)[1:])
		if !whole {
			v.report.Burnt++
			return nil
		}
		v.report.Transfers++
		debit, credit := v.accounts[t.DebitAccountID], v.accounts[t.CreditAccountID]
		if debit == nil || credit == nil {
			v.report.problem("transfer %v: an account of it is missing", t.ID)
			return nil
		}
		v.expect(appendJournalKey(nil, kindDebitJournal, debit.Timestamp, t.Code, timestamp), nil)
		v.expect(appendJournalKey(nil, kindCreditJournal, credit.Timestamp, t.Code, timestamp), nil)
		v.sum(&t, debit, credit)
		return nil
	})
}

func (v *verifier) expect(key, value []byte) {
	v.expected[key[0]].add(v.seed, key, value)
}

// sum adds a transfer to the sums of its accounts: a pending one if it is live, a void not at all.
func (v *verifier) sum(t *ledgers.Transfer, debit, credit *ledgers.Account) {
	end := t.ExpiresAt()
	switch {
	case t.Flags&(ledgers.PostPending|ledgers.VoidPending) != 0:
		v.sumEnding(t, debit, credit)
		return
	case !t.Flags.Has(ledgers.Pending):
	case v.l.store.ending(t.Timestamp) != endingNone:
		return
	case end != 0:
		if end > v.l.store.reflected {
			v.expect(appendPairKey(nil, kindLive, end, t.Timestamp), nil)
		}
		if end <= v.report.AsOf {
			return
		}
		v.report.Live++
	default:
		v.report.Live++
	}
	applyTransfer(t, debit, debitSide)
	applyTransfer(t, credit, creditSide)
}

func (v *verifier) sumEnding(t *ledgers.Transfer, debit, credit *ledgers.Account) {
	pending, presence := v.l.store.transfer(t.PendingID)
	if presence != found {
		v.report.problem("transfer %v: its pending transfer %v is missing", t.ID, t.PendingID)
		return
	}
	how := endingVoided
	if t.Flags.Has(ledgers.PostPending) {
		how = endingPosted
		debit.DebitsPosted = debit.DebitsPosted.Add(t.Amount)
		credit.CreditsPosted = credit.CreditsPosted.Add(t.Amount)
	}
	v.expect(appendTimeKey(nil, kindEnding, pending.Timestamp),
		appendTimeKey(nil, byte(how), t.Timestamp))
}

// compareAccounts holds the accounts to what the transfers make of them, to their flags and to each
// other.
func (v *verifier) compareAccounts() error {
	perLedger := map[uint32]*ledgers.Account{}
	for id, want := range v.accounts {
		got := v.l.store.account(id)
		if got == nil {
			return v.l.store.err
		}
		if sums(&got.Account) != sums(want) {
			v.report.problem("account %v: its sums are %v, its transfers make %v",
				id, sums(&got.Account), sums(want))
		}
		v.checkFlags(&got.Account)
		total := perLedger[got.Ledger]
		if total == nil {
			total = &ledgers.Account{}
			perLedger[got.Ledger] = total
		}
		total.DebitsPending = total.DebitsPending.AddWrap(got.DebitsPending)
		total.DebitsPosted = total.DebitsPosted.AddWrap(got.DebitsPosted)
		total.CreditsPending = total.CreditsPending.AddWrap(got.CreditsPending)
		total.CreditsPosted = total.CreditsPosted.AddWrap(got.CreditsPosted)
	}
	for number, total := range perLedger {
		s := sums(total)
		if s[0] != s[2] || s[1] != s[3] {
			v.report.problem("ledger %d: debits are not credits: %v", number, s)
		}
	}
	return nil
}

// balance is the four sums of an account: debits pending and posted, credits pending and posted.
type balance [4]ledgers.Amount

func sums(a *ledgers.Account) balance {
	return balance{a.DebitsPending, a.DebitsPosted, a.CreditsPending, a.CreditsPosted}
}

func (v *verifier) checkFlags(a *ledgers.Account) {
	debits, debitsFit := ledgers.Sum(a.DebitsPending, a.DebitsPosted)
	credits, creditsFit := ledgers.Sum(a.CreditsPending, a.CreditsPosted)
	switch {
	case !debitsFit || !creditsFit:
		v.report.problem("account %v: its sums do not fit into 128 bits", a.ID)
	case a.Flags&ledgers.DebitsMustNotExceedCredits != 0 && debits.Cmp(a.CreditsPosted) > 0:
		v.report.problem("account %v: its debits exceed its credits: %v", a.ID, sums(a))
	case a.Flags&ledgers.CreditsMustNotExceedDebits != 0 && credits.Cmp(a.DebitsPosted) > 0:
		v.report.problem("account %v: its credits exceed its debits: %v", a.ID, sums(a))
	}
}

// compareIndexes holds the indexes to what the transfers ask for.
func (v *verifier) compareIndexes() error {
	indexes := map[byte]string{
		kindTransferID: "ids", kindDebitJournal: "debits", kindCreditJournal: "credits",
		kindEnding: "ended transfers", kindLive: "live transfers",
	}
	for kind, name := range indexes {
		var stored checksum
		err := v.scan(kind, func(key, value []byte) error {
			end, err := keyUint64(key, 1)
			if kind != kindLive || end > v.l.store.reflected {
				stored.add(v.seed, key, value)
			}
			return err
		})
		if err != nil {
			return err
		}
		if stored != v.expected[kind] {
			v.report.problem("the index of %s does not match the transfers: %d entries, not %d",
				name, stored.count, v.expected[kind].count)
		}
	}
	return nil
}
