package workloads

import (
	"fmt"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// FinalRead reads partitions from their starts to their ends, each by one
// client at a time, until all are read: the last phase of every workload that
// appends. A failed operation is tried again, by whichever client asks next. Should
// a log turn out to begin later than it did, it is read again.
type FinalRead struct {
	maxBytes int32
	parts    []finalPartition
}

type finalPartition struct {
	log   history.Log
	next  history.Offset
	owner history.Client // who reads it now; nobody if negative
	done  bool
}

// NewFinalRead prepares to read the partitions, at most maxBytes a Read.
func NewFinalRead(partitions []history.Partition, maxBytes int32) *FinalRead {
	f := &FinalRead{maxBytes: maxBytes}
	for _, p := range partitions {
		f.parts = append(f.parts, finalPartition{
			log:   history.Log{Partition: p, Start: history.NoOffset, End: history.NoOffset},
			owner: -1,
		})
	}
	return f
}

// Next is what the client does next, or false when every partition is read or
// in other hands.
func (f *FinalRead) Next(client history.Client) (Op, bool) {
	for i := range f.parts {
		p := &f.parts[i]
		if p.done || p.owner >= 0 {
			continue
		}
		p.owner = client
		if p.log.Start == history.NoOffset {
			return ListStart{Partition: p.log.Partition}, true
		}
		if p.log.End == history.NoOffset {
			return ListEnd{Partition: p.log.Partition}, true
		}
		return Read{Partition: p.log.Partition, From: p.next, MaxBytes: f.maxBytes}, true
	}
	return nil, false
}

// Done takes the result of an operation Next gave, and reports whether it was
// one.
func (f *FinalRead) Done(client history.Client, op Op, r Result) bool {
	for i := range f.parts {
		p := &f.parts[i]
		if p.owner != client || p.done {
			continue
		}
		p.owner = -1
		if r.Outcome == history.OK {
			p.take(op, r)
		}
		return true
	}
	return false
}

func (p *finalPartition) take(op Op, r Result) {
	switch op.(type) {
	case ListStart:
		p.log.Start, p.next = r.Start, r.Start
	case ListEnd:
		p.log.End = r.End
	case Read:
		if r.OutOfRange {
			p.log.Start, p.log.End, p.log.Records = history.NoOffset, history.NoOffset, nil
			return
		}
		// What lies beyond the end is left out: another read of it might see
		// more, and then the log would be no log of one instant.
		for _, rec := range r.Records {
			if rec.Offset < p.log.End {
				p.log.Records = append(p.log.Records, rec)
			}
		}
		p.next = max(p.next, r.Next)
	}
	p.done = p.log.End >= 0 && p.next >= p.log.End
}

// Finished reports whether every partition is read to its end.
func (f *FinalRead) Finished() bool {
	for i := range f.parts {
		if !f.parts[i].done {
			return false
		}
	}
	return true
}

// Logs is what was read, once Finished.
func (f *FinalRead) Logs() []history.Log {
	logs := make([]history.Log, len(f.parts))
	for i := range f.parts {
		logs[i] = f.parts[i].log
	}
	return logs
}

// String says how far the reading is.
func (f *FinalRead) String() string {
	left := 0
	for i := range f.parts {
		if !f.parts[i].done {
			left++
		}
	}
	return fmt.Sprintf("final read: %d of %d partitions left", left, len(f.parts))
}
