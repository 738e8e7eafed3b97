package swarm_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/sim/swarm"
)

func TestEveryDrawnRunPrintsAndParses(t *testing.T) {
	all, err := swarm.ParseFaults("all")
	if err != nil {
		t.Fatal(err)
	}
	var seen [swarm.FaultKinds]int
	for seed := range uint64(500) {
		c := swarm.Draw(seed, 1, 2*time.Second, all)
		if err := c.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back, err := swarm.Parse(c.String())
		if err != nil || back != c {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, c, back)
		}
		for f, every := range c.Faults {
			if every > 0 {
				seen[f]++
			}
		}
	}
	for f, n := range seen[:swarm.Isolate] {
		if n < 100 || n > 250 {
			t.Errorf("%s in %d of 500 runs", swarm.Fault(f), n)
		}
	}
}

func TestForbiddingAFaultLeavesTheOthersAlone(t *testing.T) {
	all, _ := swarm.ParseFaults("all")
	few, err := swarm.ParseFaults("power,bit-rot")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		a, b := swarm.Draw(seed, 1, time.Second, all), swarm.Draw(seed, 1, time.Second, few)
		for _, f := range few {
			if a.Faults[f] != b.Faults[f] {
				t.Fatalf("seed %d: %s", seed, f)
			}
		}
		a.Faults = b.Faults
		if a != b {
			t.Fatalf("seed %d:\n%s\n%s", seed, a, b)
		}
	}
}

func TestWhatIsNotAConfigurationIsRefused(t *testing.T) {
	for _, text := range []string{"partitions=0", "partitions", "partitions=x", "nothing=1", "producers=0 idempotent=0 readers=0"} {
		if _, err := swarm.Parse(text); !errors.Is(err, swarm.ErrConfig) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := swarm.ParseFaults("power,plague"); !errors.Is(err, swarm.ErrConfig) {
		t.Error(err)
	}
}
