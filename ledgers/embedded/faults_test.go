package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// TestVerifyNothing verifies a directory without a ledger, and leaves it so.
func TestVerifyNothing(t *testing.T) {
	dir := t.TempDir()
	_, err := embedded.Verify(dir)
	if err == nil || errors.Is(err, embedded.ErrCorrupt) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want an error that names %s", err, dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v, want nothing", entries, err)
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

// damage is what may happen to a file.
type damage struct {
	name   string
	happen func(content []byte) []byte // nil removes the file
	// logs says whether a log shows it. One that was cut off, or lost its last records, cannot be
	// told from one that never had more: a record says what was synced before it was written.
	logs bool
}

// damages are flips in each of twelve regions and what else bad disks and copies do.
func damages() []damage {
	list := []damage{
		{"Removed", func([]byte) []byte { return nil }, true},
		{"Emptied", func([]byte) []byte { return []byte{} }, false},
		{"Half", func(c []byte) []byte { return c[:len(c)/2] }, false},
		{"ThreeQuarters", func(c []byte) []byte { return c[:len(c)*3/4] }, false},
		{"LastByteCut", func(c []byte) []byte { return c[:max(len(c), 1)-1] }, false},
		{"AllZero", func(c []byte) []byte { return make([]byte, len(c)) }, false},
		{"AllGarbage", func(c []byte) []byte { return bytes.Repeat([]byte{0xa7}, len(c)) }, true},
		{"ZeroMiddle", func(c []byte) []byte {
			clear(c[len(c)/3 : len(c)/2])
			return c
		}, true},
		{"ZeroEnd", func(c []byte) []byte {
			clear(c[len(c)/2:])
			return c
		}, false},
		{"MiddleByte", func(c []byte) []byte {
			if len(c) > 0 {
				c[len(c)/2] ^= 0xff
			}
			return c
		}, true},
	}
	for region := range 12 {
		list = append(list, damage{fmt.Sprintf("Region%d", region), func(c []byte) []byte {
			n := min(4, len(c))
			at := (len(c) - n) * region / 11
			for i := range c[at : at+n] {
				c[at+i] ^= 0xff
			}
			return c
		}, region < 10})
	}
	return list
}

// written is a ledger with transfers, from id 100 on.
type written struct {
	name      string
	files     *vfs.MemFS
	transfers uint64
}

const transfersPerRun = 50

// history is a ledger in four runs, all but the last of which were killed: the files while the
// first and the last run have them open, and when the last has closed them.
func history(t *testing.T) []written {
	t.Helper()
	var states []written
	files := vfs.NewMem()
	clock := newClock()
	for run := range uint64(4) {
		ledger, err := embedded.Open("ledger", embedded.Testing(
			embedded.Options{Now: clock.read, CacheAccounts: 10}, files, 0))
		if err != nil {
			t.Fatal(err)
		}
		if run == 0 {
			fund(t, ledger, 50)
		}
		for i := range uint64(transfersPerRun) {
			id := 100 + run*transfersPerRun + i
			transfer(t, ledger, ledgers.TransferCreated, pending(id, 1, 3600))
			if run%2 == 1 && i == 20 {
				err = ledger.Flush()
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		running := copyFiles(t, files)
		if run == 0 || run == 3 {
			states = append(states,
				written{fmt.Sprintf("Killed%d", run), running, (run + 1) * transfersPerRun})
		}
		err = ledger.Close()
		if err != nil {
			t.Fatal(err)
		}
		if run == 3 {
			return append(states, written{"Closed", files, (run + 1) * transfersPerRun})
		}
		files = copyFiles(t, running)
	}
	return nil
}

// TestDamage damages every file of a ledger with a history, one at a time. Opening says so, names
// the directory and leaves the files as they are, or nothing is lost.
func TestDamage(t *testing.T) {
	for _, state := range history(t) {
		names, err := state.files.List("ledger")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			for _, d := range damages() {
				if strings.HasSuffix(name, ".log") && !d.logs {
					continue
				}
				t.Run(state.name+"/"+name+"/"+d.name, func(t *testing.T) {
					damageOnce(t, state, "ledger/"+name, d)
				})
			}
		}
	}
}

func namesDirectory(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ledger in ledger")
}

func damageOnce(t *testing.T, state written, name string, d damage) {
	t.Helper()
	files := copyFiles(t, state.files)
	content := d.happen(readAll(t, files, name))
	err := files.Remove(name)
	if err != nil {
		t.Fatal(err)
	}
	if content != nil {
		writeAll(t, files, name, content)
	}
	before := copyFiles(t, files)
	ledger, err := embedded.Open("ledger", embedded.Testing(
		embedded.Options{Now: newClock().read}, files, 0))
	if err != nil {
		if !namesDirectory(err) || strings.Count(err.Error(), embedded.ErrCorrupt.Error()) > 1 {
			t.Errorf("%v does not name the directory, or says it twice", err)
		}
		if !strings.HasSuffix(name, ".sst") { // Pebble opens what it has not read
			wantSameFiles(t, before, files)
		}
		return
	}
	defer ledger.Close()
	var ids []ledgers.ID
	for i := range state.transfers {
		ids = append(ids, ledgers.ID{Lo: 100 + i})
	}
	found, err := ledger.LookupTransfers(t.Context(), ids)
	if err != nil {
		if !errors.Is(err, embedded.ErrCorrupt) || !namesDirectory(err) {
			t.Errorf("got %v, want ErrCorrupt that names the directory", err)
		}
		return
	}
	if len(found) != len(ids) {
		t.Errorf("%d of %d transfers left and no error", len(found), len(ids))
	}
	accounts, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 2}})
	if err == nil && (len(accounts) != 1 ||
		accounts[0].DebitsPending != ledgers.AmountOf(state.transfers)) {
		t.Errorf("account is %+v, want %d pending, and no error", accounts, state.transfers)
	}
}

func wantSameFiles(t *testing.T, before, after *vfs.MemFS) {
	t.Helper()
	want, err := before.List("ledger")
	if err != nil {
		t.Fatal(err)
	}
	got, err := after.List("ledger")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	// The lock is made by whoever looks.
	if !slices.Contains(want, "LOCK") {
		got = slices.DeleteFunc(got, func(name string) bool { return name == "LOCK" })
	}
	if !slices.Equal(got, want) {
		t.Fatalf("files after the refusal: got %v, want %v", got, want)
	}
	for _, name := range want {
		path := "ledger/" + name
		if !bytes.Equal(readAll(t, before, path), readAll(t, after, path)) {
			t.Errorf("%s has changed", name)
		}
	}
}

func readAll(t *testing.T, files *vfs.MemFS, path string) []byte {
	t.Helper()
	file, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeAll(t *testing.T, files *vfs.MemFS, path string, content []byte) {
	t.Helper()
	file, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write(content)
	if err != nil {
		t.Fatal(err)
	}
	err = file.Close()
	if err != nil {
		t.Fatal(err)
	}
}

func copyFiles(t *testing.T, from *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	_, err := vfs.Clone(from, to, "ledger", "ledger")
	if err != nil {
		t.Fatal(err)
	}
	return to
}
