package embedded_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"weir/ledgers/embedded"
)

// crashable is a ledger on files in memory that know what was synced.
type crashable struct {
	t      *testing.T
	files  *vfs.MemFS
	clock  *fakeClock
	ledger *embedded.Ledger
}

func newCrashable(t *testing.T) *crashable {
	d := &crashable{t: t, files: vfs.NewCrashableMem(), clock: newClock()}
	d.open()
	t.Cleanup(func() {
		d.close()
		verifyFiles(t, "ledger", d.files)
	})
	return d
}

func (d *crashable) open() {
	d.t.Helper()
	var err error
	d.ledger, err = embedded.Open("ledger",
		embedded.Testing(embedded.Options{Now: d.clock.read}, d.files, 0))
	if err != nil {
		d.t.Fatalf("open: %v", err)
	}
}

func (d *crashable) close() {
	d.t.Helper()
	err := d.ledger.Close()
	if err != nil {
		d.t.Errorf("close: %v", err)
	}
}

// crash goes on with what was synced and nothing else.
func (d *crashable) crash() {
	d.t.Helper()
	survived := d.files.CrashClone(vfs.CrashCloneCfg{})
	d.close()
	d.files = survived
	d.open()
}
