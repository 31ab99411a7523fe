package credit

import "errors"

var (
	// errReadTimeout is returned by a read of the cache that did not end within the budget.
	errReadTimeout = errors.New("the cache did not answer in time")
	// errBusy is returned by a cold miss that found all fetches taken until its time was over.
	errBusy = errors.New("too many fetches are under way")
)
