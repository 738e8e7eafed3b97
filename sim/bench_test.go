package sim_test

import (
	"testing"
	"time"

	"github.com/pawlbroker/pawl/sim"
	"github.com/pawlbroker/pawl/sim/swarm"
)

// BenchmarkSeed is a drawn seed of two seconds with every fault, judged.
func BenchmarkSeed(b *testing.B) {
	all, err := swarm.ParseFaults("all")
	if err != nil {
		b.Fatal(err)
	}
	ops := 0
	for i := range b.N {
		seed := uint64(i%200) + 1
		r, err := sim.Run(seed, swarm.Draw(seed, 1, 2*time.Second, all), nil)
		if err != nil || r.Verdict != sim.OK {
			b.Fatal(r.Explain(), err)
		}
		ops += r.OK + r.Unknown
	}
	b.ReportMetric(float64(ops)/float64(b.N), "operations/op")
}
