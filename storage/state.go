package storage

import (
	"math"
	"sort"

	"github.com/pawlbroker/pawl/storage/record"
)

// A snapshot is a log at one moment: what a View points to. Nothing in it
// changes once it is published. Its slices may share arrays with the next
// snapshot, which only appends behind what this one sees.
//
// Invariants: segments are ascending and touch, active.base is the last one's
// next; start <= end; pending and run continue the active segment's index.
type snapshot struct {
	log    LogID
	start  record.Offset
	end    record.Offset
	epochs []EpochStart // ascending in both

	segments   []*segment // sealed
	active     *segment   // has no file before its first byte
	generation uint32     // of the next file

	// Of the active segment.
	size    int64
	maxTime record.Timestamp // greatest in the segment
	indexed int64            // entries in the index file
	pending []indexEntry     // entries that follow those
	run     run              // batches that follow those
	tail    []tailEntry      // the last batches, up to the end; perhaps none

	damage *DamageError // not nil if the log must not be used
}

// A tailEntry is one batch: 8 bytes, so that an idle log costs little.
type tailEntry struct {
	delta uint32 // base offset relative to the segment's
	pos   uint32
}

const (
	maxTail       = 64            // entries
	maxDelta      = math.MaxInt32 // of offsets in one segment. Kafka's limit too
	flushEntries  = 16            // pending index entries that are worth a write
	firstTailSize = 2
)

func newSnapshot(seg *segment) *snapshot {
	return &snapshot{log: seg.log, start: seg.base, end: seg.base, active: seg, generation: seg.generation, maxTime: record.NoTimestamp}
}

// add appends a batch to the active segment.
func (s *snapshot) add(b record.Batch, interval int64) {
	s.addTail(b)
	s.run.add(b, s.size)
	s.grow(b, int64(len(b)), interval)
}

// grow counts a batch, of which no more than the header is looked at.
func (s *snapshot) grow(b record.Batch, size, interval int64) {
	s.size += size
	s.end = b.NextOffset()
	s.maxTime = max(s.maxTime, b.MaxTimestamp())
	if s.size-s.run.pos >= interval {
		s.finishRun()
	}
	if n := len(s.epochs); n == 0 || s.epochs[n-1].Epoch < b.LeaderEpoch() {
		s.epochs = append(cutEpochs(s.epochs, b.BaseOffset()), EpochStart{b.LeaderEpoch(), b.BaseOffset()})
	}
}

func (s *snapshot) addTail(b record.Batch) {
	if len(s.tail) == maxTail {
		s.tail = append(make([]tailEntry, 0, maxTail), s.tail[maxTail/2:]...)
	} else if len(s.tail) == cap(s.tail) {
		s.tail = append(make([]tailEntry, 0, min(maxTail, max(firstTailSize, 2*cap(s.tail)))), s.tail...)
	}
	s.tail = append(s.tail, tailEntry{uint32(b.BaseOffset() - s.active.base), uint32(s.size)})
}

func (s *snapshot) finishRun() {
	if s.run.batches > 0 {
		s.pending = append(s.pending, s.run.finished(s.size, s.maxTime))
		s.run = run{}
	}
}

// full reports whether b must go to a new segment.
func (s *snapshot) full(b record.Batch, segmentBytes int64) bool {
	return s.size > 0 && (s.size >= segmentBytes || b.NextOffset()-s.active.base > maxDelta ||
		s.size+int64(len(b)) > math.MaxUint32)
}

// roll seals the active segment and makes next the active one. It returns the
// entries that the sealed one's index file lacks.
func (s *snapshot) roll(next *segment) []indexEntry {
	s.finishRun()
	missing := s.pending
	a := s.active
	a.size, a.next, a.maxTime = s.size, s.end, s.maxTime
	a.entries = s.indexed + int64(len(missing))
	if s.size > 0 {
		s.segments = append(s.segments[:len(s.segments):len(s.segments)], a)
	}
	s.begin(next)
	return missing
}

func (s *snapshot) begin(active *segment) {
	s.active = active
	s.size, s.maxTime, s.indexed, s.pending, s.run, s.tail = 0, record.NoTimestamp, 0, nil, run{}, nil
}

// find is the part that holds offset.
func (s *snapshot) find(offset record.Offset) part {
	i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].next > offset })
	return s.part(i)
}

// cutEpochs drops the epochs that start at end or later.
func cutEpochs(epochs []EpochStart, end record.Offset) []EpochStart {
	n := sort.Search(len(epochs), func(i int) bool { return epochs[i].Start >= end })
	if n == len(epochs) {
		return epochs
	}
	return epochs[:n:n]
}

// raiseEpochs drops the epochs that end before start. That of the record before
// start stays: who has the log up to there is asked for it.
func raiseEpochs(epochs []EpochStart, start record.Offset) []EpochStart {
	n := sort.Search(len(epochs), func(i int) bool { return epochs[i].Start >= start })
	return epochs[max(n-1, 0):]
}
