package embedded

import "github.com/cockroachdb/pebble/v2/vfs"

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

// Testing returns options for tests: with files in place of the disk, unless nil, and room for live
// pending transfers in memory, unless 0.
func Testing(options Options, files vfs.FS, live int) *Options {
	options.fs, options.liveInMemory = files, live
	return &options
}
