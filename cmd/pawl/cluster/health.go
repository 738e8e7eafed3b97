package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// errUnwell is the negative result of cluster health.
var errUnwell = errors.New("the cluster is not healthy")

// silentAfter is how long a voter may be silent.
const silentAfter = 5 * time.Second

// problem is one thing that is wrong.
type problem struct {
	Kind      string `json:"kind"`
	Node      *int32 `json:"node,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Text      string `json:"text"`
}

// Kinds of problems, the worst first.
const (
	noController    = "no-controller"
	noLeader        = "no-leader"
	underMinISR     = "under-min-isr"
	voterSilent     = "voter-silent"
	nodeFenced      = "node-fenced"
	underReplicated = "under-replicated"
)

func health(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Tell what is wrong with a cluster", Args: cli.Positional(),
		Long: `Tell what is wrong with a cluster, the worst first: partitions that nobody leads, or that have fewer replicas in sync than
acks=all needs; voters that are silent; nodes that are fenced; replicas that lag. Exits with 1 if anything is.`,
		Example: "  pawl cluster health --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := []problem{}
			err := a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				s, err := look(ctx, client)
				if err != nil {
					return err
				}
				least, err := s.minISR(ctx, a.Admin(client))
				if err != nil {
					return err
				}
				found = append(found, s.problems(least, time.Now())...)
				return a.Print(struct {
					Healthy  bool      `json:"healthy"`
					Problems []problem `json:"problems"`
				}{len(found) == 0, found}, func(w io.Writer) { printHealth(w, s, found) })
			})
			if err == nil && len(found) > 0 {
				err = fmt.Errorf("%w: %d problems", errUnwell, len(found))
			}
			return err
		},
	}
}

func printHealth(w io.Writer, s *state, found []problem) {
	if len(found) == 0 {
		fmt.Fprintf(w, "healthy: %d nodes, %d partitions\n", len(s.brokers), len(s.partitions))
		return
	}
	cli.Row(w, "PROBLEM", "WHERE", "WHAT")
	for _, p := range found {
		where := "cluster"
		switch {
		case p.Partition != nil:
			where = name(p.Topic, *p.Partition)
		case p.Node != nil:
			where = "node " + strconv.Itoa(int(*p.Node))
		}
		cli.Row(w, p.Kind, where, p.Text)
	}
}

// minISR asks how many replicas must be in sync, for the topics where some are
// not.
func (s *state) minISR(ctx context.Context, admin *kadm.Client) (map[string]int, error) {
	topics := map[string]bool{}
	for i := range s.partitions {
		if p := &s.partitions[i]; len(p.ISR) < len(p.Replicas) {
			topics[p.Topic] = true
		}
	}
	least := map[string]int{}
	if len(topics) == 0 {
		return least, nil
	}
	described, err := admin.DescribeTopicConfigs(ctx, slices.Sorted(maps.Keys(topics))...)
	if err != nil {
		return nil, err
	}
	for _, r := range described {
		if r.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", r.Name, r.Err)
		}
		for _, c := range r.Configs {
			if c.Key == "min.insync.replicas" && c.Value != nil {
				least[r.Name], _ = strconv.Atoi(*c.Value)
			}
		}
	}
	return least, nil
}

// undecided is what it means that nobody leads the quorum.
func (s *state) undecided(now time.Time) string {
	text := "nobody decides: too few voters can reach each other"
	if s.quorum != nil {
		var silent int
		for _, m := range s.quorum.voters {
			if s.quorum.silence(m, now) != "" {
				silent++
			}
		}
		n := len(s.quorum.voters)
		text += fmt.Sprintf(", %d of %d are silent and %d are needed", silent, n, n/2+1)
	}
	return text + "; what else is said here may be out of date"
}

// problems are what is wrong, the worst first. least is the topics'
// min.insync.replicas.
func (s *state) problems(least map[string]int, now time.Time) (found []problem) {
	if s.controller < 0 || s.leaderless() {
		found = append(found, problem{Kind: noController, Text: s.undecided(now)})
	}
	about := func(kind string, p *kadm.PartitionDetail, text string) {
		found = append(found, problem{Kind: kind, Topic: p.Topic, Partition: &p.Partition, Text: text})
	}
	for i := range s.partitions {
		if p := &s.partitions[i]; p.Leader < 0 {
			text := fmt.Sprintf("replicas %s, in sync were %s: start one of those", list(p.Replicas), list(p.ISR))
			if len(p.ISR) == 0 {
				text = fmt.Sprintf("replicas %s: start those that were in sync last", list(p.Replicas))
			}
			about(noLeader, p, text)
		}
	}
	for i := range s.partitions {
		if p := &s.partitions[i]; p.Leader >= 0 && len(p.ISR) < min(least[p.Topic], s.want(p)) {
			about(underMinISR, p, fmt.Sprintf("%d in sync (%s), acks=all needs %d: records are refused", len(p.ISR), list(p.ISR), least[p.Topic]))
		}
	}
	if s.quorum != nil {
		for _, m := range s.quorum.voters {
			if text := s.quorum.silence(m, now); text != "" {
				found = append(found, problem{Kind: voterSilent, Node: &m.id, Text: text})
			}
		}
	}
	for _, b := range s.brokers {
		if b.fenced {
			found = append(found, problem{Kind: nodeFenced, Node: &b.id, Text: "it serves nobody: it is down, or cannot reach the controller"})
		}
	}
	for i := range s.partitions {
		if p := &s.partitions[i]; p.Leader >= 0 && s.lagging(p) {
			var missing []int32
			for _, r := range p.Replicas {
				if !slices.Contains(p.ISR, r) && !slices.Contains(s.moving[p.Topic][p.Partition].AddingReplicas, r) {
					missing = append(missing, r)
				}
			}
			about(underReplicated, p, fmt.Sprintf("not in sync: %s", list(missing)))
		}
	}
	return found
}
