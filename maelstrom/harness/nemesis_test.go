package harness

import (
	"math/rand/v2"
	"testing"

	"github.com/pawlbroker/pawl/maelstrom/checker"
)

// lost lists who does not reach whom.
func lost(n *network) (pairs [][2]string) {
	for _, from := range n.names {
		for _, to := range n.names {
			if from != to && n.isCut(from, to) {
				pairs = append(pairs, [2]string{from, to})
			}
		}
	}
	return pairs
}

func TestPartitionsCutBothWaysAndHealCompletely(t *testing.T) {
	names := []string{"n0", "n1", "n2", "n3", "n4"}
	for count := 2; count <= len(names); count++ {
		n := newNetwork(nil, names[:count], 0, 1)
		rnd := rand.New(rand.NewPCG(uint64(count), 1))
		some := false
		for range 100 {
			what := n.partition(rnd)
			pairs := lost(n)
			some = some || len(pairs) > 0
			for _, p := range pairs {
				if !n.isCut(p[1], p[0]) {
					t.Errorf("%s: %s does not reach %s, but is reached", what, p[0], p[1])
				}
			}
			if n.heal(); len(lost(n)) > 0 {
				t.Errorf("%s: healed, and still %v", what, lost(n))
			}
		}
		if !some {
			t.Errorf("%d nodes: nothing was ever cut", count)
		}
	}
}

func TestOneWayCutsOneWay(t *testing.T) {
	n := newNetwork(nil, []string{"n0", "n1", "n2"}, 0, 1)
	n.deafen("n1", true)
	if got := lost(n); len(got) != 2 || !n.isCut("n1", "n0") || !n.isCut("n1", "n2") {
		t.Errorf("n1 hears and is not heard: lost is %v", got)
	}
	n.heal()
	n.deafen("n1", false)
	if got := lost(n); len(got) != 2 || !n.isCut("n0", "n1") || !n.isCut("n2", "n1") {
		t.Errorf("n1 is heard and does not hear: lost is %v", got)
	}
}

// Who dies does not come back, and its clients go elsewhere.
func TestClientsOfTheDeadGoElsewhere(t *testing.T) {
	cfg := nodes(3, Kill, KillAll)
	cfg.Deaths = 1
	result, err := runFake(t, cfg, faults{apart: true}) // no node needs another
	if err != nil {
		t.Fatal(err)
	}
	late := 0
	for _, op := range result.History.Ops {
		orphan := op.Process%cfg.Concurrency%cfg.NodeCount == 0
		if orphan && op.Kind == checker.Send && op.Outcome == checker.OK && op.Invoked > cfg.TimeLimit*9/10 {
			late++
		}
	}
	if late == 0 || result.Faults[Kill] == 0 || result.Faults[KillAll] == 0 {
		t.Errorf("%d sends of clients whose node is dead, faults %v", late, result.Faults)
	}
}
