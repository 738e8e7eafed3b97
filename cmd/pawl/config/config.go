// Package config reads the configuration of pawl serve: flags, --set,
// environment, a server.properties file and defaults, the earlier before the
// later. Keys have Kafka's names; our own begin with "pawl.".
//
// The node's table of keys (broker/metadata) says what values are good; the
// keys that only the process around the node reads are added here.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/pawlbroker/pawl/broker/metadata"
)

var (
	// ErrUnknown says nobody knows a key, Kafka neither.
	ErrUnknown = errors.New("unknown configuration")
	// ErrValue says a key may not have its value.
	ErrValue = errors.New("bad configuration")
	// ErrUnsupported says that to ignore a setting would promise what is not kept.
	ErrUnsupported = errors.New("not supported")
)

// Serve is the configuration of pawl serve.
type Serve struct {
	DataDir   string          // log.dirs
	Listen    string          // host:port, of listeners; an empty host is every address
	Advertise string          // host:port, of advertised.listeners; empty: the address a client came by
	NodeID    metadata.NodeID // node.id
	Rack      string          // broker.rack
	ClusterID string          // cluster.id; empty: the data directory's, or a drawn one
	HTTP      string          // pawl.http.listen; empty: none

	PeerListen    string       // pawl.peer.listen; empty: the place that Controllers has for this node
	PeerAdvertise string       // pawl.peer.advertise; empty: that place, or PeerListen
	Controllers   []Controller // controller.quorum.voters; empty: this node alone

	MemoryMax             int64         // pawl.memory.max, in bytes
	CheckpointBytes       int64         // pawl.checkpoint.bytes
	MaxConnections        int           // max.connections
	ConnectionsMaxIdle    time.Duration // connections.max.idle.ms
	SocketRequestMaxBytes int           // socket.request.max.bytes

	MessageMaxBytes          int32         // message.max.bytes
	NumPartitions            int32         // num.partitions
	DefaultReplicationFactor int16         // default.replication.factor
	AutoCreateTopics         bool          // auto.create.topics.enable
	LogSegmentBytes          int64         // log.segment.bytes
	FetchMaxBytes            int64         // fetch.max.bytes
	ProducerExpiry           time.Duration // producer.id.expiration.ms

	// Broker is everything that was set of what the node knows, for the node and
	// for DescribeConfigs.
	Broker metadata.BrokerConfig
	// Warnings are lines for the operator.
	Warnings []string
}

// Controller is a node that votes on the metadata log.
type Controller struct {
	ID   metadata.NodeID
	Host string // where it listens for nodes
	Port int32
}

// Flags are the flags of pawl serve.
type Flags struct {
	flags  *pflag.FlagSet
	values map[string]*string // by flag
	file   string
	set    []string
}

// flagKeys says which key each flag sets.
var flagKeys = []struct{ flag, key, prefix, usage string }{
	{"data-dir", "log.dirs", "", "the data directory"},
	{"listen", "listeners", "PLAINTEXT://", "where clients connect, host:port"},
	{"advertise", "advertised.listeners", "PLAINTEXT://", "what clients are told to connect to, host:port (default the address they came by)"},
	{"node-id", "node.id", "", "the node's number in the cluster"},
	{"rack", "broker.rack", "", "where the node stands"},
	{"controllers", "controller.quorum.voters", "", "the nodes that vote on the metadata log, id@host:port,..., the same for every node (default this node alone)"},
	{"peer-listen", "pawl.peer.listen", "", "where other nodes connect, host:port (default the place --controllers has for this node)"},
	{"peer-advertise", "pawl.peer.advertise", "", "what other nodes are told to connect to, host:port (default that place, or --peer-listen)"},
	{"cluster-id", "cluster.id", "", "the cluster's id (default the data directory's, else made of --controllers)"},
	{"http", "pawl.http.listen", "", "where metrics, health and the console are served, host:port; empty for nowhere"},
}

// Register adds the flags to a set.
func (f *Flags) Register(flags *pflag.FlagSet) {
	f.flags = flags
	f.values = map[string]*string{}
	for _, k := range flagKeys {
		def, _ := find(k.key)
		f.values[k.flag] = flags.String(k.flag, strings.TrimPrefix(def.Default, k.prefix), k.usage)
	}
	flags.StringVar(&f.file, "config", "", "a server.properties file")
	flags.StringArrayVar(&f.set, "set", nil, "set key=value, with the names of server.properties")
}

// Load reads everything. environ is as os.Environ has it.
func (f *Flags) Load(environ []string) (Serve, error) {
	l := &loader{values: map[string]setting{}}
	if f.file != "" {
		file, err := os.Open(f.file)
		if err != nil {
			return Serve{}, fmt.Errorf("--config: %w: name a server.properties file that can be read", err)
		}
		settings, err := parseProperties(file, f.file)
		file.Close()
		if err != nil {
			return Serve{}, err
		}
		if err := l.take(settings); err != nil {
			return Serve{}, err
		}
	}
	if err := l.takeEnvironment(environ); err != nil {
		return Serve{}, err
	}
	for _, pair := range f.set {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return Serve{}, fmt.Errorf("%w: --set %s: want key=value", ErrValue, pair)
		}
		if err := l.take([]setting{{key, value, "--set"}}); err != nil {
			return Serve{}, err
		}
	}
	for _, k := range flagKeys {
		if f.flags.Changed(k.flag) {
			value := *f.values[k.flag]
			if value != "" && !strings.Contains(value, "://") {
				value = k.prefix + value
			}
			if err := l.take([]setting{{k.key, value, "--" + k.flag}}); err != nil {
				return Serve{}, err
			}
		}
	}
	return l.serve()
}

// loader collects settings; a later one takes the place of an earlier.
type loader struct {
	values   map[string]setting
	ignored  []string // what is Kafka's and means nothing here
	warnings []string
}

func (l *loader) take(settings []setting) error {
	for _, s := range settings {
		if name, ok := aliases[s.key]; ok {
			s.key = name
		}
		def, known := find(s.key)
		switch {
		case !known:
			hint := "see docs/configuration.md"
			if near := similar(s.key); near != "" {
				hint = "did you mean " + near + "?"
			}
			return fmt.Errorf("%s: %w %q: %s", s.from, ErrUnknown, s.key, hint)
		case def == nil || def.Inert:
			l.ignored = append(l.ignored, s.key)
		}
		if def != nil {
			if def.Type == metadata.LongConfig {
				s.value = bytesOf(s.value)
			}
			if s.value == "" && def.Default == "" {
				continue // Kafka's files set what they do not mean to an empty value
			}
			if err := def.Validate(s.value); err != nil {
				return fmt.Errorf("%s: %w", s.from, err)
			}
		}
		l.values[s.key] = s
	}
	return nil
}

// kept are variables that are read elsewhere, or by nobody.
var kept = []string{"PAWL_BROKERS", "PAWL_DIR"}

// takeEnvironment reads PAWL_FOO_BAR and KAFKA_FOO_BAR as foo.bar, as Kafka's
// Docker images do: a double underscore is an underscore, a triple one a dash.
// Images also have KAFKA_ variables for their own scripts, so that an unknown
// one there is only worth a warning.
func (l *loader) takeEnvironment(environ []string) error {
	environ = slices.Clone(environ)
	slices.SortFunc(environ, func(a, b string) int { return cmp.Compare(a, b) }) // KAFKA_ before PAWL_
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, "PAWL_")
		if !ours {
			var kafkas bool
			if rest, kafkas = strings.CutPrefix(name, "KAFKA_"); !kafkas {
				continue
			}
		}
		if slices.Contains(kept, name) {
			continue
		}
		s := setting{strings.NewReplacer("___", "-", "__", "_", "_", ".").Replace(strings.ToLower(rest)), value, "environment " + name}
		if _, known := find("pawl." + s.key); known && ours {
			s.key = "pawl." + s.key
		}
		_, known := find(s.key)
		if _, alias := aliases[s.key]; !known && !alias && !ours {
			l.warnings = append(l.warnings, fmt.Sprintf("the environment variable %s names no configuration, and is ignored", name))
			continue
		}
		if err := l.take([]setting{s}); err != nil {
			return err
		}
	}
	return nil
}

// text is a key's value, or its default.
func (l *loader) text(key string) string {
	if s, ok := l.values[key]; ok {
		return strings.TrimSpace(s.value)
	}
	def, _ := find(key)
	return def.Default
}

func (l *loader) int(key string) int64 {
	n, _ := strconv.ParseInt(l.text(key), 10, 64) // Validate has seen it
	return n
}

func (l *loader) serve() (s Serve, err error) {
	var set []metadata.Config
	for _, key := range slices.Sorted(maps.Keys(l.values)) {
		if def, _ := find(key); def != nil && !isHostKey(key) {
			set = append(set, metadata.Config{Name: key, Value: l.values[key].value})
		}
	}
	if s.Broker, err = metadata.NewBrokerConfig(set); err != nil {
		return Serve{}, err
	}
	if name := l.text("authorizer.class.name"); name != "" {
		return Serve{}, fmt.Errorf("%s: %w: authorizer.class.name: every client may do everything; leave it out if that is meant",
			l.values["authorizer.class.name"].from, ErrUnsupported)
	}
	if s.DataDir = l.text("log.dirs"); strings.Contains(s.DataDir, ",") {
		return Serve{}, fmt.Errorf("%s: %w: log.dirs has more than one directory; name one", l.values["log.dirs"].from, ErrUnsupported)
	}
	if s.Listen, err = l.listener("listeners"); err != nil {
		return Serve{}, err
	}
	if s.Advertise, err = l.listener("advertised.listeners"); err != nil {
		return Serve{}, err
	}
	s.Controllers, _ = parseControllers(l.text("controller.quorum.voters"))
	s.PeerListen, s.PeerAdvertise, s.HTTP = l.text("pawl.peer.listen"), l.text("pawl.peer.advertise"), l.text("pawl.http.listen")
	s.NodeID, s.Rack, s.ClusterID = metadata.NodeID(l.int("node.id")), l.text("broker.rack"), l.text("cluster.id")
	if err := s.checkCluster(); err != nil {
		return Serve{}, err
	}
	s.MemoryMax, s.CheckpointBytes = l.int("pawl.memory.max"), l.int("pawl.checkpoint.bytes")
	s.MaxConnections, s.ConnectionsMaxIdle = int(l.int("max.connections")), l.millis("connections.max.idle.ms")
	s.SocketRequestMaxBytes = int(l.int("socket.request.max.bytes"))
	s.MessageMaxBytes = int32(l.int("message.max.bytes"))
	s.NumPartitions, s.DefaultReplicationFactor = s.Broker.NumPartitions(), s.Broker.DefaultReplicationFactor()
	s.AutoCreateTopics = s.Broker.AutoCreateTopics()
	s.LogSegmentBytes, s.FetchMaxBytes = l.int("log.segment.bytes"), l.int("fetch.max.bytes")
	s.ProducerExpiry = l.millis("producer.id.expiration.ms")
	if s.MemoryMax < int64(s.SocketRequestMaxBytes) {
		return Serve{}, fmt.Errorf("%w: pawl.memory.max is %d, less than one request of socket.request.max.bytes (%d): raise the one or lower the other",
			ErrValue, s.MemoryMax, s.SocketRequestMaxBytes)
	}
	s.Warnings = append(l.warnings, s.doubts()...)
	if ignored := slices.Compact(slices.Sorted(slices.Values(l.ignored))); len(ignored) > 0 {
		s.Warnings = append(s.Warnings, "these settings are Kafka's and change nothing here: "+strings.Join(ignored, ", "))
	}
	return s, nil
}

func (l *loader) millis(key string) time.Duration {
	return time.Duration(l.int(key)) * time.Millisecond
}
