package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// errNoQuorum says nobody can tell about the metadata quorum.
var errNoQuorum = errors.New("this cluster does not tell who keeps the metadata log")

// memberLine is one node in cluster voters.
type memberLine struct {
	Node      int32  `json:"node"`
	Role      string `json:"role"` // leader, voter or observer
	Directory string `json:"directory"`
	Address   string `json:"address"`
	End       int64  `json:"end"` // of its log; -1: not known
	Lag       int64  `json:"lag"` // -1: not known
	HeardMs   int64  `json:"heardMillisAgo"`
}

func voters(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "voters", Short: "List the nodes that keep the metadata log, and change which of them vote", Args: cli.Positional(),
		Example: `  pawl cluster voters
  pawl cluster voters add 4
  pawl cluster voters remove 2`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				q, err := needQuorum(ctx, client)
				if err != nil {
					return err
				}
				lines := q.lines(time.Now())
				return a.Print(lines, func(w io.Writer) {
					cli.Row(w, "NODE", "ROLE", "LOG END", "LAG", "HEARD OF", "ADDRESS", "DIRECTORY")
					for _, l := range lines {
						heard := "-"
						if l.HeardMs >= 0 {
							heard = (time.Duration(l.HeardMs) * time.Millisecond).String() + " ago"
						}
						cli.Row(w, l.Node, l.Role, orUnknown(l.End), orUnknown(l.Lag), heard, orDash(l.Address), l.Directory)
					}
				})
			})
		},
	}
	cmd.AddCommand(addVoter(a), removeVoter(a))
	return cmd
}

func orUnknown(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func needQuorum(ctx context.Context, client *kgo.Client) (*quorum, error) {
	q, err := lookQuorum(ctx, client)
	if err == nil && q == nil {
		err = errNoQuorum
	}
	return q, err
}

func (q *quorum) lines(now time.Time) []memberLine {
	lines := []memberLine{}
	end := int64(-1)
	for _, m := range q.voters {
		if m.leader {
			end = m.end
		}
	}
	add := func(members []member, role string) {
		for _, m := range members {
			l := memberLine{
				Node: m.id, Role: role, Directory: base64.RawURLEncoding.EncodeToString(m.directory[:]), Address: m.addr,
				End: m.end, Lag: -1, HeardMs: -1,
			}
			if m.leader {
				l.Role = "leader"
			}
			if m.end >= 0 && end >= 0 {
				l.Lag = max(end-m.end, 0)
			}
			if m.fetched >= 0 {
				l.HeardMs = max(now.UnixMilli()-m.fetched, 0)
			}
			lines = append(lines, l)
		}
	}
	add(q.voters, "voter")
	add(q.observers, "observer")
	return lines
}

func addVoter(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "add NODE", Short: "Have a node vote that follows the metadata log", Args: cli.Positional("NODE"),
		Example: "  pawl cluster voters add 4",
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeVoters(cmd.Context(), a, args[0], "added", func(ctx context.Context, client *kgo.Client, q *quorum, node int32) error {
				m, err := pick(q.observers, node, q.voters, "votes already")
				if err != nil {
					return err
				}
				req := kmsg.NewPtrAddRaftVoterRequest()
				req.VoterID, req.VoterDirectoryID, req.TimeoutMillis = node, m.directory, int32(time.Minute/time.Millisecond)
				if m.host != "" {
					l := kmsg.NewAddRaftVoterRequestListener()
					l.Name, l.Host, l.Port = m.listenerName, m.host, m.port
					req.Listeners = append(req.Listeners, l)
				}
				resp, err := req.RequestWith(ctx, client)
				if err != nil {
					return err
				}
				return worded(resp.ErrorCode, resp.ErrorMessage)
			})
		},
	}
}

func removeVoter(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "remove NODE", Short: "Have a node vote no more; it follows the metadata log from then on", Args: cli.Positional("NODE"),
		Example: "  pawl cluster voters remove 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeVoters(cmd.Context(), a, args[0], "removed", func(ctx context.Context, client *kgo.Client, q *quorum, node int32) error {
				m, err := pick(q.voters, node, q.observers, "does not vote")
				if err != nil {
					return err
				}
				req := kmsg.NewPtrRemoveRaftVoterRequest()
				req.VoterID, req.VoterDirectoryID = node, m.directory
				resp, err := req.RequestWith(ctx, client)
				if err != nil {
					return err
				}
				return worded(resp.ErrorCode, resp.ErrorMessage)
			})
		},
	}
}

// pick returns a node of one kind, and otherwise says that it is of the other.
func pick(of []member, node int32, others []member, otherwise string) (member, error) {
	is := func(m member) bool { return m.id == node }
	if i := slices.IndexFunc(of, is); i >= 0 {
		return of[i], nil
	}
	if slices.ContainsFunc(others, is) {
		return member{}, fmt.Errorf("node %d %s: see pawl cluster voters", node, otherwise)
	}
	return member{}, fmt.Errorf("node %d: no such node keeps the metadata log: see pawl cluster voters", node)
}

// worded is an error code with the broker's own words.
func worded(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil {
		err = cli.Because(err, *message)
	}
	return err
}

func changeVoters(ctx context.Context, a *cli.App, node, done string, change func(context.Context, *kgo.Client, *quorum, int32) error) error {
	n, err := strconv.ParseInt(node, 10, 32)
	if err != nil || n < 0 {
		return cli.Usage("NODE %s: want a number", node)
	}
	return a.WithClient(ctx, "", func(ctx context.Context, client *kgo.Client) error {
		q, err := needQuorum(ctx, client)
		if err != nil {
			return err
		}
		if err := change(ctx, client, q, int32(n)); err != nil {
			return err
		}
		return printDone(a, int32(n), done, "the voters")
	})
}

// printDone says what was done with a node.
func printDone(a *cli.App, node int32, done, where string) error {
	return a.Print(struct {
		Node int32  `json:"node"`
		Done string `json:"done"`
	}{node, done}, func(w io.Writer) {
		preposition := map[string]string{"added": "to", "removed": "from", "unregistered": "from"}[done]
		fmt.Fprintf(w, "%s node %d %s %s\n", done, node, preposition, where)
	})
}

func unregister(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "unregister NODE", Short: "Forget a node that is gone for good", Args: cli.Positional("NODE"),
		Long:    `Forget a node that is gone for good. Drain it first; one that still runs registers itself again.`,
		Example: "  pawl cluster unregister 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || n < 0 {
				return cli.Usage("NODE %s: want a number", args[0])
			}
			return a.WithClient(cmd.Context(), "", func(ctx context.Context, client *kgo.Client) error {
				req := kmsg.NewPtrUnregisterBrokerRequest()
				req.BrokerID = int32(n)
				resp, err := req.RequestWith(ctx, client)
				if err != nil {
					return err
				}
				if err := worded(resp.ErrorCode, resp.ErrorMessage); err != nil {
					return err
				}
				return printDone(a, int32(n), "unregistered", "the cluster")
			})
		},
	}
}
