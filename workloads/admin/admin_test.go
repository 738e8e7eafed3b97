package admin_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
	"github.com/pawlbroker/pawl/workloads/admin"
)

const nodes = 3

// cluster is an ideal one, whose nodes know all or only some of what was done,
// unless it has a fault.
type cluster struct {
	rng   *rand.Rand
	log   []map[string]history.Value // what there is, after each change
	known [nodes]int                 // how many changes each node has seen
	fault fault
	turns int
}

type fault int

const (
	none       fault = iota
	forgets          // some changes are acknowledged and not made
	goesBack         // a node sometimes knows less than before
	ownsNot          // a node answers for a change that it has not seen
	mixesUp          // some answers are of another topic
	everFaults = iota
)

func (c *cluster) do(op workloads.Op) workloads.Result {
	now := c.log[len(c.log)-1]
	via := c.rng.IntN(nodes)
	c.turns++
	odd := c.turns%20 == 0
	change := func(name string, token history.Value, wants bool) workloads.Result {
		_, there := now[name]
		if there == wants && !(c.fault == forgets && odd) {
			next := maps.Clone(now)
			if delete(next, name); token != 0 {
				next[name] = token
			}
			c.log = append(c.log, next)
		}
		if c.fault != ownsNot {
			c.known[via] = len(c.log) - 1
		}
		return workloads.Result{There: there, Via: int32(via)}
	}
	switch op := op.(type) {
	case workloads.CreateTopic:
		return change(op.Topic, op.Token, false)
	case workloads.DeleteTopic:
		return change(op.Topic, 0, true)
	case workloads.SetConfig:
		return change(op.Topic, op.Token, true)
	case workloads.GetConfig:
		if op.Now {
			return workloads.Result{Token: now[op.Topic], Via: history.AsOfNow}
		}
		c.known[via] += c.rng.IntN(len(c.log) - c.known[via])
		at := c.known[via]
		if c.fault == goesBack && odd {
			at /= 2
		}
		if c.fault == mixesUp && odd {
			op.Topic = "a"
		}
		return workloads.Result{Token: c.log[at][op.Topic], Via: int32(via)}
	}
	return workloads.Result{Outcome: history.Failed}
}

func run(t *testing.T, seed uint64, f fault) *history.History {
	t.Helper()
	w, err := admin.New(admin.DefaultConfig("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	rng, now := rand.New(rand.NewPCG(seed, 0)), history.Time(0)
	c := &cluster{rng: rng, log: []map[string]history.Value{{}}, fault: f}
	for i := 0; !w.Finished(); i++ {
		if i == 500 {
			w.Finish()
		}
		id := history.Client(rng.IntN(w.Clients()))
		op, ok := w.Next(id, now, rng)
		if !ok {
			continue
		}
		if now += 2; rng.IntN(50) == 0 {
			if rng.IntN(2) == 0 {
				c.do(op)
			}
			w.Done(id, op, now, history.Never, workloads.Result{Outcome: history.Unknown})
			continue
		}
		w.Done(id, op, now, now+1, c.do(op))
	}
	return w.History()
}

func TestAnIdealClusterIsJudgedSound(t *testing.T) {
	for seed := range uint64(10) {
		h := run(t, seed, none)
		if v := linearizability.Check(h, linearizability.DefaultOptions()); v.Status != linearizability.OK {
			t.Errorf("seed %d: %s", seed, v)
		}
	}
}

func TestEveryFaultIsFound(t *testing.T) {
	for f := none + 1; f < everFaults; f++ {
		found := 0
		for seed := range uint64(10) {
			v := linearizability.Check(run(t, seed, f), linearizability.DefaultOptions())
			if slices.Contains(anomaly.Kinds(v.Findings), anomaly.TopicOrder) {
				found++
			}
		}
		if found < 5 {
			t.Errorf("fault %d: found in %d of 10 runs", f, found)
		}
	}
}

func TestTheLastLookIsAtEveryTopic(t *testing.T) {
	looks := map[string]bool{}
	h := run(t, 1, none)
	for _, o := range h.Operations[len(h.Operations)-4:] {
		if o.Kind == history.GetConfig && o.Via == history.AsOfNow && o.Outcome == history.OK {
			looks[o.Partition.Topic] = true
		}
	}
	if len(looks) != 2 {
		t.Errorf("looked at %v", looks)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, change := range []func(*admin.Config){
		func(c *admin.Config) { c.Topics = nil },
		func(c *admin.Config) { c.Topics = append(c.Topics, "a") },
		func(c *admin.Config) { c.Clients = 0 },
		func(c *admin.Config) { c.OperationsPerClient = -1 },
		func(c *admin.Config) { c.DeletePerMille = 700 },
	} {
		c := admin.DefaultConfig("a")
		change(&c)
		if _, err := admin.New(c); !errors.Is(err, admin.ErrConfig) {
			t.Errorf("got %v, want ErrConfig", err)
		}
	}
}
