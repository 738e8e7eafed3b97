// Package producer decides for one partition which batches of idempotent
// producers are new, which were written before, and which must not be written.
// It is a pure state machine; everything it knows can be rebuilt from the batch
// headers in the log.
//
// Sources: KIP-98 (idempotence), KIP-360 (unknown producers), KAFKA-15591
// (first sequence on a partition that was never written).
package producer

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

var (
	// ErrOutOfOrder says batches before this one are missing.
	ErrOutOfOrder = errors.New("out of order sequence number")
	// ErrFenced says a newer instance of the producer has written.
	ErrFenced = errors.New("invalid producer epoch")
)

// Window is how many of a producer's last batches are remembered, so that a
// retry of any of them is recognised. It is what a client may have in flight on
// one connection with idempotence (max.in.flight.requests.per.connection).
const Window = 5

// Batch is the part of a record batch's header that matters here.
type Batch struct {
	ID    record.ProducerID
	Epoch record.ProducerEpoch
	First record.Sequence
	Last  record.Sequence
	Base  record.Offset // of the first record
	Next  record.Offset // one past the last record
}

// Of reads a batch's header. Base and Next mean nothing before the batch has
// its offsets.
func Of(b record.Batch) Batch {
	return Batch{
		ID: b.ProducerID(), Epoch: b.ProducerEpoch(), First: b.BaseSequence(), Last: b.LastSequence(),
		Base: b.BaseOffset(), Next: b.NextOffset(),
	}
}

// written is one batch that a producer wrote, or is writing.
type written struct {
	epoch record.ProducerEpoch
	first record.Sequence
	last  record.Sequence
	base  record.Offset
	next  record.Offset
}

// entry is one producer.
//
// Invariant: batches ascends by base and is not empty; at most Window of them
// are settled when one is added, those that may be taken back come on top.
type entry struct {
	batches []written
	seen    clock.Instant // when it last wrote, or when it was recovered
	trimmed bool          // older batches may be in the log
}

func (e *entry) last() *written { return &e.batches[len(e.batches)-1] }

// refusal is the first batch of a producer of whose batches none was stored.
type refusal struct {
	epoch record.ProducerEpoch
	first record.Sequence
	seen  clock.Instant
}

// State is every producer of one partition.
//
// Invariant: no producer is in both maps.
type State struct {
	producers map[record.ProducerID]*entry
	refused   map[record.ProducerID]refusal // in memory only: a new process has no request of an old connection
	settled   record.Offset                 // batches below stay
}

// Len is how many producers are known.
func (s *State) Len() int { return len(s.producers) }

// Check says what to do with a batch: write it (both offsets are -1), or answer
// as for the batch at [base, next), which it repeats. An error means that it
// must not be written. fresh says that nothing was ever written to the
// partition: a producer it has never seen must then start at sequence 0, or the
// batches it sent before, which were refused, could never be written.
//
// A producer without state on a partition that was written may start anywhere:
// its state may have expired, or its records may have been deleted. But one whose
// first batch was taken back must send that again: the batches that it sent
// behind it, before it knew, would be stored without it, and it never could be.
func (s *State) Check(b Batch, fresh bool) (base, next record.Offset, err error) {
	if b.ID == record.NoProducer {
		return -1, -1, nil
	}
	e := s.producers[b.ID]
	if e == nil {
		if fresh && b.First != 0 {
			return 0, 0, fmt.Errorf("%w: producer %d starts an empty partition at sequence %d", ErrOutOfOrder, b.ID, b.First)
		}
		if r, ok := s.refused[b.ID]; ok && r.epoch == b.Epoch && r.first != b.First {
			assert.Reached("producer: batch behind one that was refused")
			return 0, 0, fmt.Errorf("%w: producer %d was refused sequence %d, batch starts at %d", ErrOutOfOrder, b.ID, r.first, b.First)
		}
		return -1, -1, nil
	}
	last := e.last()
	switch {
	case b.Epoch < last.epoch:
		return 0, 0, fmt.Errorf("%w: producer %d has epoch %d, batch has %d", ErrFenced, b.ID, last.epoch, b.Epoch)
	case b.Epoch > last.epoch:
		if b.First != 0 {
			return 0, 0, fmt.Errorf("%w: producer %d starts epoch %d at sequence %d", ErrOutOfOrder, b.ID, b.Epoch, b.First)
		}
		return -1, -1, nil
	}
	for i := len(e.batches) - 1; i >= 0; i-- {
		w := &e.batches[i]
		if w.epoch == b.Epoch && w.first == b.First && w.last == b.Last {
			assert.Reached("producer: duplicate batch")
			return w.base, w.next, nil
		}
	}
	if b.First != last.last.Add(1) {
		return 0, 0, fmt.Errorf("%w: producer %d epoch %d is at sequence %d, batch starts at %d",
			ErrOutOfOrder, b.ID, b.Epoch, last.last, b.First)
	}
	return -1, -1, nil
}

// Add takes a batch that Check let pass, or that a leader sent, and that has its
// offsets. Until Settled reaches it, it may be taken back.
func (s *State) Add(b Batch, now clock.Instant) {
	if b.ID == record.NoProducer {
		return
	}
	e := s.producers[b.ID]
	if e == nil {
		if s.producers == nil {
			s.producers = make(map[record.ProducerID]*entry)
		}
		e = &entry{}
		s.producers[b.ID] = e
		delete(s.refused, b.ID)
	}
	if n := len(e.batches); n > 0 {
		assert.That(e.batches[n-1].next <= b.Base, "producer: batch below one that was added before")
	}
	e.seen = now
	e.batches = append(e.batches, written{b.Epoch, b.First, b.Last, b.Base, b.Next})
	e.trim(s.settled)
}

// Settled says everything below end is committed, so that no batch of it is ever
// taken back.
func (s *State) Settled(end record.Offset) { s.settled = max(s.settled, end) }

// Trim forgets what has left the window of every producer, at the cost of all of
// them. Otherwise that is done when a producer writes.
func (s *State) Trim() {
	for _, e := range s.producers { //pawl:unordered each by itself
		e.trim(s.settled)
	}
}

// trim forgets what has left the window. Batches that may be taken back are kept
// besides those that would be left if they were.
func (e *entry) trim(settled record.Offset) {
	n := 0
	for n < len(e.batches) && e.batches[n].next <= settled {
		n++
	}
	if drop := n - Window; drop > 0 {
		e.batches = e.batches[:copy(e.batches, e.batches[drop:])]
		e.trimmed = true
	}
}

// Exact reports whether Cut at end leaves what the log up to there would give.
// It does unless end is below what was settled: then batches that were forgotten
// may be back in a window.
func (s *State) Exact(end record.Offset) bool {
	for _, e := range s.producers { //pawl:unordered all are looked at
		n := len(e.batches)
		for n > 0 && e.batches[n-1].next > end {
			n--
		}
		if n < len(e.batches) && e.trimmed && n < Window {
			return false
		}
	}
	return true
}

// Cut takes back every batch that reaches past end: the log has been cut there,
// because its leader has others. Whoever wrote them may go on as if they never
// had been.
func (s *State) Cut(end record.Offset) {
	s.settled = min(s.settled, end)
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		e := s.producers[id]
		for n := len(e.batches); n > 0 && e.batches[n-1].next > end; n-- {
			e.batches = e.batches[:n-1]
		}
		if len(e.batches) == 0 {
			delete(s.producers, id)
		}
	}
}

// maxRefused is how many producers that never wrote are remembered because they
// were refused.
const maxRefused = 1000

// Refused says that a batch was not written, for a reason that may be gone when
// the batches come that its producer has sent behind it. Of a producer that wrote
// before the sequences tell; of another the first refusal is remembered.
func (s *State) Refused(b Batch, now clock.Instant) {
	if b.ID == record.NoProducer || s.producers[b.ID] != nil {
		return
	}
	if r, ok := s.refused[b.ID]; ok && r.epoch >= b.Epoch || !ok && len(s.refused) >= maxRefused {
		return
	}
	if s.refused == nil {
		s.refused = make(map[record.ProducerID]refusal)
	}
	s.refused[b.ID] = refusal{b.Epoch, b.First, now}
}

// Rollback takes back every batch that reaches past end: the disk refused them.
func (s *State) Rollback(end record.Offset) {
	s.settled = min(s.settled, end)
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		e := s.producers[id]
		first := e.batches[0]
		for n := len(e.batches); n > 0 && e.batches[n-1].next > end; n-- {
			e.batches = e.batches[:n-1]
		}
		if len(e.batches) == 0 {
			delete(s.producers, id)
			if s.refused == nil {
				s.refused = make(map[record.ProducerID]refusal)
			}
			s.refused[id] = refusal{first.epoch, first.first, e.seen}
		}
	}
}

// Expire forgets the producers that have not written since before.
func (s *State) Expire(before clock.Instant) {
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		if s.producers[id].seen < before {
			delete(s.producers, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.refused)) {
		if s.refused[id].seen < before {
			delete(s.refused, id)
		}
	}
}

// Hash is a hash of everything that decides the future, so that a live state
// can be compared with one rebuilt from the log. Batches that reach past end are
// left out.
func (s *State) Hash(end record.Offset) uint64 {
	h := uint64(14695981039346656037)
	mix := func(v int64) {
		h ^= uint64(v)
		h *= 1099511628211
		h ^= h >> 29
	}
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		var keep []written
		for _, w := range s.producers[id].batches {
			if w.next <= end {
				keep = append(keep, w)
			}
		}
		if len(keep) == 0 {
			continue
		}
		mix(int64(id))
		for _, w := range keep[max(0, len(keep)-Window):] {
			mix(int64(w.epoch))
			mix(int64(w.first))
			mix(int64(w.last))
			mix(int64(w.base))
			mix(int64(w.next))
		}
	}
	return h
}
