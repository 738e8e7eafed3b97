// Package history is what clients remember of a run: every operation they
// called, when, and what came of it, plus each partition's log as it was read
// when everything had ended. It is all that the judges in linearizability get
// to see, so nothing here knows the broker.
//
// A history is kept as JSON lines (see Encoder), one operation or one final
// log a line, so that it can be written while the run goes on and read back
// without holding two copies.
package history

import (
	"fmt"
	"math"
	"strconv"
)

// Time is nanoseconds on one clock shared by every client of a run. Only
// comparisons are made with it.
type Time int64

// Never is the return time of an operation that has not returned: later than
// every other time.
const Never Time = math.MaxInt64

// Offset is a position in a partition's log; the first is 0. As the end of a
// log it is the offset the next record will get.
type Offset int64

// AsOfNow is the Via of an answer that is the cluster's, between call and return.
const AsOfNow int32 = -1

// NoOffset stands for an offset that is not known.
const NoOffset Offset = -1

// Value is the identity of one record, unique in a run, or the unique token of
// one commit. 0 is no value.
type Value uint64

// Client numbers the clients of a run from 0. A client calls one operation at
// a time.
type Client int32

// Partition names one partition of one topic.
type Partition struct {
	Topic string
	Index int32
}

// String is Kafka's usual form, topic-index.
func (p Partition) String() string { return p.Topic + "-" + strconv.Itoa(int(p.Index)) }

// Compare orders partitions by topic, then index.
func (p Partition) Compare(q Partition) int {
	switch {
	case p.Topic < q.Topic:
		return -1
	case p.Topic > q.Topic:
		return 1
	}
	return int(p.Index) - int(q.Index)
}

// Kind says what an operation asks for.
type Kind uint8

// The kinds of operations.
const (
	Append         Kind = iota // Produce
	Read                       // Fetch
	ListEnd                    // ListOffsets, latest
	Commit                     // OffsetCommit
	FetchCommitted             // OffsetFetch
	CreateTopic                // CreateTopics
	DeleteTopic                // DeleteTopics
	SetConfig                  // IncrementalAlterConfigs
	GetConfig                  // DescribeConfigs
	DeleteRecords              // DeleteRecords
	ListStart                  // ListOffsets, earliest
)

var kindNames = [...]string{
	"append", "read", "listEnd", "commit", "fetchCommitted", "createTopic", "deleteTopic", "setConfig", "getConfig", "deleteRecords", "listStart",
}

// OnTopic reports whether the operation is one on a topic, and not on the
// records or positions in it.
func (k Kind) OnTopic() bool { return k >= CreateTopic && k <= GetConfig }

// String is the kind's name in a history file.
func (k Kind) String() string { return nameOf(kindNames[:], uint8(k)) }

// Outcome says what the client knows about an operation.
type Outcome uint8

// The outcomes.
const (
	// OK: answered; what the answer says holds.
	OK Outcome = iota
	// Failed: definitely without effect, now and later.
	Failed
	// Unknown: the operation may have taken effect, may do so later, or never.
	Unknown
)

var outcomeNames = [...]string{"ok", "failed", "unknown"}

// String is the outcome's name in a history file.
func (o Outcome) String() string { return nameOf(outcomeNames[:], uint8(o)) }

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "?" + strconv.Itoa(int(i))
}

// Record is one record as a reader saw it.
type Record struct {
	Offset Offset
	Value  Value
}

// Operation is one call of one client. Which fields count depends on the Kind;
// the others are zero, offsets included, unless said otherwise.
type Operation struct {
	ID        int // its place in the history; how findings name it
	Client    Client
	Kind      Kind
	Outcome   Outcome
	Partition Partition
	Call      Time
	Return    Time // Never while there is no answer; not before Call

	// Append: Values went out in this order, in one batch. When OK, Values[i]
	// is at Base+i. Idempotent says that the producer numbers its records
	// (KIP-98). Weak says that the client asked for less than acks=all: such an
	// answer promises nothing, so it is judged as if it were Unknown.
	Values     []Value
	Base       Offset
	Idempotent bool
	Weak       bool

	// Read: asked from From, got Records. ListEnd and Read: End is the log's
	// end (its high watermark) at one instant between Call and Return, or
	// NoOffset when the answer says nothing of the kind, as a follower's does.
	From    Offset
	Records []Record
	End     Offset

	// DeleteRecords: everything below From is to go, or, if that is NoOffset,
	// everything below the high watermark. When OK, the log begins at Start or later
	// from here on. ListStart and Read: Start is the log start offset at one instant
	// between Call and Return, or NoOffset when the answer does not say. A Read may
	// be OutOfRange: nothing is at From any more.
	Start      Offset
	OutOfRange bool

	// Commit and FetchCommitted: Group's position in Partition, and the token
	// that tells this commit from all others (it travels in the commit's
	// metadata string). A fetch that found nothing committed has NoOffset and
	// token 0.
	Group     string
	Committed Offset
	Token     Value

	// CreateTopic, DeleteTopic, SetConfig and GetConfig, of Partition.Topic: Token
	// is the value of a configuration of the topic, 0 if there is no topic; the
	// first and the third give the topic theirs. There says that the topic existed
	// before, so that a CreateTopic or its lack a DeleteTopic or SetConfig changed
	// nothing. Via is the node whose own knowledge the answer is, as of some time
	// before; AsOfNow if the answer is the cluster's.
	There bool
	Via   int32

	Note string // for people: the error, the node asked
}

// Next is the offset after the last record read, or From when there is none.
func (o *Operation) Next() Offset {
	if n := len(o.Records); n > 0 {
		return o.Records[n-1].Offset + 1
	}
	return o.From
}

// String is the operation in one line, as findings show it.
func (o *Operation) String() string {
	s := fmt.Sprintf("#%d client %d %s %s", o.ID, o.Client, o.Kind, o.Partition)
	switch o.Kind {
	case Append:
		s += fmt.Sprintf(" %s", describeValues(o.Values))
		if o.Outcome == OK {
			s += fmt.Sprintf(" at %d", o.Base)
		}
	case Read:
		s += fmt.Sprintf(" from %d", o.From)
		switch {
		case o.OutOfRange:
			s += fmt.Sprintf(" out of range, start %d", o.Start)
		case o.Outcome == OK:
			s += fmt.Sprintf(" got [%d records to %d) end %d", len(o.Records), o.Next(), o.End)
		}
	case DeleteRecords:
		s += fmt.Sprintf(" below %d", o.From)
		if o.Outcome == OK {
			s += fmt.Sprintf(" start %d", o.Start)
		}
	case ListStart:
		if o.Outcome == OK {
			s += fmt.Sprintf(" start %d", o.Start)
		}
	case ListEnd:
		if o.Outcome == OK {
			s += fmt.Sprintf(" end %d", o.End)
		}
	case CreateTopic, DeleteTopic, SetConfig, GetConfig:
		s = fmt.Sprintf("#%d client %d %s %s token %#x there %t via %d", o.ID, o.Client, o.Kind, o.Partition.Topic, uint64(o.Token), o.There, o.Via)
	case Commit:
		s += fmt.Sprintf(" group %s offset %d token %#x", o.Group, o.Committed, uint64(o.Token))
	case FetchCommitted:
		s += fmt.Sprintf(" group %s", o.Group)
		if o.Outcome == OK {
			s += fmt.Sprintf(" got %d token %#x", o.Committed, uint64(o.Token))
		}
	}
	if o.Outcome != OK {
		s += " " + o.Outcome.String()
	}
	if o.Return == Never {
		return s + fmt.Sprintf(" [%d, never]", o.Call)
	}
	return s + fmt.Sprintf(" [%d, %d]", o.Call, o.Return)
}

func describeValues(values []Value) string {
	switch len(values) {
	case 0:
		return "nothing"
	case 1:
		return fmt.Sprintf("%#x", uint64(values[0]))
	}
	return fmt.Sprintf("%#x and %d more", uint64(values[0]), len(values)-1)
}

// Log is a partition's log as read when the run had ended: after every
// operation returned or was given up, and after faults were healed.
type Log struct {
	Partition Partition
	Start     Offset // log start offset
	End       Offset // high watermark
	Records   []Record
}

// History is one run. The zero value is an empty one. It is for one goroutine
// at a time.
type History struct {
	Operations []Operation
	Final      []Log
}

// Add appends an operation and gives it its ID.
func (h *History) Add(o Operation) {
	o.ID = len(h.Operations)
	h.Operations = append(h.Operations, o)
}

// Count returns how many operations ended in each way.
func (h *History) Count() (ok, failed, unknown int) {
	for i := range h.Operations {
		switch h.Operations[i].Outcome {
		case OK:
			ok++
		case Failed:
			failed++
		default:
			unknown++
		}
	}
	return ok, failed, unknown
}
