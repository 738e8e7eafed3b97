// Package cluster is `pawl cluster`: what those who operate a cluster ask of it
// and do with it.
package cluster

import (
	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// Command is `pawl cluster`.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "See how a cluster is, and move what is in it",
		Example: `  pawl cluster health
  pawl cluster move orders 0 --to 1,2,3
  pawl cluster drain 3`,
	}
	cli.Within(cmd)
	a.ClientFlags(cmd)
	cmd.AddCommand(info(a), health(a), nodes(a), move(a), moves(a), drain(a), leaders(a), elect(a), voters(a), unregister(a))
	return cmd
}
