package storage

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/journal"
)

type segmentKey struct {
	log        LogID
	base       int64
	generation uint32
}

// materialise makes the files what the replay says they are.
func (r *replay) materialise(from journal.From) error {
	names, err := r.s.fs.List(logsDir)
	if err != nil {
		return fmt.Errorf("list %s: %w", logsDir, err)
	}
	present := set(names)
	for _, id := range r.s.sorted() {
		if l := r.logs[id]; l.hole != nil {
			l.setDamage(l.hole)
		}
	}
	if r.small {
		if err := r.rewrite(from); err != nil {
			return err
		}
	}
	wanted := map[string]bool{}
	for _, id := range r.s.sorted() {
		l := r.logs[id]
		if l.view.damage == nil {
			if err := r.settle(l, present, wanted); err != nil {
				return err
			}
		}
		r.s.logs[id].view = l.view
	}
	return r.sweep(names, wanted)
}

// rewrite puts the journal's batches where they belong. It writes them even if
// they are there: a process whose sync failed may have left pages that the
// system takes for clean, and that only a write makes it look at again.
func (r *replay) rewrite(from journal.From) error {
	targets := map[segmentKey]*replayed{}
	parts := map[segmentKey]part{}
	for _, id := range r.s.sorted() {
		l := r.logs[id]
		if l.view.damage != nil {
			continue
		}
		for i := range l.view.parts() {
			p := l.view.part(i)
			k := segmentKey{id, int64(p.seg.base), p.seg.generation}
			targets[k], parts[k] = l, p
		}
	}
	sizes := map[*segment]int64{}
	_, err := journal.Scan(r.s.fs, journalDir, from, func(g journal.Group) error {
		for _, b := range g.Records {
			rec, err := decodeRecord(b)
			if err != nil || rec.kind != kindBatches {
				continue
			}
			k := segmentKey{rec.log, int64(rec.base), rec.generation}
			p := parts[k]
			if p.seg == nil || rec.pos >= p.size || targets[k].view.damage != nil {
				continue
			}
			if err := r.put(targets[k], p, rec, sizes); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// put writes one record's batches. A file that is too short to hold them lost
// bytes that were durable.
func (r *replay) put(l *replayed, p part, rec logRecord, sizes map[*segment]int64) error {
	size, known := sizes[p.seg]
	if !known {
		f, err := p.seg.open()
		switch {
		case errors.Is(err, fs.ErrNotExist) && rec.pos == 0:
			created, err := r.s.create(p.seg.name())
			if err != nil {
				return err
			}
			p.seg.file.Store(created)
		case errors.Is(err, fs.ErrNotExist):
			l.setDamage(&DamageError{File: p.seg.name(), What: "segment is missing"})
			return nil
		case err != nil:
			return err
		default:
			if size, err = f.Size(); err != nil {
				return fmt.Errorf("size of %s: %w", p.seg.name(), err)
			}
		}
	}
	if size < rec.pos {
		l.setDamage(&DamageError{File: p.seg.name(), Pos: size, What: fmt.Sprintf("segment ends here, %d bytes were durable", rec.pos)})
		return nil
	}
	f, err := p.seg.open()
	if err != nil {
		return err
	}
	body := rec.batches[:min(int64(len(rec.batches)), p.size-rec.pos)]
	r.s.markDirty(p.seg)
	if err := writeSegment(f, p.seg, body, rec.pos); err != nil {
		return err
	}
	sizes[p.seg] = max(size, rec.pos+int64(len(body)))
	return nil
}

// settle checks the sizes of a log's files, cuts what is too long and completes
// the indexes. A file that nothing was replayed into is not kept open.
func (r *replay) settle(l *replayed, present, wanted map[string]bool) error {
	for i := range l.view.parts() {
		p := l.view.part(i)
		if p.size == 0 {
			continue
		}
		wanted[p.seg.name()], wanted[p.seg.indexName()] = true, true
		var damage *DamageError
		err := r.settlePart(l, i, present)
		if errors.As(err, &damage) {
			l.setDamage(damage)
			continue
		}
		if err != nil {
			return err
		}
	}
	if l.view.damage != nil {
		for i := range l.view.parts() {
			p := l.view.part(i)
			wanted[p.seg.name()], wanted[p.seg.indexName()] = true, true
		}
	}
	return nil
}

func (r *replay) settlePart(l *replayed, i int, present map[string]bool) error {
	p := l.view.part(i)
	g := p.seg
	idle := g.file.Load() == nil
	f, err := g.open()
	if errors.Is(err, fs.ErrNotExist) {
		return &DamageError{File: g.name(), What: "segment is missing"}
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", g.name(), err)
	}
	if size < p.size {
		return &DamageError{File: g.name(), Pos: size, What: fmt.Sprintf("segment ends here, %d bytes were durable", p.size)}
	}
	if size > p.size {
		assert.Reached("storage: segment cut to what was durable")
		if err := f.Truncate(p.size); err != nil {
			return fmt.Errorf("cut %s: %w", g.name(), err)
		}
		r.s.markDirty(g)
	}
	m := missing{onFile: p.indexed}
	if found, ok := l.indexes[g]; ok {
		m = found
	}
	if err := r.settleIndex(l, p, m, present[base(g.indexName())]); err != nil {
		return err
	}
	if idle && !g.dirty {
		return closeIdle(g)
	}
	return nil
}

// closeIdle closes files that nobody can have seen yet.
func closeIdle(g *segment) error {
	f, x := g.file.Swap(nil), g.index.Swap(nil)
	err := (*f).Close()
	if x != nil {
		err = errors.Join(err, (*x).Close())
	}
	return err
}

func base(name string) string { return name[len(logsDir)+1:] }

// settleIndex makes an index file hold just the entries it should.
func (r *replay) settleIndex(l *replayed, p part, m missing, there bool) error {
	g := p.seg
	if there && m.onFile == 0 {
		if err := r.s.fs.Remove(g.indexName()); err != nil {
			return fmt.Errorf("remove %s: %w", g.indexName(), err)
		}
		there = false
	}
	short := !there && m.onFile > 0
	if there {
		f, err := g.openIndex()
		if err != nil {
			return err
		}
		size, err := f.Size()
		if err != nil {
			return fmt.Errorf("size of %s: %w", g.indexName(), err)
		}
		short = size < m.onFile*entrySize
		if size > m.onFile*entrySize {
			if err := f.Truncate(m.onFile * entrySize); err != nil {
				return fmt.Errorf("cut %s: %w", g.indexName(), err)
			}
			r.s.markDirty(g)
		}
	}
	if !short {
		return r.s.writeIndex(g, m.onFile, m.entries)
	}
	assert.Reached("storage: index made anew at recovery")
	entries, err := p.scan(p.indexedEnd())
	if err != nil {
		return err
	}
	if there {
		if err := r.s.fs.Remove(g.indexName()); err != nil {
			return fmt.Errorf("remove %s: %w", g.indexName(), err)
		}
		g.index.Store(nil)
	}
	return r.s.writeIndex(g, 0, entries)
}

// sweep removes the files of logs and segments that are no more; what the
// journal still points into goes with the next checkpoint. Those of a damaged
// log stay, all of them.
func (r *replay) sweep(names []string, wanted map[string]bool) error {
	for _, n := range names {
		id, _, _, _, ok := parseSegmentName(n)
		if !ok || wanted[logsDir+"/"+n] {
			continue
		}
		if l := r.logs[id]; l != nil && l.view.damage != nil {
			continue
		}
		if r.extents[logsDir+"/"+n] {
			r.s.doomed = append(r.s.doomed, logsDir+"/"+n)
			continue
		}
		assert.Reached("storage: leftover file removed")
		r.s.newNames = true
		if err := r.s.fs.Remove(logsDir + "/" + n); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", n, err)
		}
	}
	return nil
}
