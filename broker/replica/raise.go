package replica

import (
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// Empty reports whether there is nothing in the log, nor on its way.
func (r *Replica) Empty() bool { return r.logStart == r.logEnd }

// Raised says that the log begins at start, with these epochs, which become the
// replica's: the records before were deleted. It does nothing, and reports false,
// if the log began later already, or is about to be cut, which will say where it
// begins.
func (r *Replica) Raised(start record.Offset, epochs []EpochStart) bool {
	if start <= r.logStart || r.busy {
		return false
	}
	assert.That(start <= r.highWatermark, "replica: records deleted that are not committed")
	r.logStart = start
	// Epochs of appends in flight are not on disk, and so not among these; one may
	// begin at start.
	for _, e := range r.epochs {
		if n := len(epochs); n == 0 || epochs[n-1].Epoch < e.Epoch {
			epochs = append(epochs[:n:n], e)
		}
	}
	r.epochs = epochs
	r.check()
	return true
}
