package quorum

import (
	"hash/fnv"
	"testing"
	"time"
)

// However often the founders crash, lose messages or, less than half of them,
// their disks while they found a quorum, one gets a leader, and in the end
// everybody is in it.
func TestOneQuorumIsFounded(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 60
	}
	twice, wipes := 0, 0
	for seed := range seeds {
		h := fnv.New64a()
		w := newWorld(t, seed, plan{voters: 2 + int(seed%4), others: int(seed % 2), storm: true}, h)
		w.pass(time.Duration(1+seed%6) * time.Second)
		w.settle()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		if len(w.founded) > 1 {
			twice++
		}
		wipes += w.wipes
	}
	t.Logf("%d disks lost; in %d of %d runs a quorum was founded anew", wipes, twice, seeds)
	if twice == 0 {
		t.Fatal("the seeds do not try a foundation that fails")
	}
}
