package ledgertest_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

// recorder is a testing.TB that writes down failures instead of failing.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs a test, its cleanup included, and returns how it failed.
func record(t *testing.T, test func(t testing.TB)) []string {
	t.Helper()
	r := &recorder{TB: t}
	run := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	run(func() { test(r) })
	for _, cleanup := range slices.Backward(r.cleanups) {
		run(cleanup)
	}
	return r.failures
}
