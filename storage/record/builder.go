package record

import "encoding/binary"

// Header is one header of a record to build. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Producer makes a batch idempotent.
type Producer struct {
	ID           ProducerID
	Epoch        ProducerEpoch
	BaseSequence Sequence
}

// Options are what a batch's header says beyond its records.
type Options struct {
	Producer      *Producer // nil for a batch that is not idempotent
	Transactional bool
	Control       bool // the records are markers
}

// A Compressor appends src, compressed by the codec of that number, to dst.
type Compressor func(codec int8, dst, src []byte) ([]byte, error)

// A Builder makes one batch out of records, as a producer does: base offset 0,
// no leader epoch, offset deltas from 0. A batch stays below 2 GiB.
type Builder struct {
	records   []byte // in wire form, not compressed
	body      []byte // scratch
	count     int32
	base, max Timestamp
}

// NewBuilder returns a builder without records.
func NewBuilder() *Builder { return &Builder{base: NoTimestamp, max: NoTimestamp} }

// Append adds a record and returns b. A nil key or value is null. The first
// record's timestamp is the base of the others.
func (b *Builder) Append(at Timestamp, key, value []byte, headers ...Header) *Builder {
	if b.count == 0 {
		b.base = at
	}
	b.max = max(b.max, at)
	p := append(b.body[:0], 0) // attributes
	p = AppendVarlong(p, int64(at-b.base))
	p = AppendVarint(p, b.count)
	p = appendField(p, key)
	p = appendField(p, value)
	p = AppendVarint(p, int32(len(headers)))
	for _, h := range headers {
		p = AppendVarint(p, int32(len(h.Key)))
		p = append(p, h.Key...)
		p = appendField(p, h.Value)
	}
	b.records = AppendVarint(b.records, int32(len(p)))
	b.records = append(b.records, p...)
	b.body = p
	b.count++
	return b
}

func appendField(dst, f []byte) []byte {
	if f == nil {
		return AppendVarint(dst, -1)
	}
	return append(AppendVarint(dst, int32(len(f))), f...)
}

// Count is how many records were appended.
func (b *Builder) Count() int32 { return b.count }

// Size is how many bytes the batch has so far, not compressed.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// Build returns the batch, not compressed. The builder may go on.
func (b *Builder) Build(o Options) Batch {
	batch := make(Batch, HeaderSize, b.Size())
	return b.finish(append(batch, b.records...), 0, o)
}

// Compressed returns the batch with its records compressed by compress, whose
// errors are the only ones.
func (b *Builder) Compressed(o Options, codec int8, compress Compressor) (Batch, error) {
	batch, err := compress(codec, make(Batch, HeaderSize, HeaderSize+len(b.records)/2), b.records)
	if err != nil {
		return nil, err
	}
	return b.finish(batch, codec, o), nil
}

func (b *Builder) finish(batch Batch, codec int8, o Options) Batch {
	p := Producer{ID: NoProducer, Epoch: -1, BaseSequence: NoSequence}
	if o.Producer != nil {
		p = *o.Producer
	}
	attributes := int16(codec) & codecMask
	if o.Transactional {
		attributes |= transactionalBit
	}
	if o.Control {
		attributes |= controlBit
	}
	batch.Assign(0, NoEpoch)
	batch[magicAt] = supportedMagic
	binary.BigEndian.PutUint32(batch[batchLengthAt:], uint32(len(batch)-lengthOverhead))
	binary.BigEndian.PutUint16(batch[attributesAt:], uint16(attributes))
	binary.BigEndian.PutUint32(batch[lastOffsetDeltaAt:], uint32(max(b.count-1, 0)))
	binary.BigEndian.PutUint64(batch[baseTimestampAt:], uint64(b.base))
	binary.BigEndian.PutUint64(batch[maxTimestampAt:], uint64(b.max))
	binary.BigEndian.PutUint64(batch[producerIDAt:], uint64(p.ID))
	binary.BigEndian.PutUint16(batch[producerEpochAt:], uint16(p.Epoch))
	binary.BigEndian.PutUint32(batch[baseSequenceAt:], uint32(p.BaseSequence))
	binary.BigEndian.PutUint32(batch[recordCountAt:], uint32(b.count))
	batch.seal()
	return batch
}
