package wire

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/record"
)

// zstdSince is the first Produce version with zstd.
//
// Source: KIP-110.
const zstdSince = 7

// checkProduce judges what each partition of a Produce carries.
func checkProduce(req *kmsg.ProduceRequest, maxDecompressed int) []ProduceEntry {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	entries := make([]ProduceEntry, 0, n)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			entries = append(entries, checkRecords(req.Topics[i].Partitions[j].Records, req.Version, maxDecompressed))
		}
	}
	return entries
}

// checkRecords judges the records of one partition of a Produce: exactly one
// batch, with nothing after it, that a producer may write. A wrong greatest
// timestamp in its header is put right.
//
// It is stricter than Kafka where Kafka repairs what no known producer sends:
// bytes after the batch, offset deltas out of order.
func checkRecords(p []byte, version int16, maxDecompressed int) ProduceEntry {
	b, err := cutOne(p)
	if err != nil {
		return ProduceEntry{Err: err}
	}
	if b.Codec() == codec.Zstd && version < zstdSince {
		return ProduceEntry{Err: fmt.Errorf("%w: zstd in Produce version %d, needs %d",
			ErrUnsupportedCompression, version, zstdSince)}
	}
	facts, err := codec.Check(b, maxDecompressed)
	if err != nil {
		return ProduceEntry{Err: err}
	}
	return ProduceEntry{Batch: b, Facts: facts}
}

// magicAt is where a batch has its format version; the older message formats,
// whose headers are shorter, have theirs in the same place.
const magicAt = 16

// cutOne returns the batch that p is.
func cutOne(p []byte) (record.Batch, error) {
	if len(p) == 0 {
		return nil, fmt.Errorf("%w: no record batch", ErrInvalidRecord)
	}
	if len(p) > magicAt && p[magicAt] < 2 {
		return nil, fmt.Errorf("%w: magic %d", record.ErrMagic, p[magicAt])
	}
	b, rest, err := record.Cut(p)
	switch {
	case errors.Is(err, record.ErrShort):
		// The frame was whole, so the producer made it so: not worth a retry,
		// which the code for corruption would invite.
		return nil, fmt.Errorf("%w: %w", ErrInvalidRecord, err)
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, fmt.Errorf("%w: %d bytes after the record batch", ErrInvalidRecord, len(rest))
	}
	return b, nil
}
