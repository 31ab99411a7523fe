package embedded

import "errors"

// Every error of this package names the directory of the ledger.
var (
	// ErrInUse is returned by Open and Verify when another process, or another Ledger of this one,
	// has the directory open.
	ErrInUse = errors.New("the ledger is in use by another process")
	// ErrFormat is returned by Open and Verify when the directory was written by a newer version
	// of this package. Nothing was changed.
	ErrFormat = errors.New("the ledger was written by a newer version of weir")
	// ErrCorrupt is returned by Open and Verify when the stored ledger cannot be read as it must
	// have been written, and by every call after a record turned out to be unreadable.
	ErrCorrupt = errors.New("the ledger's files are damaged")
	// ErrFailed is returned by Open when a file cannot be written, and by every call after a read
	// or a write of the ledger's files failed. What was answered before is durable; the ledger has
	// to be opened anew, by another process.
	ErrFailed = errors.New("the ledger has stopped after a failure")

	// errOpen goes with the system's error when a directory cannot be opened.
	errOpen = errors.New("the ledger cannot be opened")
)
