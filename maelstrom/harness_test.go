package maelstrom

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/linearizability/anomaly"
	"github.com/pawlbroker/pawl/maelstrom/checker"
	"github.com/pawlbroker/pawl/maelstrom/harness"
)

var (
	runTime = flag.Duration("maelstrom.time", 4*time.Second, "how long each run under the harness drives its load")
	keep    = flag.String("maelstrom.dir", "", "where the nodes' data and logs are kept; empty for nowhere")
	seed    = flag.Uint64("maelstrom.seed", 1, "the seed of its load and faults")
)

// program is the node, built once.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetOutput(io.Discard) // Maelstrom's library writes a line for every message
	dir, err := os.MkdirTemp("", "pawlmaelstrom-test-")
	if err == nil {
		program = filepath.Join(dir, "pawlmaelstrom")
		build := exec.Command("go", "build", "-o", program, "../cmd/pawlmaelstrom")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the node:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(dir)
		os.Exit(status)
	}))
}

// folderOf is where the nodes of a run keep their data.
func folderOf(t *testing.T) string {
	if *keep == "" {
		return t.TempDir()
	}
	dir := filepath.Join(*keep, t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// launcher starts the real node on a directory that outlives it.
func launcher(t *testing.T, dir string, args ...string) harness.Launcher {
	return harness.Command(func(name string) *exec.Cmd {
		return node(t, dir, name, args...)
	})
}

// node is one life of a node, whose log goes to dir.
func node(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, append([]string{"dir=" + dir}, args...)...)
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		cmd.Stderr = log
		t.Cleanup(func() { log.Close() })
	}
	return cmd
}

// quick is a run for a unit test: a fault every second or so, or in a cluster,
// which needs longer to get over one, every other second.
func quick(nodes int, faults ...harness.Fault) harness.Config {
	cfg := harness.DefaultConfig()
	cfg.Seed, cfg.NodeCount, cfg.Concurrency = *seed, nodes, 12+2*(nodes-1)
	cfg.TimeLimit, cfg.Faults, cfg.FaultEvery = *runTime, faults, min(*runTime/8, 5*time.Second)
	cfg.AssignEvery, cfg.Rate = 16, 300
	cfg.RPCTimeout, cfg.Settle, cfg.Availability = time.Second, 200*time.Millisecond, 0.5
	if nodes > 1 {
		cfg.TimeLimit, cfg.FaultEvery = max(cfg.TimeLimit, 12*time.Second), max(cfg.FaultEvery, 2*time.Second)
		cfg.RPCTimeout, cfg.Settle, cfg.Latency, cfg.Rate = 5*time.Second, 2*time.Second, 5*time.Millisecond, 100
	}
	return cfg
}

// orphaned is a run in which the first node, which led at first, dies.
func orphaned(cfg harness.Config) harness.Config {
	cfg.Deaths = 1
	return cfg
}

func TestNodeUnderFaults(t *testing.T) {
	for _, run := range []struct {
		name string
		cfg  harness.Config
		args []string
	}{
		{"kill -9 and restart", quick(1, harness.Kill), nil},
		{"kill -9 and pauses", quick(1, harness.Kill, harness.Pause), []string{"sync=false"}},
		{"three nodes, partitions, kill -9 and pauses", quick(3, harness.Partition, harness.Kill, harness.KillAll, harness.Pause), []string{"sync=false"}},
		{"five nodes, and soon four", orphaned(quick(5, harness.Partition, harness.OneWay, harness.Kill, harness.Pause)), []string{"sync=false"}},
	} {
		t.Run(run.name, func(t *testing.T) {
			t.Parallel()
			dir := folderOf(t)
			result, err := harness.Run(run.cfg, launcher(t, dir, run.args...))
			t.Logf("to repeat this: go test ./maelstrom -count=1 -run '%s' -maelstrom.seed %d -maelstrom.time %s", t.Name(), *seed, *runTime)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(result)
			if !result.Valid() {
				t.Errorf("not valid")
			}
			checkDisks(t, dir, result, min(2, run.cfg.NodeCount))
		})
	}
}

// The runs above mean something: a node that comes back without what it had
// acknowledged is found out.
func TestHarnessSeesANodeThatForgets(t *testing.T) {
	t.Parallel()
	cfg := quick(1, harness.Kill)
	cfg.TimeLimit, cfg.FaultEvery = 3*time.Second, 300*time.Millisecond
	result, err := harness.Run(cfg, harness.Command(func(name string) *exec.Cmd {
		return node(t, t.TempDir(), name, "sync=false")
	}))
	if err != nil {
		t.Fatal(err)
	}
	if found := result.Verdict.Found; len(found[anomaly.Unseen])+len(found[anomaly.LostWrite]) == 0 {
		t.Errorf("no write was lost: %s", result)
	}
	if found := result.Verdict.Found; len(found[checker.CommitLost]) == 0 {
		t.Errorf("no commit was lost: %s", result)
	}
}
