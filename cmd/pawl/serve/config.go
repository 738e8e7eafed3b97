package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/magiconair/properties"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/standalone"
)

// A setting is one configuration and where it was given, for errors.
type setting struct {
	metadata.Config
	from string
}

// readFile reads a server.properties.
func readFile(name string) ([]setting, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, fmt.Errorf("--config %s: %w", name, err)
	}
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(text)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", name, err)
	}
	var out []setting
	for _, key := range p.Keys() {
		value, _ := p.Get(key)
		out = append(out, setting{metadata.Config{Name: key, Value: value}, name})
	}
	return out, nil
}

// notConfig are variables with our prefixes that configure something else.
var notConfig = []string{"PAWL_BROKERS", "PAWL_DIR"}

// readEnv takes PAWL_FOO_BAR=x and KAFKA_FOO_BAR=x as foo.bar=x, as Kafka's
// images do: two underscores are one, three are a dash. PAWL_ wins. A KAFKA_
// variable that is no configuration (KAFKA_HEAP_OPTS) is passed over.
func readEnv(environ []string) []setting {
	slices.Sort(environ) // KAFKA_ before PAWL_
	var out []setting
	for _, e := range environ {
		variable, value, _ := strings.Cut(e, "=")
		prefix, name, ok := strings.Cut(variable, "_")
		if !ok || prefix != "PAWL" && prefix != "KAFKA" || slices.Contains(notConfig, variable) {
			continue
		}
		name = strings.NewReplacer("___", "-", "__", "_", "_", ".").Replace(strings.ToLower(name))
		if prefix == "KAFKA" && !known(name) {
			continue
		}
		out = append(out, setting{metadata.Config{Name: name, Value: value}, "environment variable " + variable})
	}
	return out
}

// readSets takes --set key=value flags.
func readSets(flags []string) ([]setting, error) {
	var out []setting
	for _, f := range flags {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("--set %s: want key=value", f)
		}
		out = append(out, setting{metadata.Config{Name: strings.TrimSpace(name), Value: value}, "--set"})
	}
	return out, nil
}

func known(name string) bool {
	return slices.ContainsFunc(metadata.BrokerConfigs(), func(d *metadata.ConfigDef) bool { return d.Name == name })
}

// merge puts settings over each other, the later ones on top. An unknown name
// is an error that names the nearest known ones.
func merge(settings []setting) (metadata.BrokerConfig, error) {
	var set []metadata.Config
	for _, s := range settings {
		if !known(s.Name) {
			return metadata.BrokerConfig{}, fmt.Errorf("%s: there is no configuration %q%s", s.from, s.Name, suggest(s.Name))
		}
		if _, err := metadata.NewBrokerConfig([]metadata.Config{s.Config}); err != nil {
			return metadata.BrokerConfig{}, fmt.Errorf("%s: %w", s.from, err)
		}
		set = append(set, s.Config)
	}
	return metadata.NewBrokerConfig(set)
}

// suggest finds a known name that was perhaps meant.
func suggest(name string) string {
	best, least := "", 4
	for _, d := range metadata.BrokerConfigs() {
		if n := distance(name, d.Name); n < least {
			best, least = d.Name, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// brokerConfig makes a broker's configuration of Kafka's.
func brokerConfig(b metadata.BrokerConfig) (standalone.Config, error) {
	id := metadata.NodeID(b.Int("node.id"))
	c := standalone.DefaultConfig(id)
	c.DataDir = strings.TrimSpace(b.Text("log.dirs"))
	if strings.Contains(c.DataDir, ",") {
		return c, fmt.Errorf("log.dirs %q: a broker has one data directory", c.DataDir)
	}
	var err error
	if c.Listen, err = address("listeners", b.Text("listeners")); err != nil {
		return c, err
	}
	if adv := b.Text("advertised.listeners"); adv != "" {
		addr, err := address("advertised.listeners", adv)
		if err != nil {
			return c, err
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return c, fmt.Errorf("advertised.listeners %q: %w", adv, err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || host == "" {
			return c, fmt.Errorf("advertised.listeners %q: want a host and a port that clients can connect to", adv)
		}
		c.Node.Host, c.Node.Port = host, int32(n)
	}
	c.Node.Rack = b.Text("broker.rack")
	c.Node.Broker = b
	c.Node.CheckpointBytes = b.Int("pawl.checkpoint.bytes")
	c.Node.Partition.FetchMaxBytes = b.Int("fetch.max.bytes")
	c.Node.Partition.ProducerExpiry = time.Duration(b.Int("producer.id.expiration.ms")) * time.Millisecond
	c.Storage.IndexIntervalBytes = b.Int("log.index.interval.bytes")
	c.Storage.LargeAppend = b.Int("pawl.large.append.bytes")
	c.TCP.RequestMemory = b.Int("pawl.memory.max")
	c.TCP.MaxRequestBytes = int(min(b.Int("socket.request.max.bytes"), c.TCP.RequestMemory))
	c.TCP.MaxConnections = int(min(b.Int("max.connections"), 1<<20))
	c.TCP.IdleTimeout = time.Duration(b.Int("connections.max.idle.ms")) * time.Millisecond
	return c, nil
}

// address takes the one plaintext listener out of Kafka's list.
func address(name, list string) (string, error) {
	if strings.Contains(list, ",") {
		return "", fmt.Errorf("%s %q: a broker has one listener", name, list)
	}
	scheme, addr, ok := strings.Cut(strings.TrimSpace(list), "://")
	if !ok {
		scheme, addr = "PLAINTEXT", scheme
	}
	if scheme != "PLAINTEXT" {
		return "", fmt.Errorf("%s %q: only PLAINTEXT listeners are served", name, list)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return "", fmt.Errorf("%s %q: want host:port", name, list)
	}
	return addr, nil
}
