package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// What Pebble may use of memory, in bytes. It takes the memtables out of the cache's share.
const (
	blockCacheBytes = 32<<20 + memTables*memTableBytes
	memTableBytes   = 16 << 20
	memTables       = 4
	bloomBitsPerKey = 10
)

// Open opens the ledger in dir, which is made if it does not exist, and brings it to the state of
// the last answer that was given. Errors are ErrInUse, ErrFormat, ErrCorrupt, ErrFailed or the
// system's; each names dir. ErrFailed means that a file could not be written, for instance because
// the disk is full: nothing is lost, but this process keeps hold of the directory until it ends.
func Open(dir string, options *Options) (*Ledger, error) {
	l := &Ledger{
		dir:     dir,
		options: options.withDefaults(),
		answers: make(chan *group, answersWaiting),
		failed:  make(chan struct{}),
		closed:  make(chan struct{}),
		stopped: make(chan struct{}),
		retired: make(chan struct{}),
	}
	l.queue = newQueue(l.options.QueueLength)
	l.readers.limit = l.options.QueueLength
	opened := make(chan error, 1)
	go func() { opened <- l.open() }()
	// When a file cannot be written, Pebble does not come back (see failStop). Its goroutines and
	// its lock are left behind then, on purpose: whoever cannot open the ledger ends the process.
	select {
	case err := <-opened:
		if err != nil {
			return nil, describe(dir, err, errOpen)
		}
	case <-l.failed:
		return nil, l.failure
	}
	go l.write()
	go l.answer()
	if l.options.Retention > 0 {
		go l.keepRetention()
	} else {
		close(l.retired)
	}
	return l, nil
}

// open locks the directory and reads what is in it.
func (l *Ledger) open() error {
	lock, err := lockDir(l.dir, l.options.fs)
	if err != nil {
		return err
	}
	l.lock = lock
	files := &failStop{FS: l.options.fs, fatal: l.fail}
	err = checkFiles(l.dir, files)
	if err == nil {
		l.db, err = pebble.Open(l.dir, pebbleOptions(files, lock, l.options.memTableBytes, l.fail))
		err = notOpened(l.dir, files, err)
	}
	if err != nil {
		_ = lock.Close()
		return err
	}
	err = l.startSafely()
	if err != nil {
		l.metrics.unregister()
		l.store.endReads()
		_ = l.db.Close()
		_ = lock.Close()
	}
	return err
}

// notOpened returns the error for a directory that was read, but that Pebble does not open: that of
// the system, or ErrCorrupt where a file is missing or is not what the others say of it. For the
// latter Pebble has no error of its own.
func notOpened(dir string, files vfs.FS, err error) error {
	if err == nil {
		return nil
	}
	store, unread := pebble.Peek(dir, files)
	if unread != nil || !store.Exists || store.FormatMajorVersion > pebble.FormatNewest {
		return err
	}
	var system *fs.PathError
	var number syscall.Errno
	if !errors.Is(err, fs.ErrNotExist) && (errors.As(err, &system) || errors.As(err, &number)) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// checkFiles makes sure that what Pebble would open is the newest that was written: it deletes what
// is not part of that. Pebble takes a missing marker for a new store, and a damaged record of the
// manifest or of a log for the place where a crash has ended it.
func checkFiles(dir string, files vfs.FS) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	store, err := pebble.Peek(dir, files)
	if err != nil {
		return err
	}
	if !store.Exists {
		return checkNew(names)
	}
	if store.FormatMajorVersion > pebble.FormatNewest {
		return nil // Pebble will say so
	}
	m, err := readManifest(store.ManifestFilename, files)
	if err != nil {
		return err
	}
	newest, err := checkLogs(dir, names, &m, files)
	if err != nil {
		return err
	}
	// Opening, Pebble makes a manifest, a log and the options, in this order.
	if newest == nil && newestFile(names, "OPTIONS-%d") > newestFile(names, "MANIFEST-%d") {
		return fmt.Errorf("%w: the newest log is missing", ErrCorrupt)
	}
	// What a crash leaves of a table is not in the manifest, but after a close there is none.
	if newest != nil && newest.closedEmpty() && newestFile(names, "%d.sst") >= m.nextFile {
		return fmt.Errorf("%w: the newest table is not in the manifest", ErrCorrupt)
	}
	return nil
}

// checkNew makes sure that a directory without a store never had one. The first manifest is made
// before its marker, so a crash may leave it alone.
func checkNew(names []string) error {
	if newestFile(names, "%d.log") > 0 || newestFile(names, "%d.sst") > 0 ||
		newestFile(names, "MANIFEST-%d") > 1 {
		return fmt.Errorf("%w: the marker of the manifest is missing", ErrCorrupt)
	}
	return nil
}

// lockDir makes sure that dir exists and that nobody else has it open.
func lockDir(dir string, files vfs.FS) (*pebble.Lock, error) {
	err := files.MkdirAll(dir, 0o750)
	if err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, files)
	var system *fs.PathError
	if err != nil && !errors.As(err, &system) {
		return nil, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return lock, err
}

func pebbleOptions(
	files vfs.FS, lock *pebble.Lock, memTable int, fatal func(error),
) *pebble.Options {
	o := &pebble.Options{
		FS:                          files,
		Lock:                        lock,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		CacheSize:                   blockCacheBytes,
		MemTableSize:                uint64(memTable),
		MemTableStopWritesThreshold: memTables,
		Logger:                      pebbleLogger{fatal: fatal},
		EventListener: &pebble.EventListener{
			BackgroundError: fatal,
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				fatal(fmt.Errorf("%w: %s: %w", ErrCorrupt, info.Path, info.Details))
			},
		},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = idFilter{bloom.FilterPolicy(bloomBitsPerKey)}
	}
	return o
}

// idFilter is a bloom filter over the keys that are looked up without being there, those that begin
// with an id. The keys that begin with a time would make it five times as large and are found, or
// not, by the range of a file.
type idFilter struct{ pebble.FilterPolicy }

func filtered(key []byte) bool {
	return len(key) > 0 && (key[0] == kindTransferID || key[0] == kindAccount)
}

func (idFilter) Name() string { return "weir.ids" }

func (f idFilter) MayContain(ftype pebble.FilterType, filter, key []byte) bool {
	return !filtered(key) || f.FilterPolicy.MayContain(ftype, filter, key)
}

func (f idFilter) NewWriter(ftype pebble.FilterType) pebble.FilterWriter {
	return idFilterWriter{f.FilterPolicy.NewWriter(ftype)}
}

type idFilterWriter struct{ pebble.FilterWriter }

func (w idFilterWriter) AddKey(key []byte) {
	if filtered(key) {
		w.FilterWriter.AddKey(key)
	}
}

// pebbleLogger passes on what Pebble cannot survive.
type pebbleLogger struct{ fatal func(error) }

func (pebbleLogger) Infof(string, ...any)  {}
func (pebbleLogger) Errorf(string, ...any) {}

// Fatalf is not expected to return, so it does not: the goroutine that called it stays here, with
// whatever locks it holds, while the ledger answers with the failure until the process ends.
func (p pebbleLogger) Fatalf(format string, args ...any) {
	p.fatal(fmt.Errorf(format, args...))
	select {}
}

// startSafely turns a panic over damaged balances into an error.
func (l *Ledger) startSafely() (err error) {
	defer func() {
		problem := recover()
		if problem != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, problem)
		}
	}()
	return l.start()
}

// start brings machine, store and clock to where the ledger was.
func (l *Ledger) start() error {
	l.store = &diskStore{db: l.db, cache: newAccountCache(l.options.CacheAccounts)}
	format, err := readNumber(l.db, keyFormat)
	if err != nil {
		return err
	}
	if format > formatVersion {
		return ErrFormat
	}
	// Also when it is there already: that the log can be written shows now.
	err = l.db.Set(keyFormat, binary.BigEndian.AppendUint64(nil, formatVersion), pebble.Sync)
	if err == nil && format == 0 { // Pebble's first log does not say what was synced
		err = l.db.Flush()
	}
	if err != nil {
		return err
	}
	last, err := l.recoverAccounts()
	if err != nil {
		return err
	}
	l.clock = newClock(l.options, last)
	l.durable.Store(last)
	l.reflected.Store(l.store.reflected)
	l.metrics, err = newMetrics(l)
	return err
}

// readNumber returns a single value, 0 if it was never written.
func readNumber(db *pebble.DB, key []byte) (uint64, error) {
	s := diskStore{db: db}
	var n uint64
	s.read(key, func(value []byte) (err error) {
		n, err = keyUint64(value, 0)
		return err
	})
	return n, s.err
}

// recoverAccounts makes up for what was not yet stored of the accounts when the ledger was last
// closed or killed: it books the transfers since, and expires what has timed out. It returns the
// last timestamp that was given.
func (l *Ledger) recoverAccounts() (uint64, error) {
	s := l.store
	reflected, err := readNumber(l.db, keyReflected)
	if err != nil {
		return 0, err
	}
	last, err := readNumber(l.db, keyLast)
	if err != nil {
		return 0, err
	}
	s.reflected = reflected
	m := newMachine(s, reflected)
	m.live = startLive(reflected, l.options.liveInMemory)
	m.recovering = true
	defer func() { m.recovering = false }()
	l.machine = m
	it, err := l.db.NewIter(&pebble.IterOptions{
		LowerBound: appendTimeKey(nil, kindTransfer, reflected+1),
		UpperBound: []byte{kindTransfer + 1},
	})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		err = l.replayRecord(it.Key(), it.Value())
		if err != nil {
			return 0, err
		}
	}
	err = it.Error()
	if err != nil {
		return 0, err
	}
	last = max(last, m.last)
	err = l.catchUp(last)
	if err != nil {
		return 0, err
	}
	return last, l.saveReplayed(last)
}

// replayRecord replays one stored transfer.
func (l *Ledger) replayRecord(key, value []byte) error {
	timestamp, err := keyUint64(key, 1)
	if err != nil {
		return err
	}
	t, whole, err := decodeTransfer(value, timestamp)
	if err != nil {
		return err
	}
	if !whole {
		l.machine.last = timestamp
		return nil
	}
	err = l.catchUp(timestamp)
	if err != nil {
		return err
	}
	if !l.machine.replay(&t) {
		err = fmt.Errorf("what transfer %v is about is missing: %w", t.ID, ErrCorrupt)
		return errors.Join(l.store.err, err)
	}
	l.store.transfers++
	if l.store.transfers%replayStep == 0 {
		return l.saveReplayed(timestamp)
	}
	return nil
}

// catchUp expires what has timed out at the ledger time now, but for a last step, and stores the
// accounts after each step: they all stay in memory until then, and any number of pending transfers
// may end at once. The machine's group must be empty.
func (l *Ledger) catchUp(now uint64) error {
	m := l.machine
	for m.expireStep(now) {
		last := m.last
		m.last = m.live.through // the balances are as of then
		b := l.db.NewBatch()
		l.store.save(b, m, false)
		l.store.saveAll(b, m.last)
		l.metrics.addExpired(m.changes.expired)
		m.begin()
		m.last = max(last, m.last)
		err := l.store.err
		if err == nil {
			err = l.db.Apply(b, pebble.NoSync)
		}
		err = errors.Join(err, b.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// replayStep is the number of transfers after which recovery stores what it has done, so that the
// cache stays within its bound.
const replayStep = 10_000

// saveReplayed stores what the replay has made up so far.
func (l *Ledger) saveReplayed(last uint64) error {
	m := l.machine
	m.last = last
	m.finish()
	b := l.db.NewBatch()
	defer b.Close()
	l.store.save(b, m, false)
	m.begin()
	if l.store.err != nil {
		return l.store.err
	}
	return l.db.Apply(b, pebble.NoSync)
}
