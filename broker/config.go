package broker

import (
	"fmt"

	"github.com/pawlbroker/pawl/broker/metadata"
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
	// Controllers are the nodes that vote in the metadata quorum, and where they
	// listen for nodes. Every node is told the same; none means this node alone.
	// Kafka: controller.quorum.voters.
	Controllers []wire.Peer
	// PeerHost and PeerPort are where other nodes are told to connect to.
	PeerHost string
	PeerPort int32
	// Directory was drawn when the data directory was first used. Kafka:
	// directory.id.
	Directory [16]byte
	// Rack is where the node stands, or empty. Kafka: broker.rack.
	Rack string
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
	}
	if err := c.Partition.Validate(); err != nil {
		return err
	}
	return c.Quorum.Validate()
}
