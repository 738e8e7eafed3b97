package nullbroker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

// Positions in a record batch of magic 2, big endian.
const (
	batchHeader       = 61
	batchLengthAt     = 8  // int32, of what follows it
	epochAt           = 12 // int32
	magicAt           = 16 // int8
	crcAt             = 17 // uint32, of everything from attributesAt
	attributesAt      = 21
	lastOffsetDeltaAt = 23 // int32
)

var (
	errCorrupt = errors.New("corrupt record batch")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// partition is a file and a dense index of its batches.
//
// Invariant: synced <= end, committed <= next; [0, synced) of the file holds the
// records [0, committed).
type partition struct {
	broker *Broker
	path   string

	mu        sync.Mutex
	quiet     sync.Cond // syncing became false
	file      *os.File  // nil until the first write
	end       int64     // bytes written
	next      int64     // offset of the next record
	synced    int64     // bytes that may be fetched
	committed int64     // next offset as readers see it
	syncing   bool
	failed    error // a sync failed: nothing is known of the file any more
	index     []batchAt
}

// batchAt says where a batch begins.
type batchAt struct{ base, position int64 }

func (p *partition) init(b *Broker, topic string, i int) {
	p.broker = b
	p.path = filepath.Join(b.cfg.Dir, fmt.Sprintf("%s-%d.log", topic, i))
	p.quiet.L = &p.mu
}

func (p *partition) close() {
	if p.file != nil {
		p.file.Close()
	}
}

// cut returns the batch at the start of buf, and the rest.
func cut(buf []byte, check bool) (batch, rest []byte, err error) {
	if len(buf) < batchHeader {
		return nil, nil, errCorrupt
	}
	size := int64(int32(binary.BigEndian.Uint32(buf[batchLengthAt:]))) + batchLengthAt + 4
	if size < batchHeader || size > int64(len(buf)) || buf[magicAt] != 2 {
		return nil, nil, errCorrupt
	}
	batch, rest = buf[:size], buf[size:]
	if check && crc32.Checksum(batch[attributesAt:], castagnoli) != binary.BigEndian.Uint32(batch[crcAt:]) {
		return nil, nil, errCorrupt
	}
	return batch, rest, nil
}

func recordsIn(batch []byte) int64 {
	return int64(int32(binary.BigEndian.Uint32(batch[lastOffsetDeltaAt:]))) + 1
}

// produce takes the batches of one request. It returns the offset of the first
// record, and the position up to which the file must be synced before the
// request may be answered.
func (p *partition) produce(batches []byte) (base, position int64, err error) {
	mode := p.broker.cfg.Mode
	var count int64
	for rest := batches; len(rest) > 0; {
		var batch []byte
		if batch, rest, err = cut(rest, mode.checks()); err != nil {
			return 0, 0, err
		}
		count += recordsIn(batch)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	base = p.next
	if !mode.keeps() {
		p.next += count
		return base, 0, nil
	}
	if err := p.write(batches); err != nil {
		return 0, 0, err
	}
	if !mode.syncs() {
		p.expose(p.end, p.next)
	}
	return base, p.end, nil
}

// write appends the batches under the next offsets. The lock is held over the
// write: the file system would hold its own.
func (p *partition) write(batches []byte) (err error) {
	if p.file == nil {
		if p.file, err = os.OpenFile(p.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644); err != nil {
			return err
		}
	}
	next, position := p.next, p.end
	index := len(p.index)
	for rest := batches; len(rest) > 0; {
		var batch []byte
		batch, rest, _ = cut(rest, false)
		binary.BigEndian.PutUint64(batch, uint64(next))
		binary.BigEndian.PutUint32(batch[epochAt:], 0)
		p.index = append(p.index, batchAt{base: next, position: position})
		next += recordsIn(batch)
		position += int64(len(batch))
	}
	if _, err = p.file.WriteAt(batches, p.end); err != nil {
		p.index = p.index[:index]
		return err
	}
	p.next, p.end = next, position
	return nil
}

// expose lets readers see the file up to a position. The lock is held.
func (p *partition) expose(position, offset int64) {
	p.synced, p.committed = position, offset
	p.broker.grown.ring()
}

// commit returns once the file is synced up to a position. Whoever finds no
// sync under way makes one, for everything that was written before it.
func (p *partition) commit(position int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.synced < position && p.failed == nil {
		if p.syncing {
			p.quiet.Wait()
			continue
		}
		p.syncing = true
		end, next := p.end, p.next
		p.mu.Unlock()
		err := datasync(p.file)
		p.broker.syncs.Add(1)
		p.mu.Lock()
		p.syncing = false
		p.failed = err
		if err == nil {
			p.expose(end, next)
		}
		p.quiet.Broadcast()
	}
	return p.failed
}

// region is a run of whole batches in a partition's file.
type region struct {
	file          *os.File
	from, size    int64
	highWatermark int64
	outOfRange    bool
}

// fetch finds the batches from an offset on: at most maxBytes, but at least one
// batch if there is any.
func (p *partition) fetch(offset, maxBytes int64) region {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := region{file: p.file, highWatermark: p.committed}
	if offset < 0 || offset > p.next {
		r.outOfRange = true
		return r
	}
	if offset >= p.committed || len(p.index) == 0 {
		return r
	}
	first := sort.Search(len(p.index), func(i int) bool { return p.index[i].base > offset }) - 1
	r.from = p.index[first].position
	end := func(i int) int64 {
		if i+1 < len(p.index) {
			return p.index[i+1].position
		}
		return p.end
	}
	// How many batches may follow the first, which goes whole whatever its size.
	more := sort.Search(len(p.index)-first-1, func(i int) bool {
		at := end(first + 1 + i)
		return at > p.synced || at-r.from > maxBytes
	})
	r.size = end(first+more) - r.from
	return r
}

// offsets returns the earliest and the latest offset.
func (p *partition) offsets() (earliest, latest int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 0, p.committed
}
