package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

func drain(a *cli.App) *cobra.Command {
	var dryRun, noWait bool
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Move every replica off a node", Args: cli.Positional("NODE"),
		Long: `Move every replica off a node, so that it can be taken away. Each goes to the node that has the fewest, of a rack that has
none of the partition's other replicas if there is one. Nothing is moved unless everything can be.`,
		Example: `  pawl cluster drain 3 --dry-run
  pawl cluster drain 3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || n < 0 {
				return cli.Usage("NODE %s: want a number", args[0])
			}
			var plan []placed
			err = a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				s, err := look(ctx, client)
				if err != nil {
					return err
				}
				plan, err = s.emptied(int32(n))
				return err
			})
			switch {
			case err != nil:
				return err
			case len(plan) == 0 || dryRun:
				return a.Print(finished{append([]placed{}, plan...), len(plan) == 0}, func(w io.Writer) {
					if len(plan) == 0 {
						fmt.Fprintf(w, "node %d has no replicas\n", n)
						return
					}
					cli.Row(w, "PARTITION", "FROM", "TO")
					for _, m := range plan {
						cli.Row(w, name(m.Topic, m.Partition), list(m.From), list(m.To))
					}
				})
			}
			return carryOut(cmd.Context(), a, plan, noWait)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be moved, and move nothing")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is done")
	return cmd
}

// emptied says where the replicas of a node can go.
func (s *state) emptied(node int32) (plan []placed, err error) {
	if _, ok := s.find(node); !ok {
		return nil, fmt.Errorf("node %d: there is no such node: see pawl cluster nodes", node)
	}
	has := map[int32]int{} // how many replicas each node has, planned ones included
	for i := range s.partitions {
		for _, r := range s.partitions[i].Replicas {
			has[r]++
		}
	}
	var stuck []string
	for i := range s.partitions {
		p := &s.partitions[i]
		at := slices.Index(p.Replicas, node)
		if at < 0 || slices.Contains(s.moving[p.Topic][p.Partition].RemovingReplicas, node) {
			continue
		}
		target, ok := s.successor(p.Replicas, node, has)
		if !ok {
			stuck = append(stuck, name(p.Topic, p.Partition))
			continue
		}
		has[node]--
		has[target]++
		to := slices.Clone(p.Replicas)
		to[at] = target
		plan = append(plan, placed{p.Topic, p.Partition, p.Replicas, to})
	}
	if len(stuck) > 0 {
		return nil, fmt.Errorf("node %d cannot be drained: no other node can take %s%s: add a node, or lower the replication",
			node, stuck[0], andMore(len(stuck)-1))
	}
	return plan, nil
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// successor is the node to take a replica from another: one that serves and has
// none, of a new rack if possible, with the fewest replicas.
func (s *state) successor(replicas []int32, from int32, has map[int32]int) (int32, bool) {
	racks := map[string]bool{}
	for _, r := range replicas {
		if b, ok := s.find(r); ok && r != from && b.rack != "" {
			racks[b.rack] = true
		}
	}
	var free []broker
	for _, b := range s.brokers {
		if !b.fenced && !slices.Contains(replicas, b.id) {
			free = append(free, b)
		}
	}
	if len(free) == 0 {
		return -1, false
	}
	crowded := func(b broker) int {
		if racks[b.rack] {
			return 1
		}
		return 0
	}
	return slices.MinFunc(free, func(x, y broker) int {
		return cmp.Or(cmp.Compare(crowded(x), crowded(y)), cmp.Compare(has[x.id], has[y.id]), cmp.Compare(x.id, y.id))
	}).id, true
}
