// Package elsewhere is a dependency that the analyzer does not look into.
package elsewhere

import "time"

// Jitter reads the clock.
func Jitter() int64 { return time.Now().UnixNano() % 7 }
