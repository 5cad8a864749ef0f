// Package memory sets how a server trades memory for time.
package memory

import (
	"os"
	"runtime/debug"
)

const (
	// percent is how much garbage may pile up beside what is in use. What a hub or
	// a node keeps is small, some ten megabytes, and each write or read makes as
	// much garbage as it is large: at Go's own 100 the collector runs several times
	// a second and takes a tenth of the processor.
	percent = 400
	// limit is from where on memory counts more than time, in bytes.
	limit = 512 << 20
)

// Tune sets that for this process. GOGC and GOMEMLIMIT, where they are set, say
// otherwise.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
