package maelstrom

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// cluster is who there is, as init tells every node alike.
type cluster struct {
	self  member
	nodes []member // by id
}

// member is one node: Maelstrom's name for it, and the broker's.
type member struct {
	name string
	id   metadata.NodeID
}

// Brokers tell each other to connect to a node's name, at a port that nobody
// looks at.
const (
	clientPort = 9092
	peerPort   = 9093
)

// Times that let others take a node's place while Maelstrom's clients, who wait
// for 5 seconds, still do.
const (
	// silentBroker is how long a broker may be silent before the controller has
	// others lead in its place, and a follower before it is out of sync.
	silentBroker = 1500 * time.Millisecond
	// electionTicks is how long the controller may be silent, of 100 ms.
	electionTicks = 6
	// leaveTime is how long a node waits for others to lead in its place when its
	// input ends, which is how tests end it.
	leaveTime = time.Second
)

// newCluster takes the names of init: a letter and a number each.
func newCluster(self string, names []string) (cluster, error) {
	var c cluster
	for _, name := range names {
		id, err := strconv.ParseInt(strings.TrimLeft(name, "n"), 10, 32)
		if err != nil || id < 0 {
			return cluster{}, fmt.Errorf("node name %q: want n and a number", name)
		}
		m := member{name, metadata.NodeID(id)}
		if slices.ContainsFunc(c.nodes, func(o member) bool { return o.id == m.id }) {
			return cluster{}, fmt.Errorf("two nodes have the number %d", id)
		}
		c.nodes = append(c.nodes, m)
		if name == self {
			c.self = m
		}
	}
	if c.self.name == "" {
		return cluster{}, fmt.Errorf("node %q is none of %q", self, names)
	}
	slices.SortFunc(c.nodes, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	return c, nil
}

// alone reports whether the node has no others.
func (c cluster) alone() bool { return len(c.nodes) == 1 }

// others are the other nodes.
func (c cluster) others() []member {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(m member) bool { return m == c.self })
}

// id is the cluster's id in a fresh directory, which all nodes agree on before
// they know each other. A node that is alone draws one.
func (c cluster) id() string {
	if c.alone() {
		return ""
	}
	var names []string
	for _, m := range c.nodes {
		names = append(names, m.name)
	}
	return host.DeriveClusterID("maelstrom " + strings.Join(names, ","))
}

// voters are the first three nodes; of two, which cannot do without each other,
// the first.
func (c cluster) voters() []member {
	if len(c.nodes) < 3 {
		return c.nodes[:1]
	}
	return c.nodes[:3]
}

// broker is the node's configuration.
func (c cluster) broker(clusterID string) (broker.Config, error) {
	cfg := broker.DefaultConfig(c.self.id, clusterID)
	if c.alone() {
		return cfg, nil
	}
	replicas := min(3, len(c.nodes))
	var err error
	cfg.Broker, err = metadata.NewBrokerConfig([]metadata.Config{
		{Name: "default.replication.factor", Value: strconv.Itoa(replicas)},
		{Name: "min.insync.replicas", Value: strconv.Itoa(replicas/2 + 1)},
		{Name: "broker.session.timeout.ms", Value: strconv.FormatInt(silentBroker.Milliseconds(), 10)},
		{Name: "replica.lag.time.max.ms", Value: strconv.FormatInt(silentBroker.Milliseconds(), 10)},
	})
	if err != nil {
		return cfg, err
	}
	cfg.Partition.MaxLag = silentBroker
	cfg.Quorum.ElectionTicks = electionTicks
	cfg.Membership.ShutdownTimeout = leaveTime
	cfg.Host, cfg.Port = c.self.name, clientPort
	cfg.PeerHost, cfg.PeerPort = c.self.name, peerPort
	for _, v := range c.voters() {
		cfg.Controllers = append(cfg.Controllers, wire.Peer{ID: v.id, Host: v.name, Port: peerPort})
	}
	return cfg, cfg.Validate()
}
