package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func (a *App) group() *cobra.Command {
	cmd := &cobra.Command{
		Use: "group", Short: "List, describe, move and delete consumer groups",
		Example: `  pawl group list
  pawl group seek billing --topic orders --to start`,
	}
	Within(cmd)
	a.ClientFlags(cmd)
	cmd.AddCommand(a.groupList(), a.groupDescribe(), a.groupSeek(), a.groupDelete())
	return cmd
}

func (a *App) groupList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the groups", Args: Positional(), Example: "  pawl group list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithAdmin(cmd.Context(), "", func(ctx context.Context, admin *kadm.Client) error {
				groups, err := admin.ListGroups(ctx)
				if err != nil {
					return err
				}
				type line struct {
					Group string `json:"group"`
					State string `json:"state"`
					Type  string `json:"type"`
				}
				lines := []line{}
				for _, g := range groups.Sorted() {
					lines = append(lines, line{g.Group, g.State, g.GroupType})
				}
				return a.Print(lines, func(w io.Writer) {
					Row(w, "GROUP", "STATE", "TYPE")
					for _, l := range lines {
						Row(w, l.Group, l.State, l.Type)
					}
				})
			})
		},
	}
}

// describedGroup is what group describe prints.
type describedGroup struct {
	Group       string            `json:"group"`
	State       string            `json:"state"`
	Protocol    string            `json:"protocol"`
	Coordinator int32             `json:"coordinator"`
	Members     int               `json:"members"`
	Lag         int64             `json:"lag"`
	Partitions  []describedCommit `json:"partitions"`
}

type describedCommit struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // -1: nothing
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member,omitempty"`
}

func (a *App) groupDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe GROUP", Short: "Show a group's members, committed offsets and lag",
		Args: Positional("GROUP"), Example: "  pawl group describe billing --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithAdmin(cmd.Context(), "", func(ctx context.Context, admin *kadm.Client) error {
				lags, err := admin.Lag(ctx, args[0])
				if err != nil {
					return err
				}
				lag := lags[args[0]]
				if err := lag.Error(); err != nil {
					return fmt.Errorf("group %s: %w", args[0], err)
				}
				if lag.State == "Dead" && lag.Lag.IsEmpty() {
					return fmt.Errorf("group %s: unknown: see pawl group list", args[0])
				}
				d := describedGroup{lag.Group, lag.State, lag.Protocol, lag.Coordinator.NodeID, len(lag.Members), lag.Lag.Total(), nil}
				for _, l := range lag.Lag.Sorted() {
					c := describedCommit{Topic: l.Topic, Partition: l.Partition, Committed: l.Commit.At, End: l.End.Offset, Lag: l.Lag}
					if l.Member != nil {
						c.Member = l.Member.ClientID + "@" + l.Member.ClientHost
					}
					d.Partitions = append(d.Partitions, c)
				}
				return a.Print(d, func(w io.Writer) {
					fmt.Fprintf(w, "group %s, %s, %d members, coordinator %d, lag %d\n", d.Group, d.State, d.Members, d.Coordinator, d.Lag)
					Row(w, "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")
					for _, c := range d.Partitions {
						Row(w, c.Topic, c.Partition, c.Committed, c.End, c.Lag, c.Member)
					}
				})
			})
		},
	}
}

func (a *App) groupSeek() *cobra.Command {
	var topic, to string
	cmd := &cobra.Command{
		Use: "seek GROUP --topic T --to WHERE", Short: "Move the committed offsets of a group without members",
		Args: Positional("GROUP"), Example: "  pawl group seek billing --topic orders --to 2026-01-31T00:00:00Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			if topic == "" || to == "" {
				return Usage("--topic and --to are needed")
			}
			where, err := parseFrom(to, time.Now())
			if err != nil {
				return Usage("--to %s: want start, end, an offset, a time, or how long ago", to)
			}
			return a.WithAdmin(cmd.Context(), topic, func(ctx context.Context, admin *kadm.Client) error {
				return a.seek(ctx, admin, args[0], topic, where)
			})
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "the topic")
	cmd.Flags().StringVar(&to, "to", "", "start, end, an offset, a time, or how long ago (15m)")
	return cmd
}

func (a *App) seek(ctx context.Context, admin *kadm.Client, group, topic string, where position) error {
	described, err := admin.DescribeGroups(ctx, group)
	if err = errors.Join(err, described.Error()); err != nil {
		return err
	}
	if members := len(described[group].Members); members > 0 {
		return fmt.Errorf("group %s: has %d members, which would overwrite it: stop them first", group, members)
	}
	listed, err := admin.ListStartOffsets(ctx, topic)
	switch {
	case where.millis >= 0:
		listed, err = admin.ListOffsetsAfterMilli(ctx, where.millis, topic)
	case where.end:
		listed, err = admin.ListEndOffsets(ctx, topic)
	}
	if err = errors.Join(err, listed.Error()); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	listed.Each(func(l kadm.ListedOffset) {
		at := l.Offset
		if where.millis < 0 && !where.end {
			at = max(at, where.EpochOffset().Offset)
		}
		offsets.AddOffset(topic, l.Partition, at, -1)
	})
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	type line struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	}
	lines := []line{}
	for _, o := range offsets.Sorted() {
		lines = append(lines, line{o.Partition, o.At})
	}
	return a.Print(lines, func(w io.Writer) {
		Row(w, "PARTITION", "OFFSET")
		for _, l := range lines {
			Row(w, l.Partition, l.Offset)
		}
	})
}

func (a *App) groupDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP", Short: "Delete a group without members, and its committed offsets",
		Args: Positional("GROUP"), Example: "  pawl group delete billing",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithAdmin(cmd.Context(), "", func(ctx context.Context, admin *kadm.Client) error {
				if _, err := admin.DeleteGroup(ctx, args[0]); err != nil {
					return fmt.Errorf("group %s: %w", args[0], err)
				}
				result := struct {
					Group string `json:"group"`
					Done  string `json:"done"`
				}{args[0], "deleted"}
				return a.Print(result, func(w io.Writer) { fmt.Fprintf(w, "deleted group %s\n", args[0]) })
			})
		},
	}
}
