package storage

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/pawlbroker/pawl/storage/record"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// An indexEntry describes a run: consecutive batches of a segment that share an
// entry of its index.
//
// Its checksum is over the frames of the run's batches. It is what protects base
// offset, length and leader epoch, which a batch's own CRC leaves out.
type indexEntry struct {
	first   record.Offset    // base offset of the run's first batch
	pos     int64            // of that batch, in bytes
	len     int64            // bytes of the run
	maxTime record.Timestamp // greatest in the segment up to the run's end
	batches uint32
	frames  uint32 // CRC-32C of the batches' frames
}

func (e indexEntry) end() int64 { return e.pos + e.len }

// Layout of an entry on disk. All integers are big endian.
const (
	entryFirstAt   = 0  // int64
	entryPosAt     = 8  // int64
	entryMaxTimeAt = 16 // int64
	entryLenAt     = 24 // uint32
	entryBatchesAt = 28 // uint32
	entryFramesAt  = 32 // uint32
	entryCRCAt     = 36 // uint32, CRC-32C of what is before it
	entrySize      = 40
)

func (e indexEntry) appendTo(b []byte) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint64(b, uint64(e.first))
	b = binary.BigEndian.AppendUint64(b, uint64(e.pos))
	b = binary.BigEndian.AppendUint64(b, uint64(e.maxTime))
	b = binary.BigEndian.AppendUint32(b, uint32(e.len))
	b = binary.BigEndian.AppendUint32(b, e.batches)
	b = binary.BigEndian.AppendUint32(b, e.frames)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

var errEntry = errors.New("index entry is damaged")

func decodeEntry(b []byte) (indexEntry, error) {
	if len(b) < entrySize || crc32.Checksum(b[:entryCRCAt], castagnoli) != binary.BigEndian.Uint32(b[entryCRCAt:]) {
		return indexEntry{}, errEntry
	}
	e := indexEntry{
		first:   record.Offset(binary.BigEndian.Uint64(b[entryFirstAt:])),
		pos:     int64(binary.BigEndian.Uint64(b[entryPosAt:])),
		maxTime: record.Timestamp(binary.BigEndian.Uint64(b[entryMaxTimeAt:])),
		len:     int64(binary.BigEndian.Uint32(b[entryLenAt:])),
		batches: binary.BigEndian.Uint32(b[entryBatchesAt:]),
		frames:  binary.BigEndian.Uint32(b[entryFramesAt:]),
	}
	if e.pos < 0 || e.len < record.HeaderSize || e.batches == 0 {
		return indexEntry{}, errEntry
	}
	return e, nil
}

func encodeEntries(entries []indexEntry) []byte {
	b := make([]byte, 0, len(entries)*entrySize)
	for _, e := range entries {
		b = e.appendTo(b)
	}
	return b
}

// A run is the unfinished entry at a segment's end. It reaches to the end.
type run struct {
	first   record.Offset
	pos     int64
	batches uint32 // none: there is no unfinished run
	frames  uint32
}

func (r *run) add(b record.Batch, pos int64) {
	if r.batches == 0 {
		*r = run{first: b.BaseOffset(), pos: pos}
	}
	r.batches++
	r.frames = crc32.Update(r.frames, castagnoli, b.Frame())
}

// finished is the run as an entry, if the segment ends at size.
func (r run) finished(size int64, maxTime record.Timestamp) indexEntry {
	return indexEntry{r.first, r.pos, size - r.pos, maxTime, r.batches, r.frames}
}
