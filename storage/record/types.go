package record

// Offset is a record's position in its partition log. The first record ever
// written has offset 0.
type Offset int64

// LeaderEpoch numbers the reigns of a partition's leaders; it only grows.
type LeaderEpoch int32

// NoEpoch is the leader epoch of what has none.
const NoEpoch LeaderEpoch = -1

// Timestamp is wall-clock time in milliseconds since the Unix epoch. It may
// jump either way.
type Timestamp int64

// NoTimestamp is the timestamp of what has none.
const NoTimestamp Timestamp = -1

// ProducerID names an idempotent producer. The cluster never issues one twice.
type ProducerID int64

// NoProducer is the producer id of a batch that is not idempotent.
const NoProducer ProducerID = -1

// ProducerEpoch fences former instances of a producer id.
type ProducerEpoch int16

// Sequence numbers an idempotent producer's records within one partition. It
// wraps from 2^31-1 to 0.
type Sequence int32

// NoSequence is the base sequence of a batch that is not idempotent.
const NoSequence Sequence = -1

// Add returns the sequence n records later, wrapping as Kafka's clients do.
func (s Sequence) Add(n int32) Sequence { return Sequence((int64(s) + int64(n)) & (1<<31 - 1)) }
