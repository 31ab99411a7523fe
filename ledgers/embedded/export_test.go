package embedded

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"weir/ledgers"
)

// Testing returns options for tests: with files in place of the disk, unless nil, room for live
// pending transfers in memory, unless 0, and small tables.
func Testing(options Options, files vfs.FS, live int) *Options {
	options.fs, options.liveInMemory, options.memTableBytes = files, live, 1<<20
	return &options
}

// VerifyFiles is Verify with files in place of the disk.
func VerifyFiles(dir string, files vfs.FS) (Report, error) { return verify(dir, files) }

// Retain makes the steps of retention that are due.
func (l *Ledger) Retain() error {
	for {
		more, err := l.retain()
		if err != nil || !more {
			return err
		}
	}
}

// Flush writes what is in memory into a table.
func (l *Ledger) Flush() error { return l.db.Flush() }

// Tamper changes the files of a closed ledger behind its back.
func Tamper(t testing.TB, dir string, files vfs.FS, change func(db *pebble.DB) error) {
	t.Helper()
	fatal := func(err error) { t.Error(err) }
	db, err := pebble.Open(dir, pebbleOptions(files, nil, memTableBytes, fatal))
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(change(db), db.Flush(), db.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// WriteFormat makes the directory one of another format version.
func WriteFormat(db *pebble.DB, version uint64) error {
	return db.Set(keyFormat, binary.BigEndian.AppendUint64(nil, version), pebble.Sync)
}

// DropFirst deletes the first key of a kind.
func DropFirst(db *pebble.DB, kind byte) error {
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{kind}, UpperBound: []byte{kind + 1},
	})
	if err != nil {
		return err
	}
	it.First()
	key := slices.Clone(it.Key())
	return errors.Join(it.Close(), db.Delete(key, pebble.Sync))
}

// AddPending adds to what is pending on the debit side of an account.
func AddPending(db *pebble.DB, id ledgers.ID, amount uint64) error {
	s := diskStore{db: db, cache: newAccountCache(1)}
	a := s.account(id)
	a.DebitsPending = a.DebitsPending.Add64(amount)
	b := db.NewBatch()
	s.saveAccount(b, a, a.asOf)
	return errors.Join(s.err, b.Commit(pebble.Sync))
}
