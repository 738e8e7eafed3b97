package offsets_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
	"github.com/pawlbroker/pawl/workloads/offsets"
)

// groups is an ideal coordinator, unless it forgets: then the n-th commit is
// acknowledged and not kept, and so on with its multiples.
type groups struct {
	kept    map[workloads.FetchCommitted]workloads.Commit
	commits int
	forgets int
}

func (g *groups) do(op workloads.Op) workloads.Result {
	switch op := op.(type) {
	case workloads.Commit:
		if g.commits++; g.forgets == 0 || g.commits%g.forgets != 0 {
			g.kept[workloads.FetchCommitted{Group: op.Group, Partition: op.Partition}] = op
		}
	case workloads.FetchCommitted:
		if c, ok := g.kept[op]; ok {
			return workloads.Result{Committed: c.Offset, Token: c.Token}
		}
		return workloads.Result{Committed: history.NoOffset}
	}
	return workloads.Result{}
}

func run(t *testing.T, g *groups) *history.History {
	t.Helper()
	c := offsets.DefaultConfig("g", history.Partition{Topic: "a"}, history.Partition{Topic: "b", Index: 2})
	c.Groups = append(c.Groups, "h")
	w, err := offsets.New(c)
	if err != nil {
		t.Fatal(err)
	}
	rng, now := rand.New(rand.NewPCG(1, 0)), history.Time(0)
	for i := 0; !w.Finished(); i++ {
		if i == 2000 {
			w.Finish()
		}
		id := history.Client(rng.IntN(w.Clients()))
		op, ok := w.Next(id, now, rng)
		if !ok {
			continue
		}
		if now += 2; rng.IntN(10) == 0 {
			if rng.IntN(2) == 0 {
				g.do(op)
			}
			w.Done(id, op, now, history.Never, workloads.Result{Outcome: history.Unknown})
			continue
		}
		w.Done(id, op, now, now+1, g.do(op))
	}
	return w.History()
}

func TestIdealCoordinatorIsJudgedSound(t *testing.T) {
	h := run(t, &groups{kept: make(map[workloads.FetchCommitted]workloads.Commit)})
	if v := linearizability.Check(h, linearizability.DefaultOptions()); v.Status != linearizability.OK {
		t.Error(v)
	}
	fetched := make(map[string]bool)
	for _, o := range h.Operations[len(h.Operations)-20:] {
		if o.Kind == history.FetchCommitted && o.Outcome == history.OK {
			fetched[o.Group+o.Partition.String()] = true
		}
	}
	if len(fetched) != 4 {
		t.Errorf("%d positions fetched at the end, want 4", len(fetched))
	}
}

func TestForgottenCommitIsFound(t *testing.T) {
	h := run(t, &groups{kept: make(map[workloads.FetchCommitted]workloads.Commit), forgets: 20})
	v := linearizability.Check(h, linearizability.DefaultOptions())
	if v.Status != linearizability.Violation || !slices.Contains(anomaly.Kinds(v.Findings), anomaly.StaleRead) || len(v.Disagreements) > 0 {
		t.Errorf("want stale-read, got %s", v)
	}
}

func TestConfigurationsWithoutMeaningAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*offsets.Config){
		"no groups":     func(c *offsets.Config) { c.Groups = nil },
		"no partitions": func(c *offsets.Config) { c.Partitions = nil },
		"no clients":    func(c *offsets.Config) { c.Clients = 0 },
		"too often":     func(c *offsets.Config) { c.CommitPerMille = 1001 },
		"no offset":     func(c *offsets.Config) { c.MaxOffset = -1 },
	} {
		c := offsets.DefaultConfig("g", history.Partition{Topic: "a"})
		spoil(&c)
		if _, err := offsets.New(c); !errors.Is(err, offsets.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
}
