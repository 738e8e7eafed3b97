package sim_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/sim"
	"github.com/pawlbroker/pawl/sim/swarm"
)

func drawn(t *testing.T, seed uint64, faults string) swarm.Config {
	t.Helper()
	list, err := swarm.ParseFaults(faults)
	if err != nil {
		t.Fatal(err)
	}
	return swarm.Draw(seed, 1, time.Second, list)
}

func run(t *testing.T, seed uint64, cfg swarm.Config) sim.Result {
	t.Helper()
	r, err := sim.Run(seed, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEverySeedIsGreenAndTheSameRunTwice(t *testing.T) {
	var done int
	for seed := range uint64(25) {
		cfg := drawn(t, seed, "all")
		r, again := run(t, seed, cfg), run(t, seed, cfg)
		if r.Verdict != sim.OK {
			t.Errorf("%s\n  again: pawlsim run --seed %d --duration 1s", r.Explain(), seed)
		}
		if r.Hash != again.Hash {
			t.Errorf("seed %d: hash %016x, then %016x", seed, r.Hash, again.Hash)
		}
		done += r.OK
	}
	if done < 1000 {
		t.Errorf("only %d operations succeeded", done)
	}
}

func TestEverySeedOfAClusterIsGreenAndTheSameRunTwice(t *testing.T) {
	all, err := swarm.ParseFaults("all")
	if err != nil {
		t.Fatal(err)
	}
	var done int
	for seed := range uint64(12) {
		cfg := swarm.Draw(seed, int(2+seed%6), time.Second, all)
		r, again := run(t, seed, cfg), run(t, seed, cfg)
		if r.Verdict != sim.OK {
			t.Errorf("%s\n  again: pawlsim run --seed %d --nodes %d --duration 1s", r.Explain(), seed, 2+seed%6)
		}
		if r.Hash != again.Hash {
			t.Errorf("seed %d: hash %016x, then %016x", seed, r.Hash, again.Hash)
		}
		done += r.OK
	}
	if done < 300 {
		t.Errorf("only %d operations succeeded", done)
	}
}

func TestWithoutFaultsNothingFails(t *testing.T) {
	for seed := range uint64(10) {
		cfg := drawn(t, seed, "none")
		cfg.Acks = -1
		cfg.PatienceMillis = 5000
		cfg.Deleters = 0 // they ask for what is not there, or in no time, and are refused
		r := run(t, seed, cfg)
		if r.Verdict != sim.OK || r.Failed > 0 || r.Unknown > 0 {
			t.Errorf("%s", r.Explain())
		}
	}
}

func TestARunRepeatsFromTextAlone(t *testing.T) {
	cfg := drawn(t, 3, "all")
	again, err := swarm.Parse(cfg.String())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := run(t, 3, cfg), run(t, 3, again); a.Hash != b.Hash {
		t.Fatal("not the same run")
	}
}

func TestTheTraceDoesNotChangeTheRun(t *testing.T) {
	cfg := drawn(t, 5, "all")
	var trace bytes.Buffer
	spoken, err := sim.Run(5, cfg, &trace)
	if err != nil {
		t.Fatal(err)
	}
	if silent := run(t, 5, cfg); spoken.Hash != silent.Hash {
		t.Fatal("not the same run")
	}
	for _, want := range []string{"boot", "append", "healed", "recovered"} {
		if !strings.Contains(trace.String(), want) {
			t.Errorf("the trace says nothing of %q", want)
		}
	}
}

func TestTwoSeedsAreTwoRuns(t *testing.T) {
	cfg := swarm.Base()
	cfg.DurationMillis = 300
	if run(t, 1, cfg).Hash == run(t, 2, cfg).Hash {
		t.Fatal("the same run")
	}
}

func TestEveryFaultStrikes(t *testing.T) {
	seen := map[string]int64{}
	for _, f := range swarm.FaultNames() {
		cfg := swarm.Base()
		cfg.DurationMillis = 1500
		list, _ := swarm.ParseFaults(f)
		cfg.Faults[list[0]] = 100
		if cfg.Validate() != nil {
			cfg.Nodes, cfg.Voters, cfg.Replication, cfg.MinISR, cfg.Operators, cfg.OperateMillis = 4, 3, 3, 2, 1, 100
			cfg.Faults[list[0]] = 400
		}
		r := run(t, 1, cfg)
		if r.Verdict != sim.OK {
			t.Errorf("%s: %s", f, r.Explain())
		}
		for name, n := range r.Faults {
			seen[name] += n
		}
	}
	for _, name := range []string{
		"kill", "power cut", "clean stop", "disk: sync error", "disk: read error", "disk: write error", "disk: no space",
		"slow disk", "disk: bit flip", "broken sector", "net: connection reset", "net: half-open link", "net: cut link",
		"net: slow link", "net: lost response", "net: split send", "pause", "wall clock step",
		"recovery", "recovery replayed the journal", "stopped over a disk error",
		"leader isolated", "nodes in two parts", "nodes with a bridge", "node deaf to another", "connection between nodes reset",
		"slow link between nodes", "rolling restart", "pause longer than a session", "clock drifts", "disk wiped", "clock beyond the bound",
		"operator: partition moved", "operator: voter added",
	} {
		if seen[name] == 0 {
			t.Errorf("%s never happened", name)
		}
	}
}
