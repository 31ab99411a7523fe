package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"weir/ledgers"
)

// Transfers never change, so they are read past the writer: whatever is not newer than the newest
// synced timestamp may be shown.

// readers lets a bounded number of reads go on at once, and none once it is closed.
type readers struct {
	mu     sync.Mutex
	active sync.WaitGroup
	count  int
	limit  int
	closed error
}

func (r *readers) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed != nil:
		return r.closed
	case r.count >= r.limit:
		return ledgers.ErrBusy
	}
	r.count++
	r.active.Add(1)
	return nil
}

func (r *readers) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count--
	r.active.Done()
}

// close waits for the reads that go on; later ones get err.
func (r *readers) close(err error) {
	r.mu.Lock()
	r.closed = err
	r.mu.Unlock()
	r.active.Wait()
}

// enterRead starts a read of n ids past the writer; readers.leave ends it.
func (l *Ledger) enterRead(ctx context.Context, n int) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	if n > ledgers.MaxEvents {
		return ledgers.ErrTooManyEvents
	}
	select {
	case <-l.closed:
		return ledgers.ErrClosed
	default:
	}
	select {
	case <-l.failed:
		return l.failure
	default:
	}
	return l.readers.enter()
}

// LookupTransfers implements ledgers.Driver.
func (l *Ledger) LookupTransfers(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Transfer, error) {
	err := l.enterRead(ctx, len(ids))
	if err != nil {
		return nil, err
	}
	defer l.readers.leave()
	durable := l.durable.Load()
	s := diskStore{db: l.db}
	transfers := make([]ledgers.Transfer, 0, len(ids))
	for _, id := range ids {
		t, presence := s.transfer(id)
		if presence == found && t.Timestamp <= durable {
			transfers = append(transfers, t)
		}
	}
	s.endReads()
	if s.err != nil {
		return nil, l.describe(s.err, ErrFailed)
	}
	return transfers, nil
}

// timestampMax is TigerBeetle's greatest timestamp; a filter beyond it finds nothing.
const timestampMax = math.MaxInt64

// AccountTransfers implements ledgers.Driver. It costs a few reads for each code that the account
// has transfers of, and one for each transfer returned.
func (l *Ledger) AccountTransfers(
	ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	err := l.enterRead(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer l.readers.leave()
	newest := l.durable.Load()
	if filter.TimestampMax != 0 {
		newest = min(newest, filter.TimestampMax)
	}
	s := diskStore{db: l.db, cache: newAccountCache(1)}
	a := s.account(filter.AccountID)
	if a == nil || filter.TimestampMin > newest || filter.TimestampMax > timestampMax {
		return []ledgers.Transfer{}, l.describeRead(s.err)
	}
	j := journal{
		store: &s, account: a.Timestamp, code: filter.Code,
		oldest: filter.TimestampMin, newest: newest,
		limit: int(min(filter.Limit, ledgers.MaxEvents)), reversed: filter.Reversed,
	}
	if filter.Debits {
		j.readSide(kindDebitJournal)
	}
	if filter.Credits {
		j.readSide(kindCreditJournal)
	}
	transfers := j.transfers()
	return transfers, l.describeRead(s.err)
}

func (l *Ledger) describeRead(err error) error {
	if err == nil {
		return nil
	}
	return l.describe(err, ErrFailed)
}

// journal collects the timestamps of an account's transfers, the first limit in order.
type journal struct {
	store          *diskStore
	account        uint64
	code           uint16 // 0: all
	oldest, newest uint64 // both inclusive
	limit          int
	reversed       bool
	timestamps     []uint64 // in order, at most limit
}

// readSide reads the debit or the credit side, one code after the other.
func (j *journal) readSide(kind byte) {
	if j.limit == 0 {
		return
	}
	it, err := j.store.db.NewIter(&pebble.IterOptions{
		LowerBound: appendTimeKey(nil, kind, j.account),
		UpperBound: appendTimeKey(nil, kind, j.account+1),
	})
	if err != nil {
		j.store.fail(err)
		return
	}
	for code, ok := j.nextCode(it, kind, j.code); ok; code, ok = j.nextCode(it, kind, code+1) {
		j.merge(j.readCode(it, kind, code))
		if j.code != 0 || code == ^uint16(0) {
			break
		}
	}
	err = it.Close()
	if err != nil {
		j.store.fail(err)
	}
}

// nextCode returns the first code from code on that the account has transfers of.
func (j *journal) nextCode(it *pebble.Iterator, kind byte, code uint16) (uint16, bool) {
	if j.code != 0 {
		return code, true
	}
	if !it.SeekGE(appendJournalKey(nil, kind, j.account, code, 0)) {
		return 0, false
	}
	code, _, err := parseJournalKey(it.Key())
	if err != nil {
		j.store.fail(err)
	}
	return code, err == nil
}

// readCode returns up to limit timestamps of one code, none beyond the worst that is kept so far.
func (j *journal) readCode(it *pebble.Iterator, kind byte, code uint16) []uint64 {
	oldest, newest := j.oldest, j.newest
	if len(j.timestamps) == j.limit {
		worst := j.timestamps[j.limit-1]
		if j.reversed {
			oldest = max(oldest, worst)
		} else {
			newest = min(newest, worst)
		}
	}
	var ok bool
	step := it.Next
	if j.reversed {
		ok = it.SeekLT(appendJournalKey(nil, kind, j.account, code, newest+1))
		step = it.Prev
	} else {
		ok = it.SeekGE(appendJournalKey(nil, kind, j.account, code, oldest))
	}
	var timestamps []uint64
	for ; ok && len(timestamps) < j.limit; ok = step() {
		of, timestamp, err := parseJournalKey(it.Key())
		if err != nil {
			j.store.fail(err)
			break
		}
		if of != code || timestamp < oldest || timestamp > newest {
			break
		}
		timestamps = append(timestamps, timestamp)
	}
	return timestamps
}

func (j *journal) merge(more []uint64) {
	j.timestamps = append(j.timestamps, more...)
	slices.Sort(j.timestamps)
	if j.reversed {
		slices.Reverse(j.timestamps)
	}
	j.timestamps = j.timestamps[:min(j.limit, len(j.timestamps))]
}

// transfers reads the transfers that were found. One that retention has just deleted is missing.
func (j *journal) transfers() []ledgers.Transfer {
	transfers := make([]ledgers.Transfer, 0, len(j.timestamps))
	for _, timestamp := range j.timestamps {
		t, presence := j.store.transferAt(timestamp)
		if presence == found {
			transfers = append(transfers, t)
		}
	}
	return transfers
}

func parseJournalKey(key []byte) (code uint16, timestamp uint64, err error) {
	if len(key) != 19 {
		return 0, 0, fmt.Errorf("key %x: %w", key, ErrCorrupt)
	}
	return binary.BigEndian.Uint16(key[9:]), binary.BigEndian.Uint64(key[11:]), nil
}

// describe names the directory in an error, and what it means: ErrCorrupt where Pebble or a record
// says so, meaning otherwise.
func (l *Ledger) describe(err, meaning error) error {
	return describe(l.dir, err, meaning)
}

func describe(dir string, err, meaning error) error {
	if pebble.IsCorruptionError(err) {
		meaning = ErrCorrupt
		info := pebble.ExtractDataCorruptionInfo(err)
		if info != nil { // in its own words the error says nothing about it
			err = fmt.Errorf("%s: %w", info.Path, info.Details)
		}
	}
	if errors.Is(err, ErrCorrupt) || errors.Is(err, meaning) {
		return fmt.Errorf("ledger in %s: %w", dir, err)
	}
	return fmt.Errorf("ledger in %s: %w: %w", dir, meaning, err)
}
