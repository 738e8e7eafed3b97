package codec

import (
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/pawlbroker/pawl/storage/record"
)

// What a producer may not say in a batch, beside record.ErrInvalid. None of it
// gets better by trying again.
var (
	// ErrControl says a client sent markers. Kafka: INVALID_RECORD.
	ErrControl = errors.New("control batch from a client")
	// ErrProducer says producer id, epoch, sequence and the transactional bit do
	// not go together. Kafka: INVALID_RECORD.
	ErrProducer = errors.New("invalid producer id, epoch or sequence")
	// ErrTimestampType says a client claims log append time, which only the broker
	// can give. Kafka: INVALID_TIMESTAMP.
	ErrTimestampType = errors.New("log append time from a client")
)

// Check is all that can be told about a produced batch from the batch itself,
// once record.Cut has passed it. It returns what the topic's configuration is
// then held against.
//
// A max timestamp in the header that is not that of the records is corrected, in
// place, as Kafka does: clients get it wrong (kafkajs, older sarama) and nobody
// relies on the false one. A batch without a producer id may have any epoch and
// sequence, which mean nothing: sarama and kafkajs send 0.
//
// The errors are ErrUnknownCodec, ErrTooLarge (of more than maxBytes, which
// bounds uncompressed records too), ErrControl, ErrProducer, ErrTimestampType and
// record.ErrInvalid. An uncompressed batch costs no copy and no allocation.
func Check(b record.Batch, maxBytes int) (record.Facts, error) {
	if err := checkHeader(b); err != nil {
		return record.Facts{}, err
	}
	var facts record.Facts
	err := withPayload(b, maxBytes, func(payload []byte) (err error) {
		facts, err = record.Inspect(payload, b.Count(), b.BaseTimestamp())
		return err
	})
	if err != nil {
		return record.Facts{}, err
	}
	if b.MaxTimestamp() != facts.MaxTimestamp {
		b.SetMaxTimestamp(facts.MaxTimestamp)
	}
	return facts, nil
}

func checkHeader(b record.Batch) error {
	switch count, last := b.Count(), b.LastOffsetDelta(); {
	case count <= 0:
		return fmt.Errorf("%w: count %d", record.ErrInvalid, count)
	case int64(last)+1 != int64(count):
		return fmt.Errorf("%w: last offset delta %d for %d records", record.ErrInvalid, last, count)
	case b.BaseOffset() != 0:
		return fmt.Errorf("%w: base offset %d from a client", record.ErrInvalid, b.BaseOffset())
	case b.Control():
		return ErrControl
	case b.LogAppendTime():
		return ErrTimestampType
	case b.DeleteHorizon():
		return fmt.Errorf("%w: delete horizon from a client", record.ErrInvalid)
	}
	id, epoch, sequence := b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()
	switch {
	case id < record.NoProducer:
		return fmt.Errorf("%w: producer id %d", ErrProducer, id)
	case id == record.NoProducer && b.Transactional():
		return fmt.Errorf("%w: transactional without a producer id", ErrProducer)
	case id != record.NoProducer && epoch < 0:
		return fmt.Errorf("%w: producer %d with epoch %d", ErrProducer, id, epoch)
	case id != record.NoProducer && sequence < 0:
		return fmt.Errorf("%w: producer %d with sequence %d", ErrProducer, id, sequence)
	}
	return nil
}

// keptBytes is the biggest buffer that waits for the next batch.
const keptBytes = 4 << 20

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// withPayload calls use with b's records, not compressed. They are gone when it
// returns.
func withPayload(b record.Batch, maxBytes int, use func([]byte) error) error {
	if b.Codec() == None {
		payload, err := decompress(None, nil, b.Payload(), maxBytes)
		if err != nil {
			return err
		}
		return use(payload)
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	payload, err := decompress(b.Codec(), *buffer, b.Payload(), maxBytes)
	if err != nil {
		return err
	}
	if c := cap(payload); c > cap(*buffer) && c <= keptBytes {
		*buffer = payload[:0]
	}
	return use(payload)
}

// Entry is a record and where it stands in its partition.
type Entry struct {
	Offset    record.Offset
	Timestamp record.Timestamp // with log append time the batch's, else its own
	record.Record
}

// Records are the records of b, which record.Cut has passed, in order of their
// offsets, of which some may be missing. An error is the last element:
// ErrUnknownCodec, ErrTooLarge or record.ErrInvalid. The entries share memory
// with b, or if it is compressed with each other, and stay valid.
func Records(b record.Batch, maxBytes int) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		payload, err := Decompress(b.Codec(), b.Payload(), maxBytes)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		err = record.Walk(payload, b.Count(), func(r record.Record) error {
			if r.OffsetDelta > b.LastOffsetDelta() {
				return fmt.Errorf("%w: offset delta %d, last is %d", record.ErrInvalid, r.OffsetDelta, b.LastOffsetDelta())
			}
			e := Entry{Offset: b.BaseOffset() + record.Offset(r.OffsetDelta), Timestamp: b.MaxTimestamp(), Record: r}
			if !b.LogAppendTime() {
				e.Timestamp = b.BaseTimestamp() + record.Timestamp(r.TimestampDelta)
			}
			if !yield(e, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && err != errStopped {
			yield(Entry{}, err)
		}
	}
}

var errStopped = errors.New("stopped by the caller")
