package maelstrom

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/maelstrom/checker"
	"github.com/pawlbroker/pawl/maelstrom/harness"
)

// inside is a run of nodes in this process, in virtual time: however slow the
// machine, no timeout is early. A node that is killed ends in good order there.
type inside struct {
	harness.Config
	acks    int16
	forgets []string // nodes whose every life begins with an empty disk
}

// cut is a run of nodes that lose sight of each other again and again.
func cut(nodes int, faults ...harness.Fault) inside {
	cfg := harness.DefaultConfig()
	cfg.Seed, cfg.NodeCount, cfg.Concurrency, cfg.Rate, cfg.TimeLimit = *seed, nodes, 2*nodes, 50, 5**runTime
	cfg.Faults, cfg.FaultEvery, cfg.Latency = faults, 4*time.Second, 5*time.Millisecond
	cfg.AssignEvery, cfg.Availability = 16, 0.75
	return inside{Config: cfg, acks: acksAll}
}

func (c inside) run(t *testing.T) (result harness.Result, dir string) {
	dir = t.TempDir()
	var lives atomic.Int64
	serveNode := func(name string, in io.Reader, out io.Writer) {
		at := dir
		if slices.Contains(c.forgets, name) {
			at = filepath.Join(dir, fmt.Sprint("life", lives.Add(1)))
		}
		err := serve(Config{Dir: at}, c.acks, in, out, slog.New(slog.DiscardHandler))
		if err != nil && !errors.Is(err, io.ErrClosedPipe) { // which is how it is killed
			t.Errorf("%s: %v", name, err)
		}
	}
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if result, err = harness.Run(c.Config, harness.Inside(serveNode)); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("in %v: %s", time.Since(began), result)
	return result, dir
}

func TestClusterInVirtualTime(t *testing.T) {
	dies, forgets := cut(5, harness.Partition), cut(3, harness.Kill)
	dies.Deaths, forgets.forgets = 1, []string{"n2"}
	for name, c := range map[string]inside{
		"two nodes": cut(2, harness.Partition), "three nodes": cut(3, harness.Partition, harness.OneWay),
		"three nodes that are restarted": cut(3, harness.Partition, harness.Kill),
		"three nodes, one forgets":       forgets, "five nodes, and soon four": dies,
	} {
		t.Run(name, func(t *testing.T) {
			result, dir := c.run(t)
			if !result.Valid() {
				t.Error("not valid")
			}
			if len(c.forgets) == 0 {
				checkDisks(t, dir, result, 2)
			}
		})
	}
}

// The runs above mean something: they find nodes that acknowledge what only the
// leader has, and nodes that forget.
func TestCheckerSeesWhatAClusterLoses(t *testing.T) {
	early, forgets := cut(3, harness.Partition), cut(3, harness.KillAll)
	early.acks, forgets.forgets = 1, []string{"n0", "n1", "n2"}
	for name, c := range map[string]inside{"what only a leader had": early, "what nobody has": forgets} {
		t.Run(name, func(t *testing.T) {
			writes, commits := false, false
			for range 10 { // a few partitions may happen to cut off no leader that is written to
				result, _ := c.run(t)
				found := result.Verdict.Found
				writes = writes || len(found[anomaly.LostWrite])+len(found[anomaly.Unseen]) > 0
				if commits = commits || len(found[checker.CommitLost]) > 0; writes && commits {
					return
				}
				c.Seed++
			}
			t.Errorf("lost writes found: %t, lost commits: %t", writes, commits)
		})
	}
}
