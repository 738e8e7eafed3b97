package replica

import (
	"fmt"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// flight is an append that was handed to the disk and not yet reported.
type flight struct {
	base   record.Offset
	next   record.Offset
	doomed bool // comes after an append that was refused, and will be refused too
}

// Produce takes a batch a client wants appended, assigns its offsets in place
// and returns the first. The batch must go to the disk now, in this order, and
// be reported by Written or Rejected. Unless there is an error, ticket comes
// back in exactly one Done: when the batch is committed, or, unless committed is
// set, when it is on disk here.
func (r *Replica) Produce(b record.Batch, committed bool, ticket Ticket) (record.Offset, error) {
	if !r.Leads() {
		return 0, ErrNotLeader
	}
	base := r.logEnd
	b.Assign(base, r.epoch)
	r.launch(b, b.NextOffset())
	r.promise(base, r.logEnd, committed, ticket)
	r.check()
	return base, nil
}

// launch notes that an append to the log end, which begins with first, is on
// its way.
func (r *Replica) launch(first record.Batch, next record.Offset) {
	r.noteEpoch(first)
	r.flights = append(r.flights, flight{base: r.logEnd, next: next})
	r.logEnd = next
}

// noteEpoch remembers where a batch's epoch begins.
func (r *Replica) noteEpoch(b record.Batch) {
	if n := len(r.epochs); n == 0 || r.epochs[n-1].Epoch < b.LeaderEpoch() {
		r.epochs = append(r.epochs, EpochStart{Epoch: b.LeaderEpoch(), Start: b.BaseOffset()})
	}
}

// Extend takes batches that the leader sent in answer to a fetch from the log
// end. They must go to the disk now as one append, and be reported by Written or
// Rejected. An error means that they do not continue the log, and nothing was
// taken.
func (r *Replica) Extend(batches []record.Batch) error {
	assert.That(r.role == following && !r.busy && len(batches) > 0, "replica: batches for a replica that does not fetch")
	end, epoch := r.logEnd, r.lastEpoch()
	for _, b := range batches {
		switch e := b.LeaderEpoch(); {
		case b.BaseOffset() != end:
			return fmt.Errorf("batch at offset %d, want %d", b.BaseOffset(), end)
		case e < epoch || e > r.epoch:
			return fmt.Errorf("batch at offset %d of leader epoch %d, want %d to %d", end, e, epoch, r.epoch)
		default:
			end, epoch = b.NextOffset(), e
		}
	}
	r.launch(batches[0], end)
	for _, b := range batches[1:] {
		r.noteEpoch(b)
	}
	r.check()
	return nil
}

// Show says that the append in flight that ends at next, and those before it, can
// be read, and will not be refused. They are not on disk: they count for followers,
// who may have them earlier, but not for what is committed.
//
// A process that ends before they are on disk has lost them when it starts again.
// So it must not lead on in the same leader epoch: it would put other records where
// its followers have these.
func (r *Replica) Show(next record.Offset) {
	for _, f := range r.flights {
		if f.next > next {
			break
		}
		assert.That(!f.doomed, "replica: an append is shown that will be refused")
		r.shown = max(r.shown, f.next)
	}
	r.check()
}

// Written says the oldest append in flight is on disk.
func (r *Replica) Written(now clock.Instant, out *Out) {
	assert.That(len(r.flights) > 0 && !r.flights[0].doomed, "replica: an append was written that was not in flight")
	if r.reign != nil {
		r.reign.outrun(r.written, now)
	}
	r.written = r.flights[0].next
	r.shown = max(r.shown, r.written)
	r.land()
	r.advance(out)
	r.check()
}

// Rejected says the oldest append in flight was refused because of err and left
// no trace. Those behind it do not continue the log any more, so they will be
// refused too. It returns the log end, which is where it was before them;
// whatever was derived from records at or above it must be forgotten. A follower
// does not fetch again before retryAt.
func (r *Replica) Rejected(err error, retryAt clock.Instant, out *Out) record.Offset {
	assert.That(len(r.flights) > 0, "replica: an append was refused that was not in flight")
	if !r.flights[0].doomed {
		assert.Reached("replica: append refused")
		for i := range r.flights {
			r.flights[i].doomed = true
		}
		assert.That(r.shown == r.written, "replica: an append was refused that was shown")
		r.cutTo(r.written)
		r.fail(r.logEnd, err, out)
		r.Pause(retryAt)
	}
	r.land()
	r.check()
	return r.logEnd
}

// cutTo makes end the log end.
func (r *Replica) cutTo(end record.Offset) {
	r.logEnd = end
	for n := len(r.epochs); n > 0 && r.epochs[n-1].Start >= end; n-- {
		r.epochs = r.epochs[:n-1]
	}
	if r.role == leading {
		r.electedAt = min(r.electedAt, end)
	}
}

// land forgets the oldest flight. The queue's memory is used again.
func (r *Replica) land() {
	copy(r.flights, r.flights[1:])
	r.flights = r.flights[:len(r.flights)-1]
}

// advance moves the high watermark and keeps the promises that waited.
func (r *Replica) advance(out *Out) {
	committed := r.highWatermark
	switch {
	case r.role == leading && r.busy:
		// What is on disk may be about to be cut.
	case r.role == leading && r.reign == nil:
		committed = r.written
	case r.role == leading:
		committed = r.reign.committed(r.written, r.highWatermark)
	case r.role == following && r.pursuit.matched:
		committed = min(r.pursuit.told, r.written)
	}
	if committed > r.highWatermark {
		r.highWatermark, r.certain = committed, true
	}
	r.keepPromises(out)
}
