package linearizability_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/pawlbroker/pawl/linearizability"
	"github.com/pawlbroker/pawl/linearizability/history"
)

// crossChecks is how many small histories of each kind the judges must agree
// on.
const crossChecks = 20_000

// judge compares Check with what the naive judge says.
func judge(t *testing.T, seed uint64, h *history.History, legal bool, opt linearizability.Options) {
	t.Helper()
	v := linearizability.Check(h, opt)
	if len(v.Disagreements) > 0 || len(v.Unjudged) > 0 || (v.Status == linearizability.OK) != legal {
		var b bytes.Buffer
		if err := h.Write(&b); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("seed %d: the naive model says legal=%t, Check says\n%s\n%s", seed, legal, v, &b)
	}
}

func TestLogJudgesAgreeWithNaiveModel(t *testing.T) {
	illegal := 0
	for seed := range uint64(crossChecks) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := shape{operations: 2 + rng.IntN(9), clients: 1 + rng.IntN(4), batch: 1 + rng.IntN(2), span: 1 + rng.IntN(12), unknownPerMille: 300}
		h := draw(rng, s)
		for range rng.IntN(3) {
			spoil(rng, h)
		}
		legal := naiveLog(h)
		if !legal {
			illegal++
		}
		opt := linearizability.DefaultOptions()
		opt.Atomic = s.batch > 1 // the naive model's batches are; of one record, all are
		judge(t, seed, h, legal, opt)
	}
	if illegal < crossChecks/10 || illegal > crossChecks*9/10 {
		t.Errorf("%d of %d histories were illegal, want enough of both kinds", illegal, crossChecks)
	}
	t.Logf("%d of %d histories were illegal", illegal, crossChecks)
}

func TestCommitJudgesAgreeWithNaiveModel(t *testing.T) {
	illegal := 0
	for seed := range uint64(crossChecks) {
		rng := rand.New(rand.NewPCG(seed, 2))
		h := drawCommits(rng, shape{operations: 3 + rng.IntN(9), clients: 1 + rng.IntN(4), span: 1 + rng.IntN(12), unknownPerMille: 300})
		if len(h.Operations) == 0 {
			continue
		}
		for range rng.IntN(6) {
			spoil(rng, h)
		}
		legal := naiveCommitted(h)
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
