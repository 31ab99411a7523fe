package ledgertest_test

import (
	"path/filepath"
	"testing"

	"weir/ledgers/ledgertest"
)

func TestTwinTraces(t *testing.T) {
	files, err := ledgertest.TraceFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var now uint64
			twin := ledgertest.NewTwin(func() uint64 { return now })
			ledgertest.RunTrace(t, file, twin, func(at uint64) { now = at })
		})
	}
}
