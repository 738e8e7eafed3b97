package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/sim/zoo"
)

// sight is who saw a mutant, and what it took.
type sight struct {
	Check       string `json:"check"`
	Seed        uint64 `json:"seed"`
	Seeds       int    `json:"seeds"` // run until then
	SimulatedMS int64  `json:"simulated_ms"`
	WallMS      int64  `json:"wall_ms"`
}

func (s *sight) String() string {
	return fmt.Sprintf("seed %d, after %d seeds, %.1f s simulated and %d ms, by %q", s.Seed, s.Seeds, float64(s.SimulatedMS)/1000, s.WallMS, s.Check)
}

// kill is what became of one mutant. It counts if a check saw it that was meant
// to, in a seed that is green without the mutant; if an assertion came before, then
// in code without assertions.
type kill struct {
	ID     string   `json:"id"`
	Title  string   `json:"title"`
	Killed bool     `json:"killed"`
	Want   []string `json:"want"`
	First  *sight   `json:"first,omitempty"` // anything at all
	By     *sight   `json:"by,omitempty"`    // a check that was meant to
	Deaf   bool     `json:"deaf,omitempty"`  // By is without assertions
	Seeds  int      `json:"seeds"`           // run, all in all
	WallMS int64    `json:"wall_ms"`
	Error  string   `json:"error,omitempty"` // it could not be built or run
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
			"makes the status 1. So does one that is seen by nothing but an assertion, or by\n" +
			"checks that its file does not name.",
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
	sound := filepath.Join(dir, "sound.exe")
	if err := build(root, sound); err != nil {
		return err
	}
	bad := 0
	for _, m := range mutants {
		k := z.hunt(m, root, dir)
		if k.Killed {
			k.compare(m, sound)
		}
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

// hunt looks for a mutant, and where an assertion is the first to see it, once
// more without assertions.
func (z *zooFlags) hunt(m zoo.Mutant, root, dir string) kill {
	k := kill{ID: m.ID, Title: m.Title, Want: m.Checkers}
	err := z.seek(m, root, dir, &k)
	if err == nil && k.By == nil && k.First != nil && zoo.Inside(k.First.Check) {
		k.Deaf = true
		err = z.seek(m.WithoutAssertions(), root, dir, &k)
	}
	if err != nil {
		k.Error = err.Error()
	}
	k.Killed = k.By != nil
	return k
}

// build builds the simulator.
func build(root, binary string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", binary, "./cmd/pawlsim")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
}

// sweepOf runs seeds as a mutant wants them run.
func sweepOf(binary string, m zoo.Mutant, seeds string) *exec.Cmd {
	return exec.Command(binary, "sweep", "--once", "--json", "--keep-going", "--seeds", seeds,
		"--nodes", m.Nodes, "--duration", m.Duration, "--faults", m.Faults, "--set", m.Set)
}

// compare takes a kill back whose seed is red in the sound simulator too: then
// the check has seen something else.
func (k *kill) compare(m zoo.Mutant, sound string) {
	out, err := sweepOf(sound, m, fmt.Sprintf("%d-%[1]d", k.By.Seed)).Output()
	if err != nil {
		k.Killed = false
		k.Error = fmt.Sprintf("seed %d is not green without it: %v: %.300s", k.By.Seed, err, out)
	}
}

// seek builds the simulator with a mutant in it and runs seeds until a check
// sees it that is meant to, or an assertion does.
func (z *zooFlags) seek(m zoo.Mutant, root, dir string, k *kill) error {
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		return err
	}
	binary := filepath.Join(dir, m.ID+".exe")
	if err := build(root, binary, "-overlay", overlay); err != nil {
		return err
	}
	defer os.Remove(binary)
	start, seeds, simulated := time.Now(), 0, int64(0)
	var stderr strings.Builder
	run := sweepOf(binary, m, fmt.Sprintf("1-%d", z.seeds))
	run.Stderr = &stderr
	out, err := run.StdoutPipe()
	if err == nil {
		err = run.Start()
	}
	if err != nil {
		return err
	}
	defer func() { k.Seeds += seeds; k.WallMS += time.Since(start).Milliseconds() }()
	for dec := json.NewDecoder(out); ; {
		var rep report
		switch err := dec.Decode(&rep); {
		case err != nil || rep.Verdict == "": // the end, or the summary before it
			if err := run.Wait(); err != nil && seeds < z.seeds {
				return fmt.Errorf("%w: %s", err, stderr.String())
			}
			return nil
		}
		seeds++
		simulated += rep.SimulatedMS
		if rep.Violation == nil {
			continue
		}
		s := &sight{rep.Violation.Check, rep.Seed, seeds, simulated, time.Since(start).Milliseconds()}
		if k.First == nil {
			k.First = s
		}
		if expected := m.Expected(s.Check); expected || zoo.Inside(s.Check) && !k.Deaf {
			if expected {
				k.By = s
			}
			_ = run.Process.Kill()
			_ = run.Wait()
			return nil
		}
	}
}

func (k *kill) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(k)
	}
	switch {
	case k.Error != "":
		fmt.Fprintf(w, "%-6s NOT RUN   %s: %s\n", k.ID, k.Title, k.Error)
	case k.First == nil:
		fmt.Fprintf(w, "%-6s SURVIVED  %s: %d seeds in %d ms\n", k.ID, k.Title, k.Seeds, k.WallMS)
	case k.By == nil:
		fmt.Fprintf(w, "%-6s NOT SEEN  %s: %s; by no check that was meant to in %d seeds\n", k.ID, k.Title, k.First, k.Seeds)
	case k.Deaf:
		fmt.Fprintf(w, "%-6s killed    %s: %s; without assertions: %s\n", k.ID, k.Title, k.First, k.By)
	case *k.First != *k.By:
		fmt.Fprintf(w, "%-6s killed    %s: %s; before that by %q\n", k.ID, k.Title, k.By, k.First.Check)
	default:
		fmt.Fprintf(w, "%-6s killed    %s: %s\n", k.ID, k.Title, k.By)
	}
	return nil
}
