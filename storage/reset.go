package storage

import (
	"errors"
	"slices"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// Reset gives up everything that a log holds, durably, damage included; it is
// empty and begins at start from then on. A log that was unknown is there
// afterwards. On ErrNoSpace nothing is done.
//
// The old files go with the next checkpoint, and new ones have other names:
// bytes that a reader may be sending are gone or the same, never different.
func (s *Store) Reset(id LogID, start record.Offset) (View, error) {
	if err := s.usable(); err != nil {
		return View{}, err
	}
	r := logRecord{kind: kindReset, place: place{log: id}, offset: start, next: s.graves[id]}
	l := s.logs[id]
	if l != nil {
		r.next = l.view.generation + 1
	}
	if err := s.journalOne(r); err != nil {
		return View{}, s.unlessFull(err)
	}
	assert.Reached("storage: log reset")
	delete(s.unborn, id)
	if l == nil {
		l = &Log{}
		s.logs[id] = l
		s.ids = nil
	} else {
		for i := range l.view.parts() {
			p := l.view.part(i)
			p.seg.gone.Store(true)
			s.doom(p.seg)
		}
	}
	l.view = newSnapshot(s.newSegment(id, start, r.next))
	l.snapshot, l.upTo, l.deleted = nil, start, nil
	return View{l.view}, nil
}

// reset applies a kindReset to a log that may be unknown, damaged, or lack
// batches: none of that matters any more.
func (r *replay) reset(l *replayed, rec logRecord) {
	v := newSnapshot(r.s.newSegment(rec.log, rec.offset, rec.next))
	if l == nil {
		l = &replayed{Log: &Log{}}
		r.logs[rec.log], r.s.logs[rec.log] = l, l.Log
		r.s.ids = nil
	}
	l.view, l.snapshot, l.upTo, l.deleted = v, nil, rec.offset, nil
	l.after, l.afterFrom, l.hole, l.raised = nil, rec.offset, nil, logRecord{}
	l.indexes = map[*segment]missing{}
}

// pass notes a record of a log that is out of service: nothing is done, but the
// names of files that it speaks of are used.
func (l *replayed) pass(rec logRecord) {
	if g := max(rec.generation, rec.next); g > l.view.generation {
		v := *l.view
		v.generation = g
		l.view = &v
	}
}

// Since is what a log's producer state can be made of: the last snapshot that
// belongs to it, and of the batches behind the last few of each producer, in
// order. It reads them, as far back as the log goes if there is no snapshot.
func (s *Store) Since(id LogID, few int) (snapshot []byte, after []BatchInfo, err error) {
	if err := s.usable(); err != nil {
		return nil, nil, err
	}
	l := s.logs[id]
	if l == nil {
		return nil, nil, nil
	}
	last := map[record.ProducerID][]BatchInfo{}
	err = View{l.view}.Batches(max(l.upTo, l.view.start), func(b BatchInfo) bool {
		if b.ProducerID == record.NoProducer {
			return true
		}
		bs := last[b.ProducerID]
		if len(bs) == few {
			bs = bs[:copy(bs, bs[1:])]
		}
		last[b.ProducerID] = append(bs, b)
		return true
	})
	if err != nil && !errors.As(err, new(*DamageError)) {
		return nil, nil, s.fail(err)
	}
	for _, bs := range last {
		after = append(after, bs...)
	}
	slices.SortFunc(after, func(a, b BatchInfo) int { return cmp(int64(a.BaseOffset), int64(b.BaseOffset)) })
	return l.snapshot, after, err
}
