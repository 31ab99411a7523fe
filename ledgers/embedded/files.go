package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
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

// The format of Pebble's logs and manifests, as far as the checks need it: blocks that hold chunks
// of a checksum, a length and an encoding; in a log also its number and, in all but the first log
// of a ledger, how much of it was synced when the chunk was written; then the payload.
const (
	logBlock         = 32 << 10
	encodingManifest = 1 // to 4: a whole record, its first part, one of the middle, the last
	encodingLog      = 5 // to 8
	encodingSyncLog  = 9 // to 12: those that say what was synced
	batchHeader      = 12
	firstSequence    = 10 // what Pebble gives the first key of all
)

// chunk is a chunk with its header.
type chunk struct {
	encoding byte
	number   uint32
	synced   uint64
	payload  []byte
	size     int
	valid    bool // the checksum is right
}

// begins reports whether it is the first chunk of a record.
func (c *chunk) begins() bool { return (c.encoding-1)%4 < 2 }

// chunkAt returns the chunk at an offset, and whether the bytes there can be the header of one.
func chunkAt(file []byte, at int) (chunk, bool) {
	block := file[at:min(len(file), at-at%logBlock+logBlock)]
	if len(block) < 7 || block[6] < encodingManifest || block[6] >= encodingSyncLog+4 {
		return chunk{}, false
	}
	c := chunk{encoding: block[6]}
	header := []int{7, 11, 19}[(c.encoding-1)/4]
	c.size = header + int(binary.LittleEndian.Uint16(block[4:]))
	if c.size > len(block) {
		return chunk{}, false
	}
	if c.encoding >= encodingLog {
		c.number = binary.LittleEndian.Uint32(block[7:])
	}
	if c.encoding >= encodingSyncLog {
		c.synced = binary.LittleEndian.Uint64(block[11:])
	}
	c.payload = block[header:c.size]
	sum := crc32.Checksum(block[6:c.size], crc32.MakeTable(crc32.Castagnoli))
	c.valid = binary.LittleEndian.Uint32(block) == (sum>>15|sum<<17)+0xa282ead8
	return c, true
}

// logFile is a log that was read.
type logFile struct {
	name   string
	number uint32
	bytes  []byte
}

// chunkAt returns the chunk of this log at an offset.
func (l *logFile) chunkAt(at int) (chunk, bool) {
	c, ok := chunkAt(l.bytes, at)
	return c, ok && c.valid && c.encoding >= encodingLog && c.number == l.number
}

// chunks goes through the log and returns the offset of the first bytes that are not a chunk of it.
func (l *logFile) chunks(visit func(c *chunk)) int {
	at := 0
	for at < len(l.bytes) {
		c, ok := l.chunkAt(at)
		switch left := logBlock - at%logBlock; {
		case ok:
			visit(&c)
			at += c.size
		case left < 19: // the greatest header
			at += left
		default:
			return at
		}
	}
	return len(l.bytes)
}

// syncedBeyond reports whether a chunk after an offset says that the log was synced beyond it.
func (l *logFile) syncedBeyond(end int) bool {
	mark := binary.LittleEndian.AppendUint32(nil, l.number)
	for at := end; ; at++ {
		// The log's number stands 7 bytes into the header.
		found := bytes.Index(l.bytes[min(at+7, len(l.bytes)):], mark)
		if found < 0 {
			return false
		}
		at += found
		c, ok := l.chunkAt(at)
		if ok && c.synced > uint64(end) {
			return true
		}
	}
}

// begun reports whether the log begins as one may that was just made: empty, with zeros, or with a
// record of it or of the older log whose file it was made of. Losing power may tear either.
func (l *logFile) begun() bool {
	head := l.bytes[:min(len(l.bytes), 11)]
	if len(bytes.Trim(head, "\x00")) == 0 {
		return true
	}
	c, ok := chunkAt(l.bytes, 0)
	return l.closedEmpty() || ok && c.encoding >= encodingLog && c.number <= l.number
}

// closedEmpty reports whether the log was closed without a record. Then nothing was going on.
func (l *logFile) closedEmpty() bool {
	end := binary.LittleEndian.AppendUint32([]byte{6: encodingLog}, l.number+1)
	return bytes.HasPrefix(l.bytes, end)
}

// checkSequence makes sure that the log's batches follow the last of what was stored before, which
// had the sequence number before next. It returns the number that has to follow.
func (l *logFile) checkSequence(next uint64, first bool) (uint64, error) {
	var header []byte
	var err error
	end := l.chunks(func(c *chunk) {
		if c.begins() {
			header = nil
		}
		if len(header) == batchHeader {
			return
		}
		header = append(header, c.payload[:min(batchHeader-len(header), len(c.payload))]...)
		if len(header) < batchHeader {
			return
		}
		sequence := binary.LittleEndian.Uint64(header)
		// The tables may hold the first batches already, but none may be missing.
		if err == nil && (sequence > next || sequence < next && !first) {
			err = fmt.Errorf("%w: %s goes on at %d, not %d", ErrCorrupt, l.name, sequence, next)
		}
		first = false
		next = sequence + uint64(binary.LittleEndian.Uint32(header[8:]))
	})
	if err == nil && (l.syncedBeyond(end) || !l.begun()) {
		err = fmt.Errorf("%w: log %s at byte %d", ErrCorrupt, l.name, end)
	}
	return next, err
}

// manifest is what Pebble's manifest says of the other files.
type manifest struct {
	unflushed    uint64 // the logs from this number on are needed
	nextFile     uint64 // no file had this number yet
	lastSequence uint64
}

// add takes over what a record says. What is of interest comes first in it.
func (m *manifest) add(record []byte) {
	number := func() uint64 {
		n, size := binary.Uvarint(record)
		record = record[max(size, 0):]
		return n
	}
	for len(record) > 0 {
		switch number() {
		case 1: // the comparer
			record = record[min(number(), uint64(len(record))):]
		case 2:
			m.unflushed = number()
		case 3:
			m.nextFile = number()
		case 4:
			m.lastSequence = number()
		case 105: // a table that others are made of, with its size
			_, _ = number(), number()
		case 9, 106: // numbers of files that are gone
			number()
		default:
			return
		}
	}
}

// readManifest reads a manifest as Pebble does: up to its end or to a record that was torn when it
// was written. A record that was damaged later is the first, or has others after it.
func readManifest(path string, files vfs.FS) (manifest, error) {
	m := manifest{}
	file, err := readFile(path, files)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return m, err
	}
	records := record.NewReader(bytes.NewReader(file), 0)
	for {
		at := int(records.Offset())
		var edit []byte
		next, err := records.Next()
		if err == nil {
			edit, err = io.ReadAll(next)
		}
		if err == nil {
			m.add(edit)
			continue
		}
		damaged := at == 0
		for after := at + 1; !damaged && !errors.Is(err, io.EOF) && after < len(file); after++ {
			c, ok := chunkAt(file, after)
			damaged = ok && c.valid && c.encoding < encodingLog && c.begins()
		}
		if damaged {
			err = fmt.Errorf("%w: %s at byte %d", ErrCorrupt, files.PathBase(path), at)
			return m, err
		}
		return m, nil
	}
}

func readFile(path string, files vfs.FS) ([]byte, error) {
	file, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

// checkLogs checks the logs that are needed and returns the newest, nil if there is none.
func checkLogs(dir string, names []string, m *manifest, files vfs.FS) (*logFile, error) {
	next := max(m.lastSequence+1, firstSequence)
	var newest *logFile
	sorted := fileNumbers(names, "%d.log")
	for _, number := range sorted {
		if number < m.unflushed {
			continue
		}
		log := &logFile{name: fmt.Sprintf("%06d.log", number), number: uint32(number)}
		var err error
		log.bytes, err = readFile(files.PathJoin(dir, log.name), files)
		if err != nil {
			return nil, err
		}
		next, err = log.checkSequence(next, newest == nil)
		if err != nil {
			return nil, err
		}
		newest = log
	}
	return newest, nil
}

// fileNumbers returns the numbers of the files whose names have a form, in order.
func fileNumbers(names []string, form string) []uint64 {
	var numbers []uint64
	for _, name := range names {
		var number uint64
		_, err := fmt.Sscanf(name, form, &number)
		if err == nil && name == fmt.Sprintf(strings.Replace(form, "%d", "%06d", 1), number) {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

func newestFile(names []string, form string) uint64 {
	return slices.Max(append(fileNumbers(names, form), 0))
}
