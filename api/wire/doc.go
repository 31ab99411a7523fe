// Package wire holds what weir says over HTTP: the bodies of requests and answers, and the codes of
// the problems. Server and client share it. It needs nothing but the standard library.
//
// A field that does not apply, or whose value is not known, is left out; it is never null, and
// never a number that stands for "unknown".
package wire
