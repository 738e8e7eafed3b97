package storage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// A segment is one file of a log, and its index. Views share segments, so what
// is in a file never changes: a segment grows at its end while it is the active
// one, and is sealed once it is not. To cut a segment is to make a new one,
// sealed, over the same file; the old one is gone from then on.
//
// A file is opened when it is first needed and closed when nobody refers to it
// any more: a Region may hold it long after the log has dropped it, so nothing
// here closes it.
type segment struct {
	*volume
	log        LogID
	generation uint32 // how often the log had been truncated when the file was made
	base       record.Offset

	// Of a sealed segment. They do not change, and views in which the segment
	// is the active one do not look at them.
	size    int64
	next    record.Offset
	entries int64 // in the index
	maxTime record.Timestamp

	file  atomic.Pointer[vfs.File]
	index atomic.Pointer[vfs.File]

	// untrusted is where the bytes that this process wrote begin. What is
	// before it is checked before it is given out for the first time.
	untrusted int64

	mu    sync.Mutex
	found *findings // nil while there are none; most segments never have any

	gone  atomic.Bool // truncated, deleted or below the log start: anything may be missing
	dirty bool        // waits for the next checkpoint to sync it; the lane's
}

// volume is what all segments of a store share.
type volume struct {
	fs       vfs.FS
	interval int64 // bytes of an index entry, at least
}

// findings is what reads found out about the bytes of an earlier process.
type findings struct {
	checked []span       // intact, sorted, apart; below untrusted
	broken  []brokenSpan // as found
	rebuilt []indexEntry // in place of a damaged index
}

type span struct{ from, to int64 }

type brokenSpan struct {
	span
	err *DamageError
}

const logsDir = "logs"

func (s *segment) name() string      { return s.named(".log") }
func (s *segment) indexName() string { return s.named(".index") }

// named is the file's name with a suffix. Recovery makes two for every segment
// there is, so it does not go through fmt.
func (s *segment) named(suffix string) string {
	const digits = "00000000000000000000"
	b := make([]byte, 0, 96)
	b = s.log.append(append(b, logsDir+"/"...))
	b = append(b, '.')
	from := len(b)
	b = strconv.AppendInt(append(b, digits...), int64(s.base), 10)
	b = append(b[:from], b[len(b)-len(digits):]...)
	b = strconv.AppendUint(append(b, '.'), uint64(s.generation), 10)
	return string(append(b, suffix...))
}

// parseSegmentName is the inverse of name and indexName, without the directory.
func parseSegmentName(base string) (id LogID, at record.Offset, generation uint32, index, ok bool) {
	parts := strings.Split(base, ".")
	if len(parts) != 4 || parts[3] != "log" && parts[3] != "index" {
		return
	}
	topic, partition, _ := strings.Cut(parts[0], "-")
	if len(topic) != 32 {
		return
	}
	for i := range id.Topic {
		n, err := strconv.ParseUint(topic[2*i:2*i+2], 16, 8)
		if err != nil {
			return
		}
		id.Topic[i] = byte(n)
	}
	p, err1 := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(parts[1], 10, 64)
	g, err3 := strconv.ParseUint(parts[2], 10, 32)
	if err1 != nil || err2 != nil || err3 != nil {
		return
	}
	id.Partition = int32(p)
	return id, record.Offset(o), uint32(g), parts[3] == "index", true
}

// open returns the segment's file, opening it if need be.
func (s *segment) open() (vfs.File, error) { return s.lazily(&s.file, (*segment).name) }

func (s *segment) openIndex() (vfs.File, error) { return s.lazily(&s.index, (*segment).indexName) }

func (s *segment) lazily(p *atomic.Pointer[vfs.File], name func(*segment) string) (vfs.File, error) {
	if f := p.Load(); f != nil {
		return *f, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := p.Load(); f != nil {
		return *f, nil
	}
	f, err := s.fs.Open(name(s))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name(s), err)
	}
	p.Store(&f)
	return f, nil
}

// cutTo is the segment that holds the first size bytes of this one.
func (s *segment) cutTo(size int64, next record.Offset, entries int64, maxTime record.Timestamp) *segment {
	c := &segment{volume: s.volume, log: s.log, base: s.base, generation: s.generation, size: size, next: next,
		entries: entries, maxTime: maxTime, untrusted: min(s.untrusted, size)}
	c.file.Store(s.file.Load())
	c.index.Store(s.index.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.found; f != nil {
		c.found = &findings{checked: slices.Clone(f.checked), broken: slices.Clone(f.broken)}
	}
	return c
}

// verdict reports what is known of the bytes of a run.
func (s *segment) verdict(e indexEntry) (intact bool, err *DamageError) {
	if e.pos >= s.untrusted {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.found
	if f == nil {
		return false, nil
	}
	for _, b := range f.broken {
		if b.from < e.end() && e.pos < b.to {
			return false, b.err
		}
	}
	i, _ := slices.BinarySearchFunc(f.checked, e.pos, func(c span, pos int64) int { return cmp(c.to, pos) })
	return i < len(f.checked) && f.checked[i].from <= e.pos && min(e.end(), s.untrusted) <= f.checked[i].to, nil
}

func cmp(a, b int64) int {
	if a <= b {
		return -1
	}
	return 1
}

// setIntact remembers that [from, to) was checked.
func (s *segment) setIntact(from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, i := s.findings(), 0
	for i < len(f.checked) && f.checked[i].to < from {
		i++
	}
	k := i
	for k < len(f.checked) && f.checked[k].from <= to {
		from, to = min(from, f.checked[k].from), max(to, f.checked[k].to)
		k++
	}
	f.checked = slices.Replace(f.checked, i, k, span{from, to})
}

// setBroken remembers damage.
func (s *segment) setBroken(from, to int64, err *DamageError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.findings()
	f.broken = append(f.broken, brokenSpan{span{from, to}, err})
}

// rebuiltIndex is the entries that were made in place of a damaged index, or nil.
func (s *segment) rebuiltIndex() []indexEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		return nil
	}
	return s.found.rebuilt
}

func (s *segment) setRebuiltIndex(entries []indexEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings().rebuilt = entries
}

// findings is where to note something. The caller holds mu.
func (s *segment) findings() *findings {
	if s.found == nil {
		s.found = &findings{}
	}
	return s.found
}
