package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// told is what cluster info prints.
type told struct {
	ClusterID       string  `json:"clusterId"`
	Controller      int32   `json:"controller"` // -1: none
	Epoch           int32   `json:"epoch"`      // of the controller; -1: not known
	Nodes           []int32 `json:"nodes"`
	Fenced          []int32 `json:"fenced"`
	Voters          []int32 `json:"voters"`
	SilentVoters    []int32 `json:"silentVoters"` // not heard of for 5 s
	Topics          int     `json:"topics"`
	Partitions      int     `json:"partitions"`
	Leaderless      int     `json:"leaderless"`
	UnderReplicated int     `json:"underReplicated"`
	Moving          int     `json:"moving"`
}

func info(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "info", Aliases: []string{"describe"}, Short: "Tell what a cluster is made of", Args: cli.Positional(),
		Example: "  pawl cluster info --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				s, err := look(ctx, client)
				if err != nil {
					return err
				}
				now := time.Now()
				t := s.tell(now)
				return a.Print(t, func(w io.Writer) {
					cli.Row(w, "cluster", t.ClusterID)
					cli.Row(w, "controller", controllerText(t))
					cli.Row(w, "nodes", fmt.Sprintf("%s (%d fenced)", list(t.Nodes), len(t.Fenced)))
					if len(t.Voters) > 0 {
						cli.Row(w, "voters", fmt.Sprintf("%s (%d silent)", list(t.Voters), len(t.SilentVoters)))
						for _, m := range s.quorum.voters {
							if text := s.quorum.silence(m, now); text != "" {
								cli.Row(w, fmt.Sprintf("voter %d", m.id), text)
							}
						}
					}
					cli.Row(w, "topics", t.Topics)
					cli.Row(w, "partitions", fmt.Sprintf("%d (%d without leader, %d under-replicated, %d moving)", t.Partitions, t.Leaderless, t.UnderReplicated, t.Moving))
				})
			})
		},
	}
}

func controllerText(t told) string {
	switch {
	case t.Controller < 0:
		return "none: nothing is decided, and what is said of nodes and partitions may be out of date"
	case t.Epoch < 0:
		return fmt.Sprintf("node %d", t.Controller)
	}
	return fmt.Sprintf("node %d, epoch %d", t.Controller, t.Epoch)
}

func (s *state) tell(now time.Time) told {
	t := told{
		ClusterID: s.id, Controller: s.controller, Epoch: -1, Nodes: []int32{}, Fenced: []int32{}, Voters: []int32{}, SilentVoters: []int32{},
		Topics: s.topics, Partitions: len(s.partitions),
	}
	for _, b := range s.brokers {
		t.Nodes = append(t.Nodes, b.id)
		if b.fenced {
			t.Fenced = append(t.Fenced, b.id)
		}
	}
	if s.quorum != nil {
		t.Epoch = s.quorum.epoch
		for _, m := range s.quorum.voters {
			t.Voters = append(t.Voters, m.id)
			if s.quorum.silence(m, now) != "" {
				t.SilentVoters = append(t.SilentVoters, m.id)
			}
		}
	}
	for i := range s.partitions {
		p := &s.partitions[i]
		if p.Leader < 0 {
			t.Leaderless++
		}
		if s.lagging(p) {
			t.UnderReplicated++
		}
	}
	for _, partitions := range s.moving {
		t.Moving += len(partitions)
	}
	if t.Controller < 0 {
		t.Epoch = -1
	}
	return t
}

// nodeLine is one node in cluster nodes.
type nodeLine struct {
	Node     int32  `json:"node"`
	Address  string `json:"address"`
	Rack     string `json:"rack"`
	Fenced   bool   `json:"fenced"`
	Role     string `json:"role"`
	Leads    int    `json:"leads"`
	Replicas int    `json:"replicas"`
	InSync   int    `json:"inSync"`
}

func nodes(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "List the nodes, and what is on each", Args: cli.Positional(),
		Example: "  pawl cluster nodes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				s, err := look(ctx, client)
				if err != nil {
					return err
				}
				lines := s.nodeLines()
				return a.Print(lines, func(w io.Writer) {
					cli.Row(w, "NODE", "ADDRESS", "RACK", "STATE", "ROLE", "LEADS", "REPLICAS", "IN SYNC")
					for _, l := range lines {
						state := "serving"
						switch {
						case l.Fenced:
							state = "fenced"
						case s.leaderless():
							state = "unknown" // nobody would fence it
						}
						cli.Row(w, l.Node, l.Address, orDash(l.Rack), state, l.Role, l.Leads, l.Replicas, l.InSync)
					}
				})
			})
		},
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (s *state) nodeLines() []nodeLine {
	lines := make([]nodeLine, 0, len(s.brokers))
	for _, b := range s.brokers {
		l := nodeLine{Node: b.id, Address: b.addr, Rack: b.rack, Fenced: b.fenced, Role: s.role(b.id)}
		for i := range s.partitions {
			p := &s.partitions[i]
			if p.Leader == b.id {
				l.Leads++
			}
			if slices.Contains(p.Replicas, b.id) {
				l.Replicas++
			}
			if slices.Contains(p.ISR, b.id) {
				l.InSync++
			}
		}
		lines = append(lines, l)
	}
	return lines
}
