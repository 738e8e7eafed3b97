// Package workloads is what clients do to a cluster and what they remember of
// it, whatever carries the requests: a Workload draws operations and is told
// how they ended; a host (the simulator's client, or kafkaclient over TCP)
// sends them. Nothing here blocks, reads a clock or draws from any randomness
// but what it is handed, so that one seed is one run.
//
// A host gives each client its turn: Next, then, when the operation has ended
// or the host gives it up, Done, then Next again. A client whose Next said no
// is asked again later. When the run is to end the host heals its faults, calls
// Finish, and goes on until Finished: the workload then reads what is there, so
// that the judge knows how every doubtful operation ended.
package workloads

import (
	"fmt"
	"math/rand/v2"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// Workload decides what each client does. It is for one goroutine at a time.
type Workload interface {
	// Clients is how many clients the workload wants; they are numbered from 0.
	Clients() int
	// Next is the client's next operation, or false when the client has nothing
	// to do at present. All randomness comes from rng.
	Next(client history.Client, now history.Time, rng *rand.Rand) (Op, bool)
	// Done says how the operation that Next gave the client ended. Every
	// operation gets exactly one Done; one that is given up gets an Unknown
	// result and the return time history.Never.
	Done(client history.Client, op Op, call, ret history.Time, result Result)
	// Finish begins the last phase. Results of operations begun before still
	// count.
	Finish()
	// Finished reports whether the last phase is over, and with it the run.
	Finished() bool
	// History is what the clients remember so far.
	History() *history.History
}

// Op is one operation to carry out: Append, Read, ListEnd, ListStart, DeleteRecords, Commit,
// FetchCommitted, CreateTopic, DeleteTopic, SetConfig or GetConfig.
type Op interface {
	fmt.Stringer
	isOp()
}

// Append asks for records with these values, in one batch. Values become bytes
// by Payload, of Size bytes each, with RecordKey as their keys. The host must
// not send it a second time unless the producer is idempotent, since two copies
// of a record are a finding.
type Append struct {
	Partition  history.Partition
	Values     []history.Value
	Size       int // bytes of each record's value; at least MinPayload
	Idempotent bool
	Acks       Acks
}

// Acks is how many replicas must have a record before it is acknowledged.
type Acks int16

// The values of Acks.
const (
	AcksAll    Acks = -1
	AcksNone   Acks = 0
	AcksLeader Acks = 1
)

// Read asks for records from From on, at the leader.
type Read struct {
	Partition history.Partition
	From      history.Offset
	MaxBytes  int32
}

// ListEnd asks the leader for the partition's latest offset.
type ListEnd struct{ Partition history.Partition }

// ListStart asks the leader for the partition's earliest offset.
type ListStart struct{ Partition history.Partition }

// DeleteRecords asks for the end of everything below an offset, or, if that is
// history.NoOffset, below the high watermark.
type DeleteRecords struct {
	Partition history.Partition
	Below     history.Offset
}

// Commit sets Group's position. Token travels in the commit's metadata, as
// FormatToken writes it.
type Commit struct {
	Group     string
	Partition history.Partition
	Offset    history.Offset
	Token     history.Value
}

// FetchCommitted asks for Group's position.
type FetchCommitted struct {
	Group     string
	Partition history.Partition
}

// CreateTopic asks for a topic whose TokenConfig has the value Token.
type CreateTopic struct {
	Topic string
	Token history.Value
}

// DeleteTopic asks for the end of a topic.
type DeleteTopic struct{ Topic string }

// SetConfig gives a topic's TokenConfig the value Token.
type SetConfig struct {
	Topic string
	Token history.Value
}

// GetConfig asks a node for a topic's TokenConfig. If Now it is to answer for the
// cluster, and not from its own knowledge.
type GetConfig struct {
	Topic string
	Now   bool
}

// TokenConfig is the configuration that has a topic's token: one that takes any
// number. Kafka: segment.ms.
const TokenConfig = "segment.ms"

func (Append) isOp()         {}
func (CreateTopic) isOp()    {}
func (DeleteTopic) isOp()    {}
func (SetConfig) isOp()      {}
func (GetConfig) isOp()      {}
func (Read) isOp()           {}
func (ListEnd) isOp()        {}
func (ListStart) isOp()      {}
func (DeleteRecords) isOp()  {}
func (Commit) isOp()         {}
func (FetchCommitted) isOp() {}

// String is the operation in one line.
func (o Append) String() string {
	return fmt.Sprintf("append %s values=%d size=%d idempotent=%t acks=%d", o.Partition, len(o.Values), o.Size, o.Idempotent, o.Acks)
}

// String is the operation in one line.
func (o Read) String() string { return fmt.Sprintf("read %s from=%d", o.Partition, o.From) }

// String is the operation in one line.
func (o ListEnd) String() string { return fmt.Sprintf("listEnd %s", o.Partition) }

// String is the operation in one line.
func (o ListStart) String() string { return fmt.Sprintf("listStart %s", o.Partition) }

// String is the operation in one line.
func (o DeleteRecords) String() string {
	return fmt.Sprintf("deleteRecords %s below=%d", o.Partition, o.Below)
}

// String is the operation in one line.
func (o Commit) String() string {
	return fmt.Sprintf("commit %s group=%s offset=%d", o.Partition, o.Group, o.Offset)
}

// String is the operation in one line.
func (o FetchCommitted) String() string {
	return fmt.Sprintf("fetchCommitted %s group=%s", o.Partition, o.Group)
}

// String is the operation in one line.
func (o CreateTopic) String() string {
	return fmt.Sprintf("createTopic %s token=%#x", o.Topic, uint64(o.Token))
}

// String is the operation in one line.
func (o DeleteTopic) String() string { return "deleteTopic " + o.Topic }

// String is the operation in one line.
func (o SetConfig) String() string {
	return fmt.Sprintf("setConfig %s token=%#x", o.Topic, uint64(o.Token))
}

// String is the operation in one line.
func (o GetConfig) String() string { return fmt.Sprintf("getConfig %s now=%t", o.Topic, o.Now) }

// Result is how an operation ended. Fields that do not belong to the
// operation's kind are ignored, and all but Outcome and Note when it is not OK.
type Result struct {
	Outcome history.Outcome
	// Base is the offset of an Append's first value.
	Base history.Offset
	// Records are what a Read returned.
	Records []history.Record
	// Next is the offset to read from after a Read; it is past Records, and
	// further when offsets without records followed.
	Next history.Offset
	// End is ListEnd's answer, or the high watermark that came with a Read; or
	// NoOffset when the answer does not speak of one instant during the call.
	End history.Offset
	// Start is ListStart's answer, where a log begins after a DeleteRecords, or the
	// log start that came with a Read; NoOffset if none did. OutOfRange says that a
	// Read found nothing where it was to begin.
	Start      history.Offset
	OutOfRange bool
	// Committed and Token are FetchCommitted's answer: NoOffset and 0 when
	// nothing is committed.
	Committed history.Offset
	Token     history.Value
	// There says that the topic existed before a CreateTopic, DeleteTopic or
	// SetConfig. Token is GetConfig's answer, 0 if there is no topic. Via is the
	// node whose knowledge an answer is, or history.AsOfNow.
	There bool
	Via   int32
	Note  string // the error, for people
}

// Record adds an operation and its result to h.
func Record(h *history.History, client history.Client, op Op, call, ret history.Time, r Result) {
	o := history.Operation{Client: client, Outcome: r.Outcome, Call: call, Return: ret, Note: r.Note}
	ok := r.Outcome == history.OK
	switch op := op.(type) {
	case Append:
		o.Kind, o.Partition = history.Append, op.Partition
		o.Values, o.Idempotent, o.Weak = op.Values, op.Idempotent, op.Acks != AcksAll
		if ok {
			o.Base = r.Base
		}
	case Read:
		o.Kind, o.Partition, o.From = history.Read, op.Partition, op.From
		if ok {
			o.Records, o.End, o.Start, o.OutOfRange = r.Records, r.End, r.Start, r.OutOfRange
		}
	case ListEnd:
		o.Kind, o.Partition = history.ListEnd, op.Partition
		if ok {
			o.End = r.End
		}
	case ListStart:
		o.Kind, o.Partition = history.ListStart, op.Partition
		if ok {
			o.Start = r.Start
		}
	case DeleteRecords:
		o.Kind, o.Partition, o.From = history.DeleteRecords, op.Partition, op.Below
		if ok {
			o.Start = r.Start
		}
	case CreateTopic:
		o.Kind, o.Partition.Topic, o.Token, o.There, o.Via = history.CreateTopic, op.Topic, op.Token, r.There, r.Via
	case DeleteTopic:
		o.Kind, o.Partition.Topic, o.There, o.Via = history.DeleteTopic, op.Topic, r.There, r.Via
	case SetConfig:
		o.Kind, o.Partition.Topic, o.Token, o.There, o.Via = history.SetConfig, op.Topic, op.Token, r.There, r.Via
	case GetConfig:
		o.Kind, o.Partition.Topic, o.Token, o.Via = history.GetConfig, op.Topic, r.Token, r.Via
	case Commit:
		o.Kind, o.Partition = history.Commit, op.Partition
		o.Group, o.Committed, o.Token = op.Group, op.Offset, op.Token
	case FetchCommitted:
		o.Kind, o.Partition, o.Group = history.FetchCommitted, op.Partition, op.Group
		if ok {
			o.Committed, o.Token = r.Committed, r.Token
		}
	}
	h.Add(o)
}
