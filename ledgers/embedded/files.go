package embedded

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failStop is the file system that Pebble works on. When a log cannot be written, synced or made,
// for instance because the disk is full, Pebble panics while it holds a lock that its own deferred
// call releases a second time, and no recover helps. When a table cannot be written, Pebble tries
// again at once and for ever, also while it is opened. So such an error never reaches it: the
// ledger fails, and the goroutine that asked stays here until the process ends. Nothing is written
// after a failed sync, of which nobody knows what it left on the disk.
type failStop struct {
	vfs.FS
	fatal func(error)
}

func (f *failStop) check(err error) {
	if err != nil {
		f.fatal(err)
		select {}
	}
}

// guarded reports whether the file is a log or a table. How the others fail, Pebble says.
func guarded(name string) bool { return isLog(name) || strings.HasSuffix(name, ".sst") }

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// Create implements vfs.FS.
func (f *failStop) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	if !guarded(name) {
		return file, err
	}
	f.check(err)
	return failStopFile{file, f}, err
}

// ReuseForWrite implements vfs.FS.
func (f *failStop) ReuseForWrite(
	oldname, newname string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	if !guarded(newname) {
		return file, err
	}
	f.check(err)
	return failStopFile{file, f}, err
}

// OpenDir implements vfs.FS.
func (f *failStop) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return failStopDir{dir, f}, nil
}

// Unwrap implements vfs.FS.
func (f *failStop) Unwrap() vfs.FS { return f.FS }

type failStopDir struct {
	vfs.File
	files *failStop
}

func (d failStopDir) Sync() error {
	err := d.File.Sync()
	d.files.check(err)
	return err
}

type failStopFile struct {
	vfs.File
	files *failStop
}

func (f failStopFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.files.check(err)
	return n, err
}

func (f failStopFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	f.files.check(err)
	return n, err
}

func (f failStopFile) Sync() error {
	err := f.File.Sync()
	f.files.check(err)
	return err
}

func (f failStopFile) SyncData() error {
	err := f.File.SyncData()
	f.files.check(err)
	return err
}

func (f failStopFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	f.files.check(err)
	return full, err
}

func (f failStopFile) Close() error {
	err := f.File.Close()
	f.files.check(err)
	return err
}

// The format of Pebble's log, as far as checkLog needs it: blocks that hold chunks of a checksum, a
// length, an encoding, the log's number, and how much of the log was synced when the chunk was
// written; then the payload.
const (
	logBlock        = 32 << 10
	logHeader       = 19
	logSyncEncoding = 9 // to 12: the encodings that say what was synced
)

// checkLog makes sure that the newest log is whole up to where it says that it was synced. Pebble
// takes a damaged chunk for the end of the log, as after a crash, unless a later block says that it
// was synced; a log that ends in the same block would lose answered transfers in silence.
func checkLog(dir string, files vfs.FS) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	var name string
	var number uint32
	for _, n := range names {
		var found uint32
		_, err = fmt.Sscanf(n, "%d.log", &found)
		if err == nil && isLog(n) && found >= number {
			name, number = n, found
		}
	}
	if name == "" {
		return nil
	}
	file, err := files.Open(files.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	log, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	at := endOfLog(log, number)
	if syncedBeyond(log, number, at) {
		return fmt.Errorf("%w: log %s at byte %d", ErrCorrupt, name, at)
	}
	return nil
}

// endOfLog returns the offset of the first bytes that are not a chunk of the log.
func endOfLog(log []byte, number uint32) int {
	at := 0
	for at < len(log) {
		if logBlock-at%logBlock < logHeader {
			at += logBlock - at%logBlock
			continue
		}
		size := chunkAt(log, at, number)
		if size == 0 {
			return at
		}
		at += size
	}
	return len(log)
}

// chunkAt returns the size of the valid chunk at an offset, or 0.
func chunkAt(log []byte, at int, number uint32) int {
	block := log[at:min(len(log), at-at%logBlock+logBlock)]
	if len(block) < logHeader || block[6] < logSyncEncoding || block[6] > logSyncEncoding+3 ||
		binary.LittleEndian.Uint32(block[7:]) != number {
		return 0
	}
	size := logHeader + int(binary.LittleEndian.Uint16(block[4:]))
	if size > len(block) {
		return 0
	}
	sum := crc32.Checksum(block[6:size], crc32.MakeTable(crc32.Castagnoli))
	if binary.LittleEndian.Uint32(block) != (sum>>15|sum<<17)+0xa282ead8 {
		return 0
	}
	return size
}

// syncedBeyond reports whether a chunk after an offset says that the log was synced beyond it.
func syncedBeyond(log []byte, number uint32, end int) bool {
	mark := binary.LittleEndian.AppendUint32(nil, number)
	for at := end; ; at++ {
		// The log's number stands 7 bytes into the header.
		found := bytes.Index(log[min(at+7, len(log)):], mark)
		if found < 0 {
			return false
		}
		at += found
		if chunkAt(log, at, number) == 0 {
			continue
		}
		if binary.LittleEndian.Uint64(log[at+11:]) > uint64(end) {
			return true
		}
	}
}
