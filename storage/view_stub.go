package storage

import "github.com/pawlbroker/pawl/storage/record"

// View is an immutable snapshot of a log.
type View struct{}

// Start is the log start offset.
func (v View) Start() record.Offset { return 0 }

// End is the log end offset.
func (v View) End() record.Offset { return 0 }

// Epochs lists the leader epochs in the log, ascending. It must not be changed.
func (v View) Epochs() []EpochStart { return nil }

// Find is Read for the hot tail: it looks at memory only, and reports false if
// the answer is not there.
func (v View) Find(from, limit record.Offset, maxBytes int64) (Region, bool) { return Region{}, false }

// Read returns the whole batches from the one that holds from up to, and not
// reaching past, limit. It gives at most maxBytes, but always one batch if there
// is one, and never crosses files: the next call continues.
func (v View) Read(from, limit record.Offset, maxBytes int64) (Region, error) { return Region{}, nil }
