package appendlog_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
	"github.com/pawlbroker/pawl/workloads/appendlog"
)

// logs is an ideal cluster: operations take effect whole, at one instant.
type logs map[history.Partition][]history.Value

func (l logs) do(op workloads.Op) workloads.Result {
	switch op := op.(type) {
	case workloads.Append:
		base := history.Offset(len(l[op.Partition]))
		l[op.Partition] = append(l[op.Partition], op.Values...)
		return workloads.Result{Base: base}
	case workloads.Read:
		log := l[op.Partition]
		r := workloads.Result{Next: op.From, End: history.Offset(len(log))}
		for r.Next < r.End && len(r.Records) < 10 {
			r.Records = append(r.Records, history.Record{Offset: r.Next, Value: log[r.Next]})
			r.Next++
		}
		return r
	case workloads.ListEnd:
		return workloads.Result{End: history.Offset(len(l[op.Partition]))}
	case workloads.ListStart:
		return workloads.Result{}
	}
	panic("appendlog never asks for " + op.String())
}

// run gives clients turns in drawn order; every tenth operation is lost, half
// of those after it took effect.
func run(t *testing.T, c appendlog.Config, seed uint64, turns int) (*appendlog.Workload, logs) {
	t.Helper()
	w, err := appendlog.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, rng, now := logs{}, rand.New(rand.NewPCG(seed, 0)), history.Time(0)
	for i := 0; i < turns || !w.Finished(); i++ {
		if i == turns {
			w.Finish()
		}
		if i > turns+100_000 {
			t.Fatal("the final read does not end")
		}
		id := history.Client(rng.IntN(w.Clients()))
		op, ok := w.Next(id, now, rng)
		if !ok {
			continue
		}
		call := now
		now += 2
		switch rng.IntN(20) {
		case 0:
			w.Done(id, op, call, history.Never, workloads.Result{Outcome: history.Unknown})
		case 1:
			l.do(op)
			w.Done(id, op, call, history.Never, workloads.Result{Outcome: history.Unknown})
		default:
			w.Done(id, op, call, now-1, l.do(op))
		}
	}
	return w, l
}

func TestFinalLogsAreTheWholeLogs(t *testing.T) {
	a, b := history.Partition{Topic: "a"}, history.Partition{Topic: "b", Index: 1}
	w, l := run(t, appendlog.DefaultConfig(a, b), 1, 2000)
	final := w.History().Final
	if len(final) != 2 {
		t.Fatalf("got %d final logs, want 2", len(final))
	}
	for _, g := range final {
		if g.Start != 0 || int(g.End) != len(l[g.Partition]) || len(g.Records) != len(l[g.Partition]) {
			t.Fatalf("%s: got [%d, %d) with %d records, want %d", g.Partition, g.Start, g.End, len(g.Records), len(l[g.Partition]))
		}
		for i, r := range g.Records {
			if int(r.Offset) != i || r.Value != l[g.Partition][i] {
				t.Fatalf("%s: got %v at %d, want %#x", g.Partition, r, i, l[g.Partition][i])
			}
		}
	}
}

func TestOneSeedIsOneHistory(t *testing.T) {
	c := appendlog.DefaultConfig(history.Partition{Topic: "a"}, history.Partition{Topic: "a", Index: 1})
	var first, second, other bytes.Buffer
	for seed, b := range map[uint64][]*bytes.Buffer{7: {&first, &second}, 8: {&other}} {
		for _, b := range b {
			w, _ := run(t, c, seed, 500)
			if err := w.History().Write(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same seed gave two histories")
	}
	if bytes.Equal(first.Bytes(), other.Bytes()) {
		t.Error("two seeds gave the same history")
	}
}

func TestEveryKindOfOperationIsDrawn(t *testing.T) {
	w, _ := run(t, appendlog.DefaultConfig(history.Partition{Topic: "a"}), 3, 2000)
	var idempotent, plain, ends, forward, back int
	at := make(map[history.Client]history.Offset)
	for _, o := range w.History().Operations {
		switch {
		case o.Kind == history.Append && o.Idempotent:
			idempotent++
		case o.Kind == history.Append:
			plain++
		case o.Kind == history.ListEnd:
			ends++
		case o.From < at[o.Client]:
			back++
		default:
			forward++
		}
		if o.Kind == history.Read && o.Outcome == history.OK {
			at[o.Client] = o.Next()
		}
	}
	for name, n := range map[string]int{"idempotent appends": idempotent, "appends": plain, "list ends": ends, "reads on": forward, "seeks": back} {
		if n < 10 {
			t.Errorf("%d %s in 2000 turns", n, name)
		}
	}
}

func TestClientsRestAfterTheirShare(t *testing.T) {
	c := appendlog.DefaultConfig(history.Partition{Topic: "a"})
	c.OperationsPerClient = 5
	w, _ := run(t, c, 4, 500)
	perClient := make(map[history.Client]int)
	for _, o := range w.History().Operations[:5*w.Clients()] {
		perClient[o.Client]++
	}
	for id, n := range perClient {
		if n != 5 {
			t.Errorf("client %d did %d operations, want 5", id, n)
		}
	}
}

func TestConfigurationsWithoutMeaningAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*appendlog.Config){
		"no partitions": func(c *appendlog.Config) { c.Partitions = nil },
		"one twice":     func(c *appendlog.Config) { c.Partitions = append(c.Partitions, c.Partitions[0]) },
		"no clients":    func(c *appendlog.Config) { c.Producers, c.IdempotentProducers, c.Readers = 0, 0, 0 },
		"negative":      func(c *appendlog.Config) { c.Readers = -1 },
		"empty batch":   func(c *appendlog.Config) { c.MaxBatch = 0 },
		"tiny records":  func(c *appendlog.Config) { c.MinSize = workloads.MinPayload - 1 },
		"max below min": func(c *appendlog.Config) { c.MaxSize = c.MinSize - 1 },
		"certain seeks": func(c *appendlog.Config) { c.SeekPerMille = 900 },
		"no bytes":      func(c *appendlog.Config) { c.ReadMaxBytes = 0 },
	} {
		c := appendlog.DefaultConfig(history.Partition{Topic: "a"})
		spoil(&c)
		if _, err := appendlog.New(c); !errors.Is(err, appendlog.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
}
