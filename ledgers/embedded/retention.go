package embedded

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"weir/ledgers"
)

// Retention goes through the transfers from the oldest on, a bounded step at a time, and deletes
// what no balance needs any more. A step only reads; what it found goes through the writer.
const (
	retentionEvery = time.Minute
	retentionPause = 5 * time.Millisecond
	retentionStep  = 512 // transfers or overdue keys looked at
)

// keepRetention runs retention until the ledger is closed.
func (l *Ledger) keepRetention() {
	defer close(l.retired)
	timer := time.NewTimer(retentionEvery)
	defer timer.Stop()
	for {
		select {
		case <-l.closed:
			return
		case <-l.failed:
			return
		case <-timer.C:
		}
		more, err := l.retain()
		switch {
		case errors.Is(err, ledgers.ErrClosed):
			return
		case err != nil && !errors.Is(err, ledgers.ErrBusy):
			l.options.Logger.Warn("retention failed and will be tried again", "error", err)
			more = false
		}
		timer.Reset(retentionEvery)
		if more {
			timer.Reset(retentionPause)
		}
	}
}

// retain makes one step and reports whether there may be more to do.
func (l *Ledger) retain() (more bool, err error) {
	err = l.enterRead(context.Background(), 0)
	if err != nil {
		return false, err
	}
	s, err := l.retentionRead()
	l.readers.leave()
	if err != nil || s == nil || s.batch.Empty() {
		return false, err
	}
	defer s.batch.Close()
	err = l.do(context.Background(), &request{deletes: s.batch}, 1)
	if err == nil {
		l.metrics.retired.Add(float64(s.deleted))
	}
	return s.more, err
}

// retentionRead finds out what the next step deletes; nil if nothing is old enough.
func (l *Ledger) retentionRead() (*retirement, error) {
	// The transfers that a recovery would replay stay.
	limit := l.reflected.Load()
	age := uint64(l.options.Retention)
	if limit < age {
		return nil, nil
	}
	s := &retirement{
		store: diskStore{db: l.db, cache: newAccountCache(retentionStep)},
		batch: l.db.NewBatch(), limit: min(limit, l.durable.Load()-age),
		keepCodes: l.options.KeepCodes,
	}
	from, err := readNumber(l.db, keyRetention)
	if err == nil {
		err = s.overdue()
	}
	if err == nil {
		err = s.walk(from)
	}
	s.store.endReads()
	err = errors.Join(err, s.store.err)
	if err != nil {
		_ = s.batch.Close()
		return nil, l.describe(err, ErrFailed)
	}
	return s, nil
}

// retirement is one step of retention.
type retirement struct {
	store     diskStore
	batch     *pebble.Batch
	limit     uint64 // nothing newer is looked at
	keepCodes []uint16
	more      bool
	deleted   int
}

// walk looks at the transfers after from.
func (s *retirement) walk(from uint64) error {
	it, err := s.store.db.NewIter(&pebble.IterOptions{
		LowerBound: appendTimeKey(nil, kindTransfer, from+1),
		UpperBound: appendTimeKey(nil, kindTransfer, s.limit+1),
	})
	if err != nil {
		return err
	}
	defer it.Close()
	last, n := from, 0
	for ok := it.First(); ok && n < retentionStep; ok = it.Next() {
		n++
		last, err = keyUint64(it.Key(), 1)
		if err != nil {
			return err
		}
		t, whole, err := decodeTransfer(it.Value(), last)
		if err != nil {
			return err
		}
		s.look(&t, whole)
	}
	if last > from {
		s.store.setNumber(s.batch, keyRetention, last)
	}
	s.more = s.more || n == retentionStep
	return it.Error()
}

// look deletes a transfer if nothing needs it any more.
func (s *retirement) look(t *ledgers.Transfer, whole bool) {
	switch {
	case !whole:
		s.deleteRecord(t)
	case t.Flags.Has(ledgers.VoidPending):
		pending, presence := s.store.transfer(t.PendingID)
		s.delete(t)
		if presence == found {
			s.delete(&pending)
			s.deleteKey(appendTimeKey(nil, kindEnding, pending.Timestamp))
		}
	case t.Flags.Has(ledgers.PostPending):
	case t.Flags.Has(ledgers.Pending):
		s.lookPending(t)
	case t.Amount.IsZero() && !slices.Contains(s.keepCodes, t.Code):
		s.delete(t)
	}
}

// lookPending deletes a pending transfer that has expired. One that is still live comes up again
// when it ends, and a voided one together with its void.
func (s *retirement) lookPending(t *ledgers.Transfer) {
	end := t.ExpiresAt()
	switch {
	case end == 0 || s.store.ending(t.Timestamp) != endingNone:
	case end > s.limit:
		_ = s.batch.Set(appendPairKey(nil, kindOverdue, end, t.Timestamp), nil, nil)
	default:
		s.delete(t)
	}
}

// overdue looks again at pending transfers that outlived the retention.
func (s *retirement) overdue() error {
	it, err := s.store.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kindOverdue},
		UpperBound: appendPairKey(nil, kindOverdue, s.limit+1, 0),
	})
	if err != nil {
		return err
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok && n < retentionStep; ok = it.Next() {
		n++
		timestamp, err := keyUint64(it.Key(), 9)
		if err != nil {
			return err
		}
		s.deleteKey(slices.Clone(it.Key()))
		t, presence := s.store.transferAt(timestamp)
		if presence == found {
			s.lookPending(&t)
		}
	}
	s.more = n == retentionStep
	return it.Error()
}

func (s *retirement) deleteKey(key []byte) { _ = s.batch.Delete(key, nil) }

func (s *retirement) deleteRecord(t *ledgers.Transfer) {
	s.deleted++
	s.deleteKey(appendTimeKey(nil, kindTransfer, t.Timestamp))
	s.deleteKey(appendIDKey(nil, kindTransferID, t.ID))
}

func (s *retirement) delete(t *ledgers.Transfer) {
	s.deleteRecord(t)
	debit, credit := s.store.account(t.DebitAccountID), s.store.account(t.CreditAccountID)
	if debit == nil || credit == nil {
		return // s.store.err says why
	}
	s.deleteKey(appendJournalKey(nil, kindDebitJournal, debit.Timestamp, t.Code, t.Timestamp))
	s.deleteKey(appendJournalKey(nil, kindCreditJournal, credit.Timestamp, t.Code, t.Timestamp))
}
