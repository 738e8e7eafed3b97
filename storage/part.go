package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// A part is one segment as one view sees it.
type part struct {
	seg     *segment
	size    int64
	next    record.Offset
	maxTime record.Timestamp
	indexed int64 // entries in the index file
	pending []indexEntry
	run     run
}

// part is the i-th segment; the active one comes last.
func (s *snapshot) part(i int) part {
	if i < len(s.segments) {
		g := s.segments[i]
		return part{seg: g, size: g.size, next: g.next, maxTime: g.maxTime, indexed: g.entries}
	}
	return part{s.active, s.size, s.end, s.maxTime, s.indexed, s.pending, s.run}
}

func (s *snapshot) parts() int { return len(s.segments) + 1 }

// An indexReader reads a part's entries, a block at a time.
type indexReader struct {
	part
	block   []byte
	first   int64        // entry at the start of block
	rebuilt []indexEntry // in place of the file's entries, which are damaged
}

const blockEntries = 102 // 4080 bytes

func (p part) reader() *indexReader { return &indexReader{part: p} }

// total is how many entries there are, the unfinished run included.
func (r *indexReader) total() int64 {
	n := r.indexed + int64(len(r.pending))
	if r.run.batches > 0 {
		n++
	}
	return n
}

func (r *indexReader) entry(i int64) (indexEntry, error) {
	switch k := i - r.indexed; {
	case k >= int64(len(r.pending)):
		return r.run.finished(r.size, r.maxTime), nil
	case k >= 0:
		return r.pending[k], nil
	}
	if r.rebuilt == nil {
		e, err := r.load(i)
		if err == nil {
			return e, nil
		}
		if !errors.Is(err, errEntry) || r.seg.gone.Load() {
			return indexEntry{}, err
		}
		if err := r.rebuild(); err != nil {
			return indexEntry{}, err
		}
	}
	return r.rebuilt[i], nil
}

// load reads an entry from the index file.
func (r *indexReader) load(i int64) (indexEntry, error) {
	if r.block == nil || i < r.first || i >= r.first+int64(len(r.block)/entrySize) {
		f, err := r.seg.openIndex()
		if err != nil {
			return indexEntry{}, err
		}
		r.first = i / blockEntries * blockEntries
		n := min(blockEntries, r.indexed-r.first) * entrySize
		if int64(cap(r.block)) < n {
			r.block = make([]byte, n)
		}
		r.block = r.block[:n]
		if got, err := f.ReadAt(r.block, r.first*entrySize); int64(got) < n {
			r.block = nil
			if err == io.EOF {
				err = errEntry
			}
			return indexEntry{}, fmt.Errorf("read %s at %d: %w", r.seg.indexName(), r.first*entrySize, err)
		}
	}
	at := (i - r.first) * entrySize
	return decodeEntry(r.block[at : at+entrySize])
}

// rebuild makes the entries anew from the segment, which is checked on the way.
// Entries depend on nothing but the batches and the interval, so these are the
// ones that were lost.
func (r *indexReader) rebuild() error {
	assert.Reached("storage: damaged index rebuilt for a read")
	r.rebuilt = r.seg.rebuiltIndex()
	if int64(len(r.rebuilt)) >= r.indexed {
		return nil
	}
	entries, err := r.scan(r.indexedEnd())
	if err != nil {
		return err
	}
	r.rebuilt = entries
	r.seg.setRebuiltIndex(entries)
	return nil
}

// indexedEnd is where the batches end that the index file describes.
func (p part) indexedEnd() int64 {
	switch {
	case len(p.pending) > 0:
		return p.pending[0].pos
	case p.run.batches > 0:
		return p.run.pos
	}
	return p.size
}

// scan checks the segment up to end and returns the entries it should have.
func (p part) scan(end int64) ([]indexEntry, error) {
	f, err := p.seg.open()
	if err != nil {
		return nil, err
	}
	s := newSnapshot(&segment{base: p.seg.base})
	w := walker{file: f, name: p.seg.name(), end: end}
	for w.pos < end {
		b, err := w.batch()
		if err == nil {
			_, _, err = record.Cut(b)
		}
		if err == nil && b.BaseOffset() != s.end {
			err = fmt.Errorf("base offset %d, want %d", b.BaseOffset(), s.end)
		}
		if err != nil {
			return nil, p.damaged(w.pos, end, err)
		}
		s.add(b, p.seg.interval)
		w.pos += int64(len(b))
	}
	s.finishRun()
	if int64(len(s.pending)) != p.indexed {
		return nil, p.damaged(0, end, fmt.Errorf("batches give %d index entries, there were %d", len(s.pending), p.indexed))
	}
	p.seg.setIntact(0, end)
	return s.pending, nil
}

// damaged turns what is wrong at pos into a DamageError, remembered for [pos, end),
// unless it is an error of the disk or the bytes are legally gone.
func (p part) damaged(pos, end int64, cause error) error {
	if p.seg.gone.Load() {
		return ErrGone
	}
	if isDiskError(cause) {
		return cause
	}
	assert.Reached("storage: damage found by a read")
	err := &DamageError{File: p.seg.name(), Pos: pos, What: cause.Error()}
	p.seg.setBroken(pos, end, err)
	return err
}

// An ioError is the disk's, as opposed to what the bytes say.
type ioError struct{ error }

func (e *ioError) Unwrap() error { return e.error }

// isDiskError tells an error of the disk from bytes that are not there or wrong.
func isDiskError(err error) bool { return !errors.Is(err, io.EOF) && errors.As(err, new(*ioError)) }

// verify checks a run, if that was not done since the process started.
func (p part) verify(e indexEntry) error {
	intact, broken := p.seg.verdict(e)
	if broken != nil {
		return broken
	}
	if intact {
		return nil
	}
	f, err := p.seg.open()
	if err != nil {
		return err
	}
	buf := make([]byte, e.len)
	if n, err := f.ReadAt(buf, e.pos); int64(n) < e.len {
		if err != io.EOF {
			err = &ioError{err}
		}
		return p.damaged(e.pos, e.end(), fmt.Errorf("read %d of %d bytes: %w", n, e.len, err))
	}
	frames, next, count := uint32(0), e.first, uint32(0)
	for rest := buf; len(rest) > 0; count++ {
		at := e.end() - int64(len(rest))
		var b record.Batch
		if b, rest, err = record.Cut(rest); err != nil {
			return p.damaged(at, e.end(), err)
		}
		if b.BaseOffset() != next {
			return p.damaged(at, e.end(), fmt.Errorf("base offset %d, want %d", b.BaseOffset(), next))
		}
		next = b.NextOffset()
		frames = crc32.Update(frames, castagnoli, b.Frame())
	}
	if count != e.batches || frames != e.frames {
		return p.damaged(e.pos, e.end(), fmt.Errorf("%d batches with frame checksum %#08x, index says %d with %#08x",
			count, frames, e.batches, e.frames))
	}
	assert.Reached("storage: bytes of an earlier process checked")
	p.seg.setIntact(e.pos, e.end())
	return nil
}

// locate finds the entry of the run that holds offset, which is in the part.
func (r *indexReader) locate(offset record.Offset) (int64, indexEntry, error) {
	var err error
	n := r.total()
	i := int64(sort.Search(int(n), func(i int) bool {
		if err != nil {
			return true
		}
		var e indexEntry
		e, err = r.entry(int64(i))
		return err != nil || e.first > offset
	})) - 1
	if err != nil {
		return 0, indexEntry{}, err
	}
	if i < 0 {
		return 0, indexEntry{}, r.damaged(0, r.size, fmt.Errorf("no index entry for offset %d", offset))
	}
	e, err := r.entry(i)
	return i, e, err
}

// lastWithin is the last entry, from i on, that ends at most at pos end and
// offset limit; or i-1 if there is none.
func (r *indexReader) lastWithin(i, end int64, limit record.Offset) (int64, error) {
	var err error
	n := r.total()
	k := sort.Search(int(n-i), func(k int) bool {
		if err != nil {
			return true
		}
		var e indexEntry
		if e, err = r.entry(i + int64(k)); err != nil || e.end() > end {
			return true
		}
		next := r.next
		if i+int64(k)+1 < n {
			if e, err = r.entry(i + int64(k) + 1); err != nil {
				return true
			}
			next = e.first
		}
		return next > limit
	})
	return i + int64(k) - 1, err
}

// A walker steps through the batches of a file by their headers.
type walker struct {
	file vfs.File
	name string
	pos  int64 // of the next batch
	end  int64 // nothing from here on is looked at
	buf  []byte
	at   int64 // position of buf
}

const walkChunk = 4 << 10 // bytes read at once, at least

// header returns the next batch's header alone, as a Batch whose records are
// missing, and its size. It checks that the batch ends in bounds.
func (w *walker) header() (record.Batch, int64, error) {
	h, err := w.bytes(record.HeaderSize)
	if err != nil {
		return nil, 0, err
	}
	size, err := batchSize(h)
	if err == nil && w.pos+size > w.end {
		err = fmt.Errorf("%w: batch of %d bytes, %d left", record.ErrCorrupt, size, w.end-w.pos)
	}
	return record.Batch(h), size, err
}

// batch returns the next batch whole. It is good until the next call.
func (w *walker) batch() (record.Batch, error) {
	_, size, err := w.header()
	if err != nil {
		return nil, err
	}
	b, err := w.bytes(size)
	return record.Batch(b), err
}

func (w *walker) bytes(n int64) ([]byte, error) {
	if off := w.pos - w.at; off >= 0 && off+n <= int64(len(w.buf)) {
		return w.buf[off : off+n : off+n], nil
	}
	want := min(max(n, walkChunk), w.end-w.pos)
	if want < n {
		return nil, fmt.Errorf("%w: %d bytes left", record.ErrCorrupt, want)
	}
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.at = w.buf[:want], w.pos
	got, err := w.file.ReadAt(w.buf, w.pos)
	w.buf = w.buf[:got]
	if int64(got) < n {
		if err != io.EOF {
			err = &ioError{err}
		}
		return nil, fmt.Errorf("read %s at %d: %w", w.name, w.pos, err)
	}
	return w.buf[:n:n], nil
}

// batchSize is the length a header claims.
func batchSize(h []byte) (int64, error) {
	_, _, err := record.Peek(h)
	if err != nil && !errors.Is(err, record.ErrShort) {
		return 0, err
	}
	return int64(uint32(h[8])<<24|uint32(h[9])<<16|uint32(h[10])<<8|uint32(h[11])) + 12, nil
}
