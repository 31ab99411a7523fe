package embedded

import "github.com/cockroachdb/pebble/v2/vfs"

// Testing returns options for tests: with files in place of the disk, unless nil, and room for live
// pending transfers in memory, unless 0.
func Testing(options Options, files vfs.FS, live int) *Options {
	options.fs, options.liveInMemory = files, live
	return &options
}
