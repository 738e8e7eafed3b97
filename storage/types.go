package storage

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

var (
	// ErrOutOfRange says an offset is below the log start or above the log end.
	ErrOutOfRange = errors.New("offset out of range")
	// ErrNoSpace says the disk is full. Nothing was appended: every log is as
	// it was, and the store can be used further.
	ErrNoSpace = vfs.ErrNoSpace
	// ErrNotNext says an append does not continue its log, because an append
	// before it found no space. Nothing was appended.
	ErrNotNext = errors.New("append does not continue the log")
	// ErrGone says that what a view shows was truncated or deleted since it was
	// taken. A newer view has an answer.
	ErrGone = errors.New("truncated or deleted since the view was taken")
	// ErrUnknownLog says the log was never appended to, or was deleted.
	ErrUnknownLog = errors.New("unknown log")
)

// A DamageError says that bytes which were durable are not what was written.
// The log that holds them refuses to serve them.
type DamageError = vfs.DamageError

// LogID names a partition's log for ever: the topic's id, not its name, so that
// a topic created under the name of a deleted one has nothing of it.
type LogID struct {
	Topic     [16]byte
	Partition int32
}

// String is the id as it appears in file names.
func (id LogID) String() string { return string(id.append(nil)) }

func (id LogID) append(b []byte) []byte {
	b = append(hex.AppendEncode(b, id.Topic[:]), '-')
	return strconv.AppendInt(b, int64(id.Partition), 10)
}

// Less orders ids by topic, then partition.
func (id LogID) Less(other LogID) bool {
	if id.Topic != other.Topic {
		return string(id.Topic[:]) < string(other.Topic[:])
	}
	return id.Partition < other.Partition
}

// A Region is a run of whole batches in a file. It may disappear, but its bytes
// are never different.
type Region struct {
	Log  LogID
	File vfs.File
	Pos  int64 // bytes
	Len  int64 // bytes
}

// A RegionError says that bytes of a region could not be read when they were to be
// sent. That a file is shorter by now is none: regions may disappear.
type RegionError struct {
	Region Region
	Err    error
}

func (e *RegionError) Error() string {
	return fmt.Sprintf("read %s, %d bytes at %d of a segment: %v", e.Region.Log, e.Region.Len, e.Region.Pos, e.Err)
}

func (e *RegionError) Unwrap() error { return e.Err }

// A Write is what one Append job adds to one log. Offsets and epochs are
// assigned already and continue the log.
type Write struct {
	Log     LogID
	Batches []record.Batch
	// SegmentBytes is when the log rolls to a new file. Kafka: segment.bytes.
	SegmentBytes int64
	// PageCache acknowledges once the bytes are in the page cache, as Kafka
	// does. Otherwise the write is durable when Commit returns.
	PageCache bool
	// AppendTime replaces the records' timestamps, unless it is
	// record.NoTimestamp. Kafka: message.timestamp.type=LogAppendTime.
	AppendTime record.Timestamp
}

// EpochStart is the first offset a leader epoch wrote.
type EpochStart struct {
	Epoch record.LeaderEpoch
	Start record.Offset
}

// Recovered is what a store found when it opened its directory.
type Recovered struct {
	Logs    []RecoveredLog // by id
	Quorum  [][]byte       // the quorum's records, oldest first
	Clean   bool           // the last process shut down cleanly
	Groups  int64          // commit groups replayed from the journal
	Bytes   int64          // bytes replayed from the journal
	Missing bool           // the directory was empty: this is the first start
}

// RecoveredLog is one log as recovered.
type RecoveredLog struct {
	ID       LogID
	View     View
	Snapshot []byte       // what the last checkpoint was given for this log
	After    []BatchInfo  // the batches appended after Snapshot was taken, in order
	Damage   *DamageError // not nil if the log must not be served
}

// BatchInfo is the part of a batch's header that producer state is made of.
type BatchInfo struct {
	BaseOffset    record.Offset
	LastOffset    record.Offset
	ProducerID    record.ProducerID
	ProducerEpoch record.ProducerEpoch
	BaseSequence  record.Sequence
	MaxTimestamp  record.Timestamp
	Attributes    int16
}

// Snapshot is opaque state that belongs to a log at its end, kept by the next
// checkpoint and given back at recovery.
type Snapshot struct {
	Log  LogID
	Data []byte
}

// TimestampOffset is where a timestamp was found.
type TimestampOffset struct {
	Offset    record.Offset
	Timestamp record.Timestamp
	Epoch     record.LeaderEpoch
}
