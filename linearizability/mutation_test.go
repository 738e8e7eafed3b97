package linearizability_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/linearizability/model"
)

// find is the first operation, from the middle of the history on, that the
// condition holds for.
func find(t *testing.T, h *history.History, holds func(*history.Operation) bool) *history.Operation {
	t.Helper()
	for i := len(h.Operations) / 2; i < len(h.Operations); i++ {
		if holds(&h.Operations[i]) {
			return &h.Operations[i]
		}
	}
	t.Fatal("the history has no such operation")
	return nil
}

func acknowledged(o *history.Operation) bool {
	return o.Kind == history.Append && o.Outcome == history.OK
}

func readsThree(o *history.Operation) bool {
	return o.Kind == history.Read && len(o.Records) >= 3
}

// Each mutation is one fault put into a legal history as the clients of a
// faulty cluster would have seen it, and the kind of finding that must name it.
func TestEveryPlantedFaultIsNamed(t *testing.T) {
	mutations := []struct {
		name  string
		want  anomaly.Kind
		apply func(*testing.T, *history.History)
	}{
		{"a write is lost", anomaly.LostWrite, func(t *testing.T, h *history.History) {
			o := find(t, h, acknowledged)
			f := &h.Final[0]
			f.Records = slices.Delete(f.Records, int(o.Base), int(o.Base)+1)
		}},
		{"the tail is lost", anomaly.EndWentBack, func(_ *testing.T, h *history.History) {
			f := &h.Final[0]
			f.End -= 20
			f.Records = f.Records[:f.End]
		}},
		{"the last acknowledged write is never seen", anomaly.Unseen, func(_ *testing.T, h *history.History) {
			end := h.Final[0].End
			h.Add(history.Operation{Kind: history.Append, Partition: testPartition, Call: 1 << 40, Return: 1<<40 + 1, Values: []history.Value{1 << 50}, Base: end})
		}},
		{"a write is stored twice", anomaly.Duplicate, func(t *testing.T, h *history.History) {
			o, f := find(t, h, acknowledged), &h.Final[0]
			f.Records = append(f.Records, history.Record{Offset: f.End, Value: o.Values[0]})
			f.End++
		}},
		{"two records are swapped", anomaly.InconsistentOffsets, func(t *testing.T, h *history.History) {
			o, r := find(t, h, acknowledged), h.Final[0].Records
			r[o.Base].Value, r[o.Base-1].Value = r[o.Base-1].Value, r[o.Base].Value
		}},
		{"an end is stale", anomaly.StaleRead, func(t *testing.T, h *history.History) {
			find(t, h, func(o *history.Operation) bool { return o.Kind == history.ListEnd }).End -= 60
		}},
		{"an empty read is stale", anomaly.StaleRead, func(t *testing.T, h *history.History) {
			o := find(t, h, readsThree)
			o.From -= 60
			o.Records, o.End = nil, history.NoOffset
		}},
		{"an end is ahead of time", anomaly.FutureRead, func(t *testing.T, h *history.History) {
			find(t, h, func(o *history.Operation) bool { return o.Kind == history.ListEnd }).End += 60
		}},
		{"an append is answered with its offset less 2", anomaly.InconsistentOffsets, func(t *testing.T, h *history.History) {
			find(t, h, acknowledged).Base -= 2
		}},
		{"a failed append is visible", anomaly.AbortedRead, func(t *testing.T, h *history.History) {
			find(t, h, acknowledged).Outcome = history.Failed
		}},
		{"a read leaves a record out", anomaly.IntPollSkip, func(t *testing.T, h *history.History) {
			o := find(t, h, readsThree)
			o.Records = slices.Delete(o.Records, 1, 2)
		}},
		{"a read begins too late", anomaly.PollSkip, func(t *testing.T, h *history.History) {
			o := find(t, h, readsThree)
			o.Records = o.Records[1:]
		}},
		{"a read begins too early", anomaly.NonmonotonicPoll, func(t *testing.T, h *history.History) {
			find(t, h, readsThree).From++
		}},
		{"a read swaps two records", anomaly.IntNonmonotonicPoll, func(t *testing.T, h *history.History) {
			o := find(t, h, readsThree)
			o.Records[0], o.Records[1] = o.Records[1], o.Records[0]
		}},
		{"a read shows another value", anomaly.InconsistentOffsets, func(t *testing.T, h *history.History) {
			find(t, h, readsThree).Records[1].Value++
		}},
		{"a read shows a value of nobody's", anomaly.Unwritten, func(t *testing.T, h *history.History) {
			find(t, h, readsThree).Records[1].Value = 1 << 60
		}},
		{"a read passes the end it tells", anomaly.ReadPastEnd, func(t *testing.T, h *history.History) {
			o := find(t, h, func(o *history.Operation) bool { return readsThree(o) && o.End >= 0 })
			o.End = o.From + 1
		}},
		{"the log has a hole", anomaly.Gap, func(_ *testing.T, h *history.History) {
			f := &h.Final[0]
			f.End++
		}},
		{"half of a batch of unknown outcome is stored", anomaly.TornAppend, func(_ *testing.T, h *history.History) {
			f := &h.Final[0]
			f.Records = append(f.Records, history.Record{Offset: f.End, Value: 1 << 50})
			h.Add(history.Operation{Kind: history.Append, Outcome: history.Unknown, Partition: testPartition, Call: 0, Return: history.Never, Values: []history.Value{1 << 50, 1<<50 + 1}})
			f.End++
		}},
		{"appends are reordered against time", anomaly.RealtimeOrder, func(t *testing.T, h *history.History) {
			o := find(t, h, acknowledged)
			o.Call += 10_000
			o.Return += 10_000
		}},
	}
	legal := draw(rand.New(rand.NewPCG(1, 3)), shape{operations: 1000, clients: 5, batch: 1, unknownPerMille: 100, span: 20})
	if v := linearizability.Check(legal, linearizability.DefaultOptions()); v.Status != linearizability.OK {
		t.Fatalf("without a fault: %s", v)
	}
	for _, m := range mutations {
		h := clone(legal)
		m.apply(t, h)
		v := linearizability.Check(h, linearizability.DefaultOptions())
		if v.Status != linearizability.Violation || !slices.Contains(anomaly.Kinds(v.Findings), m.want) {
			t.Errorf("%s: want %s, got %s", m.name, m.want, v)
		}
		if len(v.Disagreements) > 0 {
			t.Errorf("%s: %v", m.name, v.Disagreements)
		}
		for _, f := range v.Findings {
			if f.Text == "" || len(f.Operations)+len(f.Offsets) == 0 {
				t.Errorf("%s: finding without operations, offsets or words: %+v", m.name, f)
			}
		}
	}
}

func TestCommitFaultsAreNamed(t *testing.T) {
	fetch := func(o *history.Operation) bool {
		return o.Kind == history.FetchCommitted && o.Token != 0
	}
	mutations := []struct {
		name  string
		want  anomaly.Kind
		apply func(*testing.T, *history.History)
	}{
		{"an old commit is fetched", anomaly.StaleRead, func(t *testing.T, h *history.History) {
			o := find(t, h, fetch)
			old := h.Operations[slices.IndexFunc(h.Operations, func(o history.Operation) bool { return o.Kind == history.Commit && o.Outcome == history.OK })]
			o.Token, o.Committed = old.Token, old.Committed
		}},
		{"a commit is forgotten", anomaly.StaleRead, func(t *testing.T, h *history.History) {
			o := find(t, h, fetch)
			o.Token, o.Committed = 0, history.NoOffset
		}},
		{"a failed commit is fetched", anomaly.AbortedRead, func(t *testing.T, h *history.History) {
			o := find(t, h, fetch)
			for i := range h.Operations {
				if w := &h.Operations[i]; w.Kind == history.Commit && w.Token == o.Token {
					w.Outcome = history.Failed
				}
			}
		}},
		{"an offset 1000 too high is fetched", anomaly.CommitMismatch, func(t *testing.T, h *history.History) {
			find(t, h, fetch).Committed += 1000
		}},
		{"a token of nobody's is fetched", anomaly.Unwritten, func(t *testing.T, h *history.History) {
			find(t, h, fetch).Token = 1 << 60
		}},
		{"an offset without a token is fetched", anomaly.CommitMismatch, func(t *testing.T, h *history.History) {
			find(t, h, fetch).Token = 0
		}},
		{"a commit is fetched before it is made", anomaly.FutureRead, func(t *testing.T, h *history.History) {
			o := find(t, h, fetch)
			o.Call, o.Return = 0, 1
		}},
	}
	legal := drawCommits(rand.New(rand.NewPCG(1, 4)), shape{operations: 1000, clients: 5, unknownPerMille: 100, span: 20})
	if v := linearizability.Check(legal, linearizability.DefaultOptions()); v.Status != linearizability.OK {
		t.Fatalf("without a fault: %s", v)
	}
	for _, m := range mutations {
		h := clone(legal)
		m.apply(t, h)
		v := linearizability.Check(h, linearizability.DefaultOptions())
		if v.Status != linearizability.Violation || !slices.Contains(anomaly.Kinds(v.Findings), m.want) || len(v.Disagreements) > 0 {
			t.Errorf("%s: want %s, got %s", m.name, m.want, v)
		}
	}
}

func TestWeaklyAcknowledgedWritesMayBeLost(t *testing.T) {
	h := &history.History{Final: []history.Log{{Partition: testPartition}}}
	h.Add(history.Operation{Kind: history.Append, Partition: testPartition, Call: 1, Return: 2, Values: []history.Value{1}, Weak: true})
	if v := linearizability.Check(h, linearizability.DefaultOptions()); v.Status != linearizability.OK {
		t.Error(v)
	}
	h.Operations[0].Weak = false
	if v := linearizability.Check(h, linearizability.DefaultOptions()); v.Status != linearizability.Violation {
		t.Error(v)
	}
}

// One reader has seen a batch's first record; another, later, asks for its
// second and is told that there is none.
func TestHalfOfABatchIsStaleOnlyIfBatchesAreAtomic(t *testing.T) {
	records := []history.Record{{Offset: 0, Value: 1}, {Offset: 1, Value: 2}}
	h := &history.History{Final: []history.Log{{Partition: testPartition, End: 2, Records: records}}}
	h.Add(history.Operation{Kind: history.Append, Outcome: history.Unknown, Partition: testPartition, Return: history.Never, Values: []history.Value{1, 2}})
	h.Add(history.Operation{Kind: history.Read, Partition: testPartition, Call: 1, Return: 2, Records: records[:1], End: history.NoOffset})
	h.Add(history.Operation{Kind: history.Read, Partition: testPartition, Call: 3, Return: 4, From: 1, End: history.NoOffset})
	opt := linearizability.DefaultOptions()
	v := linearizability.Check(h, opt)
	if len(v.Findings) != 1 || v.Findings[0].Kind != anomaly.StaleRead || !slices.Equal(v.Findings[0].Operations, []int{2, 1}) || len(v.Disagreements) > 0 {
		t.Errorf("atomic: %s", v)
	}
	opt.Atomic = false
	if v := linearizability.Check(h, opt); v.Status != linearizability.OK {
		t.Errorf("not atomic: %s", v)
	}
}

func TestRemovedRecordsAreNotLost(t *testing.T) {
	h := draw(rand.New(rand.NewPCG(5, 5)), shape{operations: 300, clients: 3, batch: 3, unknownPerMille: 100, span: 20})
	f := &h.Final[0]
	f.Start = f.End / 2
	f.Records = f.Records[f.Start:]
	h.Add(history.Operation{Kind: history.DeleteRecords, Outcome: history.Unknown, Partition: testPartition, Call: 0, Return: history.Never, From: f.Start})
	if v := linearizability.Check(h, linearizability.DefaultOptions()); v.Status != linearizability.OK {
		t.Error(v)
	}
	// What is below the start must still be one thing to all.
	find(t, &history.History{Operations: h.Operations[:200]}, readsThree).Records[1].Value = 1 << 60
	if v := linearizability.Check(h, linearizability.DefaultOptions()); !slices.Contains(anomaly.Kinds(v.Findings), anomaly.InconsistentOffsets) {
		t.Error(v)
	}
}

func TestWhatCannotBeJudgedIsSaid(t *testing.T) {
	h := draw(rand.New(rand.NewPCG(6, 6)), shape{operations: 100, clients: 3, batch: 1, span: 20})
	withoutFinal := &history.History{Operations: h.Operations}
	if v := linearizability.Check(withoutFinal, linearizability.DefaultOptions()); v.Status != linearizability.Unknown || len(v.Unjudged) != 1 {
		t.Errorf("without a final log: %s", v)
	}
	find(t, h, acknowledged).Values[0] = h.Final[0].Records[0].Value
	if v := linearizability.Check(h, linearizability.DefaultOptions()); v.Status != linearizability.Unknown || len(v.Unjudged) != 1 {
		t.Errorf("with a value appended twice: %s", v)
	}
}

func TestVerdictIsAFunctionOfTheHistory(t *testing.T) {
	h := draw(rand.New(rand.NewPCG(7, 7)), shape{operations: 3000, clients: 15, batch: 2, unknownPerMille: 100, span: 20})
	for range 20 {
		spoil(rand.New(rand.NewPCG(8, 8)), h)
	}
	first := linearizability.Check(h, linearizability.DefaultOptions()).String()
	for range 3 {
		if again := linearizability.Check(h, linearizability.DefaultOptions()).String(); again != first {
			t.Fatalf("first %s\nthen %s", first, again)
		}
	}
}

func TestIllegalWindowIsDrawn(t *testing.T) {
	h := draw(rand.New(rand.NewPCG(9, 9)), shape{operations: 2000, clients: 5, batch: 1, unknownPerMille: 100, span: 20})
	find(t, h, func(o *history.Operation) bool { return o.Kind == history.ListEnd }).End -= 60
	v := linearizability.Check(h, linearizability.DefaultOptions())
	if len(v.Suspects) == 0 {
		t.Fatalf("Porcupine finds no window illegal: %s", v)
	}
	var page bytes.Buffer
	if err := v.Suspects[0].Visualize(&page); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page.Bytes(), []byte("<html")) || !bytes.Contains(page.Bytes(), []byte("length = ")) {
		t.Errorf("%d bytes that are no page of the window", page.Len())
	}
}

func TestWindowsStayWithinTheirLimits(t *testing.T) {
	h := draw(rand.New(rand.NewPCG(10, 10)), shape{operations: 5000, clients: 30, batch: 3, unknownPerMille: 100, span: 50})
	limits := model.Limits{Operations: 200, Concurrency: 5, Steps: 1 << 20}
	windows, err := model.Log(testPartition, pointers(h), &h.Final[0], true, limits)
	if err != nil {
		t.Fatal(err)
	}
	if len(windows) < 10 {
		t.Errorf("%d windows for 5000 operations", len(windows))
	}
	for _, w := range windows {
		if len(w.IDs) > limits.Operations || w.Whole {
			t.Errorf("%s has %d operations, whole=%t", w.Name, len(w.IDs), w.Whole)
		}
		if got := w.Check(); got != model.Legal {
			t.Errorf("%s is %s", w.Name, got)
		}
	}
}

func TestSearchBeyondItsLimitIsUnknownAndNoVerdict(t *testing.T) {
	h := draw(rand.New(rand.NewPCG(11, 11)), shape{operations: 200, clients: 5, batch: 1, span: 20})
	opt := linearizability.DefaultOptions()
	opt.Search.Steps = 10
	if v := linearizability.Check(h, opt); v.Status != linearizability.OK {
		t.Errorf("the exact check needs no search: %s", v)
	}
}

func benchmarkCheck(b *testing.B, s shape, drawn func(*rand.Rand, shape) *history.History, search bool) {
	h := drawn(rand.New(rand.NewPCG(12, 12)), s)
	opt := linearizability.DefaultOptions()
	opt.Atomic = s.batch > 1
	if !search {
		opt.Search = model.Limits{}
	}
	b.ReportAllocs()
	start := time.Now()
	for b.Loop() {
		if v := linearizability.Check(h, opt); v.Status != linearizability.OK {
			b.Fatal(v)
		}
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(b.N*len(h.Operations)), "ns/operation")
}

func BenchmarkLog10kAt30Clients(b *testing.B) {
	benchmarkCheck(b, shape{operations: 10_000, clients: 30, batch: 1, unknownPerMille: 100, span: 1000}, draw, false)
}

func BenchmarkLog100kAt30Clients(b *testing.B) {
	benchmarkCheck(b, shape{operations: 100_000, clients: 30, batch: 1, unknownPerMille: 100, span: 1000}, draw, false)
}

func BenchmarkLog5kAt10ClientsWithPorcupine(b *testing.B) {
	benchmarkCheck(b, shape{operations: 5000, clients: 10, batch: 1, unknownPerMille: 100, span: 1000}, draw, true)
}

func BenchmarkLog5kAt30ClientsWithPorcupine(b *testing.B) {
	benchmarkCheck(b, shape{operations: 5000, clients: 30, batch: 1, unknownPerMille: 100, span: 1000}, draw, true)
}

func BenchmarkCommits10kAt30Clients(b *testing.B) {
	benchmarkCheck(b, shape{operations: 10_000, clients: 30, batch: 1, unknownPerMille: 100, span: 1000}, drawCommits, false)
}

func BenchmarkCommits5kAt10ClientsWithPorcupine(b *testing.B) {
	benchmarkCheck(b, shape{operations: 5000, clients: 10, batch: 1, unknownPerMille: 100, span: 1000}, drawCommits, true)
}
