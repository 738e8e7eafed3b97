package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/sim"
	"github.com/pawlbroker/pawl/sim/zoo"
)

// kill is what became of one mutant.
type kill struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Killed   bool     `json:"killed"`
	Check    string   `json:"check,omitempty"` // that saw it first
	Expected bool     `json:"expected"`        // that check was meant to
	Want     []string `json:"want"`
	Seed     uint64   `json:"seed,omitempty"`
	Seeds    int      `json:"seeds"` // run until then
	WallMS   int64    `json:"wall_ms"`
	Error    string   `json:"error,omitempty"` // it could not be built or run
}

type zooFlags struct {
	ids    string
	seeds  int
	root   string
	asJSON bool
}

func zooCommand() *cobra.Command {
	var z zooFlags
	cmd := &cobra.Command{
		Use:   "zoo",
		Short: "Put published bugs in, one by one, and see whether they are found",
		Long: "Put published bugs in, one by one, and see whether they are found. It needs the\n" +
			"source and the Go toolchain. A mutant that survives, or that no longer applies,\n" +
			"makes the status 1.",
		Example: "  pawlsim zoo --id S01,S02 --seeds 500",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return z.run(cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&z.ids, "id", "", "only these, separated by commas")
	f.IntVar(&z.seeds, "seeds", 500, "how many seeds to try")
	f.StringVar(&z.root, "root", ".", "the directory of the module")
	f.BoolVar(&z.asJSON, "json", false, "print one JSON object for each mutant")
	return cmd
}

func (z *zooFlags) run(stdout io.Writer) error {
	root, err := filepath.Abs(z.root)
	if err != nil {
		return err
	}
	mutants, err := zoo.Load(filepath.Join(root, "sim", "zoo"))
	if err != nil {
		return err
	}
	if z.ids != "" {
		ids := strings.Split(z.ids, ",")
		mutants = slices.DeleteFunc(mutants, func(m zoo.Mutant) bool { return !slices.Contains(ids, m.ID) })
		if len(mutants) != len(ids) {
			return fmt.Errorf("%w: --id %s: %d of them are in the zoo", errUsage, z.ids, len(mutants))
		}
	}
	dir, err := os.MkdirTemp("", "pawlsim-zoo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bad := 0
	for _, m := range mutants {
		k := z.hunt(m, root, dir)
		if !k.Killed {
			bad++
		}
		if err := k.print(stdout, z.asJSON); err != nil {
			return err
		}
	}
	if !z.asJSON {
		fmt.Fprintf(stdout, "%d of %d killed\n", len(mutants)-bad, len(mutants))
	}
	if bad > 0 {
		return errRed
	}
	return nil
}

// hunt builds the simulator with a mutant in it and runs seeds until one is
// red.
func (z *zooFlags) hunt(m zoo.Mutant, root, dir string) (k kill) {
	k = kill{ID: m.ID, Title: m.Title, Want: m.Checkers}
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		k.Error = err.Error()
		return k
	}
	binary := filepath.Join(dir, m.ID+".exe")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./cmd/pawlsim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		k.Error = fmt.Sprintf("build: %v: %s", err, out)
		return k
	}
	defer os.Remove(binary)
	start := time.Now()
	run := exec.Command(binary, "sweep", "--once", "--json", "--seeds", fmt.Sprintf("1-%d", z.seeds), "--faults", m.Faults, "--set", m.Set)
	out, err := run.Output()
	k.WallMS = time.Since(start).Milliseconds()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		k.Error = err.Error()
		return k
	}
	for line := range strings.Lines(string(out)) {
		var rep report
		if json.Unmarshal([]byte(line), &rep) != nil || rep.Verdict == "" {
			continue
		}
		k.Seeds++
		if rep.Verdict != sim.OK {
			k.Killed, k.Seed = true, rep.Seed
			if rep.Violation != nil {
				k.Check, k.Expected = rep.Violation.Check, m.Expected(rep.Violation.Check)
			}
			return k
		}
	}
	if err != nil {
		k.Error = fmt.Sprintf("%v: %s", err, exit.Stderr)
	}
	return k
}

func (k *kill) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(k)
	}
	switch {
	case k.Error != "":
		fmt.Fprintf(w, "%-6s NOT RUN   %s: %s\n", k.ID, k.Title, k.Error)
	case !k.Killed:
		fmt.Fprintf(w, "%-6s SURVIVED  %s: %d seeds in %d ms\n", k.ID, k.Title, k.Seeds, k.WallMS)
	default:
		note := ""
		if !k.Expected {
			note = ", which was not expected to"
		}
		fmt.Fprintf(w, "%-6s killed    %s: seed %d, after %d seeds and %d ms, by %q%s\n", k.ID, k.Title, k.Seed, k.Seeds, k.WallMS, k.Check, note)
	}
	return nil
}
