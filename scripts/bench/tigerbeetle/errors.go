package main

import "errors"

// errAnswer is returned by a side that was answered something else than that the check passed.
var errAnswer = errors.New("not the answer that was expected")
