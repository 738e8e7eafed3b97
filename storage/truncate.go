package storage

import (
	"fmt"
	"hash/crc32"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/record"
)

// journalOne makes one record durable by itself.
func (s *Store) journalOne(r logRecord) error {
	b := r.encode()
	var d journal.Draft
	d.Begin(len(b))
	copy(d.Add(len(b)), b)
	if err := s.journal.Append(&d); err != nil {
		return err
	}
	return s.journal.Sync()
}

// Truncate drops every batch that reaches past end, durably. A log that is no
// longer than end, or unknown, stays as it is. On ErrNoSpace and on damage nothing is done.
//
// The file that is cut is sealed and the log goes on in a new one: bytes that a
// reader may be sending are gone or the same, never different.
func (s *Store) Truncate(id LogID, end record.Offset) (View, error) {
	if err := s.usable(); err != nil {
		return View{}, err
	}
	l := s.logs[id]
	switch {
	case l == nil:
		return View{}, nil
	case l.view.damage != nil:
		return View{}, l.view.damage
	case end >= l.view.end:
		return View{l.view}, nil
	}
	r, err := l.view.planTruncate(end)
	if err != nil {
		return View{}, err
	}
	if r.cut {
		// What the index will need is written before the truncation is decided, so
		// that a full disk cannot stop it half way.
		if err := s.prepareCut(l.view, r); err != nil {
			return View{}, s.unlessFull(err)
		}
	}
	if err := s.journalOne(r); err != nil {
		return View{}, s.unlessFull(err)
	}
	assert.Reached("storage: log truncated")
	after, dropped, cut := l.view.truncated(r)
	for _, g := range dropped {
		g.gone.Store(true)
		s.doom(g)
	}
	if cut != nil {
		cut.gone.Store(true)
		kept := after.segments[len(after.segments)-1]
		if err := s.cutFiles(kept, r); err != nil {
			return View{}, s.fail(err)
		}
	}
	l.view = after
	l.forgetSnapshot()
	return View{after}, nil
}

// forgetSnapshot drops a snapshot of what was truncated.
func (l *Log) forgetSnapshot() {
	if l.upTo > l.view.end {
		l.snapshot, l.upTo = l.deleted, l.view.start
	}
}

// begin makes the log one that begins where after does, by a raise.
func (l *Log) begin(after *snapshot, deleted []byte) {
	l.view, l.deleted = after, deleted
	if l.upTo < after.start {
		l.snapshot, l.upTo = deleted, after.start
	}
}

// doom lets the next checkpoint remove a segment's files.
func (s *Store) doom(g *segment) {
	if g.file.Load() != nil || g.size > 0 {
		s.doomed = append(s.doomed, g.name(), g.indexName())
	}
}

// planTruncate finds where the log is to be cut.
func (s *snapshot) planTruncate(end record.Offset) (logRecord, error) {
	r := logRecord{kind: kindTruncate, place: place{log: s.log}, offset: end, next: s.generation + 1}
	if end <= s.start {
		return r, nil // everything goes, and the log starts anew at end
	}
	p := s.find(end)
	if p.seg.base == end {
		return r, nil
	}
	ix := p.reader()
	i, e, err := ix.locate(end)
	if err != nil {
		return r, p.unlessGone(err)
	}
	if err := p.verify(e); err != nil {
		return r, err
	}
	var last indexEntry
	if i > 0 {
		if last, err = ix.entry(i - 1); err != nil {
			return r, err
		}
	} else {
		last.maxTime = record.NoTimestamp
	}
	f, err := p.seg.open()
	if err != nil {
		return r, err
	}
	w := walker{file: f, name: p.seg.name(), pos: e.pos, end: e.end()}
	kept, maxTime := run{}, last.maxTime
	for {
		h, size, err := w.header()
		if err != nil {
			return r, p.damaged(w.pos, e.end(), err)
		}
		if h.NextOffset() > end {
			r.offset = h.BaseOffset()
			break
		}
		kept.add(h, w.pos)
		maxTime = max(maxTime, h.MaxTimestamp())
		w.pos += size
	}
	r.base, r.generation, r.pos, r.entries, r.last = p.seg.base, p.seg.generation, w.pos, i, last
	if kept.batches > 0 {
		r.entries, r.last = i+1, kept.finished(w.pos, maxTime)
	}
	if r.cut = w.pos > 0; !r.cut {
		r.base, r.generation, r.entries, r.last = 0, 0, 0, indexEntry{}
	}
	if r.offset <= s.start {
		return logRecord{kind: kindTruncate, place: place{log: s.log}, offset: s.start, next: r.next}, nil
	}
	return r, nil
}

// prepareCut makes sure that the index file has an entry, perhaps another one,
// wherever the cut segment will need one.
func (s *Store) prepareCut(v *snapshot, r logRecord) error {
	if r.base != v.active.base || r.entries <= v.indexed {
		return nil
	}
	n := r.entries - v.indexed - 1
	entries := append(v.pending[:n:n], r.last)
	return s.writeIndex(v.active, v.indexed, entries)
}

// cutFiles cuts the files of a segment to what kept says.
func (s *Store) cutFiles(kept *segment, r logRecord) error {
	f, err := kept.open()
	if err != nil {
		return err
	}
	if err := f.Truncate(kept.size); err != nil {
		return fmt.Errorf("cut %s: %w", kept.name(), err)
	}
	if err := s.writeIndex(kept, kept.entries-1, []indexEntry{r.last}); err != nil {
		return err
	}
	ix, err := kept.openIndex()
	if err != nil {
		return err
	}
	if err := ix.Truncate(kept.entries * entrySize); err != nil {
		return fmt.Errorf("cut %s: %w", kept.indexName(), err)
	}
	s.markDirty(kept)
	return nil
}

// truncated is the log after a truncation, with the segments that it drops, and
// the one that it replaces by a shorter one. It touches no file.
func (s *snapshot) truncated(r logRecord) (after *snapshot, dropped []*segment, cut *segment) {
	a := *s
	a.end, a.start = r.offset, min(s.start, r.offset)
	a.generation = r.next
	a.epochs = cutEpochs(s.epochs, r.offset)
	a.segments = nil
	for i := range s.parts() {
		p := s.part(i)
		switch {
		case r.cut && p.seg.base == r.base && p.seg.generation == r.generation:
			cut = p.seg
			a.segments = append(a.segments, cut.cutTo(r.pos, r.offset, r.entries, r.last.maxTime))
		case p.size > 0 && p.next <= r.offset && p.next > a.start:
			a.segments = append(a.segments, p.seg)
		default:
			dropped = append(dropped, p.seg)
		}
	}
	if p := s.part(len(s.segments)); len(a.segments) > 0 && a.segments[len(a.segments)-1] == p.seg {
		assert.That(false, "storage: truncation keeps the whole log")
	}
	a.begin(&segment{volume: s.active.volume, log: s.log, base: r.offset, generation: r.next})
	return &a, dropped, cut
}

// Delete drops a log, durably; one that is unknown is no error. Its files go with the next checkpoint, and its
// bytes when nobody holds a Region of them.
func (s *Store) Delete(id LogID) error {
	if err := s.usable(); err != nil {
		return err
	}
	delete(s.unborn, id)
	l := s.logs[id]
	if l == nil {
		return nil
	}
	if err := s.journalOne(logRecord{kind: kindDelete, place: place{log: id}}); err != nil {
		return s.unlessFull(err)
	}
	for i := range l.view.parts() {
		p := l.view.part(i)
		p.seg.gone.Store(true)
		s.doom(p.seg)
	}
	// The id may come back before the files are gone, and must not meet them.
	s.graves[id] = l.view.generation + 1
	delete(s.logs, id)
	s.ids = nil
	return nil
}

// RaiseStart moves the log start up to start, durably, and drops the segments
// that are wholly below it. Kafka: DeleteRecords and retention. deleted is the
// snapshot that belongs to the log as it was up to start: what is recovered, when it
// is too late to read that.
func (s *Store) RaiseStart(id LogID, start record.Offset, deleted []byte) (View, error) {
	if err := s.usable(); err != nil {
		return View{}, err
	}
	l := s.logs[id]
	switch {
	case l == nil:
		return View{}, fmt.Errorf("raise the start of log %s: %w", id, ErrUnknownLog)
	case l.view.damage != nil:
		return View{}, l.view.damage
	case start > l.view.end:
		return View{}, fmt.Errorf("raise the start of log %s to %d at end %d: %w", id, start, l.view.end, ErrOutOfRange)
	case start <= l.view.start:
		return View{l.view}, nil
	}
	if err := s.journalOne(logRecord{kind: kindStart, place: place{log: id}, offset: start, deleted: deleted}); err != nil {
		return View{}, s.unlessFull(err)
	}
	after, dropped := l.view.raised(start)
	for _, g := range dropped {
		g.gone.Store(true)
		s.doom(g)
	}
	l.begin(after, deleted)
	return View{after}, nil
}

// raised is the log after its start moved up.
func (s *snapshot) raised(start record.Offset) (after *snapshot, dropped []*segment) {
	if start <= s.start {
		return s, nil
	}
	a := *s
	a.start = start
	n := 0
	for n < len(s.segments) && s.segments[n].next <= a.start {
		n++
	}
	dropped, a.segments = s.segments[:n], s.segments[n:]
	a.epochs = raiseEpochs(s.epochs, a.start)
	return &a, dropped
}

// headersOf is the checksum of batches' headers.
func headersOf(batches []record.Batch) (sum uint32) {
	for _, b := range batches {
		sum = crc32.Update(sum, castagnoli, b[:record.HeaderSize])
	}
	return sum
}
