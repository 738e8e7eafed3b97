package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/workloads/load/nullbroker"
)

// nullBroker serves the yardstick of pawl bench, in a process of its own.
func (a *App) nullBroker() *cobra.Command {
	var listen, mode, web string
	var cfg nullbroker.Config
	cmd := &cobra.Command{
		Use: "null-broker", Short: "Serve the null broker that pawl bench compares with", Hidden: true,
		Example: "  pawl null-broker --mode fsync --dir /tmp/null --listen 127.0.0.1:9192", Args: Positional(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Mode, err = nullbroker.ParseMode(mode); err != nil {
				return Usage("--mode: %v", err)
			}
			if len(cfg.Cluster) > 0 && (cfg.Self < 0 || cfg.Self >= len(cfg.Cluster)) {
				return Usage("--self %d: there are %d in --cluster", cfg.Self, len(cfg.Cluster))
			}
			b, err := nullbroker.Start(listen, cfg)
			if err != nil {
				return err
			}
			defer b.Close()
			if web != "" {
				server := &http.Server{Addr: web, Handler: b}
				go server.ListenAndServe() // ends with Close
				defer server.Close()
			}
			fmt.Fprintln(a.Err, "ready", b.Addr())
			<-cmd.Context().Done()
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:9192", "where to listen, host:port")
	flags.StringVar(&mode, "mode", string(nullbroker.Fsync), fmt.Sprintf("how much to do: %v", nullbroker.Modes))
	flags.StringVar(&cfg.Dir, "dir", "", "where the files go; it must exist")
	flags.IntVar(&cfg.Partitions, "partitions", 1, "partitions of a topic created by being used")
	flags.StringSliceVar(&cfg.Cluster, "cluster", nil, "where all brokers of a cluster listen; each copies to all others what it takes")
	flags.IntVar(&cfg.Self, "self", 0, "which of them this one is, from 0 on")
	flags.StringVar(&web, "http", "", "serve /metrics here, host:port")
	return cmd
}
