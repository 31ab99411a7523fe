package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"

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
// the ledger could not be read: ErrInUse, ErrFormat, ErrCorrupt or the system's. It needs about 250
// bytes of memory for each account, whatever the number of transfers.
func Verify(dir string) (Report, error) { return verify(dir, vfs.Default) }

func verify(dir string, files vfs.FS) (report Report, err error) {
	store, err := pebble.Peek(dir, files)
	if err == nil && !store.Exists {
		// Nothing is there, so nothing is locked either: that would make a file.
		err = checkFiles(dir, files)
		if err == nil {
			err = pebble.ErrDBDoesNotExist
		}
	}
	if err != nil {
		return Report{}, describe(dir, err, errOpen)
	}
	lock, err := lockDir(dir, files)
	if err != nil {
		return Report{}, describe(dir, err, errOpen)
	}
	defer lock.Close()
	err = checkFiles(dir, files)
	if err != nil {
		return Report{}, describe(dir, err, errOpen)
	}
	fatal := func(error) {}
	options := pebbleOptions(files, lock, memTableBytes, fatal)
	options.ReadOnly = true
	db, err := pebble.Open(dir, options)
	if err != nil {
		return Report{}, describe(dir, notOpened(dir, files, err), errOpen)
	}
	v := &verifier{store: diskStore{db: db}}
	err = errors.Join(v.run(), db.Close())
	if err != nil {
		return v.report, describe(dir, err, errOpen)
	}
	return v.report, nil
}

// verifier goes through a ledger kind by kind.
type verifier struct {
	store  diskStore
	report Report
	seed   maphash.Seed
	// reflected is the ledger time up to which every stored account must hold everything.
	reflected uint64
	accounts  map[ledgers.ID]*verified
	// endings goes over the keys of ended transfers beside the transfers.
	endings *pebble.Iterator
	// expected are checksums of the keys that the transfers ask for, by kind. They do not depend on
	// the order.
	expected [256]checksum
}

// verified is what the transfers make of an account.
type verified struct {
	timestamp uint64
	// asOf is the ledger time of the stored record, stored its sums then.
	asOf   uint64
	stored balance
	// now is the sums as of the last ledger time.
	now balance
}

// balance is the four sums of an account.
type balance [4]ledgers.Amount

// The places of the sums in a balance.
const (
	debitsPending = iota
	debitsPosted
	creditsPending
	creditsPosted
)

func sums(a *ledgers.Account) balance {
	return balance{a.DebitsPending, a.DebitsPosted, a.CreditsPending, a.CreditsPosted}
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
	format, err := readNumber(v.store.db, keyFormat)
	if err != nil {
		return err
	}
	if format > formatVersion {
		return ErrFormat
	}
	v.seed = maphash.MakeSeed()
	v.accounts = map[ledgers.ID]*verified{}
	defer v.store.endReads()
	for _, step := range []func() error{
		v.readTimes, v.readAccounts, v.readTransfers, v.compareAccounts, v.compareIndexes,
	} {
		err = step()
		if err != nil {
			return err
		}
	}
	return v.store.err
}

// readTimes finds the last ledger time.
func (v *verifier) readTimes() error {
	var errs [3]error
	var last, newest uint64
	v.reflected, errs[0] = readNumber(v.store.db, keyReflected)
	last, errs[1] = readNumber(v.store.db, keyLast)
	newest, errs[2] = newestTransfer(v.store.db)
	v.report.AsOf = max(v.reflected, last, newest)
	return errors.Join(errs[:]...)
}

func newestTransfer(db *pebble.DB) (timestamp uint64, err error) {
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kindTransfer}, UpperBound: []byte{kindTransfer + 1},
	})
	if err != nil {
		return 0, err
	}
	if it.Last() {
		timestamp, err = keyUint64(it.Key(), 1)
	}
	return timestamp, errors.Join(err, it.Close())
}

// scan calls visit with every key of a kind.
func (v *verifier) scan(kind byte, visit func(key, value []byte) error) error {
	it, err := v.store.db.NewIter(&pebble.IterOptions{
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
		a, err := parseAccount(key, value)
		if err != nil {
			return err
		}
		v.report.Accounts++
		v.accounts[a.ID] = &verified{timestamp: a.Timestamp, asOf: max(a.asOf, v.reflected)}
		return nil
	})
}

func parseAccount(key, value []byte) (account, error) {
	high, _ := keyUint64(key, 1)
	low, err := keyUint64(key, 9)
	if err != nil {
		return account{}, err
	}
	return decodeAccount(value, ledgers.ID{Hi: high, Lo: low})
}

// readTransfers sums up the transfers and notes which index entries they ask for.
func (v *verifier) readTransfers() (err error) {
	v.endings, err = v.store.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kindEnding}, UpperBound: []byte{kindEnding + 1},
	})
	if err != nil {
		return err
	}
	err = v.scan(kindTransfer, func(key, value []byte) error {
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
		v.expect(appendJournalKey(nil, kindDebitJournal, debit.timestamp, t.Code, timestamp), nil)
		v.expect(appendJournalKey(nil, kindCreditJournal, credit.timestamp, t.Code, timestamp), nil)
		v.sum(&t, debit, credit)
		return nil
	})
	return errors.Join(err, v.endings.Close())
}

func (v *verifier) expect(key, value []byte) {
	v.expected[key[0]].add(v.seed, key, value)
}

// sum adds a transfer to the sums of its accounts: a pending one for as long as it is live, a void
// not at all.
func (v *verifier) sum(t *ledgers.Transfer, debit, credit *verified) {
	switch {
	case t.Flags&(ledgers.PostPending|ledgers.VoidPending) != 0:
		v.sumEnding(t, debit, credit)
	case t.Flags.Has(ledgers.Pending):
		until := v.liveUntil(t)
		if v.report.AsOf < until {
			v.report.Live++
		}
		v.book(debit, debitsPending, t, until)
		v.book(credit, creditsPending, t, until)
	default:
		v.book(debit, debitsPosted, t, endOfTime)
		v.book(credit, creditsPosted, t, endOfTime)
	}
}

// book adds a transfer that counts from its own time until another.
func (v *verifier) book(a *verified, place int, t *ledgers.Transfer, until uint64) {
	if t.Timestamp <= a.asOf && a.asOf < until {
		a.stored[place] = a.stored[place].Add(t.Amount)
	}
	if v.report.AsOf < until {
		a.now[place] = a.now[place].Add(t.Amount)
	}
}

// liveUntil returns when a pending transfer was posted or voided, or else when it times out.
func (v *verifier) liveUntil(t *ledgers.Transfer) uint64 {
	key := appendTimeKey(nil, kindEnding, t.Timestamp)
	if v.endings.SeekGE(key) && bytes.Equal(v.endings.Key(), key) {
		ended, err := keyUint64(v.endings.Value(), 1)
		v.store.fail(err)
		return ended
	}
	end := t.ExpiresAt()
	switch {
	case end == 0:
		return endOfTime
	case end > v.reflected:
		v.expect(appendPairKey(nil, kindLive, end, t.Timestamp), nil)
	}
	return end
}

func (v *verifier) sumEnding(t *ledgers.Transfer, debit, credit *verified) {
	pending, presence := v.store.transfer(t.PendingID)
	if presence != found {
		v.report.problem("transfer %v: its pending transfer %v is missing", t.ID, t.PendingID)
		return
	}
	how := endingVoided
	if t.Flags.Has(ledgers.PostPending) {
		how = endingPosted
		v.book(debit, debitsPosted, t, endOfTime)
		v.book(credit, creditsPosted, t, endOfTime)
	}
	v.expect(appendTimeKey(nil, kindEnding, pending.Timestamp),
		appendTimeKey(nil, byte(how), t.Timestamp))
}

// compareAccounts holds the accounts to what the transfers make of them, to their flags and to each
// other.
func (v *verifier) compareAccounts() error {
	perLedger := map[uint32]*balance{}
	err := v.scan(kindAccount, func(key, value []byte) error {
		a, err := parseAccount(key, value)
		if err != nil {
			return err
		}
		want, got := v.accounts[a.ID], sums(&a.Account)
		if got != want.stored {
			v.report.problem("account %v: its sums are %v, its transfers make %v",
				a.ID, got, want.stored)
		}
		total := perLedger[a.Ledger]
		if total == nil {
			total = &balance{}
			perLedger[a.Ledger] = total
		}
		for i := range got {
			// What the transfers after the stored record make of it.
			got[i] = got[i].SubWrap(want.stored[i]).AddWrap(want.now[i])
			total[i] = total[i].AddWrap(got[i])
		}
		v.checkFlags(&a.Account, got)
		return nil
	})
	for number, s := range perLedger {
		if s[debitsPending] != s[creditsPending] || s[debitsPosted] != s[creditsPosted] {
			v.report.problem("ledger %d: debits are not credits: %v", number, *s)
		}
	}
	return err
}

func (v *verifier) checkFlags(a *ledgers.Account, s balance) {
	debits, debitsFit := ledgers.Sum(s[debitsPending], s[debitsPosted])
	credits, creditsFit := ledgers.Sum(s[creditsPending], s[creditsPosted])
	switch {
	case !debitsFit || !creditsFit:
		v.report.problem("account %v: its sums do not fit into 128 bits", a.ID)
	case a.Flags&ledgers.DebitsMustNotExceedCredits != 0 && debits.Cmp(s[creditsPosted]) > 0:
		v.report.problem("account %v: its debits exceed its credits: %v", a.ID, s)
	case a.Flags&ledgers.CreditsMustNotExceedDebits != 0 && credits.Cmp(s[debitsPosted]) > 0:
		v.report.problem("account %v: its credits exceed its debits: %v", a.ID, s)
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
			if kind != kindLive || end > v.reflected {
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
