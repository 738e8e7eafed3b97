package linearizability_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
)

// logged is how many records the log of these tests has, before anything is
// deleted of it.
const logged = 6

// drawDeletions makes a history of deletions and of what shows where the log begins,
// mostly a legal one.
func drawDeletions(rng *rand.Rand) *history.History {
	h := &history.History{}
	add := func(o history.Operation) {
		o.Partition = testPartition
		h.Add(o)
	}
	var records []history.Record
	written := history.Operation{Kind: history.Append, Call: -2, Return: -1}
	for i := range history.Offset(logged) {
		written.Values = slices.Concat(written.Values, []history.Value{history.Value(i + 1)})
		records = slices.Concat(records, []history.Record{{Offset: i, Value: history.Value(i + 1)}})
	}
	add(written)
	start := history.Offset(0)
	for c, at := 0, history.Time(0); c < 2+rng.IntN(6); c++ {
		call := at + history.Time(rng.IntN(4))
		o := history.Operation{Client: history.Client(c), Call: call, Return: call + history.Time(rng.IntN(8)), Start: start}
		switch rng.IntN(6) {
		case 0, 1:
			o.Kind, o.From = history.DeleteRecords, history.Offset(rng.IntN(logged+1))
			o.Start = max(start, o.From)
			switch rng.IntN(8) {
			case 0:
				o.From, o.Start = history.NoOffset, logged
			case 1:
				o.Outcome, o.Start = history.Failed, 0
			case 2:
				o.Outcome, o.Start, o.Return = history.Unknown, 0, history.Never
			}
			if o.Outcome == history.OK {
				start = max(start, o.Start)
			}
		case 2, 3:
			o.Kind, o.From, o.End = history.Read, history.Offset(rng.IntN(logged)), history.NoOffset
			if o.From < start {
				o.OutOfRange = true
			} else {
				o.Records = records[o.From:]
			}
			if rng.IntN(3) == 0 {
				o.Start = history.NoOffset
			}
		default:
			o.Kind = history.ListStart
		}
		switch {
		case rng.IntN(8) > 0 || o.Start == history.NoOffset || o.Outcome != history.OK:
		case rng.IntN(2) == 0:
			o.Start = max(0, o.Start-1)
		default:
			o.Start = min(logged, o.Start+1)
		}
		add(o)
		at = call
	}
	h.Final = []history.Log{{Partition: testPartition, Start: start, End: logged, Records: records[start:]}}
	return h
}

// begun is a state of the naive model: what was asked for, and what was
// acknowledged.
type begun struct{ asked, done history.Offset }

// naiveStart searches: a deletion is asked for some time after its call, and is
// acknowledged while it lasts.
func naiveStart(h *history.History) bool {
	type ask struct{ to history.Offset }
	var ops []porcupine.Operation
	for i := range h.Operations {
		o := h.Operations[i]
		if o.Kind == history.Append || o.Outcome == history.Failed {
			continue
		}
		if o.Kind == history.DeleteRecords {
			to := o.From
			if to == history.NoOffset {
				to = logged
			}
			ops = append(ops, porcupine.Operation{ClientId: 100 + i, Input: ask{to}, Call: int64(o.Call), Return: int64(history.Never)})
		}
		if o.Outcome == history.OK {
			ops = append(ops, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.Call), Return: int64(o.Return)})
		}
	}
	ops = append(ops, porcupine.Operation{ClientId: 99, Input: history.Operation{Kind: history.ListStart, Start: h.Final[0].Start},
		Call: int64(history.Never) - 1, Return: int64(history.Never)})
	return porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return begun{} },
		Step: func(state, input, _ any) (bool, any) {
			s := state.(begun)
			if a, ok := input.(ask); ok {
				s.asked = max(s.asked, a.to)
				return true, s
			}
			o := input.(history.Operation)
			legal := o.Start == history.NoOffset || s.done <= o.Start && o.Start <= s.asked
			switch {
			case o.Kind == history.DeleteRecords:
				legal = legal && o.Start >= o.From
				s.done = max(s.done, o.Start)
			case o.Kind == history.Read && o.OutOfRange:
				legal = legal && o.From < s.asked
			case o.Kind == history.Read:
				legal = legal && o.From >= s.done && (o.Start == history.NoOffset || o.Start <= o.From)
			}
			return legal, s
		},
	}, ops)
}

func TestStartJudgesAgreeWithNaiveModel(t *testing.T) {
	illegal := 0
	for seed := range uint64(crossChecks) {
		h := drawDeletions(rand.New(rand.NewPCG(seed, 6)))
		legal := naiveStart(h)
		if !legal {
			illegal++
		}
		judge(t, seed, h, legal, linearizability.DefaultOptions())
	}
	if illegal < crossChecks/10 || illegal > crossChecks*9/10 {
		t.Errorf("%d of %d histories were illegal, want enough of both kinds", illegal, crossChecks)
	}
	t.Logf("%d of %d histories were illegal", illegal, crossChecks)
}

func TestDeletionFaultsAreNamed(t *testing.T) {
	records := []history.Record{{Offset: 0, Value: 1}, {Offset: 1, Value: 2}, {Offset: 2, Value: 3}}
	for _, s := range []struct {
		name string
		want anomaly.Kind
		op   history.Operation
	}{
		{"the start goes back", anomaly.DeletedRead, history.Operation{Kind: history.ListStart, Start: 1}},
		{"what was deleted is read", anomaly.DeletedRead, history.Operation{Kind: history.Read, From: 1, Records: records[1:], End: 3, Start: 2}},
		{"what was deleted is read of a log that begins there", anomaly.DeletedRead, history.Operation{Kind: history.Read, From: 1, Records: records[1:], End: 3, Start: 1}},
		{"a deletion comes to less", anomaly.DeletedRead, history.Operation{Kind: history.DeleteRecords, From: 1, Start: 1}},
		{"a deletion does less", anomaly.DeletedRead, history.Operation{Kind: history.DeleteRecords, From: 3, Start: 2}},
		{"the start runs ahead", anomaly.StartAhead, history.Operation{Kind: history.ListStart, Start: 3}},
		{"what nobody deleted is gone", anomaly.StartAhead, history.Operation{Kind: history.Read, From: 2, OutOfRange: true, End: history.NoOffset, Start: history.NoOffset}},
		{"more is deleted than there is", anomaly.EndWentBack, history.Operation{Kind: history.DeleteRecords, From: 4, Start: 4}},
	} {
		h := &history.History{Final: []history.Log{{Partition: testPartition, Start: 2, End: 3, Records: records[2:]}}}
		h.Add(history.Operation{Kind: history.Append, Partition: testPartition, Call: 0, Return: 1, Values: []history.Value{1, 2, 3}})
		h.Add(history.Operation{Kind: history.DeleteRecords, Partition: testPartition, Call: 2, Return: 3, From: 2, Start: 2})
		if v := linearizability.Check(h, linearizability.DefaultOptions()); v.Status != linearizability.OK {
			t.Fatalf("without a fault: %s", v)
		}
		s.op.Partition, s.op.Call, s.op.Return = testPartition, 4, 5
		h.Add(s.op)
		v := linearizability.Check(h, linearizability.DefaultOptions())
		if !slices.Contains(anomaly.Kinds(v.Findings), s.want) || len(v.Disagreements) > 0 {
			t.Errorf("%s: want %s, got %s", s.name, s.want, v)
		}
	}
}
