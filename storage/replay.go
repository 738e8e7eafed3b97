package storage

import (
	"fmt"
	"hash/crc32"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/record"
)

// A replay works out, from a checkpoint and the journal since, what every log
// is; then it makes the files that way. It reads the journal twice, so that no
// more of it than a file is in memory, and no byte is written that a later
// record took back.
type replay struct {
	s      *Store
	logs   map[LogID]*replayed
	groups int64
	bytes  int64
	small  bool // the journal holds batches
	// extents are the files that the journal points into. Replaying it again
	// needs them, even those that no log has any more.
	extents map[string]bool
	at      journal.Group
}

// replayed is a log during recovery.
type replayed struct {
	*Log
	after     []BatchInfo   // of every batch from afterFrom on
	afterFrom record.Offset // the log end at the checkpoint, unless truncated below it
	// missing batches: the log cannot be followed further than view.end, until
	// a truncation takes it back to there.
	hole    error
	raised  logRecord // the last kindStart meanwhile
	indexes map[*segment]missing
}

// missing are entries that a sealed segment's index file may lack.
type missing struct {
	onFile  int64
	entries []indexEntry
	touched bool // the journal has something for the segment
}

func newReplay(s *Store, c captured) *replay {
	r := &replay{s: s, logs: map[LogID]*replayed{}, extents: map[string]bool{}}
	for _, l := range c.logs {
		s.logs[l.view.log] = l
		r.logs[l.view.log] = &replayed{Log: l, afterFrom: l.view.end, indexes: map[*segment]missing{}}
	}
	return r
}

// group applies one journal group.
func (r *replay) group(g journal.Group) error {
	r.at = g
	r.groups++
	r.bytes += g.Size
	for _, b := range g.Records {
		rec, err := decodeRecord(b)
		if err != nil {
			return r.misfit(err.Error())
		}
		if err := r.apply(rec); err != nil {
			return err
		}
	}
	return nil
}

// misfit is the error for a group that is intact but does not follow from what
// was before it: some durable thing is missing.
func (r *replay) misfit(what string) error {
	return &DamageError{File: fmt.Sprintf("%s/%020d.journal", journalDir, r.at.Seq), Pos: r.at.Pos,
		What: fmt.Sprintf("group %d: %s", r.at.Number, what)}
}

func (r *replay) apply(rec logRecord) error {
	l := r.logs[rec.log]
	switch {
	case rec.kind == kindDelete && l != nil:
		r.s.graves[rec.log] = l.view.generation + 1
		delete(r.logs, rec.log)
		delete(r.s.logs, rec.log)
		return nil
	case rec.kind == kindReset:
		r.reset(l, rec)
		return nil
	case l == nil && (rec.kind == kindBatches || rec.kind == kindExtent) && rec.pos == 0:
		v := newSnapshot(r.s.newSegment(rec.log, rec.base, rec.generation))
		l = &replayed{Log: &Log{view: v, upTo: rec.base}, afterFrom: rec.base, indexes: map[*segment]missing{}}
		r.logs[rec.log], r.s.logs[rec.log] = l, l.Log
	case l == nil:
		return r.misfit("log " + rec.log.String() + " is unknown")
	}
	switch {
	case l.view.damage != nil:
		l.pass(rec)
		return nil
	case rec.kind == kindTruncate:
		return r.truncate(l, rec)
	case l.hole != nil:
		if rec.kind == kindStart {
			l.raised = rec
		}
		l.pass(rec)
		return nil
	case rec.kind == kindStart:
		l.raise(rec)
		return nil
	}
	return r.grow(l, rec)
}

// grow applies batches that were appended.
func (r *replay) grow(l *replayed, rec logRecord) error {
	v := l.view
	if v.active.base != rec.base || v.active.generation != rec.generation {
		if rec.pos != 0 || rec.base != v.end || v.size == 0 {
			return r.misfit(fmt.Sprintf("log %s: no segment %d.%d", rec.log, rec.base, rec.generation))
		}
		old, onFile := v.active, v.indexed
		entries := v.roll(r.s.newSegment(rec.log, rec.base, rec.generation))
		l.indexes[old] = missing{onFile, entries, true}
	}
	if v.size != rec.pos {
		return r.misfit(fmt.Sprintf("log %s: position %d at %d", rec.log, rec.pos, v.size))
	}
	if rec.kind == kindExtent {
		r.extents[v.active.name()] = true
		return l.growExtent(rec)
	}
	r.small = true
	for rest := rec.batches; len(rest) > 0; {
		var b record.Batch
		var err error
		if b, rest, err = record.Cut(rest); err != nil {
			return r.misfit(err.Error())
		}
		l.add(b)
	}
	return nil
}

func (l *replayed) add(b record.Batch) {
	l.view.add(b, l.view.active.interval)
	l.view.active.size = l.view.size
	l.after = append(l.after, infoOf(b))
}

// growExtent reads the headers of batches that went to their segment alone. They
// were synced before the journal said so; if they are not there, a later
// truncation must have taken them. An error of the disk says nothing about that.
func (l *replayed) growExtent(rec logRecord) error {
	v := l.view
	end := rec.pos + rec.len
	headers := uint32(0)
	f, err := v.active.open()
	w := walker{file: f, name: v.active.name(), pos: rec.pos, end: end}
	for err == nil && w.pos < end {
		var h record.Batch
		var size int64
		if h, size, err = w.header(); err != nil {
			break
		}
		if h.BaseOffset() != v.end || h.LastOffsetDelta() < 0 {
			err = fmt.Errorf("base offset %d, want %d", h.BaseOffset(), v.end)
			break
		}
		headers = crc32.Update(headers, castagnoli, h)
		l.addHeader(h, size)
		w.pos += size
	}
	v.active.untrusted, v.tail = w.pos, nil
	if err == nil && (headers != rec.headers || v.end != rec.offset) {
		err = fmt.Errorf("header checksum %#08x up to offset %d, journal says %#08x up to %d", headers, v.end, rec.headers, rec.offset)
	}
	switch {
	case err == nil:
	case isDiskError(err):
		return fmt.Errorf("extent of log %s: %w", v.log, err)
	default:
		assert.Reached("storage: extent without its bytes")
		l.hole = &DamageError{File: v.active.name(), Pos: w.pos, What: err.Error()}
	}
	return nil
}

// addHeader is add for a batch of which only the header is in memory.
func (l *replayed) addHeader(h record.Batch, size int64) {
	v := l.view
	v.run.add(h, v.size)
	v.grow(h, size, v.active.interval)
	v.active.size = v.size
	l.after = append(l.after, infoOf(h))
}

func (r *replay) truncate(l *replayed, rec logRecord) error {
	if l.hole != nil {
		if rec.offset > l.view.end {
			l.pass(rec)
			return nil
		}
		l.hole = nil
	}
	v := l.view
	if rec.offset > v.end {
		return r.misfit(fmt.Sprintf("log %s: truncated to %d, ends at %d", rec.log, rec.offset, v.end))
	}
	after, _, cut := v.truncated(rec)
	if (cut != nil) != rec.cut {
		return r.misfit(fmt.Sprintf("log %s: no segment %d.%d to cut", rec.log, rec.base, rec.generation))
	}
	if cut != nil {
		m, sealed := l.indexes[cut]
		if cut == v.active {
			m = missing{v.indexed, v.pending, true}
		} else if !sealed {
			m = missing{onFile: cut.entries}
		}
		switch k := rec.entries - 1 - m.onFile; {
		case k < 0:
			m.onFile, m.entries = rec.entries-1, []indexEntry{rec.last}
		case k <= int64(len(m.entries)):
			m.entries = append(m.entries[:k:k], rec.last)
		default:
			return r.misfit(fmt.Sprintf("log %s: index is short", rec.log))
		}
		m.touched = true
		l.indexes[after.segments[len(after.segments)-1]] = m
	}
	l.view = after
	for n := len(l.after); n > 0 && l.after[n-1].LastOffset >= after.end; n-- {
		l.after = l.after[:n-1]
	}
	l.afterFrom = min(l.afterFrom, after.end)
	l.forgetSnapshot()
	if l.raised.offset > 0 {
		l.raise(l.raised)
		l.raised = logRecord{}
	}
	return nil
}

// raise applies a kindStart.
func (l *replayed) raise(rec logRecord) {
	if rec.offset > l.view.start {
		after, _ := l.view.raised(min(rec.offset, l.view.end))
		l.begin(after, rec.deleted)
	}
}
