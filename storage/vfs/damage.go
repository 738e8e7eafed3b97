package vfs

import "fmt"

// A DamageError says that bytes which were durable are not what was written.
// Whatever holds them refuses to serve them.
type DamageError struct {
	File string // relative to the data directory
	Pos  int64  // bytes from the start of File
	What string
}

func (e *DamageError) Error() string { return fmt.Sprintf("%s at %d: %s", e.File, e.Pos, e.What) }
