package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// placed is where a partition is to be.
type placed struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	From      []int32 `json:"from"`
	To        []int32 `json:"to"`
}

// finished is what a command prints that moves partitions.
type finished struct {
	Moves []placed `json:"moves"`
	Done  bool     `json:"done"` // false: it goes on by itself
}

func move(a *cli.App) *cobra.Command {
	var to string
	var cancel, noWait bool
	cmd := &cobra.Command{
		Use: "move TOPIC PARTITION --to NODES", Aliases: []string{"reassign"}, Short: "Put the replicas of a partition on other nodes",
		Long: `Put the replicas of a partition on other nodes, the first of which is its preferred leader. The new ones are filled before
the old ones go, and nothing is out of reach meanwhile. Waits until it is done; if that is interrupted the move goes on, and
pawl cluster moves shows it.`,
		Args: cli.Positional("TOPIC", "PARTITION"),
		Example: `  pawl cluster move orders 0 --to 2,3,1
  pawl cluster move orders 0 --cancel`,
		RunE: func(cmd *cobra.Command, args []string) error {
			partition, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || partition < 0 {
				return cli.Usage("PARTITION %s: want a number", args[1])
			}
			if (to == "") != cancel {
				return cli.Usage("want either --to or --cancel")
			}
			if cancel {
				return cancelMove(cmd.Context(), a, args[0], int32(partition))
			}
			nodes, err := numbers(to)
			if err != nil {
				return err
			}
			m := placed{Topic: args[0], Partition: int32(partition), To: nodes}
			return carryOut(cmd.Context(), a, []placed{m}, noWait)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the nodes, such as 1,2,3")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "end a move that is under way, and stay where it was")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is done")
	return cmd
}

// numbers reads 1,2,3.
func numbers(text string) (ids []int32, err error) {
	for _, one := range strings.Split(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(one), 10, 32)
		if err != nil || n < 0 {
			return nil, cli.Usage("--to %s: want numbers of nodes, such as 1,2,3", text)
		}
		if slices.Contains(ids, int32(n)) {
			return nil, cli.Usage("--to %s: node %d is there twice", text, n)
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}

// carryOut asks for moves, waits until they are done unless noWait, and prints
// them.
func carryOut(ctx context.Context, a *cli.App, moves []placed, noWait bool) error {
	if err := a.WithAdmin(ctx, topicOf(moves), func(ctx context.Context, admin *kadm.Client) error { return ask(ctx, admin, moves) }); err != nil {
		return err
	}
	if !noWait {
		if err := await(ctx, a, moves); err != nil {
			return fmt.Errorf("%w; the move goes on by itself, see it with: pawl cluster moves", err)
		}
	}
	result := finished{moves, !noWait}
	return a.Print(result, func(w io.Writer) {
		cli.Row(w, "PARTITION", "FROM", "TO")
		for _, m := range moves {
			cli.Row(w, name(m.Topic, m.Partition), list(m.From), list(m.To))
		}
	})
}

// topicOf is the topic that errors are about.
func topicOf(moves []placed) string {
	if len(moves) > 0 && !slices.ContainsFunc(moves, func(m placed) bool { return m.Topic != moves[0].Topic }) {
		return moves[0].Topic
	}
	return ""
}

// ask has the controller begin the moves. It fills in where the partitions are.
func ask(ctx context.Context, admin *kadm.Client, moves []placed) error {
	var topics []string
	for _, m := range moves {
		if !slices.Contains(topics, m.Topic) {
			topics = append(topics, m.Topic)
		}
	}
	now, err := admin.ListTopics(ctx, topics...)
	if err == nil {
		err = now.Error()
	}
	if err != nil {
		return err
	}
	var req kadm.AlterPartitionAssignmentsReq
	for i := range moves {
		m := &moves[i]
		p, ok := now[m.Topic].Partitions[m.Partition]
		if !ok {
			return fmt.Errorf("%s: there is no such partition: the topic has %d", name(m.Topic, m.Partition), len(now[m.Topic].Partitions))
		}
		m.From = p.Replicas
		req.Assign(m.Topic, m.Partition, m.To)
	}
	answers, err := admin.AlterPartitionAssignments(ctx, req)
	if err != nil {
		return err
	}
	var failed error
	for _, r := range answers.Sorted() {
		if r.Err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name(r.Topic, r.Partition), cli.Because(r.Err, r.ErrMessage)))
		}
	}
	return failed
}

// await waits until none of the moves is under way.
func await(ctx context.Context, a *cli.App, moves []placed) error {
	var set kadm.TopicsSet
	for _, m := range moves {
		set.Add(m.Topic, m.Partition)
	}
	defer a.Progress("")
	return a.Watch(ctx, topicOf(moves), func(ctx context.Context, admin *kadm.Client) (bool, error) {
		under, err := admin.ListPartitionReassignments(ctx, set)
		left := len(under.Sorted())
		a.Progress(fmt.Sprintf("%d of %d partitions moved", len(moves)-left, len(moves)))
		return left == 0, err
	})
}

func cancelMove(ctx context.Context, a *cli.App, topic string, partition int32) error {
	return a.WithAdmin(ctx, topic, func(ctx context.Context, admin *kadm.Client) error {
		var req kadm.AlterPartitionAssignmentsReq
		req.CancelAssign(topic, partition)
		answers, err := admin.AlterPartitionAssignments(ctx, req)
		if err != nil {
			return err
		}
		r := answers[topic][partition]
		if errors.Is(r.Err, kerr.NoReassignmentInProgress) {
			return fmt.Errorf("%s: nothing is to be cancelled: %w", name(topic, partition), r.Err)
		}
		if r.Err != nil {
			return cli.Because(r.Err, r.ErrMessage)
		}
		return a.Print(struct {
			Topic     string `json:"topic"`
			Partition int32  `json:"partition"`
			Done      string `json:"done"`
		}{topic, partition, "cancelled"}, func(w io.Writer) { fmt.Fprintf(w, "cancelled the move of %s\n", name(topic, partition)) })
	})
}

// movesLine is one move in cluster moves.
type movesLine struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"`
	Adding    []int32 `json:"adding"`
	Removing  []int32 `json:"removing"`
}

func moves(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "moves", Short: "List the partitions that are being moved", Args: cli.Positional(), Example: "  pawl cluster moves",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				s, err := look(ctx, client)
				if err != nil {
					return err
				}
				lines := []movesLine{}
				for _, m := range s.moving.Sorted() {
					lines = append(lines, movesLine{m.Topic, m.Partition, m.Replicas, m.AddingReplicas, m.RemovingReplicas})
				}
				return a.Print(lines, func(w io.Writer) {
					cli.Row(w, "PARTITION", "REPLICAS", "ADDING", "REMOVING")
					for _, l := range lines {
						cli.Row(w, name(l.Topic, l.Partition), list(l.Replicas), orDash(list(l.Adding)), orDash(list(l.Removing)))
					}
				})
			})
		},
	}
}
