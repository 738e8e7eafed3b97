package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// led is one partition in cluster leaders.
type led struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Leader    int32  `json:"leader"`
	Preferred int32  `json:"preferred"`
	Error     string `json:"error,omitempty"` // of --rebalance
}

func leaders(a *cli.App) *cobra.Command {
	var rebalance bool
	cmd := &cobra.Command{
		Use: "leaders", Short: "List the partitions whose leader is not the preferred one, or put that right", Args: cli.Positional(),
		Long: `List the partitions that the first of their replicas does not lead, as is so after a node was away. With --rebalance it
becomes the leader where it is in sync; else exits with 1.`,
		Example: "  pawl cluster leaders --rebalance",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				s, err := look(ctx, client)
				if err != nil {
					return err
				}
				odd := s.strays()
				failed := 0
				if rebalance && len(odd) > 0 {
					if failed, err = preferred(ctx, a.Admin(client), odd); err != nil {
						return err
					}
				}
				if err := a.Print(odd, func(w io.Writer) { printLeaders(w, odd, rebalance) }); err != nil {
					return err
				}
				if failed > 0 {
					return fmt.Errorf("%d of %d partitions keep the leader they have: see the reasons above", failed, len(odd))
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&rebalance, "rebalance", false, "make the preferred replicas the leaders")
	return cmd
}

func printLeaders(w io.Writer, odd []led, rebalance bool) {
	if len(odd) == 0 {
		fmt.Fprintln(w, "every partition is led by its preferred replica")
		return
	}
	if !rebalance {
		cli.Row(w, "PARTITION", "LEADER", "PREFERRED")
		for _, l := range odd {
			cli.Row(w, name(l.Topic, l.Partition), l.Leader, l.Preferred)
		}
		return
	}
	cli.Row(w, "PARTITION", "FROM", "TO", "RESULT")
	for _, l := range odd {
		result := l.Error
		if result == "" {
			result = "done"
		}
		cli.Row(w, name(l.Topic, l.Partition), l.Leader, l.Preferred, result)
	}
}

// strays are the partitions that their preferred replica does not lead.
func (s *state) strays() []led {
	odd := []led{}
	for i := range s.partitions {
		if p := &s.partitions[i]; len(p.Replicas) > 0 && p.Leader != p.Replicas[0] {
			odd = append(odd, led{Topic: p.Topic, Partition: p.Partition, Leader: p.Leader, Preferred: p.Replicas[0]})
		}
	}
	return odd
}

// preferred elects preferred leaders and notes what came of it.
func preferred(ctx context.Context, admin *kadm.Client, odd []led) (failed int, err error) {
	var set kadm.TopicsSet
	for _, l := range odd {
		set.Add(l.Topic, l.Partition)
	}
	results, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	if err != nil {
		return 0, err
	}
	for i := range odd {
		r := results[odd[i].Topic][odd[i].Partition]
		if r.Err != nil && !errors.Is(r.Err, kerr.ElectionNotNeeded) { // it was put right meanwhile
			odd[i].Error = cli.Because(r.Err, r.ErrMessage).Error()
			failed++
		}
	}
	return failed, nil
}

func elect(a *cli.App) *cobra.Command {
	var unclean bool
	cmd := &cobra.Command{
		Use: "elect TOPIC PARTITION", Short: "Have a leader elected for a partition", Args: cli.Positional("TOPIC", "PARTITION"),
		Long: `Have the preferred leader of a partition elected. With --unclean, if no replica that has everything can lead, any that is
alive becomes the leader: what only the others have is lost, acknowledged records included.`,
		Example: `  pawl cluster elect orders 0
  pawl cluster elect orders 0 --unclean`,
		RunE: func(cmd *cobra.Command, args []string) error {
			partition, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || partition < 0 {
				return cli.Usage("PARTITION %s: want a number", args[1])
			}
			how := kadm.ElectPreferredReplica
			if unclean {
				how = kadm.ElectLiveReplica
			}
			return a.WithAdmin(cmd.Context(), args[0], func(ctx context.Context, admin *kadm.Client) error {
				var set kadm.TopicsSet
				set.Add(args[0], int32(partition))
				results, err := admin.ElectLeaders(ctx, how, set)
				if err != nil {
					return err
				}
				r := results[args[0]][int32(partition)]
				done := "elected a leader for"
				switch {
				case errors.Is(r.Err, kerr.ElectionNotNeeded):
					done = "nothing to do for"
				case r.Err != nil:
					return cli.Because(r.Err, r.ErrMessage)
				}
				return a.Print(struct {
					Topic     string `json:"topic"`
					Partition int32  `json:"partition"`
					Elected   bool   `json:"elected"`
				}{args[0], int32(partition), r.Err == nil}, func(w io.Writer) { fmt.Fprintln(w, done, name(args[0], int32(partition))) })
			})
		},
	}
	cmd.Flags().BoolVar(&unclean, "unclean", false, "lose records rather than have no leader")
	return cmd
}
