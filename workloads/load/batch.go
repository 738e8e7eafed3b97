package load

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Positions in a record batch of magic 2, big endian.
const (
	batchHeader       = 61
	batchLengthAt     = 8
	crcAt             = 17
	attributesAt      = 21
	lastOffsetDeltaAt = 23
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeBatch returns a batch of records whose values are the same random
// bytes in every run.
func encodeBatch(records, size int, millis int64) []byte {
	var seed [32]byte
	source := rand.NewChaCha8(seed)
	var payload []byte
	for i := range records {
		value := make([]byte, size)
		source.Read(value)
		r := kmsg.Record{OffsetDelta: int32(i), Value: value}
		// Length is the first field and counts what follows it; a first encoding
		// with a length of one byte tells how much that is.
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		payload = r.AppendTo(payload)
	}
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2,
		Length:          int32(batchHeader - batchLengthAt - 4 + len(payload)),
		LastOffsetDelta: int32(records - 1),
		FirstTimestamp:  millis, MaxTimestamp: millis,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(records), Records: payload,
	}
	encoded := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(encoded[crcAt:], crc32.Checksum(encoded[attributesAt:], castagnoli))
	return encoded
}
