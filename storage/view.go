package storage

import (
	"fmt"
	"sort"

	"github.com/pawlbroker/pawl/storage/record"
)

// View is an immutable snapshot of a log. It is a pointer's size, and readers
// on any goroutine may use it without locks. The zero View is an empty log.
type View struct{ s *snapshot }

// Start is the log start offset.
func (v View) Start() record.Offset {
	if v.s == nil {
		return 0
	}
	return v.s.start
}

// End is the log end offset.
func (v View) End() record.Offset {
	if v.s == nil {
		return 0
	}
	return v.s.end
}

// Epochs lists the leader epochs in the log, ascending. It must not be changed.
func (v View) Epochs() []EpochStart {
	if v.s == nil {
		return nil
	}
	return v.s.epochs
}

// Size is how many bytes of batches the log's files hold.
func (v View) Size() int64 {
	if v.s == nil {
		return 0
	}
	n := v.s.size
	for _, g := range v.s.segments {
		n += g.size
	}
	return n
}

// Find is Read for the hot tail: it looks at memory only, and reports false if
// the answer is not there.
func (v View) Find(from, limit record.Offset, maxBytes int64) (Region, bool) {
	s := v.s
	if s == nil || s.damage != nil || from < s.start || from > s.end {
		return Region{}, false
	}
	if from == s.end || from >= limit {
		return Region{}, true
	}
	base := s.active.base
	i := sort.Search(len(s.tail), func(i int) bool { return base+record.Offset(s.tail[i].delta) > from }) - 1
	file := s.active.file.Load()
	if i < 0 || file == nil {
		return Region{}, false
	}
	start := int64(s.tail[i].pos)
	r := Region{Log: s.log, File: *file, Pos: start}
	for k := i; k < len(s.tail); k++ {
		next, end := s.end, s.size
		if k+1 < len(s.tail) {
			next, end = base+record.Offset(s.tail[k+1].delta), int64(s.tail[k+1].pos)
		}
		if next > limit || k > i && end-start > maxBytes {
			break
		}
		r.Len = end - start
	}
	if r.Len == 0 {
		return Region{}, true
	}
	return r, true
}

// Read returns the whole batches from the one that holds from up to, and not
// reaching past, limit. It gives at most maxBytes, but always one batch if there
// is one, and never crosses files: the next call continues.
//
// Bytes that this process did not write are checked before they are given out
// for the first time. It returns ErrOutOfRange below the start and above the
// end, ErrGone if the bytes went since the view was taken, and a *DamageError.
func (v View) Read(from, limit record.Offset, maxBytes int64) (Region, error) {
	if from < v.Start() || from > v.End() {
		return Region{}, fmt.Errorf("read offset %d in [%d, %d]: %w", from, v.Start(), v.End(), ErrOutOfRange)
	}
	if from == v.End() || from >= limit {
		return Region{}, nil
	}
	if v.s.damage != nil {
		return Region{}, v.s.damage
	}
	p := v.s.find(from)
	r, err := p.read(from, limit, maxBytes)
	return r, p.unlessGone(err)
}

// unlessGone is ErrGone in the place of an error that truncation explains.
func (p part) unlessGone(err error) error {
	if err != nil && p.seg.gone.Load() {
		return fmt.Errorf("%s: %w", p.seg.name(), ErrGone)
	}
	return err
}

func (p part) read(from, limit record.Offset, maxBytes int64) (Region, error) {
	ix := p.reader()
	i, e, err := ix.locate(from)
	if err != nil {
		return Region{}, err
	}
	if err := p.verify(e); err != nil {
		return Region{}, err
	}
	f, err := p.seg.open()
	if err != nil {
		return Region{}, err
	}
	w := walker{file: f, name: p.seg.name(), pos: e.pos, end: e.end()}
	first, size, err := w.seek(from)
	if err != nil {
		return Region{}, p.damaged(w.pos, e.end(), err)
	}
	if first.NextOffset() > limit {
		return Region{}, nil
	}
	r := Region{Log: p.seg.log, File: f, Pos: w.pos, Len: size}
	w.pos += size
	last, err := ix.lastWithin(i, r.Pos+maxBytes, limit)
	if err != nil {
		return Region{}, err
	}
	for i < last {
		i++
		if e, err = ix.entry(i); err != nil {
			return Region{}, err
		}
		if err := p.verify(e); err != nil {
			return Region{}, err
		}
	}
	if i == last { // whole runs, up to and including this one
		r.Len = e.end() - r.Pos
		if i++; i == ix.total() {
			return r, nil
		}
		if e, err = ix.entry(i); err != nil {
			return Region{}, err
		}
		w.pos, w.end = e.pos, e.end()
	}
	return p.extend(r, w, e, limit, maxBytes)
}

// extend adds batches of the run e, from where w stands.
func (p part) extend(r Region, w walker, e indexEntry, limit record.Offset, maxBytes int64) (Region, error) {
	for w.pos < e.end() {
		if r.Pos+maxBytes < w.pos+record.HeaderSize {
			break
		}
		if err := p.verify(e); err != nil {
			return Region{}, err
		}
		h, size, err := w.header()
		if err != nil {
			return Region{}, p.damaged(w.pos, e.end(), err)
		}
		if h.NextOffset() > limit || w.pos+size-r.Pos > maxBytes {
			break
		}
		w.pos += size
		r.Len = w.pos - r.Pos
	}
	return r, nil
}

// seek steps to the batch that holds offset.
func (w *walker) seek(offset record.Offset) (record.Batch, int64, error) {
	for {
		h, size, err := w.header()
		if err != nil || h.NextOffset() > offset {
			return h, size, err
		}
		w.pos += size
	}
}

// Batches tells f of every batch from the one that holds from up to the end, in
// order, until f returns false.
func (v View) Batches(from record.Offset, f func(BatchInfo) bool) error {
	if from < v.Start() || from > v.End() {
		return fmt.Errorf("batches from offset %d in [%d, %d]: %w", from, v.Start(), v.End(), ErrOutOfRange)
	}
	if from == v.End() {
		return nil
	}
	return v.s.each(from, false, func(b record.Batch) (bool, error) { return f(infoOf(b)), nil })
}

func infoOf(b record.Batch) BatchInfo {
	return BatchInfo{
		BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(),
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		MaxTimestamp: b.MaxTimestamp(), Attributes: b.Attributes(),
	}
}

// each calls f with every batch from the one that holds from on, until it says
// false. Batches are headers only unless whole, and good until f returns.
func (s *snapshot) each(from record.Offset, whole bool, f func(record.Batch) (bool, error)) error {
	if s.damage != nil {
		return s.damage
	}
	for from < s.end {
		p := s.find(from)
		more, err := p.each(from, whole, f)
		if err != nil {
			return p.unlessGone(err)
		}
		if !more {
			return nil
		}
		from = p.next
	}
	return nil
}

func (p part) each(from record.Offset, whole bool, f func(record.Batch) (bool, error)) (more bool, err error) {
	ix := p.reader()
	i, e, err := ix.locate(from)
	if err != nil {
		return false, err
	}
	file, err := p.seg.open()
	if err != nil {
		return false, err
	}
	w := walker{file: file, name: p.seg.name(), pos: e.pos}
	for n := ix.total(); i < n; i++ {
		if e, err = ix.entry(i); err != nil {
			return false, err
		}
		if err := p.verify(e); err != nil {
			return false, err
		}
		for w.end = e.end(); w.pos < w.end; {
			h, size, err := w.header()
			if err == nil && whole && h.NextOffset() > from {
				h, err = w.batch()
			}
			if err != nil {
				return false, p.damaged(w.pos, w.end, err)
			}
			w.pos += size
			if h.NextOffset() <= from {
				continue
			}
			if more, err := f(h); err != nil || !more {
				return false, err
			}
		}
	}
	return true, nil
}
