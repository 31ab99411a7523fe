package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"weir/ledgers"
)

// diskStore is the store of a machine on Pebble, with the accounts cached. It belongs to the
// writer.
type diskStore struct {
	db    *pebble.DB
	cache accountCache
	// err is the first failure of a read since it was asked for.
	err error

	// waiting lists accounts whose stored record is behind, the longest waiting first.
	waiting []waitingAccount
	// transfers counts the transfers since the start.
	transfers uint64
	// reflected is the stored ledger time up to which the stored accounts hold everything, and
	// reflectedTransfers the count of transfers when it was stored.
	reflected          uint64
	reflectedTransfers uint64
	// unsavedExpiry is set while balances hold expiries up to a time that no stored timestamp
	// reaches.
	unsavedExpiry bool

	// ids seeks transfer ids as of the beginning of the present group.
	ids        *pebble.Iterator
	key, value []byte
}

func (s *diskStore) fail(err error) {
	if s.err == nil && err != nil {
		s.err = err
	}
}

// read passes the value of a key to decode, if there is one.
func (s *diskStore) read(key []byte, decode func(value []byte) error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return
	}
	if err != nil {
		s.fail(err)
		return
	}
	err = decode(value)
	if err != nil {
		s.fail(err)
	}
	_ = closer.Close()
}

func (s *diskStore) transfer(id ledgers.ID) (ledgers.Transfer, presence) {
	timestamp, ok := s.timestampOf(id)
	if !ok {
		return ledgers.Transfer{}, unknown
	}
	return s.transferAt(timestamp)
}

// timestampOf finds the record of a transfer's id. Mostly the id is new and there is none, so it
// seeks with an iterator, which asks the filters of all levels where Get leaves out the last one.
func (s *diskStore) timestampOf(id ledgers.ID) (timestamp uint64, ok bool) {
	var err error
	if s.ids == nil {
		s.ids, err = s.db.NewIter(&pebble.IterOptions{
			LowerBound: []byte{kindTransferID}, UpperBound: []byte{kindTransferID + 1},
			UseL6Filters: true,
		})
		if err != nil {
			s.fail(err)
			return 0, false
		}
	}
	s.key = appendIDKey(s.key[:0], kindTransferID, id)
	if !s.ids.SeekPrefixGE(s.key) {
		err = s.ids.Error()
		if err != nil {
			s.fail(err)
		}
		return 0, false
	}
	timestamp, err = keyUint64(s.ids.Value(), 0)
	if err != nil {
		s.fail(err)
	}
	return timestamp, err == nil
}

// endReads lets go of what the reads of a group have seen.
func (s *diskStore) endReads() {
	if s.ids == nil {
		return
	}
	err := s.ids.Close()
	if err != nil {
		s.fail(err)
	}
	s.ids = nil
}

func (s *diskStore) transferAt(timestamp uint64) (t ledgers.Transfer, p presence) {
	s.key = appendTimeKey(s.key[:0], kindTransfer, timestamp)
	s.read(s.key, func(value []byte) error {
		decoded, whole, err := decodeTransfer(value, timestamp)
		t, p = decoded, burnt
		if whole {
			p = found
		}
		return err
	})
	return t, p
}

func (s *diskStore) ending(pendingTimestamp uint64) (how ending) {
	s.key = appendTimeKey(s.key[:0], kindEnding, pendingTimestamp)
	s.read(s.key, func(value []byte) error {
		r := reader{rest: value}
		how = ending(r.byte())
		_ = r.uint64()
		return r.end("ending")
	})
	return how
}

// livePendings reads the transfers of the keys with an iterator: they mostly follow each other.
func (s *diskStore) livePendings(from liveKey, limit int) []livePending {
	keys, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendPairKey(nil, kindLive, from.end, from.timestamp),
		UpperBound: []byte{kindLive + 1},
	})
	if err != nil {
		s.fail(err)
		return nil
	}
	records, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kindTransfer}, UpperBound: []byte{kindTransfer + 1},
	})
	if err != nil {
		s.fail(errors.Join(err, keys.Close()))
		return nil
	}
	var pendings []livePending
	for ok := keys.First(); ok && len(pendings) < limit && s.err == nil; ok = keys.Next() {
		end, _ := keyUint64(keys.Key(), 1)
		timestamp, err := keyUint64(keys.Key(), 9)
		if err != nil {
			s.fail(err)
			break
		}
		t, err := s.seekTransfer(records, timestamp)
		if err != nil {
			s.fail(fmt.Errorf("live transfer %d: %w", timestamp, err))
			break
		}
		pendings = append(pendings, livePending{
			liveKey: liveKey{end: end, timestamp: timestamp},
			debit:   t.DebitAccountID, credit: t.CreditAccountID,
			amount: t.Amount, flags: t.Flags,
		})
	}
	s.fail(errors.Join(keys.Close(), records.Close()))
	return pendings
}

// seekTransfer reads a transfer that must be there.
func (s *diskStore) seekTransfer(
	records *pebble.Iterator, timestamp uint64,
) (ledgers.Transfer, error) {
	s.key = appendTimeKey(s.key[:0], kindTransfer, timestamp)
	if !records.SeekGE(s.key) || !bytes.Equal(records.Key(), s.key) {
		return ledgers.Transfer{}, errors.Join(ErrCorrupt, records.Error())
	}
	t, whole, err := decodeTransfer(records.Value(), timestamp)
	if err == nil && !whole {
		err = ErrCorrupt
	}
	return t, err
}

// save writes what the machine's group has changed into b. It reports whether an answer of the
// group has to wait until that is durable; shown says that the group answers balances.
func (s *diskStore) save(b *pebble.Batch, m *machine, shown bool) (durable bool) {
	s.endReads()
	c := &m.changes
	newest := s.saveTransfers(b, c)
	for _, a := range c.dirtied {
		s.waiting = append(s.waiting, waitingAccount{a, a.dirtySince, s.transfers})
	}
	for _, a := range c.accounts {
		s.cache.put(a)
		s.saveAccount(b, a, m.last)
	}
	s.saveReleases(b, c.absent, m.last)
	s.unsavedExpiry = s.unsavedExpiry || c.expired > 0
	durable = newest > 0 || len(c.accounts) > 0 || shown && s.unsavedExpiry
	if durable {
		s.unsavedExpiry = false
	}
	s.reflect(b, m.last, max(reflectStep, 2*len(c.dirtied)), false)
	s.cache.shrink(func(a *account) {
		if a.dirtySince != 0 {
			s.saveAccount(b, a, m.last)
		}
	})
	s.saveReflected(b, m.last, false)
	if newest < m.last && (durable || !b.Empty()) {
		// Accounts are stored as of this time.
		s.setNumber(b, keyLast, m.last)
	}
	return durable
}

// saveTransfers returns the newest timestamp that it has written, or 0. It writes kind by kind, as
// neighbouring keys are cheaper to insert.
func (s *diskStore) saveTransfers(b *pebble.Batch, c *changes) uint64 {
	var newest uint64
	for i := range c.transfers {
		t := &c.transfers[i]
		newest = max(newest, t.Timestamp)
		s.key = appendTimeKey(s.key[:0], kindTransfer, t.Timestamp)
		s.value = appendTransfer(s.value[:0], t)
		_ = b.Set(s.key, s.value, nil)
	}
	for i := range c.burnt {
		newest = max(newest, c.burnt[i].timestamp)
		s.key = appendTimeKey(s.key[:0], kindTransfer, c.burnt[i].timestamp)
		s.value = appendID(append(s.value[:0], burntRecord), c.burnt[i].id)
		_ = b.Set(s.key, s.value, nil)
	}
	for i := range c.transfers {
		s.saveID(b, c.transfers[i].ID, c.transfers[i].Timestamp)
	}
	for i := range c.burnt {
		s.saveID(b, c.burnt[i].id, c.burnt[i].timestamp)
	}
	for i := range c.transfers {
		t := &c.transfers[i]
		s.saveJournal(b, kindDebitJournal, t.DebitAccountID, t)
	}
	for i := range c.transfers {
		t := &c.transfers[i]
		s.saveJournal(b, kindCreditJournal, t.CreditAccountID, t)
	}
	s.saveLive(b, c)
	s.transfers += uint64(len(c.transfers))
	return newest
}

func (s *diskStore) saveID(b *pebble.Batch, id ledgers.ID, timestamp uint64) {
	s.key = appendIDKey(s.key[:0], kindTransferID, id)
	s.setNumber(b, s.key, timestamp)
}

func (s *diskStore) saveJournal(b *pebble.Batch, kind byte, id ledgers.ID, t *ledgers.Transfer) {
	a := s.account(id)
	if a == nil {
		return // s.err says why
	}
	s.key = appendJournalKey(s.key[:0], kind, a.Timestamp, t.Code, t.Timestamp)
	_ = b.Set(s.key, nil, nil)
}

// saveLive writes which pending transfers are new and which were posted or voided.
func (s *diskStore) saveLive(b *pebble.Batch, c *changes) {
	for i := range c.transfers {
		t := &c.transfers[i]
		if t.Flags.Has(ledgers.Pending) && t.Timeout != 0 {
			s.key = appendPairKey(s.key[:0], kindLive, t.ExpiresAt(), t.Timestamp)
			_ = b.Set(s.key, nil, nil)
		}
	}
	for _, e := range c.endings {
		s.key = appendTimeKey(s.key[:0], kindEnding, e.pendingTimestamp)
		s.value = binary.BigEndian.AppendUint64(append(s.value[:0], byte(e.how)), e.timestamp)
		_ = b.Set(s.key, s.value, nil)
		if e.end != 0 {
			s.key = appendPairKey(s.key[:0], kindLive, e.end, e.pendingTimestamp)
			_ = b.Delete(s.key, nil)
		}
	}
}

func (s *diskStore) setNumber(b *pebble.Batch, key []byte, n uint64) {
	s.value = binary.BigEndian.AppendUint64(s.value[:0], n)
	_ = b.Set(key, s.value, nil)
}
