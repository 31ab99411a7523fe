package embedded

import (
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
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

// WriteFormat makes a directory of another format version.
func WriteFormat(t testing.TB, dir string, files vfs.FS, version uint64) {
	t.Helper()
	fatal := func(err error) { t.Error(err) }
	db, err := pebble.Open(dir, pebbleOptions(files, nil, memTableBytes, fatal))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Set(keyFormat, binary.BigEndian.AppendUint64(nil, version), pebble.Sync)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Close()
	if err != nil {
		t.Fatal(err)
	}
}
