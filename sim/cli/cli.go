// Package cli is the command line of the simulator.
package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/sim/swarm"
)

var (
	// errUsage is a command line that makes no sense: status 2.
	errUsage = errors.New("wrong usage")
	// errRed says that a run was not ok; everything has been said: status 1.
	errRed = errors.New("red")
)

// Main runs a command line and returns the exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	debug.SetGCPercent(2000) // a run is short and small, and most of it is garbage when the next begins
	root := &cobra.Command{
		Use:           "pawlsim",
		Short:         "Simulate a pawl cluster with faults, from a seed",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(runCommand(), sweepCommand(), workCommand(), replayCommand(), zooCommand())
	err := root.Execute()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errRed):
		return 1
	}
	fmt.Fprintln(stderr, "pawlsim:", err)
	if errors.Is(err, errUsage) || isCobraUsage(err) {
		return 2
	}
	return 1
}

// isCobraUsage recognises cobra's own complaint, which has no type.
func isCobraUsage(err error) bool {
	const unknown = "unknown command"
	return len(err.Error()) > len(unknown) && err.Error()[:len(unknown)] == unknown
}

// noArgs is cobra's check, as our error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %s takes no arguments, got %q", errUsage, cmd.Name(), args[0])
	}
	return nil
}

// options are the flags that say what a run is like.
type options struct {
	nodes    int
	workload string
	duration time.Duration
	faults   string
	set      string
}

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 1, "nodes in the cluster, to 7; 0 is for the seed to say")
	f.StringVar(&o.workload, "workload", "all", "what clients do: all, or names from: appendlog")
	f.DurationVar(&o.duration, "duration", 0, "simulated time with load and faults; 0 is 2s, or 10s with more than one node")
	f.StringVar(&o.faults, "faults", "all", "all, none, or names separated by commas")
	f.StringVar(&o.set, "set", "", "name=value words that replace what the seed has drawn")
}

// config is the run of a seed.
func (o *options) config(seed uint64) (swarm.Config, error) {
	switch {
	case o.nodes < 0 || o.nodes > swarm.MostNodes:
		return swarm.Config{}, fmt.Errorf("%w: --nodes %d: want 0 to %d", errUsage, o.nodes, swarm.MostNodes)
	case o.workload != "all" && o.workload != "appendlog":
		return swarm.Config{}, fmt.Errorf("%w: --workload %q: there is appendlog", errUsage, o.workload)
	case o.duration != 0 && o.duration < time.Millisecond:
		return swarm.Config{}, fmt.Errorf("%w: --duration %v: want at least 1ms", errUsage, o.duration)
	}
	faults, err := swarm.ParseFaults(o.faults)
	if err != nil {
		return swarm.Config{}, fmt.Errorf("%w: --faults: %w", errUsage, err)
	}
	c := swarm.Draw(seed, o.nodes, o.duration, faults)
	if err := c.Set(o.set); err != nil {
		return swarm.Config{}, fmt.Errorf("%w: --set: %w", errUsage, err)
	}
	return c, nil
}

// args are the flags again, for a command that repeats a run.
func (o *options) args() string {
	s := ""
	if o.nodes != 1 {
		s += fmt.Sprintf(" --nodes %d", o.nodes)
	}
	if o.duration != 0 {
		s += " --duration " + o.duration.String()
	}
	if o.faults != "all" {
		s += " --faults " + o.faults
	}
	if o.set != "" {
		s += fmt.Sprintf(" --set %q", o.set)
	}
	return s
}
