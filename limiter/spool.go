package limiter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Bounds of a spool.
const (
	// maxSpool bounds each of its files, in bytes: about 300,000 requests.
	maxSpool = 64 << 20
	// syncAfter is how long what was added may wait to be forced to the disk.
	syncAfter = 100 * time.Millisecond
	// bookedAtOnce is how many entries are booked at the same time.
	bookedAtOnce = 64
)

// Spool keeps on disk what was let through while the ledger did not answer, until it is booked. A
// nil Spool keeps nothing. It is safe for concurrent use; a directory belongs to one process.
//
// An entry is with the operating system before its request is answered, so that the end of the
// process, however it comes, loses none. It is forced to the disk at most 100 ms later: a loss of
// power loses the entries of that time, which is the price for an answer that waits for nothing.
//
// It is three files of one entry a line: one that grows, one that is being booked, and one with
// what cannot be booked, for people to read.
type Spool struct {
	growing, booking, aside string
	lock                    *flock.Flock

	mu       sync.Mutex
	file     *os.File // the one that grows
	size     int64
	unsynced bool // a sync is on its way
	syncErr  error
	// grown and turned are the ids that were added to the file that grows and to the one that is
	// being booked, as far as callers chose them, and with what request. Each is added once.
	grown, turned map[string]string

	draining sync.Mutex // held by the one that books
	booked   int64      // bytes of the booking file that are done
}

// OpenSpool opens the spool in a directory, which is made if it does not exist. What an earlier
// process has left in it is still to be booked. It fails with [ErrSpoolInUse] where another process
// has the directory open.
func OpenSpool(dir string) (*Spool, error) {
	err := os.MkdirAll(dir, 0o750)
	if err != nil {
		return nil, fmt.Errorf("spool in %s: %w", dir, err)
	}
	s := &Spool{
		growing: filepath.Join(dir, "spool.jsonl"), booking: filepath.Join(dir, "booking.jsonl"),
		aside: filepath.Join(dir, "aside.jsonl"), grown: map[string]string{},
	}
	s.lock = flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o600))
	locked, err := s.lock.TryLock()
	if err == nil && !locked {
		err = ErrSpoolInUse
	}
	if err != nil {
		return nil, fmt.Errorf("spool in %s: lock %s: %w", dir, s.lock.Path(), err)
	}
	err = s.grow()
	if err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

// grow opens the file that grows, without the line that a process may have been writing when it
// ended: its request was never answered.
func (s *Spool) grow() error {
	file, err := os.OpenFile(s.growing, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxSpool))
	size := int64(bytes.LastIndexByte(content, '\n') + 1)
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("spool: %w", err), file.Close())
	}
	s.file, s.size = file, size
	return nil
}

// add appends an entry, and reports whether it did: one whose id is a caller's may be there
// already, because its caller sent it again. It fails with ErrSpoolFull past the bound.
func (s *Spool) add(entry spooled, named bool) (added bool, err error) {
	if s == nil {
		return false, ErrSpoolFull
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return false, fmt.Errorf("spool: %w", err)
	}
	line = append(line, '\n')
	s.mu.Lock()
	defer s.mu.Unlock()
	if named && (s.grown[entry.First] == entry.Fingerprint ||
		s.turned[entry.First] == entry.Fingerprint) {
		return false, nil
	}
	if s.size+int64(len(line)) > maxSpool {
		return false, ErrSpoolFull
	}
	_, err = s.file.Write(line)
	if err != nil { // a full disk may have taken half a line
		return false, fmt.Errorf("spool: %w", errors.Join(err, s.file.Truncate(s.size)))
	}
	s.size += int64(len(line))
	if named {
		s.grown[entry.First] = entry.Fingerprint
	}
	if !s.unsynced {
		s.unsynced = true
		time.AfterFunc(syncAfter, s.sync)
	}
	return true, nil
}

// sync forces what was added to the disk. Who adds meanwhile does not wait for it.
func (s *Spool) sync() {
	s.mu.Lock()
	file := s.file
	s.unsynced = false
	s.mu.Unlock()
	err := file.Sync()
	if err != nil && !errors.Is(err, os.ErrClosed) { // a file was synced before it was closed
		s.mu.Lock()
		s.syncErr = fmt.Errorf("spool: %w", err)
		s.mu.Unlock()
	}
}

// drain passes the entries to book, the oldest first and some at a time, and forgets them once all
// of a file are booked. Entries that come meanwhile are booked too. What book fails for is passed
// to it again by the next call, with those that were booked at the same time.
func (s *Spool) drain(book func(lines [][]byte) error) error {
	if s == nil {
		return nil
	}
	s.draining.Lock()
	defer s.draining.Unlock()
	for {
		err := s.bookFile(book)
		if err != nil {
			return err
		}
		more, err := s.turn()
		if err != nil || !more {
			return err
		}
	}
}

// bookFile books what is left of the booking file, and removes it.
func (s *Spool) bookFile(book func(lines [][]byte) error) error {
	file, err := os.Open(s.booking)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	defer file.Close()
	_, err = file.Seek(s.booked, io.SeekStart)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	reader := bufio.NewReader(file)
	for {
		lines, length, err := readLines(reader)
		if err != nil {
			return fmt.Errorf("spool %s: %w", s.booking, err)
		}
		if length == 0 {
			break
		}
		err = book(lines)
		if err != nil {
			return err
		}
		s.booked += length
	}
	err = os.Remove(s.booking)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.booked = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turned = nil
	return nil
}

// readLines reads some lines and returns how many bytes they had. A last line that was cut short is
// one too: somebody has to look at it.
func readLines(reader *bufio.Reader) (lines [][]byte, length int64, err error) {
	for len(lines) < bookedAtOnce {
		line, err := reader.ReadBytes('\n')
		length += int64(len(line))
		if len(line) > 0 {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return lines, length, nil
}

// turn makes the growing file the booking file, and reports whether there is anything in it.
func (s *Spool) turn() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == 0 {
		return false, nil
	}
	old, size := s.file, s.size
	err := os.Rename(s.growing, s.booking)
	if err != nil {
		return false, fmt.Errorf("spool: %w", err)
	}
	err = s.grow()
	if err != nil { // go on with the old one
		s.file, s.size = old, size
		return false, errors.Join(err, os.Rename(s.booking, s.growing))
	}
	s.turned, s.grown = s.grown, map[string]string{}
	err = errors.Join(old.Sync(), old.Close())
	if err != nil {
		return true, fmt.Errorf("spool: %w", err)
	}
	return true, nil
}

// setAside keeps a line that cannot be booked, where people find it. It fails with ErrSpoolFull
// past the bound.
func (s *Spool) setAside(line []byte) error {
	file, err := os.OpenFile(s.aside, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.Size()+int64(len(line)) >= maxSpool:
		err = ErrSpoolFull
	default:
		_, err = file.Write(append(bytes.Clone(line), '\n'))
	}
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return fmt.Errorf("spool %s: %w", s.aside, err)
	}
	return nil
}

// Close forces the spool to the disk and closes it. What is in it is booked by the next process.
func (s *Spool) Close() error {
	if s == nil {
		return nil
	}
	s.draining.Lock() // who books is through with it
	defer s.draining.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.syncErr, s.file.Sync(), s.file.Close(), s.lock.Close())
	if err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}
