package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawlbroker/pawl/sim"
	"github.com/pawlbroker/pawl/sim/swarm"
)

// seeds is a range, both ends inclusive.
type seeds struct{ from, to uint64 }

func parseSeeds(text string) (seeds, error) {
	a, b, two := strings.Cut(text, "-")
	if !two {
		b = a
	}
	from, errA := strconv.ParseUint(a, 10, 63)
	to, errB := strconv.ParseUint(b, 10, 63)
	if errA != nil || errB != nil || from > to {
		return seeds{}, fmt.Errorf("%w: --seeds %q: want FROM-TO", errUsage, text)
	}
	return seeds{from, to}, nil
}

// sweep is a sweep's flags.
type sweep struct {
	options
	seeds     string
	jobs      int
	keepGoing bool
	once      bool
	asJSON    bool
	marks     bool
}

func (s *sweep) flags(cmd *cobra.Command) {
	s.options.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.seeds, "seeds", "1-100", "the seeds to run, FROM-TO")
	f.BoolVar(&s.once, "once", false, "run each seed once, not twice with their hashes compared")
}

func sweepCommand() *cobra.Command {
	var s sweep
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Run many seeds, each twice, and stop at the first that is red",
		Example: "  pawlsim sweep --seeds 1-1000\n" +
			"  pawlsim sweep --seeds 1-100 --duration 10s --keep-going --json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.IntVar(&s.jobs, "jobs", runtime.GOMAXPROCS(0), "how many processes share the work")
	f.BoolVar(&s.keepGoing, "keep-going", false, "do not stop at the first red seed")
	f.BoolVar(&s.asJSON, "json", false, "print one JSON object for each seed, and a summary")
	f.BoolVar(&s.marks, "require-marks", false, fmt.Sprintf("be red if a fault that a run had never struck in %d seeds, or a mark of sim/marks.txt was never reached in %d", seedsForFaults, seedsForMarks))
	return cmd
}

// errHash is a run that was not the same the second time.
const hashCheck = "the same seed is the same run"

// twice runs a seed twice and compares.
func (s *sweep) twice(seed uint64) (report, error) {
	cfg, err := s.config(seed)
	if err != nil {
		return report{}, err
	}
	start := time.Now()
	r, err := sim.Run(seed, cfg, nil)
	if err != nil {
		return report{}, err
	}
	rep := reportOf(&r, &s.options, time.Since(start))
	if s.once {
		return rep, nil
	}
	again, err := sim.Run(seed, cfg, nil)
	if err != nil {
		return report{}, err
	}
	if again.Hash != r.Hash {
		rep.Verdict = sim.Violation
		rep.Violation = &violation{hashCheck, fmt.Sprintf("trace hash %016x, then %016x", r.Hash, again.Hash), "?"}
	}
	return rep, nil
}

// workCommand runs every jobs-th seed and prints a report a line: the part of
// a sweep that one process does.
func workCommand() *cobra.Command {
	var s sweep
	var first, step uint64
	cmd := &cobra.Command{
		Use: "work", Hidden: true, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := parseSeeds(s.seeds)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			enc := json.NewEncoder(out)
			for seed := r.from + first; seed <= r.to; seed += max(step, 1) {
				rep, err := s.twice(seed)
				if err != nil {
					return err
				}
				if err := errors.Join(enc.Encode(rep), out.Flush()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().Uint64Var(&first, "first", 0, "")
	cmd.Flags().Uint64Var(&step, "step", 1, "")
	return cmd
}

// worker is one process of a sweep, or this one.
type worker struct {
	next func() (report, error)
	stop func()
}

// start starts worker i of n. One process simulates one run at a time.
func (s *sweep) start(i, n int, r seeds, stderr io.Writer) (worker, error) {
	if n == 1 {
		seed := r.from
		return worker{func() (report, error) { seed++; return s.twice(seed - 1) }, func() {}}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return worker{}, err
	}
	args := []string{"work", "--seeds", s.seeds, "--first", strconv.Itoa(i), "--step", strconv.Itoa(n),
		"--nodes", strconv.Itoa(s.nodes), "--workload", s.workload, "--duration", s.duration.String(), "--faults", s.faults, "--set", s.set}
	if s.once {
		args = append(args, "--once")
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return worker{}, err
	}
	if err := cmd.Start(); err != nil {
		return worker{}, err
	}
	dec := json.NewDecoder(out)
	next := func() (rep report, err error) {
		if err = dec.Decode(&rep); err != nil {
			err = fmt.Errorf("worker %d: %w", i, errors.Join(err, cmd.Wait()))
		}
		return rep, err
	}
	return worker{next, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}}, nil
}

func (s *sweep) run(stdout, stderr io.Writer) error {
	r, err := parseSeeds(s.seeds)
	if err != nil {
		return err
	}
	if _, err := s.config(r.from); err != nil {
		return err
	}
	n := max(1, s.jobs)
	if width := r.to - r.from + 1; uint64(n) > width {
		n = int(width)
	}
	workers := make([]worker, n)
	for i := range workers {
		w, err := s.start(i, n, r, stderr)
		if err != nil {
			return err
		}
		defer w.stop()
		workers[i] = w
	}
	sum := summary{Faults: map[string]int64{}, Reached: map[string]int64{}}
	var wanted [swarm.FaultKinds]bool
	start := time.Now()
	enc := json.NewEncoder(stdout)
	progress := newProgress(stderr)
	for seed := r.from; seed <= r.to; seed++ {
		rep, err := workers[(seed-r.from)%uint64(n)].next()
		if err != nil {
			return err
		}
		sum.add(&rep)
		if s.marks {
			if err := want(&wanted, rep.Config); err != nil {
				return err
			}
		}
		progress.show(seed-r.from+1, r.to-r.from+1, sum.Red)
		if s.asJSON {
			if err := enc.Encode(rep); err != nil {
				return err
			}
		} else if rep.Verdict != sim.OK {
			progress.clear()
			rep.explain(stdout)
		}
		if rep.Verdict != sim.OK && !s.keepGoing {
			break
		}
	}
	progress.clear()
	sum.WallMS = time.Since(start).Milliseconds()
	if s.marks {
		sum.Missing = sum.missing(wanted)
	}
	if s.asJSON {
		if err := enc.Encode(struct {
			Summary summary `json:"summary"`
		}{sum}); err != nil {
			return err
		}
	} else {
		sum.print(stdout)
	}
	if sum.Red > 0 || len(sum.Missing) > 0 {
		return errRed
	}
	return nil
}

// summary is a sweep in numbers.
type summary struct {
	Seeds       int              `json:"seeds"`
	Red         int              `json:"red"`
	SimulatedMS int64            `json:"simulated_ms"`
	WallMS      int64            `json:"wall_ms"`
	Events      int64            `json:"events"`
	Ops         ops              `json:"ops"`
	Faults      map[string]int64 `json:"faults"`
	Reached     map[string]int64 `json:"reached"`
	RedSeeds    []uint64         `json:"red_seeds"`
	Missing     []string         `json:"missing,omitempty"` // what --require-marks has not seen
}

func (s *summary) add(r *report) {
	s.Seeds++
	if r.Verdict != sim.OK {
		s.Red++
		s.RedSeeds = append(s.RedSeeds, r.Seed)
	}
	s.SimulatedMS += r.SimulatedMS
	s.Events += r.Events
	s.Ops.OK += r.Ops.OK
	s.Ops.Failed += r.Ops.Failed
	s.Ops.Unknown += r.Ops.Unknown
	for name, n := range r.Faults { //pawl:unordered sums
		s.Faults[name] += n
	}
	for name, n := range r.Reached { //pawl:unordered sums
		s.Reached[name] += n
	}
}

// How many seeds it takes for a silence to mean something.
const (
	seedsForFaults = 500
	seedsForMarks  = 1000
)

// want notes the faults that a run had in its configuration.
func want(wanted *[swarm.FaultKinds]bool, config string) error {
	cfg, err := swarm.Parse(config)
	for kind, every := range cfg.Faults {
		wanted[kind] = wanted[kind] || every > 0
	}
	return err
}

// missing is what has never happened, though it was to.
func (s *summary) missing(wanted [swarm.FaultKinds]bool) []string {
	var out []string
	for kind := range swarm.FaultKinds {
		if s.Seeds >= seedsForFaults && wanted[kind] && s.Faults[sim.Happened(kind)] == 0 {
			out = append(out, fmt.Sprintf("fault %s never struck: no %q", kind, sim.Happened(kind)))
		}
	}
	for _, m := range sim.Marks() {
		switch n := s.Reached[m.Name]; {
		case m.Beyond != "" && n > 0:
			out = append(out, fmt.Sprintf("mark %q was reached, and sim/marks.txt says that it cannot be", m.Name))
		case m.Beyond == "" && m.Rare == "" && n == 0 && s.Seeds >= seedsForMarks:
			out = append(out, fmt.Sprintf("mark %q was never reached", m.Name))
		}
	}
	return out
}

func (s *summary) print(w io.Writer) {
	fmt.Fprintf(w, "%d seeds, %d red; %.1f s simulated, %d events, operations: %d ok, %d failed, %d unknown; %.1f s\n",
		s.Seeds, s.Red, float64(s.SimulatedMS)/1000, s.Events, s.Ops.OK, s.Ops.Failed, s.Ops.Unknown, float64(s.WallMS)/1000)
	for _, part := range []struct {
		title string
		m     map[string]int64
	}{{"what happened", s.Faults}, {"what was reached", s.Reached}} {
		fmt.Fprintf(w, "%s:\n", part.title)
		for _, name := range slices.Sorted(maps.Keys(part.m)) {
			fmt.Fprintf(w, "  %8d  %s\n", part.m[name], name)
		}
	}
	for _, what := range s.Missing {
		fmt.Fprintln(w, "missing:", what)
	}
}

// progress is a line on a terminal, and nothing in a pipe.
type progress struct {
	w     io.Writer
	shown time.Time
}

func newProgress(w io.Writer) *progress {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &progress{w: w}
	}
	return &progress{}
}

func (p *progress) show(done, all uint64, red int) {
	if p.w == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.w, "\r\033[K%d of %d seeds, %d red", done, all, red)
}

func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
