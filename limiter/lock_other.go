//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package limiter

import "os"

// lockFile takes a file for this process until it is closed or the process ends. Here nothing can:
// that no two processes share a directory is left to the operator.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
