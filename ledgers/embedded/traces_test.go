package embedded_test

import (
	"path/filepath"
	"testing"

	"weir/ledgers/ledgertest"
)

// TestTraces replays what a real TigerBeetle answered, recorded in one file a subtest, and every
// file in the directory that WEIR_TRACES names.
func TestTraces(t *testing.T) {
	files, err := ledgertest.TraceFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			ledger := open(t, t.TempDir(), clock.options())
			ledgertest.RunTrace(t, file, ledger, clock.set)
		})
	}
}
