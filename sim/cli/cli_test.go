package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawlbroker/pawl/sim/cli"
)

func pawlsim(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = cli.Main(args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestRunPrintsTheObjectOfTheContract(t *testing.T) {
	status, out, errs := pawlsim("run", "--seed", "7", "--duration", "300ms", "--json")
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"seed", "verdict", "trace_hash", "config", "simulated_ms", "wall_ms", "events", "ops", "faults", "reached", "repro"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %s", key)
		}
	}
	if got["repro"] != "pawlsim run --seed 7 --duration 300ms" || got["verdict"] != "ok" {
		t.Errorf("%v", got)
	}
}

func TestReplayShowsTheSameRunAndKnowsAnother(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "run.json")
	_, out, _ := pawlsim("run", "--seed", "7", "--duration", "300ms", "--json")
	if err := os.WriteFile(bundle, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	status, trace, errs := pawlsim("replay", "--bundle", bundle)
	if status != 0 || !strings.Contains(trace, "boot") {
		t.Fatalf("status %d: %s", status, errs)
	}
	if status, _, errs := pawlsim("replay", "--seed", "8", "--duration", "300ms", "--hash", "0123", "--trace", os.DevNull); status != 1 || !strings.Contains(errs, "trace hash") {
		t.Fatalf("status %d: %s", status, errs)
	}
}

func TestSweepSumsUp(t *testing.T) {
	status, out, errs := pawlsim("sweep", "--seeds", "1-4", "--jobs", "1", "--duration", "200ms", "--json")
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last struct {
		Summary struct{ Seeds, Red int }
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 5 || last.Summary.Seeds != 4 || last.Summary.Red != 0 {
		t.Fatalf("%s", out)
	}
}

func TestWrongUsageIsStatus2(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--nodes", "8"}, {"run", "--faults", "plague"}, {"run", "--workload", "x"}, {"run", "--duration", "1us"},
		{"run", "--colour"}, {"run", "extra"}, {"sweep", "--seeds", "9-1"}, {"sweep", "--seeds", "x"}, {"fly"}, {"run", "--set", "a=1"},
	} {
		if status, _, errs := pawlsim(args...); status != 2 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: status %d: %q", args, status, errs)
		}
	}
}
