package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/record"
)

// ErrSnapshot says bytes are not a snapshot of a State.
var ErrSnapshot = errors.New("corrupt producer snapshot")

const (
	snapshotVersion = 1
	writtenSize     = 2 + 4 + 4 + 8 + 8 // bytes of one encoded batch
)

// Snapshot encodes the state: version (1 byte), then for each producer, by id,
// the id (8), the number of batches (4) and the batches. It is nil for an empty
// state. Batches that are not settled are part of it: whoever restores it cuts it
// to the log end that it belongs to.
func (s *State) Snapshot() []byte { return s.SnapshotBelow(math.MaxInt64) }

// SnapshotBelow is Snapshot of the state as it is without the batches that reach past
// end, which is settled: all that is known of what is about to be deleted.
func (s *State) SnapshotBelow(end record.Offset) []byte {
	var out []byte
	be := binary.BigEndian
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		batches := s.producers[id].batches
		for len(batches) > 0 && batches[len(batches)-1].next > end {
			batches = batches[:len(batches)-1]
		}
		if len(batches) == 0 {
			continue
		}
		if out == nil {
			out = []byte{snapshotVersion}
		}
		out = be.AppendUint64(out, uint64(id))
		out = be.AppendUint32(out, uint32(len(batches)))
		for _, w := range batches {
			out = be.AppendUint16(out, uint16(w.epoch))
			out = be.AppendUint32(out, uint32(w.first))
			out = be.AppendUint32(out, uint32(w.last))
			out = be.AppendUint64(out, uint64(w.base))
			out = be.AppendUint64(out, uint64(w.next))
		}
	}
	return out
}

// Restore returns the state that a snapshot was taken of.
func Restore(snapshot []byte, now clock.Instant) (State, error) {
	var s State
	if len(snapshot) == 0 {
		return s, nil
	}
	if snapshot[0] != snapshotVersion {
		return s, fmt.Errorf("%w: version %d", ErrSnapshot, snapshot[0])
	}
	s.producers = make(map[record.ProducerID]*entry)
	be := binary.BigEndian
	for rest := snapshot[1:]; len(rest) > 0; {
		if len(rest) < 12 {
			return State{}, fmt.Errorf("%w: %d bytes left, a producer needs 12", ErrSnapshot, len(rest))
		}
		id, n := record.ProducerID(be.Uint64(rest)), int64(be.Uint32(rest[8:]))
		rest = rest[12:]
		if n == 0 || n*writtenSize > int64(len(rest)) {
			return State{}, fmt.Errorf("%w: producer %d with %d batches in %d bytes", ErrSnapshot, id, n, len(rest))
		}
		if s.producers[id] != nil {
			return State{}, fmt.Errorf("%w: producer %d twice", ErrSnapshot, id)
		}
		e := &entry{seen: now, batches: make([]written, n), trimmed: n >= Window}
		for i := range e.batches {
			e.batches[i] = written{
				epoch: record.ProducerEpoch(be.Uint16(rest)),
				first: record.Sequence(be.Uint32(rest[2:])),
				last:  record.Sequence(be.Uint32(rest[6:])),
				base:  record.Offset(be.Uint64(rest[10:])),
				next:  record.Offset(be.Uint64(rest[18:])),
			}
			rest = rest[writtenSize:]
		}
		s.producers[id] = e
	}
	return s, nil
}
