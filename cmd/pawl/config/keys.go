package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// hostKeys are the keys that the process around the node reads: our own, and
// Kafka's that the node by itself has no use for. Where a name is also in the
// node's table, this line is what holds.
var hostKeys = []*metadata.ConfigDef{
	{Name: "cluster.id", Type: metadata.StringConfig, Check: clusterID,
		Doc: "The cluster's id, 22 characters of URL-safe base64. Empty takes the one in the data directory; if that is fresh, one is made of controller.quorum.voters, so that all nodes agree on it, or drawn for a node that is alone."},
	{Name: "controller.quorum.voters", Type: metadata.ListConfig, Check: func(s string) error { _, err := parseControllers(s); return err },
		Doc: "The nodes that vote on the metadata log, as id@host:port, the port being the one where nodes listen for each other. Every node is told the same ones; three or five are usual. A node that is not named follows them. Empty: this node alone."},
	{Name: "pawl.checkpoint.bytes", Type: metadata.LongConfig, Default: "67108864", Check: positive,
		Doc: "Bytes appended between two checkpoints, and so about how much is replayed after a crash. May be given as 64MiB."},
	{Name: "pawl.http.listen", Type: metadata.StringConfig, Default: "127.0.0.1:9644", Check: hostPort,
		Doc: "Where metrics, health and the console are served, host:port. Empty: nowhere."},
	{Name: "pawl.memory.max", Type: metadata.LongConfig, Default: "268435456", Check: positive,
		Doc: "Most bytes that the requests under way may take together. May be given as 256MiB."},
	{Name: "pawl.peer.advertise", Type: metadata.StringConfig, Check: place,
		Doc: "What the other nodes are told to connect to, host:port. Empty: the place controller.quorum.voters names for this node, else pawl.peer.listen."},
	{Name: "pawl.peer.listen", Type: metadata.StringConfig, Check: hostPort,
		Doc: "Where the other nodes connect, host:port. Empty: the place controller.quorum.voters names for this node, if it names others too. Nobody but the nodes of the cluster should be able to connect there: they trust each other."},
}

// aliases are old names of keys.
var aliases = map[string]string{"broker.id": "node.id", "log.dir": "log.dirs"}

// families are groups of Kafka's keys of which none means anything here.
var families = []string{
	"alter.config.policy.", "client.quota.callback.", "create.topic.policy.", "delegation.token.",
	"group.share.", "group.streams.", "kafka.metrics.", "leader.imbalance.", "listener.name.",
	"metadata.log.", "metadata.max.", "metrics.", "password.encoder.", "remote.log.", "remote.fetch.",
	"sasl.", "share.coordinator.", "ssl.", "telemetry.", "zookeeper.",
}

// find returns what is known of a key; def is nil for a key of a family.
func find(name string) (def *metadata.ConfigDef, known bool) {
	for _, table := range [][]*metadata.ConfigDef{hostKeys, metadata.BrokerConfigs()} {
		for _, d := range table {
			if d.Name == name {
				return d, true
			}
		}
	}
	return nil, slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) })
}

// isHostKey reports whether the node knows nothing of a key.
func isHostKey(name string) bool {
	return !slices.ContainsFunc(metadata.BrokerConfigs(), func(d *metadata.ConfigDef) bool { return d.Name == name })
}

// similar returns the known key that is nearest to a name, if one is near.
func similar(name string) string {
	best, least := "", 4
	for _, table := range [][]*metadata.ConfigDef{hostKeys, metadata.BrokerConfigs()} {
		for _, d := range table {
			if n := distance(name, d.Name); n < least {
				best, least = d.Name, n
			}
		}
	}
	return best
}

// distance is how many characters must be changed, added or removed.
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
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func positive(value string) error {
	if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 1 {
		return fmt.Errorf("want 1 or more")
	}
	return nil
}

var units = []struct {
	suffix string
	shift  int
}{
	{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"K", 10}, {"M", 20}, {"G", 30}, {"T", 40},
}

// bytesOf turns 64MiB into 67108864 and leaves everything else as it is.
func bytesOf(value string) string {
	for _, u := range units {
		digits, ok := strings.CutSuffix(value, u.suffix)
		if n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64); ok && err == nil && n >= 0 && n < 1<<(62-u.shift) {
			return strconv.FormatInt(n<<u.shift, 10)
		}
	}
	return value
}
