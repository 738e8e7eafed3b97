// Package replica decides for one replica of one partition: which offsets
// records get, what is on disk, what counts as committed. It is a pure state
// machine. It does no I/O, has no clock and calls nobody: every method takes
// plain values and leaves what must be done in an Out.
//
// Sources: KIP-101 and KIP-279 (leader epochs), KIP-98 (acks of duplicates).
package replica

import (
	"errors"
	"fmt"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

var (
	// ErrNotLeader says another broker leads the partition, or none does.
	ErrNotLeader = errors.New("not leader or follower")
	// ErrFencedEpoch says the asker lives in an older leader epoch.
	ErrFencedEpoch = errors.New("fenced leader epoch")
	// ErrUnknownEpoch says the asker has heard of a leader epoch that this
	// replica has not.
	ErrUnknownEpoch = errors.New("unknown leader epoch")
)

// Ticket stands for a promise the node made to someone. The replica hands it
// back exactly once; what it stands for is not its business.
type Ticket uint64

// Out is what a call decided. The caller acts on it and resets it.
type Out struct {
	Done []Done // promises that can be kept now
}

// Done reports the end of one produce. Err is nil when it is acknowledged.
type Done struct {
	Ticket Ticket
	Base   record.Offset
	Err    error
}

// EpochStart is the first offset a leader epoch wrote.
type EpochStart struct {
	Epoch record.LeaderEpoch
	Start record.Offset
}

type waiter struct {
	ticket Ticket
	base   record.Offset
	next   record.Offset // kept once this is reached
}

// flight is an append that was handed to the disk and not yet reported.
type flight struct {
	base   record.Offset
	next   record.Offset
	doomed bool // comes after an append that was refused, and will be refused too
}

// Replica is one broker's copy of one partition.
//
// Invariants: logStart <= highWatermark <= written <= logEnd; the flights that
// are not doomed cover [written, logEnd) in order; waiting ascends by next.
//
// A lone replica is its own in-sync set, so what it has on disk is committed.
type Replica struct {
	leading bool
	epoch   record.LeaderEpoch

	logStart      record.Offset // offset of the oldest record
	logEnd        record.Offset // next offset to assign; [written, logEnd) is on its way to disk
	written       record.Offset // log end offset on disk
	highWatermark record.Offset // everything below is committed

	epochs  []EpochStart // ascending in both
	flights []flight     // oldest first
	waiting []waiter
}

// New returns a replica of a log that holds [start, end), as a follower of
// nobody. It owns epochs.
func New(start, end record.Offset, epochs []EpochStart) *Replica {
	return &Replica{epoch: record.NoEpoch, logStart: start, logEnd: end, written: end, highWatermark: start, epochs: epochs}
}

// Epoch is the leader epoch the replica lives in.
func (r *Replica) Epoch() record.LeaderEpoch { return r.epoch }

// LogStart is the offset of the oldest record.
func (r *Replica) LogStart() record.Offset { return r.logStart }

// LogEnd is the next offset to assign.
func (r *Replica) LogEnd() record.Offset { return r.logEnd }

// OnDisk is the log end offset on disk.
func (r *Replica) OnDisk() record.Offset { return r.written }

// HighWatermark is the first offset that is not known to be committed.
func (r *Replica) HighWatermark() record.Offset { return r.highWatermark }

// Epochs lists the leader epochs in the log. It must not be changed.
func (r *Replica) Epochs() []EpochStart { return r.epochs }

// Lead makes the replica leader for epoch. Produces that were waiting fail:
// they may or may not survive, and the client has to ask again.
func (r *Replica) Lead(epoch record.LeaderEpoch, out *Out) {
	assert.That(!r.leading || epoch > r.epoch, "replica: leads an epoch twice")
	assert.That(epoch >= r.epoch, "replica: leader epoch goes back")
	r.fail(0, ErrNotLeader, out)
	r.leading, r.epoch = true, epoch
	r.advance(out)
}

// Resign ends the replica's reign, if it has one, because of err. What was
// waiting fails with it.
func (r *Replica) Resign(err error, out *Out) {
	r.leading = false
	r.fail(0, err, out)
}

// CheckEpoch compares the leader epoch a request was made under with the
// replica's. NoEpoch agrees with every epoch.
//
// Source: KIP-320.
func (r *Replica) CheckEpoch(current record.LeaderEpoch) error {
	switch {
	case current == record.NoEpoch:
	case current < r.epoch:
		return fmt.Errorf("%w: request has %d, leader has %d", ErrFencedEpoch, current, r.epoch)
	case current > r.epoch:
		return fmt.Errorf("%w: request has %d, leader has %d", ErrUnknownEpoch, current, r.epoch)
	}
	if !r.leading {
		return ErrNotLeader
	}
	return nil
}

// Produce takes a batch a client wants appended, assigns its offsets in place
// and returns the first. The batch must go to the disk now, in this order, and
// be reported by Written or Rejected. Unless there is an error, ticket comes
// back in exactly one Done.
func (r *Replica) Produce(b record.Batch, ticket Ticket) (record.Offset, error) {
	if !r.leading {
		return 0, ErrNotLeader
	}
	base := r.logEnd
	b.Assign(base, r.epoch)
	if n := len(r.epochs); n == 0 || r.epochs[n-1].Epoch < r.epoch {
		r.epochs = append(r.epochs, EpochStart{r.epoch, base})
	}
	r.logEnd = b.NextOffset()
	r.flights = append(r.flights, flight{base: base, next: r.logEnd})
	r.waiting = append(r.waiting, waiter{ticket, base, r.logEnd})
	r.check()
	return base, nil
}

// Await promises ticket for records that were produced before, at [base, next):
// it is done when they are committed, which may be at once.
func (r *Replica) Await(base, next record.Offset, ticket Ticket, out *Out) {
	if next <= r.highWatermark {
		out.Done = append(out.Done, Done{Ticket: ticket, Base: base})
		return
	}
	i := len(r.waiting)
	for i > 0 && r.waiting[i-1].next > next {
		i--
	}
	r.waiting = append(r.waiting, waiter{})
	copy(r.waiting[i+1:], r.waiting[i:])
	r.waiting[i] = waiter{ticket, base, next}
	r.check()
}

// Written says the oldest append in flight is on disk.
func (r *Replica) Written(out *Out) {
	assert.That(len(r.flights) > 0 && !r.flights[0].doomed, "replica: an append was written that was not in flight")
	r.written = r.flights[0].next
	r.land()
	r.advance(out)
}

// Rejected says the oldest append in flight was refused because of err and left
// no trace. Those behind it do not continue the log any more, so they will be
// refused too. It returns the log end, which is where it was before them;
// whatever was derived from records at or above it must be forgotten.
func (r *Replica) Rejected(err error, out *Out) record.Offset {
	assert.That(len(r.flights) > 0, "replica: an append was refused that was not in flight")
	if !r.flights[0].doomed {
		assert.Reached("replica: append refused")
		for i := range r.flights {
			if r.flights[i].doomed {
				continue
			}
			r.flights[i].doomed = true
		}
		r.logEnd = r.written
		for n := len(r.epochs); n > 0 && r.epochs[n-1].Start >= r.logEnd; n-- {
			r.epochs = r.epochs[:n-1]
		}
		r.fail(r.logEnd, err, out)
	}
	r.land()
	r.check()
	return r.logEnd
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
	if epoch > r.epoch {
		return record.NoEpoch, -1
	}
	for i := len(r.epochs) - 1; i >= 0; i-- {
		if r.epochs[i].Epoch > epoch {
			continue
		}
		if i+1 < len(r.epochs) {
			return r.epochs[i].Epoch, r.epochs[i+1].Start
		}
		return r.epochs[i].Epoch, r.written
	}
	if len(r.epochs) > 0 {
		return epoch, r.epochs[0].Start // before everything that is kept
	}
	return record.NoEpoch, -1
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

// land forgets the oldest flight. The queue's memory is used again.
func (r *Replica) land() {
	copy(r.flights, r.flights[1:])
	r.flights = r.flights[:len(r.flights)-1]
}

// advance moves the high watermark and keeps the promises that waited for it.
func (r *Replica) advance(out *Out) {
	if r.leading && r.written > r.highWatermark {
		r.highWatermark = r.written
	}
	kept := 0
	for kept < len(r.waiting) && r.waiting[kept].next <= r.highWatermark {
		w := r.waiting[kept]
		out.Done = append(out.Done, Done{Ticket: w.ticket, Base: w.base})
		kept++
	}
	r.waiting = r.waiting[:copy(r.waiting, r.waiting[kept:])]
	r.check()
}

// fail breaks every promise for records that reach past from.
func (r *Replica) fail(from record.Offset, err error, out *Out) {
	i := len(r.waiting)
	for i > 0 && r.waiting[i-1].next > from {
		i--
	}
	for _, w := range r.waiting[i:] {
		out.Done = append(out.Done, Done{Ticket: w.ticket, Base: -1, Err: err})
	}
	r.waiting = r.waiting[:i]
}

func (r *Replica) check() {
	assert.That(r.logStart <= r.highWatermark, "replica: high watermark below log start")
	assert.That(r.highWatermark <= r.written, "replica: high watermark above what is on disk")
	assert.That(r.written <= r.logEnd, "replica: more on disk than was assigned")
	if !assert.Slow {
		return
	}
	at := r.written
	for _, f := range r.flights {
		if !f.doomed {
			assert.That(f.base == at, "replica: appends in flight leave a gap")
			at = f.next
		}
	}
	assert.That(at == r.logEnd, "replica: appends in flight do not reach the log end")
	for i := 1; i < len(r.waiting); i++ {
		assert.That(r.waiting[i-1].next <= r.waiting[i].next, "replica: promises out of order")
	}
	for i := 1; i < len(r.epochs); i++ {
		assert.That(r.epochs[i-1].Epoch < r.epochs[i].Epoch && r.epochs[i-1].Start <= r.epochs[i].Start, "replica: epochs out of order")
	}
}
