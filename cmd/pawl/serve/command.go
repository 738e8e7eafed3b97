package serve

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/broker/standalone"
	"github.com/pawlbroker/pawl/cmd/pawl/cli"
	"github.com/pawlbroker/pawl/cmd/pawl/config"
)

// Command is `pawl serve`.
func Command(a *cli.App) *cobra.Command {
	var flags config.Flags
	var format string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Run a broker in the foreground. It formats its data directory at the first start, prints "ready" when it serves, and
stops in good order on SIGTERM.

Configuration has Kafka's names (docs/configuration.md). A flag wins over --set, that over the environment
(PAWL_FOO_BAR or KAFKA_FOO_BAR for foo.bar), that over the file, that over the default.`,
		Example: `  pawl serve
  pawl serve --data-dir /var/lib/pawl --listen 0.0.0.0:9092 --advertise broker1.example.com:9092
  pawl serve --config server.properties --set num.partitions=8`,
		Args: cli.Positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger(a.Err, format)
			if err != nil {
				return err
			}
			c, err := flags.Load(os.Environ())
			if err != nil {
				return cli.Usage("%v", err)
			}
			o, err := optionsOf(c)
			if err != nil {
				return cli.Usage("%v", err)
			}
			log.Info("starting", slog.String("version", cli.BuildVersion().String()))
			for _, w := range c.Warnings {
				log.Warn(w)
			}
			return run(cmd.Context(), o, a.Out, log)
		},
	}
	flags.Register(cmd.Flags())
	cmd.Flags().StringVar(&format, "log", "text", "format of the log: text or json")
	return cmd
}

// optionsOf makes a broker's configuration of what was read.
func optionsOf(c config.Serve) (options, error) {
	for _, other := range c.Controllers {
		if other.ID != c.NodeID || len(c.Controllers) > 1 {
			return options{}, fmt.Errorf("--controllers: a broker is its own controller; node %d cannot be one of %d", c.NodeID, len(c.Controllers))
		}
	}
	b := standalone.DefaultConfig(c.NodeID)
	b.DataDir, b.Listen, b.ClusterID = c.DataDir, c.Listen, c.ClusterID
	if c.Advertise != "" {
		host, port, err := net.SplitHostPort(c.Advertise)
		if err != nil {
			return options{}, fmt.Errorf("--advertise %s: %w", c.Advertise, err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || host == "" {
			return options{}, fmt.Errorf("--advertise %s: want a host and a port that clients can connect to", c.Advertise)
		}
		b.Node.Host, b.Node.Port = host, int32(n)
	}
	b.Node.Rack, b.Node.Broker, b.Node.CheckpointBytes = c.Rack, c.Broker, c.CheckpointBytes
	b.Node.Partition.FetchMaxBytes, b.Node.Partition.ProducerExpiry = c.FetchMaxBytes, c.ProducerExpiry
	b.Storage.IndexIntervalBytes = c.Broker.Int("log.index.interval.bytes")
	b.TCP.RequestMemory, b.TCP.MaxRequestBytes = c.MemoryMax, c.SocketRequestMaxBytes
	b.TCP.MaxConnections, b.TCP.IdleTimeout = c.MaxConnections, c.ConnectionsMaxIdle
	return options{broker: b, http: c.HTTP}, nil
}

// logger writes lines of the given format.
func logger(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	}
	return nil, cli.Usage("--log %s: want text or json", format)
}
