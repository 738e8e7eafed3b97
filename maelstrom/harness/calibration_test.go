package harness

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/maelstrom/checker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs fake nodes in virtual time.
func runFake(t *testing.T, cfg Config, f faults) (result Result, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := &fakeCluster{faults: f, states: map[string]*fakeState{}}
		result, err = Run(cfg, Inside(cluster.serve))
	})
	return result, err
}

// nodes is the default for so many nodes.
func nodes(n int, faults ...Fault) Config {
	cfg := DefaultConfig()
	cfg.NodeCount, cfg.Concurrency, cfg.TimeLimit = n, 2*n, 30*time.Second
	cfg.Faults = faults
	if n > 1 {
		cfg.Latency = 5 * time.Millisecond
	}
	return cfg
}

// TestCalibration plants faults whose verdict by Maelstrom itself is known. The
// harness must come to the same verdict, and find what Maelstrom found.
func TestCalibration(t *testing.T) {
	type anomalies = []anomaly.Kind
	busy := nodes(1)
	busy.Rate, busy.TimeLimit = 1000, 20*time.Second
	for _, row := range []struct {
		name     string
		cfg      Config
		faults   faults
		valid    bool // Maelstrom's verdict
		found    anomalies
		stricter bool // valid there, and not here: what Maelstrom only logs, or does not look for
		least    float64
	}{
		{name: "one node, busy", cfg: busy, valid: true, least: 0.99},
		{name: "three nodes forward to one, partitions", cfg: nodes(3, Partition), valid: true, least: 0.5},
		{name: "every 50th write lost", cfg: nodes(1), faults: faults{loseWrite: 50},
			found: anomalies{anomaly.LostWrite, anomaly.Unseen}},
		{name: "every 20th send at offset - 2", cfg: nodes(1), faults: faults{lowOffset: 20},
			found: anomalies{anomaly.InconsistentOffsets, anomaly.NonmonotonicSend, anomaly.LostWrite, anomaly.Unseen}},
		{name: "every 20th send answered with offset - 2", cfg: nodes(1), faults: faults{lowAnswer: 20},
			found: anomalies{anomaly.InconsistentOffsets, anomaly.Duplicate}},
		{name: "offset reused", cfg: nodes(1), faults: faults{reuseOffset: 20},
			found: anomalies{anomaly.InconsistentOffsets}},
		{name: "written twice", cfg: nodes(1), faults: faults{writeTwice: 20},
			found: anomalies{anomaly.Duplicate}},
		{name: "polls leave out a message", cfg: nodes(1), faults: faults{leaveOut: 20},
			found: anomalies{anomaly.PollSkip}},
		{name: "polls swap two messages", cfg: nodes(1), faults: faults{swap: 20},
			found: anomalies{anomaly.IntNonmonotonicPoll}},
		{name: "error 11 although written", cfg: nodes(1), faults: faults{refuseWritten: 20},
			found: anomalies{anomaly.AbortedRead}},
		{name: "error 13 although written", cfg: nodes(1), faults: faults{crashWritten: 20}, valid: true},
		{name: "no answer although written", cfg: nodes(1), faults: faults{silentWritten: 20}, valid: true},
		{name: "half of the keys never returned", cfg: nodes(1), faults: faults{hideKeys: true},
			found: anomalies{anomaly.Unseen}},
		{name: "two nodes that do not replicate", cfg: nodes(2), faults: faults{apart: true},
			found: anomalies{anomaly.InconsistentOffsets}},
		{name: "error 11 to commit_offsets", cfg: nodes(1), faults: faults{refuseCommit: 10},
			found: anomalies{anomaly.PollSkip}},
		{name: "error 13 to commit_offsets", cfg: nodes(1), faults: faults{crashCommit: 10}, valid: true},
		{name: "committed offsets 1000 too high", cfg: nodes(1), faults: faults{committedHigh: 1000}, valid: true,
			stricter: true, found: anomalies{checker.CommitMadeUp}},
		{name: "one send answered after 7 s", cfg: nodes(1), faults: faults{lateSend: 300},
			found: anomalies{anomaly.Unseen}},
		{name: "one line of garbage on stdout", cfg: nodes(3), faults: faults{garbageAt: 400}, valid: true, stricter: true},
		{name: "extra field in send_ok", cfg: nodes(1), faults: faults{extraField: 20}, valid: true, stricter: true},
		{name: "kill and restart, state in a file", cfg: nodes(1, Kill), valid: true},
		{name: "kill and restart, state in memory", cfg: nodes(1, Kill), faults: faults{forgetOnReboot: true},
			found: anomalies{anomaly.LostWrite, anomaly.InconsistentOffsets, anomaly.Unseen}},

		// What Maelstrom does not check.
		{name: "a commit answered and not kept", cfg: nodes(1), faults: faults{forgetCommit: 3}, valid: true,
			stricter: true, found: anomalies{checker.CommitLost}},
		{name: "polls behind what was acknowledged", cfg: nodes(1), faults: faults{stalePoll: 7}, valid: true,
			stricter: true, found: anomalies{anomaly.StaleRead}},
	} {
		t.Run(row.name, func(t *testing.T) {
			result, err := runFake(t, row.cfg, row.faults)
			if err != nil {
				t.Fatal(err)
			}
			v := result.Verdict
			t.Log(result)
			if got := v.Maelstrom(row.least); got != row.valid {
				t.Errorf("Maelstrom's verdict %t, want %t", got, row.valid)
			}
			if got, want := result.Valid(), row.valid && !row.stricter; got != want {
				t.Errorf("our verdict %t, want %t", got, want)
			}
			for _, a := range row.found {
				if len(v.Found[a]) == 0 {
					t.Errorf("%s was not found", a)
				}
			}
		})
	}
}

func TestNodeThatExitsGivesNoVerdict(t *testing.T) {
	if _, err := runFake(t, nodes(1), faults{exitAt: 100}); !errors.Is(err, ErrNodeExited) {
		t.Errorf("error %v, want %v", err, ErrNodeExited)
	}
}

// Crashes of clients count as operations and are never ok.
func TestTotalAvailabilityCannotBeReached(t *testing.T) {
	result, err := runFake(t, nodes(1), faults{})
	if err != nil {
		t.Fatal(err)
	}
	if v := result.Verdict; v.Maelstrom(1) || !v.Maelstrom(0.95) {
		t.Errorf("valid with total availability %t and with 0.95 %t, want false and true: %s", v.Maelstrom(1), v.Maelstrom(0.95), v)
	}
}

func TestSameSeedSameLoad(t *testing.T) {
	first, err := runFake(t, nodes(3, Partition, Kill), faults{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := runFake(t, nodes(3, Partition, Kill), faults{})
	if err != nil {
		t.Fatal(err)
	}
	if first.Faults[Kill] != second.Faults[Kill] || first.Faults[Partition] != second.Faults[Partition] || first.Faults[Kill] == 0 {
		t.Errorf("faults %v and %v, want the same", first.Faults, second.Faults)
	}
}
