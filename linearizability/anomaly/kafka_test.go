package anomaly

import (
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/linearizability/history"
)

// A story is written as the operations of clients on key "k": sends of values
// at offsets, and polls of offset, value pairs.

func send(process int, value history.Value, offset history.Offset) KafkaOp {
	return KafkaOp{Process: process, Sends: []KafkaSend{{Key: "k", Value: value, Offset: offset}}}
}

func failed(o KafkaOp) KafkaOp {
	o.Outcome = history.Failed
	return lost(o)
}

func unknown(o KafkaOp) KafkaOp {
	o.Outcome = history.Unknown
	return lost(o)
}

func lost(o KafkaOp) KafkaOp {
	for i := range o.Sends {
		o.Sends[i].Offset = history.NoOffset
	}
	return o
}

func poll(process int, records ...history.Record) KafkaOp {
	return KafkaOp{Process: process, Polls: []KafkaPoll{{Key: "k", Records: records}}}
}

func assign(process int, keys ...string) KafkaOp {
	return KafkaOp{Process: process, Assign: keys}
}

func TestKafkaAnomaliesHaveJepsensNames(t *testing.T) {
	type rec = history.Record
	one, two, three := rec{Offset: 0, Value: 1}, rec{Offset: 1, Value: 2}, rec{Offset: 2, Value: 3}
	sends := []KafkaOp{send(1, 1, 0), send(1, 2, 1), send(1, 3, 2)}
	all := poll(9, one, two, three) // what the last polls see of a sound log
	stories := []struct {
		name string
		ops  []KafkaOp
		want []Kind
	}{
		{"nothing", nil, nil},
		{"sound", append(slices.Clone(sends), all), nil},
		{"offsets with gaps", []KafkaOp{send(1, 1, 5), send(1, 2, 9), poll(2, rec{Offset: 5, Value: 1}, rec{Offset: 9, Value: 2})}, nil},
		{"a write is lost", append(slices.Clone(sends), poll(9, one), poll(9, three)), []Kind{LostWrite, PollSkip, Unseen}},
		{"a write is lost inside a poll", append(slices.Clone(sends), poll(9, one, three)), []Kind{IntPollSkip, LostWrite, Unseen}},
		{"the tail is never polled", append(slices.Clone(sends), poll(9, one, two)), []Kind{Unseen}},
		{"answered with offset less 2", []KafkaOp{send(1, 1, 0), send(1, 2, 1), send(1, 3, 0), all}, []Kind{Duplicate, InconsistentOffsets}},
		{"an offset is used twice", []KafkaOp{send(1, 1, 0), send(2, 2, 0), poll(3, rec{Offset: 0, Value: 2})}, []Kind{InconsistentOffsets, LostWrite, Unseen}},
		{"written twice", []KafkaOp{send(1, 1, 0), poll(2, one, rec{Offset: 1, Value: 1})}, []Kind{Duplicate, IntNonmonotonicPoll}},
		{"polls swap two", append(slices.Clone(sends), poll(9, one, three, two)), []Kind{IntNonmonotonicPoll, IntPollSkip}},
		{"failed although written", []KafkaOp{failed(send(1, 1, 0)), poll(2, one)}, []Kind{AbortedRead}},
		{"unknown although written", []KafkaOp{unknown(send(1, 1, 0)), poll(2, one)}, nil},
		{"unknown and not written", []KafkaOp{unknown(send(1, 1, 0)), poll(2)}, nil},
		{"polled and not sent", []KafkaOp{poll(2, one)}, []Kind{Unwritten}},
		{"a consumer goes back", append(slices.Clone(sends), poll(9, one, two), poll(9, two, three)), []Kind{NonmonotonicPoll}},
		{"a consumer goes back after an assign without the key", append(slices.Clone(sends), poll(9, one, two), assign(9, "other"), assign(9, "k"), all), nil},
		{"a consumer goes back though an assign kept the key", append(slices.Clone(sends), poll(9, one, two), assign(9, "k"), all), []Kind{NonmonotonicPoll}},
		{"a failed assign changes nothing", append(slices.Clone(sends), poll(9, one, two), failed(assign(9)), all), []Kind{NonmonotonicPoll}},
		{"another process begins anew", append(slices.Clone(sends), all, poll(10, one, two, three)), nil},
		{"a failed poll moves nobody", append(slices.Clone(sends), failed(poll(9, one, two)), all), nil},
		{"a false poll-skip: the poll was processed and called failed", append(slices.Clone(sends), poll(9, one), failed(poll(9, two)), poll(9, three), poll(8, one, two, three)), []Kind{PollSkip}},
		{"sends go back", []KafkaOp{send(1, 2, 1), send(1, 1, 0), poll(9, one, two)}, []Kind{NonmonotonicSend}},
		{"sends of two processes", []KafkaOp{send(1, 2, 1), send(2, 1, 0), poll(9, one, two)}, nil},
		{"sends go back inside an operation", []KafkaOp{{Sends: []KafkaSend{{"k", 2, 1}, {"k", 1, 0}}}, poll(9, one, two)}, []Kind{IntNonmonotonicSend}},
		{"two nodes that do not replicate", []KafkaOp{send(1, 1, 0), send(2, 2, 0), poll(3, one), poll(4, rec{Offset: 0, Value: 2})}, []Kind{InconsistentOffsets}},
		{"state in memory, and a restart", []KafkaOp{send(1, 1, 0), send(1, 2, 1), send(2, 3, 0), poll(3, rec{Offset: 0, Value: 3})}, []Kind{InconsistentOffsets, LostWrite, Unseen}},
	}
	for _, s := range stories {
		var got []Kind
		findings := Kafka(s.ops)
		if got = Kinds(findings); !slices.Equal(got, s.want) {
			t.Errorf("%s: got %v, want %v\n%v", s.name, got, s.want, findings)
		}
		for _, f := range findings {
			if f.Partition.Topic != "k" || len(f.Operations) == 0 || f.Text == "" {
				t.Errorf("%s: finding without key, operations or words: %+v", s.name, f)
			}
		}
	}
}

func TestKafkaKeysAreJudgedApart(t *testing.T) {
	other := func(o KafkaOp) KafkaOp {
		for i := range o.Sends {
			o.Sends[i].Key = "other"
		}
		for i := range o.Polls {
			o.Polls[i].Key = "other"
		}
		return o
	}
	one := history.Record{Offset: 0, Value: 1}
	ops := []KafkaOp{send(1, 1, 0), other(send(1, 1, 0)), poll(2, one), other(poll(2, one)), poll(2, history.Record{Offset: 1, Value: 2}), send(1, 2, 1), other(send(1, 2, 1))}
	findings := Kafka(ops)
	if len(findings) != 1 || findings[0].Kind != Unseen || findings[0].Partition.Topic != "other" || !slices.Equal(findings[0].Operations, []int{6}) {
		t.Errorf("got %v, want the last send of the other key unseen", findings)
	}
}
