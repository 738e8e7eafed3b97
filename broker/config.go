package broker

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/fetcher"
	"github.com/pawlbroker/pawl/broker/membership"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/office"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
)

// Config of a node. Start from DefaultConfig; the zero value is not valid.
type Config struct {
	// ID is the node's own. Kafka: node.id.
	ID metadata.NodeID
	// ClusterID is 22 characters of URL-safe base64. Kafka: cluster.id.
	ClusterID string
	// Host and Port are where clients are told to connect to. If Port is 0 they
	// are told the address they came to. Kafka: advertised.listeners.
	Host string
	Port int32
	// DataDir is where the logs are, as the operator calls it. Kafka: log.dirs.
	DataDir string
	// Rack is where the node stands, or empty. Kafka: broker.rack.
	Rack string
	// PeerHost and PeerPort are where other nodes reach this one. Without a port
	// none can.
	PeerHost string
	PeerPort int32
	// Controllers are the nodes that the quorum's voters are, and where they
	// listen for nodes. Empty if the node is alone. Kafka:
	// controller.quorum.bootstrap.servers.
	Controllers []wire.Peer
	// Membership has how often the node says that it lives.
	Membership membership.Config
	// Fetcher is how the node follows other nodes' partitions.
	Fetcher fetcher.Config
	// Broker is Kafka's broker configuration, by Kafka's names.
	Broker metadata.BrokerConfig
	// Partition is how partitions are served.
	Partition partition.Config
	// Quorum is how the metadata log is kept.
	Quorum quorum.Config
	// CheckpointBytes is how much may be appended between two checkpoints, and
	// so about how much is replayed after a crash.
	CheckpointBytes int64
	// SnapshotEntries is how long the metadata log grows before it is replaced
	// by a snapshot.
	SnapshotEntries uint64
}

// DefaultConfig is for one node that is its own cluster.
func DefaultConfig(id metadata.NodeID, clusterID string) Config {
	return Config{
		ID: id, ClusterID: clusterID,
		Membership: membership.DefaultConfig(), Fetcher: fetcher.DefaultConfig(),
		Partition:       partition.DefaultConfig(),
		Quorum:          quorum.DefaultConfig(quorum.NodeID(id)),
		CheckpointBytes: 64 << 20,
		SnapshotEntries: 10_000,
	}
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	switch {
	case c.ID < 0:
		return fmt.Errorf("node.id %d, want at least 0", c.ID)
	case c.ClusterID == "":
		return fmt.Errorf("cluster.id is empty")
	case c.CheckpointBytes < 1:
		return fmt.Errorf("checkpoint bytes %d, want at least 1", c.CheckpointBytes)
	case c.SnapshotEntries < 1:
		return fmt.Errorf("snapshot entries %d, want at least 1", c.SnapshotEntries)
	case c.Membership.Lease > controller.LongestLease:
		return fmt.Errorf("lease of %v, want at most %v, after which controllers give a broker's place to others", c.Membership.Lease, controller.LongestLease)
	}
	if err := c.Partition.Validate(); err != nil {
		return err
	}
	if err := c.Fetcher.Validate(); err != nil {
		return err
	}
	if c.Fetcher.MaxWait > c.Partition.MaxLag {
		return fmt.Errorf("replica.fetch.wait.max.ms %v, want at most replica.lag.time.max.ms, %v", c.Fetcher.MaxWait, c.Partition.MaxLag)
	}
	return c.office().Quorum.Validate()
}

// member is the configuration of this process's membership.
func (c Config) member(rng *rand.Rand) membership.Config {
	m := c.Membership
	m.Node, m.ClusterID, m.Incarnation = c.ID, c.ClusterID, incarnation(rng)
	m.Host, m.Port, m.Rack, m.PeerHost, m.PeerPort = c.Host, c.Port, c.Rack, c.PeerHost, c.PeerPort
	return m
}

// office is the configuration of this node's seat in the quorum.
func (c Config) office() office.Config {
	o := office.Config{
		Node: c.ID, Quorum: c.Quorum, Controller: controller.DefaultConfig(), SnapshotEntries: c.SnapshotEntries,
		Controllers:  c.Controllers,
		VoterTimeout: 5 * time.Second,
	}
	o.Controller.Node, o.Controller.ClusterID, o.Controller.Broker = c.ID, c.ClusterID, c.Broker
	if len(c.Controllers) > 0 {
		o.Quorum.Voters = nil
	}
	for _, p := range c.Controllers {
		o.Quorum.Voters = append(o.Quorum.Voters, quorum.NodeID(p.ID))
	}
	o.Quorum.Address = c.peerAddress()
	return o
}

// incarnation draws a name for this run of the process.
func incarnation(rng *rand.Rand) (id metadata.IncarnationID) {
	binary.LittleEndian.PutUint64(id[:8], rng.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rng.Uint64())
	return id
}

// fetcher is the configuration of what follows other nodes' partitions.
func (c Config) fetcher() fetcher.Config {
	f := c.Fetcher
	f.Self = c.ID
	return f
}

// peerAddress is where other nodes reach this one, or empty.
func (c Config) peerAddress() string {
	if c.PeerPort == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", c.PeerHost, c.PeerPort)
}
