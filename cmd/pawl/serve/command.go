package serve

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/standalone"
	"github.com/pawlbroker/pawl/broker/wire"
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
  pawl serve --config server.properties --set num.partitions=8
  pawl serve --node-id 2 --listen 10.0.0.2:9092 --controllers 1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093`,
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
func optionsOf(c config.Serve) (o options, err error) {
	b := standalone.DefaultConfig(c.NodeID)
	b.DataDir, b.Listen, b.ClusterID, b.Version = c.DataDir, c.Listen, c.ClusterID, cli.BuildVersion().String()
	if b.Node.Host, b.Node.Port, err = advertised("--advertise", c.Advertise); err != nil {
		return o, err
	}
	b.Cluster.Listen = c.PeerListen
	if b.Cluster.Host, b.Cluster.Port, err = advertised("--peer-advertise", c.PeerAdvertise); err != nil {
		return o, err
	}
	for _, one := range c.Controllers {
		b.Cluster.Controllers = append(b.Cluster.Controllers, wire.Peer(one))
	}
	b.Node.Rack, b.Node.Broker, b.Node.CheckpointBytes = c.Rack, c.Broker, c.CheckpointBytes
	b.Node.Partition.FetchMaxBytes, b.Node.Partition.ProducerExpiry = c.FetchMaxBytes, c.ProducerExpiry
	replicate(&b.Node, c.Broker)
	b.Storage.IndexIntervalBytes = c.Broker.Int("log.index.interval.bytes")
	b.TCP.RequestMemory, b.TCP.MaxRequestBytes = c.MemoryMax, c.SocketRequestMaxBytes
	b.TCP.MaxConnections, b.TCP.IdleTimeout = c.MaxConnections, c.ConnectionsMaxIdle
	return options{broker: b, http: c.HTTP}, nil
}

// replicate takes over how partitions are fetched, and by whom.
func replicate(n *broker.Config, given metadata.BrokerConfig) {
	millis := func(name string) time.Duration { return time.Duration(given.Int(name)) * time.Millisecond }
	n.Partition.Sessions.Slots = int(given.Int("max.incremental.fetch.session.cache.slots"))
	n.Partition.MaxLag = millis("replica.lag.time.max.ms")
	f := &n.Fetcher
	f.MaxWait, f.MinBytes = millis("replica.fetch.wait.max.ms"), int32(given.Int("replica.fetch.min.bytes"))
	f.MaxBytes, f.PartitionMaxBytes = int32(given.Int("replica.fetch.response.max.bytes")), int32(given.Int("replica.fetch.max.bytes"))
	f.MaxBackoff = max(millis("replica.fetch.backoff.ms"), time.Millisecond)
	f.MinBackoff = min(f.MinBackoff, f.MaxBackoff)
}

// advertised is the host and the port of an address that others are told; none
// if it is empty.
func advertised(flag, addr string) (host string, port int32, err error) {
	if addr == "" {
		return "", 0, nil
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%s %s: %w", flag, addr, err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("%s %s: want a host and a port that others can connect to", flag, addr)
	}
	return host, int32(n), nil
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
