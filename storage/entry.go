package storage

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/pawlbroker/pawl/storage/record"
)

// What a journal record says. Every record starts with its kind and a log.
const (
	kindBatches  = 1 // batches, and where in their segment they go
	kindExtent   = 2 // where batches are that went to their segment alone
	kindTruncate = 3
	kindDelete   = 4
	kindStart    = 5 // the log start moved up, and what is to be known of what was before it
	kindReset    = 6 // everything is gone, and the log begins anew
)

// place is where in which file bytes go.
type place struct {
	log        LogID
	base       record.Offset // of the segment
	generation uint32        // of the segment
	pos        int64
}

// logRecord is a journal record in memory. Which fields mean something depends
// on kind.
type logRecord struct {
	kind byte
	place

	batches []byte // kindBatches

	len     int64         // kindExtent: bytes
	first   record.Offset // kindExtent
	headers uint32        // kindExtent: CRC-32C of the batches' headers

	// offset is the log end after a kindExtent and a kindTruncate, the log start
	// after a kindStart, and both after a kindReset.
	offset record.Offset

	deleted []byte // kindStart: the snapshot of what was deleted

	// next is the generation of the file that comes next, of a kindTruncate and a
	// kindReset. The others are of a kindTruncate and say of the
	// file that was cut, if cut: place says which and at what position, entries
	// how many index entries it has left, and last what the last one is.
	next    uint32
	cut     bool
	entries int64
	last    indexEntry
}

// Sizes of records in bytes. All integers are big endian.
const (
	logHead      = 1 + 16 + 4             // kind, topic, partition
	placeHead    = logHead + 8 + 4 + 8    // segment base, generation, position
	extentSize   = placeHead + 8 + 16 + 4 // length, first and next offset, header checksum
	truncateSize = placeHead + 8 + 4 + 1 + 8 + entrySize
	startSize    = logHead + 8 // and a snapshot
	resetSize    = startSize + 4
)

func putHead(b []byte, kind byte, id LogID) {
	b[0] = kind
	copy(b[1:], id.Topic[:])
	binary.BigEndian.PutUint32(b[17:], uint32(id.Partition))
}

func putPlace(b []byte, kind byte, p place) {
	putHead(b, kind, p.log)
	binary.BigEndian.PutUint64(b[logHead:], uint64(p.base))
	binary.BigEndian.PutUint32(b[logHead+8:], p.generation)
	binary.BigEndian.PutUint64(b[logHead+12:], uint64(p.pos))
}

// encode is the record without batches: those are put in place by Commit.
func (r logRecord) encode() []byte {
	switch r.kind {
	case kindDelete:
		b := make([]byte, logHead)
		putHead(b, r.kind, r.log)
		return b
	case kindStart:
		b := make([]byte, logHead, startSize+len(r.deleted))
		putHead(b, r.kind, r.log)
		b = binary.BigEndian.AppendUint64(b, uint64(r.offset))
		return append(b, r.deleted...)
	case kindReset:
		b := make([]byte, logHead, resetSize)
		putHead(b, r.kind, r.log)
		b = binary.BigEndian.AppendUint64(b, uint64(r.offset))
		return binary.BigEndian.AppendUint32(b, r.next)
	}
	b := make([]byte, placeHead, truncateSize)
	putPlace(b, r.kind, r.place)
	switch r.kind {
	case kindBatches:
		return append(b, r.batches...)
	case kindExtent:
		b = binary.BigEndian.AppendUint64(b, uint64(r.len))
		b = binary.BigEndian.AppendUint64(b, uint64(r.first))
		b = binary.BigEndian.AppendUint64(b, uint64(r.offset))
		return binary.BigEndian.AppendUint32(b, r.headers)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(r.offset))
	b = binary.BigEndian.AppendUint32(b, r.next)
	cut := byte(0)
	if r.cut {
		cut = 1
	}
	b = append(b, cut)
	b = binary.BigEndian.AppendUint64(b, uint64(r.entries))
	return r.last.appendTo(b)
}

var errRecord = errors.New("malformed journal record")

func decodeRecord(b []byte) (logRecord, error) {
	if len(b) < logHead {
		return logRecord{}, errRecord
	}
	r := logRecord{kind: b[0]}
	copy(r.log.Topic[:], b[1:])
	r.log.Partition = int32(binary.BigEndian.Uint32(b[17:]))
	rest := b[logHead:]
	switch {
	case r.kind == kindDelete && len(rest) == 0:
		return r, nil
	case r.kind == kindStart && len(b) >= startSize:
		r.offset = record.Offset(binary.BigEndian.Uint64(rest))
		if len(b) > startSize {
			r.deleted = slices.Clone(b[startSize:])
		}
		return r, nil
	case r.kind == kindReset && len(b) == resetSize:
		r.offset = record.Offset(binary.BigEndian.Uint64(rest))
		r.next = binary.BigEndian.Uint32(rest[8:])
		return r, nil
	case len(b) < placeHead:
		return logRecord{}, errRecord
	}
	r.base = record.Offset(binary.BigEndian.Uint64(rest))
	r.generation = binary.BigEndian.Uint32(rest[8:])
	r.pos = int64(binary.BigEndian.Uint64(rest[12:]))
	if rest = b[placeHead:]; r.pos < 0 {
		return logRecord{}, errRecord
	}
	switch {
	case r.kind == kindBatches && len(rest) > 0:
		r.batches = rest
		return r, nil
	case r.kind == kindExtent && len(b) == extentSize:
		r.len = int64(binary.BigEndian.Uint64(rest))
		r.first = record.Offset(binary.BigEndian.Uint64(rest[8:]))
		r.offset = record.Offset(binary.BigEndian.Uint64(rest[16:]))
		r.headers = binary.BigEndian.Uint32(rest[24:])
		if r.len > 0 && r.first < r.offset {
			return r, nil
		}
	case r.kind == kindTruncate && len(b) == truncateSize:
		return r, r.decodeTruncate(rest)
	}
	return logRecord{}, errRecord
}

func (r *logRecord) decodeTruncate(rest []byte) error {
	r.offset = record.Offset(binary.BigEndian.Uint64(rest))
	r.next = binary.BigEndian.Uint32(rest[8:])
	r.cut = rest[12] == 1
	r.entries = int64(binary.BigEndian.Uint64(rest[13:]))
	if rest[12] > 1 || r.entries < 0 {
		return errRecord
	}
	var err error
	if r.last, err = decodeEntry(rest[21:]); err != nil && r.cut {
		return errRecord
	}
	if !r.cut {
		r.last = indexEntry{}
	}
	return nil
}
