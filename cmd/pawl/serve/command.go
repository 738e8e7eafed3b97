package serve

import (
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// flags are the command line's.
type flags struct {
	dataDir, listen, advertise, rack, http, config, log string
	nodeID                                              int32
	set                                                 []string
}

// Command is `pawl serve`.
func Command(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Run a broker in the foreground. It formats its data directory at the first start, prints "ready" when it serves, and
stops in good order on SIGTERM.

Configuration has Kafka's names. A flag wins over --set, that over the environment (PAWL_FOO_BAR or KAFKA_FOO_BAR for
foo.bar), that over the file, that over the default.`,
		Example: `  pawl serve
  pawl serve --data-dir /var/lib/pawl --listen 0.0.0.0:9092 --advertise broker1.example.com:9092
  pawl serve --config server.properties --set num.partitions=8`,
		Args: cli.Positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger(a.Err, f.log)
			if err != nil {
				return err
			}
			o, err := f.options(cmd, os.Environ(), log)
			if err != nil {
				return err
			}
			log.Info(cli.BuildVersion().String())
			return run(cmd.Context(), o, a.Out, log)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.dataDir, "data-dir", "./pawl-data", "directory for everything the broker keeps (log.dirs)")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:9092", "address to serve clients on (listeners)")
	fs.StringVar(&f.advertise, "advertise", "", "host:port that clients are told to connect to; default: the address they came by (advertised.listeners)")
	fs.Int32Var(&f.nodeID, "node-id", 1, "the broker's number in its cluster (node.id)")
	fs.StringVar(&f.rack, "rack", "", "where the broker stands (broker.rack)")
	fs.StringVar(&f.http, "http", "127.0.0.1:9644", "address of metrics, health and profiles; empty for none")
	fs.StringVar(&f.config, "config", "", "server.properties to read")
	fs.StringArrayVar(&f.set, "set", nil, "set one configuration, key=value; may be given more than once")
	fs.StringVar(&f.log, "log", "text", "format of the log: text or json")
	return cmd
}

// options puts everything that was said together. What was not given as a flag
// comes from the other places, and last from the flags' defaults.
func (f *flags) options(cmd *cobra.Command, environ []string, log *slog.Logger) (options, error) {
	byFlag := []struct{ flag, name, value string }{
		{"data-dir", "log.dirs", f.dataDir},
		{"listen", "listeners", f.listen},
		{"advertise", "advertised.listeners", f.advertise},
		{"node-id", "node.id", strconv.Itoa(int(f.nodeID))},
		{"rack", "broker.rack", f.rack},
	}
	var settings []setting
	for _, d := range byFlag {
		if d.value != "" {
			settings = append(settings, setting{metadata.Config{Name: d.name, Value: d.value}, "default"})
		}
	}
	if f.config != "" {
		read, err := readFile(f.config)
		if err != nil {
			return options{}, err
		}
		settings = append(settings, read...)
	}
	settings = append(settings, readEnv(environ)...)
	sets, err := readSets(f.set)
	if err != nil {
		return options{}, cli.Usage("%v", err)
	}
	settings = append(settings, sets...)
	for _, d := range byFlag {
		if cmd.Flags().Changed(d.flag) {
			settings = append(settings, setting{metadata.Config{Name: d.name, Value: d.value}, "--" + d.flag})
		}
	}
	kafka, err := merge(settings)
	if err != nil {
		return options{}, cli.Usage("%v", err)
	}
	if inert := kafka.Inert(); len(inert) > 0 {
		log.Warn("configurations without meaning here are ignored", slog.String("names", strings.Join(inert, " ")))
	}
	o := options{http: f.http}
	if o.broker, err = brokerConfig(kafka); err != nil {
		return options{}, cli.Usage("%v", err)
	}
	return o, nil
}

func logger(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	}
	return nil, cli.Usage("--log %s: want text or json", format)
}
