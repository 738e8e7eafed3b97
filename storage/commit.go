package storage

import (
	"errors"
	"fmt"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// Committed is what became of one Write.
type Committed struct {
	View View // the log after the group
	Err  error
}

// A stage is what a commit group does to one log.
type stage struct {
	log     *Log
	prev    *snapshot // the log before the group
	next    *snapshot
	isNew   bool
	durable bool // some write of the log must be durable
	bytes   int64
	batches []record.Batch
	pieces  []piece
	sealed  []sealing
}

// A piece is consecutive batches of a stage that go to one segment.
type piece struct {
	seg      *segment
	pos      int64
	from, to int // in batches
	bytes    int64
}

// A sealing is a segment that the group fills, with the entries that its index
// lacks.
type sealing struct {
	seg     *segment
	at      int64
	entries []indexEntry
}

// Commit appends writes as one group, with one sync of the journal, and one of
// all large appends' files together. Writes of one log are appended in order.
// On ErrNoSpace nothing was appended anywhere. ErrNotNext is one write's alone.
// Any other error is final, unless it is a *DamageError: the store refuses
// everything after it.
func (s *Store) Commit(writes []Write) []Committed {
	g := s.Begin(writes)
	g.SyncSegments()
	return g.Finish()
}

// stageWrite adds a write to its log's stage, unless it does not continue the log.
func (s *Store) stageWrite(stages *[]stage, index *map[LogID]int, w *Write) (int, error) {
	i, err := s.stageOf(stages, index, w)
	if err != nil {
		return 0, err
	}
	st := &(*stages)[i]
	end := st.next.end
	if st.isNew && len(st.batches) == 0 { // a log begins wherever its first append does
		end = w.Batches[0].BaseOffset()
		if at, ok := s.unborn[w.Log]; ok && at != end {
			assert.Reached("storage: append behind one that found no space, to a log without a beginning")
			return 0, fmt.Errorf("append offset %d to log %s, which begins at %d: %w", end, w.Log, at, ErrNotNext)
		}
		st.next = newSnapshot(s.newSegment(w.Log, end, s.graves[w.Log]))
		st.log.upTo = end
	}
	for _, b := range w.Batches {
		if b.BaseOffset() != end {
			assert.Reached("storage: append does not continue its log")
			return 0, fmt.Errorf("append offset %d to log %s at %d: %w", b.BaseOffset(), w.Log, end, ErrNotNext)
		}
		end = b.NextOffset()
	}
	st.durable = st.durable || !w.PageCache
	for _, b := range w.Batches {
		if w.AppendTime != record.NoTimestamp {
			b.SetLogAppendTime(w.AppendTime)
		}
		if assert.Slow {
			_, rest, err := record.Cut(b)
			assert.That(err == nil && len(rest) == 0, "storage: append of what is not a batch")
		}
		s.stageBatch(st, b, w.SegmentBytes)
	}
	return i, nil
}

// stageOf finds or begins the stage of a write's log.
func (s *Store) stageOf(stages *[]stage, index *map[LogID]int, w *Write) (int, error) {
	const few = 8 // stages, among which looking is cheaper than a map
	all := *stages
	if *index == nil {
		for i := range all {
			if all[i].next.log == w.Log {
				return i, nil
			}
		}
		if len(all) == few {
			*index = make(map[LogID]int, 64)
			for i := range all {
				(*index)[all[i].next.log] = i
			}
		}
	} else if i, ok := (*index)[w.Log]; ok {
		return i, nil
	}
	l := s.logs[w.Log]
	if l != nil && l.view.damage != nil {
		return 0, l.view.damage
	}
	if len(all) < cap(all) {
		all = all[:len(all)+1]
	} else {
		all = append(all, stage{})
	}
	st := &all[len(all)-1]
	*st = stage{log: l, batches: st.batches[:0], pieces: st.pieces[:0], sealed: st.sealed[:0]}
	if l == nil {
		st.next, st.isNew = newSnapshot(s.newSegment(w.Log, 0, 0)), true
		st.log = &Log{view: st.next}
	} else {
		copied := *l.view
		st.next = &copied
	}
	st.prev = st.log.view
	*stages = all
	if *index != nil {
		(*index)[w.Log] = len(all) - 1
	}
	return len(all) - 1, nil
}

func (s *Store) stageBatch(st *stage, b record.Batch, segmentBytes int64) {
	n := st.next
	if n.full(b, segmentBytes) {
		old, at := n.active, n.indexed
		entries := n.roll(s.newSegment(n.log, n.end, n.generation))
		st.sealed = append(st.sealed, sealing{old, at, entries})
	}
	if k := len(st.pieces); k == 0 || st.pieces[k-1].seg != n.active {
		st.pieces = append(st.pieces, piece{seg: n.active, pos: n.size, from: len(st.batches), to: len(st.batches)})
	}
	n.add(b, s.cfg.IndexIntervalBytes)
	st.batches = append(st.batches, b)
	p := &st.pieces[len(st.pieces)-1]
	p.to++
	p.bytes += int64(len(b))
	st.bytes += int64(len(b))
}

func (st *stage) large(threshold int64) bool { return st.durable && st.bytes >= threshold }

// notSpace hides that a sync found no space: a failed sync is final whatever
// the reason.
func notSpace(err error) error {
	if errors.Is(err, ErrNoSpace) {
		return errors.New(err.Error())
	}
	return err
}

// writePiece writes a piece to its segment and adds its record to the group. A
// small piece is copied into the group, and written to the segment from there.
func (s *Store) writePiece(g *Group, st *stage, p piece) error {
	if p.pos == 0 && p.seg.file.Load() == nil {
		f, err := s.create(p.seg.name())
		if err != nil {
			return err
		}
		p.seg.file.Store(f)
	}
	f, err := p.seg.open()
	if err != nil {
		return err
	}
	s.markDirty(p.seg)
	at := place{st.next.log, p.seg.base, p.seg.generation, p.pos}
	batches := st.batches[p.from:p.to]
	if !st.large(s.cfg.LargeAppend) {
		rec := g.draft.Add(placeHead + int(p.bytes))
		putPlace(rec, kindBatches, at)
		body := rec[placeHead:]
		for n := 0; len(batches) > 0; batches = batches[1:] {
			n += copy(body[n:], batches[0])
		}
		return writeSegment(f, p.seg, body, p.pos)
	}
	g.large = append(g.large, f)
	r := logRecord{kind: kindExtent, place: at, len: p.bytes, first: batches[0].BaseOffset(),
		offset: batches[len(batches)-1].NextOffset(), headers: headersOf(batches)}
	copy(g.draft.Add(extentSize), r.encode())
	return s.writeLarge(f, p, batches)
}

// writeLarge writes batches, small ones together.
func (s *Store) writeLarge(f vfs.File, p piece, batches []record.Batch) error {
	const together = 256 << 10 // bytes
	pos := p.pos
	for len(batches) > 0 {
		chunk, n := []byte(batches[0]), 1
		if len(chunk) < together && len(batches) > 1 {
			s.scratch = append(s.scratch[:0], chunk...)
			for ; n < len(batches) && len(s.scratch)+len(batches[n]) <= together; n++ {
				s.scratch = append(s.scratch, batches[n]...)
			}
			chunk = s.scratch
		}
		if err := writeSegment(f, p.seg, chunk, pos); err != nil {
			return err
		}
		pos += int64(len(chunk))
		batches = batches[n:]
	}
	return nil
}

func writeSegment(f vfs.File, g *segment, b []byte, pos int64) error {
	if _, err := f.WriteAt(b, pos); err != nil {
		return fmt.Errorf("write %s at %d: %w", g.name(), pos, err)
	}
	return nil
}

// undo removes what a group's stages have written. Nothing vouches
// for those bytes, so they need not be gone durably.
func (s *Store) undo(stages []stage) error {
	for i := range stages {
		st := &stages[i]
		v := st.prev
		for _, p := range st.pieces {
			keep, entries := int64(0), int64(0)
			if p.seg == v.active {
				keep, entries = v.size, v.indexed
			}
			if err := s.cutBack(p.seg, keep, entries); err != nil {
				return err
			}
		}
		for _, c := range st.sealed {
			if c.seg == v.active {
				if err := s.cutBack(c.seg, v.size, v.indexed); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// cutBack cuts a segment and its index to what they were, or removes them.
func (s *Store) cutBack(g *segment, size, entries int64) error {
	if f := g.file.Load(); f != nil {
		if size == 0 {
			if err := s.fs.Remove(g.name()); err != nil {
				return fmt.Errorf("remove %s: %w", g.name(), err)
			}
			g.file.Store(nil)
		} else if err := (*f).Truncate(size); err != nil {
			return fmt.Errorf("cut %s: %w", g.name(), err)
		}
	}
	f := g.index.Load()
	if f == nil {
		return nil
	}
	if entries == 0 {
		if err := s.fs.Remove(g.indexName()); err != nil {
			return fmt.Errorf("remove %s: %w", g.indexName(), err)
		}
		g.index.Store(nil)
	} else if err := (*f).Truncate(entries * entrySize); err != nil {
		return fmt.Errorf("cut %s: %w", g.indexName(), err)
	}
	return nil
}
