package replica

import (
	"fmt"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// EpochStart is the first offset a leader epoch wrote.
type EpochStart = storage.EpochStart

// Divergence says where a follower's log stops being its leader's: Epoch is the
// largest epoch of the leader's log that is at most the follower's last, and End
// where it ends there.
//
// Source: KIP-595.
type Divergence struct {
	Epoch record.LeaderEpoch
	End   record.Offset
}

// EndOffsetFor returns the largest epoch at most the asked one that the log has
// records of, and the offset where that epoch ends. If there is none both are
// -1.
//
// Source: KIP-279.
func (r *Replica) EndOffsetFor(epoch record.LeaderEpoch) (record.LeaderEpoch, record.Offset) {
	if epoch == r.epoch {
		return epoch, r.written // this reign, though it may have written nothing
	}
	if epoch > r.epoch || len(r.epochs) == 0 {
		return record.NoEpoch, -1
	}
	epoch, end := r.endOf(epoch, r.written)
	return epoch, max(end, r.logStart)
}

// endOf is the largest epoch at most the given one of a log that ends at end,
// and where that epoch ends. An epoch before everything that is kept ends where
// that begins.
func (r *Replica) endOf(epoch record.LeaderEpoch, end record.Offset) (record.LeaderEpoch, record.Offset) {
	for i := len(r.epochs) - 1; i >= 0; i-- {
		if r.epochs[i].Epoch <= epoch {
			if i+1 < len(r.epochs) {
				end = r.epochs[i+1].Start
			}
			return r.epochs[i].Epoch, end
		}
	}
	if len(r.epochs) > 0 {
		end = r.epochs[0].Start
	}
	return epoch, end
}

// Forgot reports whether a leader that begins late cannot tell whether a log that ends
// with a record of epoch last is its own up to there: it knows of no record before.
func (r *Replica) Forgot(last record.LeaderEpoch) bool {
	return last != record.NoEpoch && last < r.epoch && r.logStart > 0 && (len(r.epochs) == 0 || r.epochs[0].Epoch > last)
}

// EpochOf is the leader epoch of the record at offset, or NoEpoch.
func (r *Replica) EpochOf(offset record.Offset) record.LeaderEpoch {
	for i := len(r.epochs) - 1; i >= 0; i-- {
		if r.epochs[i].Start <= offset {
			return r.epochs[i].Epoch
		}
	}
	return record.NoEpoch
}

// lastEpoch is the leader epoch of the last record, or NoEpoch.
func (r *Replica) lastEpoch() record.LeaderEpoch {
	if n := len(r.epochs); n > 0 {
		return r.epochs[n-1].Epoch
	}
	return record.NoEpoch
}

// Judgement is what a leader finds of a follower's log.
type Judgement uint8

const (
	// Agrees says the leader's log holds all of it.
	Agrees Judgement = iota
	// Diverges says it must be cut.
	Diverges
	// Unsure says that the leader has not come so far: ask again.
	Unsure
)

// Judge compares the log of a follower that fetches from offset, behind a record
// of epoch last, with the leader's. Records that the leader has not shown prove
// nothing yet: they may be refused.
//
// It does not say that the leader has the offset: that may be below the log
// start.
func (r *Replica) Judge(offset record.Offset, last record.LeaderEpoch) (Judgement, Divergence) {
	assert.That(r.Leads(), "replica: a follower's log is judged by a replica that does not lead")
	if offset > r.shown && offset <= r.logEnd {
		return Unsure, Divergence{}
	}
	epoch, end := r.epoch, r.shown
	switch {
	case last == record.NoEpoch: // an empty log, which agrees with every other
	case last < r.epoch:
		epoch, end = r.endOf(last, r.shown)
	}
	if last > epoch || end < offset {
		return Diverges, Divergence{epoch, end}
	}
	return Agrees, Divergence{}
}

// Diverged says that the leader's log and this one part as d says. It returns
// where this one must be cut; that must be done now, behind the appends in
// flight, and be reported by Truncated or TruncateFailed. Nothing is fetched or
// appended meanwhile. below says that what is cut was committed once: a leader
// was elected that had not been in sync. An error means that d makes no sense.
func (r *Replica) Diverged(d Divergence) (end record.Offset, below bool, err error) {
	assert.That(r.role == following && !r.busy, "replica: divergence from a leader that is not followed")
	_, end = r.endOf(d.Epoch, r.logEnd)
	if end = min(end, d.End); end >= r.logEnd || d.End < 0 {
		return 0, false, fmt.Errorf("leader's epoch %d ends at %d, which leaves nothing to cut at log end %d, epoch %d", d.Epoch, d.End, r.logEnd, r.lastEpoch())
	}
	below = end < r.highWatermark
	assert.That(!below || !r.certain, "replica: cuts what is committed")
	r.busy, r.pursuit.matched = true, false
	return end, below, nil
}

// Truncated says that the log was cut, or reset: it is [start, end) now, with
// these epochs, which become the replica's.
func (r *Replica) Truncated(start, end record.Offset, epochs []EpochStart, out *Out) {
	assert.That(r.busy && len(r.flights) == 0, "replica: a log was cut that should not have been")
	r.busy = false
	r.logStart, r.logEnd, r.shown, r.written, r.epochs = start, end, end, end, epochs
	r.highWatermark = max(start, min(r.highWatermark, end))
	r.electedAt = min(r.electedAt, end)
	r.advance(out)
	r.check()
}

// TruncateFailed says that the disk had no space for it. Nothing was cut; a
// follower asks its leader again at retryAt.
func (r *Replica) TruncateFailed(retryAt clock.Instant, out *Out) {
	assert.That(r.busy, "replica: a cut failed that was not on its way")
	r.busy = false
	r.Pause(retryAt)
	r.advance(out)
	r.check()
}

// Reset gives up the log, to begin anew at start: everything that the leader has
// is above the log, or the log is damaged. That must be done now, and be
// reported by Truncated or TruncateFailed.
func (r *Replica) Reset() {
	assert.That(r.Resettable(), "replica: a log is reset that is in use")
	r.busy, r.pursuit.matched = true, false
}

// Resettable reports whether Reset may be called: the log of a follower can be
// fetched again.
func (r *Replica) Resettable() bool { return r.role == following && !r.busy }
