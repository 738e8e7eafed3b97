// Package anomaly checks histories in (nearly) linear time, without search.
// What it finds it names: the kind of anomaly, the operations and the offsets.
//
//   - Log judges one partition's appends, reads and list-ends against its final
//     log. The order check in it is exact: together with the other checks it
//     accepts a history if and only if the history is linearizable.
//   - Committed judges a group's committed offset as a register with unique
//     values, by zones (Gibbons and Korach, "Testing Shared Memories", 1997),
//     exactly as well.
//   - Kafka applies the definitions of Jepsen's Kafka workload to sends and
//     polls that know nothing of when the log was read last. It is what a
//     Maelstrom harness needs.
//
// Kinds that Jepsen has keep Jepsen's names.
package anomaly

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// Kind names a kind of anomaly.
type Kind string

// The anomalies that Jepsen's Kafka workload knows.
const (
	// LostWrite: a record acknowledged or once read is gone, though the log
	// goes on behind its place.
	LostWrite Kind = "lost-write"
	// Unseen: an acknowledged record that no read has returned, the last ones
	// included, with nothing read behind it.
	Unseen Kind = "unseen"
	// Duplicate: one record at two offsets.
	Duplicate Kind = "duplicate"
	// InconsistentOffsets: two records at one offset, or a record not at the
	// offset at which it was acknowledged.
	InconsistentOffsets Kind = "inconsistent-offsets"
	// AbortedRead: a record is visible, or a commit read, whose operation has
	// definitely failed. Adya's G1a.
	AbortedRead Kind = "G1a"
	// PollSkip: a read does not begin at the first record at or after where it
	// should begin.
	PollSkip Kind = "poll-skip"
	// NonmonotonicPoll: a read begins before where it should begin.
	NonmonotonicPoll Kind = "nonmonotonic-poll"
	// IntPollSkip: a record is left out inside one answer.
	IntPollSkip Kind = "int-poll-skip"
	// IntNonmonotonicPoll: offsets do not rise inside one answer.
	IntNonmonotonicPoll Kind = "int-nonmonotonic-poll"
	// NonmonotonicSend: a client's later append has no higher offset.
	NonmonotonicSend Kind = "nonmonotonic-send"
	// IntNonmonotonicSend: the same inside one operation.
	IntNonmonotonicSend Kind = "int-nonmonotonic-send"
)

// The anomalies of recency, order and form that Jepsen does not look for.
const (
	// StaleRead: an answer leaves out what was there before it was asked for.
	StaleRead Kind = "stale-read"
	// FutureRead: an answer knows what was not yet asked for.
	FutureRead Kind = "future-read"
	// RealtimeOrder: an append called after another had returned has the lower
	// offset.
	RealtimeOrder Kind = "realtime-order"
	// EndWentBack: the final log is shorter than an end once told.
	EndWentBack Kind = "end-went-back"
	// ReadPastEnd: a read returned records at or above the end it told.
	ReadPastEnd Kind = "read-past-end"
	// Unwritten: a record or a commit that no client has written.
	Unwritten Kind = "unwritten-value"
	// Gap: an offset without a record.
	Gap Kind = "gap"
	// TornAppend: part of a batch without the rest.
	TornAppend Kind = "torn-append"
	// DeletedRead: an answer knows nothing of a deletion that was acknowledged before
	// it was asked for: it shows what was deleted, or a log that begins before.
	DeletedRead Kind = "deleted-read"
	// StartAhead: a log begins later than anybody has asked for.
	StartAhead Kind = "start-ahead"
	// CommitMismatch: a fetched commit has the token of one commit and the
	// offset of another.
	CommitMismatch Kind = "commit-mismatch"
	// CommitOrder: no order of the commits explains what was fetched.
	CommitOrder Kind = "commit-order"
	// TopicOrder: no order of the changes to a topic explains what was answered.
	TopicOrder Kind = "topic-order"
)

// Finding is one anomaly.
type Finding struct {
	Kind       Kind
	Partition  history.Partition
	Group      string           // of committed offsets only
	Operations []int            // IDs of those involved, the accused first
	Offsets    []history.Offset // where
	Values     []history.Value  // what
	Text       string           // why, in a sentence
}

// String is the finding in one line.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", f.Kind, f.Partition)
	if f.Group != "" {
		fmt.Fprintf(&b, " group %s", f.Group)
	}
	b.WriteString(": " + f.Text)
	if len(f.Operations) > 0 {
		b.WriteString(" (operations")
		for _, id := range f.Operations {
			fmt.Fprintf(&b, " #%d", id)
		}
		b.WriteString(")")
	}
	return b.String()
}

// Kinds is the set of kinds among the findings, in order.
func Kinds(findings []Finding) []Kind {
	var kinds []Kind
	for _, f := range findings {
		kinds = append(kinds, f.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// PerKind is the most findings of one kind that are kept for one partition, so
// that a broken run stays readable.
const PerKind = 10

// report collects findings.
type report struct {
	partition history.Partition
	group     string
	findings  []Finding
	count     map[Kind]int
}

func (r *report) add(f Finding) {
	if r.count == nil {
		r.count = make(map[Kind]int)
	}
	if r.count[f.Kind]++; r.count[f.Kind] > PerKind {
		return
	}
	f.Partition, f.Group = r.partition, r.group
	r.findings = append(r.findings, f)
}

// sorted is the findings by kind, in the order they were made.
func (r *report) sorted() []Finding {
	slices.SortStableFunc(r.findings, func(a, b Finding) int { return cmp.Compare(a.Kind, b.Kind) })
	return r.findings
}
