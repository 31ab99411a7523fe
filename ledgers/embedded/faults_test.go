package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

// failingClass is a kind of files and what cannot be done with them.
type failingClass struct {
	name, in string // in is part of the files' names
	kinds    []errorfs.OpKind
}

var failingClasses = []failingClass{
	{"LogSync", ".log", []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData}},
	{"LogWrite", ".log", []errorfs.OpKind{errorfs.OpFileWrite}},
	{"LogCreate", ".log", []errorfs.OpKind{errorfs.OpCreate, errorfs.OpReuseForWrite}},
	{"TableWrite", ".sst", []errorfs.OpKind{errorfs.OpFileWrite}},
	{"TableCreate", ".sst", []errorfs.OpKind{errorfs.OpCreate}},
	{"Manifest", "MANIFEST", []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSync}},
}

// on returns the files on a disk that is full for this class while full is set.
func (c *failingClass) on(files vfs.FS, full *atomic.Bool) vfs.FS {
	return errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && strings.Contains(op.Path, c.in) && slices.Contains(c.kinds, op.Kind) {
			return syscall.ENOSPC
		}
		return nil
	}))
}

// TestFailingDisk fills the disk, for one class of files at a time: the ledger stops with an error
// that names its directory. A start on the disk that is still full says so as well. What was
// answered before is there when the disk has room again.
func TestFailingDisk(t *testing.T) {
	for _, class := range failingClasses {
		t.Run(class.name, func(t *testing.T) {
			var full atomic.Bool
			files := vfs.NewCrashableMem()
			ledger, err := embedded.Open("ledger", embedded.Testing(
				embedded.Options{Now: newClock().read}, class.on(files, &full), 0))
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			fund(t, ledger, 1)
			full.Store(true)
			answered, err := untilError(t.Context(), ledger)
			wantFull(t, "create", err)
			_, err = ledger.LookupTransfers(t.Context(), []ledgers.ID{{Lo: 100}})
			wantFull(t, "look-up", err)
			survived := files.CrashClone(vfs.CrashCloneCfg{})
			wantFull(t, "close", ledger.Close())

			_, err = embedded.Open("ledger", embedded.Testing(
				embedded.Options{Now: newClock().read}, class.on(survived, &full), 0))
			wantFull(t, "open while full", err)
			wantSurvived(t, survived.CrashClone(vfs.CrashCloneCfg{}), answered)
		})
	}
}

func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, embedded.ErrFailed) || !namesDirectory(err) {
		t.Errorf("%s: got %v, want ErrFailed that names the directory", what, err)
	}
}

// untilError creates big transfers from id 100 on until one fails, and returns how many did not.
func untilError(ctx context.Context, ledger ledgers.Driver) (answered uint64, err error) {
	const batch, most = 1000, 200
	for range most {
		transfers := make([]ledgers.Transfer, batch)
		for i := range transfers {
			transfers[i] = pending(100+answered+uint64(i), 1, 3600)
		}
		_, err = ledger.CreateTransfers(ctx, transfers)
		if err != nil {
			return answered, err
		}
		answered += batch
	}
	return answered, nil
}

// wantSurvived opens what was synced and looks up the transfers that were answered.
func wantSurvived(t *testing.T, files *vfs.MemFS, answered uint64) {
	t.Helper()
	ledger, err := embedded.Open("ledger",
		embedded.Testing(embedded.Options{Now: newClock().read}, files, 0))
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	for from := uint64(0); from < answered; from += 1000 {
		var ids []ledgers.ID
		for i := range uint64(1000) {
			ids = append(ids, ledgers.ID{Lo: 100 + from + i})
		}
		found, err := ledger.LookupTransfers(t.Context(), ids)
		if err != nil || len(found) != len(ids) {
			t.Fatalf("found %d of %d answered transfers: %v", len(found), len(ids), err)
		}
	}
	err = ledger.Close()
	if err != nil {
		t.Fatalf("close: %v", err)
	}
	verifyFiles(t, "ledger", files)
}

func TestErrInUse(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, newClock().options())
	_, err := embedded.Open(dir, nil)
	if !errors.Is(err, embedded.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open twice: got %v, want ErrInUse that names %s", err, dir)
	}
	_, err = embedded.Verify(dir)
	if !errors.Is(err, embedded.ErrInUse) {
		t.Errorf("verify: got %v, want ErrInUse", err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), "WEIR_TEST_CHILD=open", "WEIR_TEST_DIR="+dir)
	output, err := child.CombinedOutput()
	if err == nil || !strings.Contains(string(output), embedded.ErrInUse.Error()) {
		t.Errorf("another process: %v: %s", err, output)
	}
}

func TestErrNotADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	err := os.WriteFile(file, []byte("x"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err = embedded.Open(dir, nil)
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("open %s: got %v, want an error that names it", dir, err)
		}
		_, err = embedded.Verify(dir)
		if err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("verify %s: got %v, want an error that names it", dir, err)
		}
	}
	_, err = embedded.Verify(filepath.Join(t.TempDir(), "missing"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("verify nothing: got %v, want not exist", err)
	}
}

// TestErrPermission needs a user who may not do everything.
func TestErrPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere; TestErrNotADirectory stands in")
	}
	dir := t.TempDir()
	err := os.Chmod(dir, 0o500)
	if err != nil {
		t.Fatal(err)
	}
	_, err = embedded.Open(filepath.Join(dir, "ledger"), nil)
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want a permission error that names %s", err, dir)
	}
}

// TestOlderFormat opens a directory of format 1, to which format 2 only adds.
func TestOlderFormat(t *testing.T) {
	files := vfs.NewMem()
	embedded.Tamper(t, "ledger", files, func(db *pebble.DB) error {
		return embedded.WriteFormat(db, 1)
	})
	ledger, err := embedded.Open("ledger", embedded.Testing(embedded.Options{}, files, 0))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	err = ledger.Close()
	if err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestErrFormat(t *testing.T) {
	files := vfs.NewMem()
	embedded.Tamper(t, "ledger", files, func(db *pebble.DB) error {
		return embedded.WriteFormat(db, 99)
	})
	_, err := embedded.Open("ledger", embedded.Testing(embedded.Options{}, files, 0))
	if !errors.Is(err, embedded.ErrFormat) {
		t.Errorf("open: got %v, want ErrFormat", err)
	}
	_, err = embedded.VerifyFiles("ledger", files)
	if !errors.Is(err, embedded.ErrFormat) {
		t.Errorf("verify: got %v, want ErrFormat", err)
	}
}

// TestDamage breaks every file of a ledger, a few bytes in each of its regions at a time. Opening
// says so and names the directory, or nothing is lost.
func TestDamage(t *testing.T) {
	whole := vfs.NewMem()
	ledger, err := embedded.Open("ledger", embedded.Testing(
		embedded.Options{Now: newClock().read, CacheAccounts: 10}, whole, 0))
	if err != nil {
		t.Fatal(err)
	}
	fund(t, ledger, 50)
	for i := range uint64(40) {
		transfer(t, ledger, ledgers.TransferCreated, pending(100+i, 1, 3600))
		if i == 20 {
			err = ledger.Flush()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	// The files as they are under a running ledger: a table, and a log with the rest.
	running := vfs.NewMem()
	copyFiles(t, whole, running, "", 0)
	err = ledger.Close()
	if err != nil {
		t.Fatal(err)
	}
	names, err := running.List("ledger")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			regions := 12
			if strings.HasSuffix(name, ".log") {
				// The last records of a log cannot be told from ones that were never synced: a
				// record says what was synced when it was written, which may lag by one.
				regions -= 2
			}
			for region := range regions {
				damageOnce(t, running, name, region)
			}
		})
	}
}

func namesDirectory(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ledger in ledger")
}

func damageOnce(t *testing.T, running *vfs.MemFS, name string, region int) {
	t.Helper()
	files := vfs.NewMem()
	copyFiles(t, running, files, name, region)
	ledger, err := embedded.Open("ledger", embedded.Testing(
		embedded.Options{Now: newClock().read}, files, 0))
	if err != nil {
		if !namesDirectory(err) {
			t.Errorf("region %d: %v does not name the directory", region, err)
		}
		return
	}
	defer ledger.Close()
	var ids []ledgers.ID
	for i := range uint64(40) {
		ids = append(ids, ledgers.ID{Lo: 100 + i})
	}
	found, err := ledger.LookupTransfers(t.Context(), ids)
	if err != nil {
		if !errors.Is(err, embedded.ErrCorrupt) || !namesDirectory(err) {
			t.Errorf("region %d: got %v, want ErrCorrupt that names the directory", region, err)
		}
		return
	}
	if len(found) != len(ids) {
		t.Errorf("region %d: %d of %d transfers left and no error", region, len(found), len(ids))
	}
	accounts, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 2}})
	if err == nil && (len(accounts) != 1 || accounts[0].DebitsPending != ledgers.AmountOf(40)) {
		t.Errorf("region %d: account is %+v, want 40 pending, and no error", region, accounts)
	}
}

// copyFiles copies a ledger; in the file that is named, bytes are inverted at one of twelve places.
func copyFiles(t *testing.T, from, to *vfs.MemFS, broken string, region int) {
	t.Helper()
	_, err := vfs.Clone(from, to, "ledger", "ledger")
	if err != nil {
		t.Fatal(err)
	}
	if broken == "" {
		return
	}
	path := fmt.Sprintf("ledger/%s", broken)
	file, err := to.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	n := min(4, info.Size())
	if n == 0 {
		return
	}
	bytes := make([]byte, n)
	at := (info.Size() - n) * int64(region) / 11
	_, err = file.ReadAt(bytes, at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range bytes {
		bytes[i] ^= 0xFF
	}
	_, err = file.WriteAt(bytes, at)
	if err != nil {
		t.Fatal(err)
	}
}
