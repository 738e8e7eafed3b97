package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/sim"
	"github.com/pawlbroker/pawl/sim/swarm"
)

// report is a run as JSON. Its names are part of the contract.
type report struct {
	Seed        uint64           `json:"seed"`
	Verdict     string           `json:"verdict"`
	Violation   *violation       `json:"violation,omitempty"`
	TraceHash   string           `json:"trace_hash"`
	Config      string           `json:"config"`
	SimulatedMS int64            `json:"simulated_ms"`
	WallMS      int64            `json:"wall_ms"`
	Events      int64            `json:"events"`
	Ops         ops              `json:"ops"`
	Faults      map[string]int64 `json:"faults"`
	Reached     map[string]int64 `json:"reached"`
	Repro       string           `json:"repro"`
}

type violation struct {
	Check string `json:"check"`
	Text  string `json:"text"`
	At    string `json:"at"` // simulated time
}

type ops struct {
	OK      int `json:"ok"`
	Failed  int `json:"failed"`
	Unknown int `json:"unknown"`
}

func reportOf(r *sim.Result, o *options, wall time.Duration) report {
	out := report{
		Seed: r.Seed, Verdict: r.Verdict, TraceHash: fmt.Sprintf("%016x", r.Hash), Config: r.Config.String(),
		SimulatedMS: r.Simulated.Milliseconds(), WallMS: wall.Milliseconds(), Events: r.Events,
		Ops: ops{r.OK, r.Failed, r.Unknown}, Faults: r.Faults, Reached: r.Reached,
		Repro: fmt.Sprintf("pawlsim run --seed %d%s", r.Seed, o.args()),
	}
	if v := r.Violation; v != nil {
		out.Violation = &violation{v.Check, v.Text, time.Duration(r.At).String()}
	}
	return out
}

// explain says in a few lines what came of a run, and how to see it again.
func (r *report) explain(w io.Writer) {
	fmt.Fprintf(w, "seed %d: %s", r.Seed, r.Verdict)
	if r.Violation != nil {
		fmt.Fprintf(w, " at %s\n  check: %s\n  found: %s", r.Violation.At, r.Violation.Check, r.Violation.Text)
	}
	fmt.Fprintf(w, "\n  hash %s, %d ms simulated, %d events, operations: %d ok, %d failed, %d unknown\n  again: %s\n",
		r.TraceHash, r.SimulatedMS, r.Events, r.Ops.OK, r.Ops.Failed, r.Ops.Unknown, r.Repro)
}

func runCommand() *cobra.Command {
	var o options
	var seed uint64
	var hist string
	var trace traced
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Run one seed and judge it",
		Example: "  pawlsim run --seed 42 --duration 10s --faults power,sync-error --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.config(seed)
			if err != nil {
				return err
			}
			start := time.Now()
			r, err := trace.run(seed, cfg, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			if hist != "" {
				if err := writeHistory(&r, hist); err != nil {
					return err
				}
			}
			return finish(cmd.OutOrStdout(), reportOf(&r, &o, time.Since(start)), asJSON)
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.Uint64Var(&seed, "seed", 1, "where everything random comes from")
	trace.flags(cmd, "")
	f.StringVar(&hist, "history", "", "write the clients' operations to this file, as JSON lines")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// finish prints a report; a run that is not ok is an error.
func finish(w io.Writer, rep report, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(w).Encode(rep); err != nil {
			return err
		}
	} else {
		rep.explain(w)
	}
	if rep.Verdict != sim.OK {
		return errRed
	}
	return nil
}

// traced is where a trace goes, and whose.
type traced struct {
	file string
	only []string
}

func (t *traced) flags(cmd *cobra.Command, file string) {
	f := cmd.Flags()
	f.StringVar(&t.file, "trace", file, "write everything that happens to this file; - is the output")
	f.StringSliceVar(&t.only, "only", nil, "leave all out of the trace but these: n1 a node, c0 a client, net, image, fault, world")
}

// run runs a seed with its trace in the file, if it has a name.
func (t *traced) run(seed uint64, cfg swarm.Config, stdout io.Writer) (sim.Result, error) {
	switch t.file {
	case "":
		return sim.Run(seed, cfg, nil)
	case "-":
		return sim.Run(seed, cfg, stdout, t.only...)
	}
	f, err := os.Create(t.file)
	if err != nil {
		return sim.Result{}, err
	}
	r, err := sim.Run(seed, cfg, f, t.only...)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return r, err
}

func writeHistory(r *sim.Result, name string) error {
	if r.History == nil {
		return fmt.Errorf("--history: the run ended before there was one")
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := r.History.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func replayCommand() *cobra.Command {
	var o options
	var seed uint64
	var bundle, want string
	var trace traced
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Run a seed again and show everything that happens",
		Long: "Run a seed again and show everything that happens. With --bundle, a file that\n" +
			"run --json has written, or with --hash, it fails if the run is not the same.",
		Example: "  pawlsim run --seed 42 --json > red.json; pawlsim replay --bundle red.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.config(seed)
			if err != nil {
				return err
			}
			if bundle != "" {
				rep, err := readBundle(bundle)
				if err != nil {
					return err
				}
				seed, want = rep.Seed, rep.TraceHash
				if cfg, err = swarm.Parse(rep.Config); err != nil {
					return fmt.Errorf("--bundle %s: %w", bundle, err)
				}
			}
			start := time.Now()
			r, err := trace.run(seed, cfg, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			rep := reportOf(&r, &o, time.Since(start))
			if want != "" && want != rep.TraceHash {
				return fmt.Errorf("seed %d: trace hash is %s, was %s: another version of the code, or not deterministic", seed, rep.TraceHash, want)
			}
			return finish(cmd.OutOrStdout(), rep, false)
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.Uint64Var(&seed, "seed", 1, "where everything random comes from")
	f.StringVar(&bundle, "bundle", "", "a file that run --json has written")
	f.StringVar(&want, "hash", "", "the trace hash that the run must have")
	trace.flags(cmd, "-")
	return cmd
}

func readBundle(name string) (report, error) {
	var rep report
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &rep)
	}
	if err != nil {
		return rep, fmt.Errorf("--bundle %s: %w", name, err)
	}
	return rep, nil
}
