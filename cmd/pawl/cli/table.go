package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawlbroker/pawl/workloads/load/contest"
)

// errMissed is the negative result of bench table.
var errMissed = errors.New("not every goal was met: see the lines marked missed or unknown")

func (a *App) benchTable() *cobra.Command {
	cfg := contest.DefaultConfig("")
	var goals, options []string
	cmd := &cobra.Command{
		Use: "table", Short: "Measure pawl beside the null broker, goal by goal", Args: Positional(),
		Long: `Measure pawl beside the null broker, goal by goal: both in processes of their own, in turn,
medians of several rounds. It takes about five minutes. Exits with 1 if a goal was missed.

The directory should be on the disk that matters: on a tmpfs a sync costs nothing.`,
		Example: `  pawl bench table --dir /var/tmp
  pawl bench table --goal P1,P3 --rounds 7 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Rounds < 1 {
				return Usage("--rounds %d: want 1 or more", cfg.Rounds)
			}
			systems, err := contestants(options)
			if err != nil {
				return err
			}
			wanted, err := chosen(contest.Goals(systems), goals)
			if err != nil {
				return err
			}
			return a.runTable(cmd, wanted, cfg)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&goals, "goal", nil, "only these goals, such as P1,P3 (default all)")
	flags.IntVar(&cfg.Rounds, "rounds", cfg.Rounds, "how often each is run; the median counts")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long each run is measured")
	flags.DurationVar(&cfg.Warmup, "warmup", cfg.Warmup, "how long each run warms up")
	flags.IntVar(&cfg.IdlePartitions, "idle-partitions", cfg.IdlePartitions, "how many partitions P9 has")
	flags.StringVar(&cfg.Dir, "dir", os.TempDir(), "where data directories are made, and removed again")
	flags.StringArrayVar(&options, "serve-arg", nil, "further argument for pawl serve, such as --set=key=value")
	flags.BoolVar(&a.json, "json", false, "print JSON, for programs")
	return cmd
}

// contestants are this very program, as a broker and as the null broker.
func contestants(options []string) (contest.Systems, error) {
	self, err := os.Executable()
	if err != nil {
		return contest.Systems{}, fmt.Errorf("find this program: %w", err)
	}
	return contest.Systems{
		Pawl: func(nodes int) contest.System {
			return contest.System{Name: "pawl", Nodes: nodes, Command: func(places []contest.Place, i int) []string {
				p := places[i]
				line := []string{self, "serve", "--data-dir", p.Dir, "--listen", p.Listen, "--http", p.Web, "--node-id", strconv.Itoa(i + 1)}
				if len(places) > 1 {
					line = append(line, "--peer-listen", p.Peers, "--controllers", controllersOf(places))
				}
				return append(line, options...)
			}}
		},
		Null: func(mode string, nodes int) contest.System {
			return contest.System{Name: "null-" + mode, Nodes: nodes, Command: func(places []contest.Place, i int) []string {
				p := places[i]
				line := []string{self, "null-broker", "--mode", mode, "--dir", p.Dir, "--listen", p.Listen, "--http", p.Web}
				if len(places) > 1 {
					line = append(line, "--cluster", clusterOf(places), "--self", strconv.Itoa(i))
				}
				return line
			}}
		},
	}, nil
}

// controllersOf is the --controllers of a cluster in which every node votes.
func controllersOf(places []contest.Place) string {
	var all []string
	for i, p := range places {
		all = append(all, fmt.Sprintf("%d@%s", i+1, p.Peers))
	}
	return strings.Join(all, ",")
}

// clusterOf is the --cluster of null brokers.
func clusterOf(places []contest.Place) string {
	var all []string
	for _, p := range places {
		all = append(all, p.Listen)
	}
	return strings.Join(all, ",")
}

func chosen(all []contest.Goal, ids []string) (goals []contest.Goal, err error) {
	if len(ids) == 0 {
		return all, nil
	}
	for _, id := range ids {
		i := slices.IndexFunc(all, func(g contest.Goal) bool { return strings.EqualFold(g.ID, id) })
		if i < 0 {
			return nil, Usage("--goal %s: there is no such goal", id)
		}
		goals = append(goals, all[i])
	}
	return goals, nil
}

func (a *App) runTable(cmd *cobra.Command, goals []contest.Goal, cfg contest.Config) error {
	erase := func() {}
	if isTerminal(a.Err) {
		cfg.Progress = func(text string) { fmt.Fprintf(a.Err, "\r\033[K%s", text) }
		erase = func() { fmt.Fprint(a.Err, "\r\033[K") }
	}
	dir, err := os.MkdirTemp(cfg.Dir, "pawl-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cfg.Dir = dir
	met := true
	outcomes := []contest.Outcome{}
	for _, g := range goals {
		o, err := contest.Run(cmd.Context(), g, cfg)
		erase()
		if err != nil {
			return err
		}
		outcomes = append(outcomes, o)
		for _, v := range o.Verdicts {
			met = met && v.Met
		}
		if !a.json {
			if err := o.Write(a.Out); err != nil {
				return err
			}
		}
	}
	if a.json {
		if err := json.NewEncoder(a.Out).Encode(outcomes); err != nil {
			return err
		}
	}
	if !met {
		return errMissed
	}
	return nil
}

// isTerminal reports whether somebody watches.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
