// Package record reads and checks Kafka record batches (magic 2) in place,
// without copying the records inside them.
//
// Sources: KIP-98 (format), KIP-101 (partition leader epoch), KIP-32 (timestamps).
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// HeaderSize is the length in bytes of a batch header: everything before the
// first record.
const HeaderSize = 61

// FrameSize is how many bytes of the header the batch's own CRC does not
// protect by content: everything up to and including the CRC field. A storage
// engine checksums them itself.
const FrameSize = 21

// Positions in the header. All integers are big endian.
const (
	baseOffsetAt      = 0  // int64, set by the leader, not covered by the CRC
	batchLengthAt     = 8  // int32, bytes after this field
	leaderEpochAt     = 12 // int32, set by the leader, not covered by the CRC
	magicAt           = 16 // int8
	crcAt             = 17 // uint32, CRC-32C of everything from attributesAt
	attributesAt      = 21 // int16
	lastOffsetDeltaAt = 23 // int32
	baseTimestampAt   = 27 // int64
	maxTimestampAt    = 35 // int64
	producerIDAt      = 43 // int64
	producerEpochAt   = 51 // int16
	baseSequenceAt    = 53 // int32
	recordCountAt     = 57 // int32

	lengthOverhead = batchLengthAt + 4 // bytes not counted by batchLength
)

// Bits of a batch's attributes.
const (
	codecMask        = 0x07
	logAppendTimeBit = 1 << 3
	transactionalBit = 1 << 4
	controlBit       = 1 << 5
	deleteHorizonBit = 1 << 6
	supportedMagic   = 2
	crc32cPolynomial = crc32.Castagnoli
)

var (
	// ErrCorrupt says the bytes are not a whole, intact record batch.
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrShort says the buffer ends inside a batch that may be good.
	ErrShort = fmt.Errorf("%w: cut short", ErrCorrupt)
	// ErrMagic says the batch is of a format that pawl does not store.
	ErrMagic = errors.New("unsupported message format")
)

var castagnoli = crc32.MakeTable(crc32cPolynomial)

// A Batch is one record batch in wire form. The bytes are shared, not copied.
type Batch []byte

// BaseOffset is the offset of the batch's first record.
func (b Batch) BaseOffset() Offset { return Offset(binary.BigEndian.Uint64(b[baseOffsetAt:])) }

// NextOffset is the offset of the record that follows the batch.
func (b Batch) NextOffset() Offset { return b.BaseOffset() + Offset(b.LastOffsetDelta()) + 1 }

// LastOffset is the offset of the batch's last record.
func (b Batch) LastOffset() Offset { return b.BaseOffset() + Offset(b.LastOffsetDelta()) }

// LastOffsetDelta is the last record's offset relative to the first.
func (b Batch) LastOffsetDelta() int32 {
	return int32(binary.BigEndian.Uint32(b[lastOffsetDeltaAt:]))
}

// LeaderEpoch is the epoch of the leader that assigned the offsets.
func (b Batch) LeaderEpoch() LeaderEpoch {
	return LeaderEpoch(binary.BigEndian.Uint32(b[leaderEpochAt:]))
}

// Magic is the batch's format version.
func (b Batch) Magic() int8 { return int8(b[magicAt]) }

// CRC is the checksum stored in the header.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[crcAt:]) }

// Attributes is the batch's bit field.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[attributesAt:])) }

// DeleteHorizon reports whether BaseTimestamp is the time from which the
// cleaner may drop the batch's tombstones and markers. Only the cleaner says so.
//
// Source: KIP-534.
func (b Batch) DeleteHorizon() bool { return b.Attributes()&deleteHorizonBit != 0 }

// Codec is the number of the compression codec: 0 none, 1 gzip, 2 snappy, 3
// lz4, 4 zstd; 5 to 7 mean nothing.
func (b Batch) Codec() int8 { return int8(b.Attributes() & codecMask) }

// LogAppendTime reports whether MaxTimestamp is the time of every record.
func (b Batch) LogAppendTime() bool { return b.Attributes()&logAppendTimeBit != 0 }

// Transactional reports whether the batch is part of a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&transactionalBit != 0 }

// Control reports whether the records are markers and not a user's.
func (b Batch) Control() bool { return b.Attributes()&controlBit != 0 }

// BaseTimestamp is what the records' timestamp deltas are relative to.
func (b Batch) BaseTimestamp() Timestamp {
	return Timestamp(binary.BigEndian.Uint64(b[baseTimestampAt:]))
}

// MaxTimestamp is the greatest timestamp in the batch.
func (b Batch) MaxTimestamp() Timestamp {
	return Timestamp(binary.BigEndian.Uint64(b[maxTimestampAt:]))
}

// ProducerID is the idempotent producer, or NoProducer.
func (b Batch) ProducerID() ProducerID {
	return ProducerID(binary.BigEndian.Uint64(b[producerIDAt:]))
}

// ProducerEpoch is the epoch of ProducerID.
func (b Batch) ProducerEpoch() ProducerEpoch {
	return ProducerEpoch(binary.BigEndian.Uint16(b[producerEpochAt:]))
}

// BaseSequence is the sequence of the first record, or NoSequence.
func (b Batch) BaseSequence() Sequence {
	return Sequence(binary.BigEndian.Uint32(b[baseSequenceAt:]))
}

// LastSequence is the sequence of the last record.
func (b Batch) LastSequence() Sequence { return b.BaseSequence().Add(b.LastOffsetDelta()) }

// Count is the number of records in the batch.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[recordCountAt:])) }

// Payload is the records, compressed as Codec says.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// Frame is the part of the header that the batch's CRC does not cover, and the
// CRC itself.
func (b Batch) Frame() []byte { return b[:FrameSize] }

// Assign writes the two header fields that belong to the leader. The CRC does
// not cover them, so the batch stays valid.
func (b Batch) Assign(base Offset, epoch LeaderEpoch) {
	binary.BigEndian.PutUint64(b[baseOffsetAt:], uint64(base))
	binary.BigEndian.PutUint32(b[leaderEpochAt:], uint32(epoch))
}

// SetLogAppendTime makes t the timestamp of every record, in place, and
// computes the CRC anew.
//
// Source: KIP-32.
func (b Batch) SetLogAppendTime(t Timestamp) {
	binary.BigEndian.PutUint64(b[maxTimestampAt:], uint64(t))
	binary.BigEndian.PutUint16(b[attributesAt:], uint16(b.Attributes()|logAppendTimeBit))
	b.seal()
}

// SetMaxTimestamp corrects the header's max timestamp, in place, and computes
// the CRC anew.
func (b Batch) SetMaxTimestamp(t Timestamp) {
	binary.BigEndian.PutUint64(b[maxTimestampAt:], uint64(t))
	b.seal()
}

func (b Batch) seal() {
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[attributesAt:], castagnoli))
}

// Peek returns the first batch in buf by its length alone, and what follows
// it. It returns ErrShort when buf ends inside the batch and ErrCorrupt when
// the length cannot be true. Nothing else is checked: use it on bytes that were
// checked before.
func Peek(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) < HeaderSize {
		return nil, buf, fmt.Errorf("%w: %d bytes, header needs %d", ErrShort, len(buf), HeaderSize)
	}
	length := int64(int32(binary.BigEndian.Uint32(buf[batchLengthAt:])))
	size := length + lengthOverhead
	if size < HeaderSize {
		return nil, buf, fmt.Errorf("%w: length %d", ErrCorrupt, length)
	}
	if size > int64(len(buf)) {
		return nil, buf, fmt.Errorf("%w: batch of %d bytes in %d", ErrShort, size, len(buf))
	}
	return Batch(buf[:size:size]), buf[size:], nil
}

// Cut is Peek that also checks the magic, the CRC and that the last offset
// delta is not negative. Everything the CRC covers can be trusted after it.
func Cut(buf []byte) (b Batch, rest []byte, err error) {
	b, rest, err = Peek(buf)
	if err != nil {
		return nil, buf, err
	}
	if m := b.Magic(); m != supportedMagic {
		return nil, buf, fmt.Errorf("%w: magic %d", ErrMagic, m)
	}
	if got := crc32.Checksum(b[attributesAt:], castagnoli); got != b.CRC() {
		return nil, buf, fmt.Errorf("%w: crc %#08x, header says %#08x", ErrCorrupt, got, b.CRC())
	}
	if b.LastOffsetDelta() < 0 {
		return nil, buf, fmt.Errorf("%w: last offset delta %d", ErrCorrupt, b.LastOffsetDelta())
	}
	return b, rest, nil
}
