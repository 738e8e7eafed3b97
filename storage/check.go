package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pawlbroker/pawl/storage/checkpoint"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// A Finding is something wrong with a data directory.
type Finding = DamageError

// Check verifies every checksum and every rule of a data directory that no
// process has open, and changes nothing. What recovery would repair without
// loss, such as a torn journal tail, is no finding. The error is the disk's.
func Check(fsys vfs.FS) ([]Finding, error) {
	c := checker{s: &Store{fs: fsys, cfg: DefaultConfig(), logs: map[LogID]*Log{}, graves: map[LogID]uint32{}}}
	err := c.run()
	return c.found, err
}

type checker struct {
	s     *Store
	found []Finding
}

// note files a finding. Any other error is returned.
func (c *checker) note(err error) error {
	var d *DamageError
	if errors.As(err, &d) {
		if !slices.Contains(c.found, *d) { // a segment and its index may tell of the same bytes
			c.found = append(c.found, *d)
		}
		return nil
	}
	return err
}

func (c *checker) run() error {
	var mark cleanMark
	clean := false
	b, err := checkpoint.Read(c.s.fs, cleanName)
	if err == nil {
		mark, clean = decodeClean(b)
	} else if !errors.Is(err, fs.ErrNotExist) {
		if err := c.note(err); err != nil {
			return err
		}
	}
	from := journal.From{Durable: mark.quorum, Exact: clean}
	_, err = journal.Scan(c.s.fs, quorumDir, from, func(journal.Group) error { return nil })
	if err := c.note(err); err != nil {
		return err
	}
	if b, err = checkpoint.Read(c.s.fs, checkpointName); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return c.note(err)
		}
		for _, dir := range []string{logsDir, journalDir, quorumDir} {
			names, err := c.s.fs.List(dir)
			if err != nil {
				return err
			}
			if len(names) > 0 {
				return c.note(&DamageError{File: checkpointName, What: "missing, but there are files in " + dir})
			}
		}
		return nil // formatted, and never started
	}
	state, err := c.s.decode(b)
	if err != nil {
		return c.note(&DamageError{File: checkpointName, What: err.Error()})
	}
	r := newReplay(c.s, state)
	from = journal.From{Seq: state.seq, Durable: max(mark.journal, state.last), Exact: clean}
	if _, err := journal.Scan(c.s.fs, journalDir, from, r.group); err != nil {
		return c.note(err)
	}
	for _, id := range c.s.sorted() {
		if err := c.log(r.logs[id]); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) log(l *replayed) error {
	if l.hole != nil {
		return c.note(l.hole)
	}
	if l.view.damage != nil {
		return c.note(l.view.damage)
	}
	for i := range l.view.parts() {
		p := l.view.part(i)
		m, ok := l.indexes[p.seg]
		if !ok {
			m = missing{onFile: p.indexed, entries: p.pending}
		}
		if p.size == 0 || p.seg.untrusted == 0 {
			continue // all of it is in the journal
		}
		if err := c.note(c.part(p, m)); err != nil {
			return err
		}
	}
	return nil
}

// part checks one segment up to where the journal takes over, and its index.
func (c *checker) part(p part, m missing) error {
	g := p.seg
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
	if size < g.untrusted {
		return &DamageError{File: g.name(), Pos: size, What: fmt.Sprintf("segment ends here, %d bytes were durable", g.untrusted)}
	}
	entries, err := c.index(g, m.onFile)
	if err != nil {
		if err := c.note(err); err != nil {
			return err
		}
	}
	if entries = append(entries, m.entries...); p.run.batches > 0 {
		entries = append(entries, p.run.finished(p.size, p.maxTime))
	}
	end := int64(0)
	for _, e := range entries {
		if e.pos != end && err == nil {
			return &DamageError{File: g.indexName(), What: fmt.Sprintf("entry for position %d, want %d", e.pos, end)}
		}
		end = e.end()
		if end > g.untrusted {
			break // partly in the journal: the batches are checked below
		}
		if err := c.note(p.verify(e)); err != nil {
			return err
		}
	}
	return c.batches(p)
}

// index reads the entries of an index file.
func (c *checker) index(g *segment, n int64) (entries []indexEntry, err error) {
	if n == 0 {
		return nil, nil
	}
	r := indexReader{part: part{seg: g, indexed: n}}
	for i := range n {
		e, err := r.load(i)
		if errors.Is(err, errEntry) || errors.Is(err, fs.ErrNotExist) {
			return entries, &DamageError{File: g.indexName(), Pos: i * entrySize, What: err.Error()}
		}
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// batches checks every batch's own CRC, and that offsets continue.
func (c *checker) batches(p part) error {
	f, err := p.seg.open()
	if err != nil {
		return err
	}
	next := p.seg.base
	w := walker{file: f, name: p.seg.name(), end: p.seg.untrusted}
	for w.pos < w.end {
		b, err := w.batch()
		if err == nil {
			_, _, err = record.Cut(b)
		}
		if err == nil && b.BaseOffset() != next {
			err = fmt.Errorf("base offset %d, want %d", b.BaseOffset(), next)
		}
		if err != nil {
			return p.damaged(w.pos, w.end, err)
		}
		next = b.NextOffset()
		w.pos += int64(len(b))
	}
	return nil
}
