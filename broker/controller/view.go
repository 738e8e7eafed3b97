package controller

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// View is what a broker knows when it answers a question about the cluster.
type View struct {
	Image      metadata.Image
	Config     metadata.BrokerConfig // its own
	Self       metadata.NodeID
	ClusterID  string
	Controller metadata.NodeID // or metadata.NoNode
	Quorum     Quorum          // that keeps the metadata log, as the active controller knows it
	// Host and Port are where the asker reached this broker, and what it is told
	// to connect to. With an empty Host it is told what the broker registered.
	Host string
	Port int32
}

// address is where clients reach a broker.
func (v *View) address(b *metadata.Broker) (host string, port int32) {
	if b.Node == v.Self && v.Host != "" {
		return v.Host, v.Port
	}
	return b.Host, b.Port
}

// alive reports whether clients are told of a broker.
func (v *View) alive(n metadata.NodeID) bool {
	b, ok := v.Image.Broker(n)
	return ok && !b.Fenced
}

// controller is the node to name as the controller: none that is not in the
// list of brokers beside it. If the controller is not, it is this broker, which
// sends on what is for the controller, as any broker does (KIP-590).
func (v *View) controller() int32 {
	for _, n := range [...]metadata.NodeID{v.Controller, v.Self} {
		if v.alive(n) {
			return int32(n)
		}
	}
	return int32(metadata.NoNode)
}

// leader is the node to name as a partition's leader: none that is not in the
// list of brokers beside it.
func (v *View) leader(p *metadata.Partition) metadata.NodeID {
	if !v.alive(p.Leader) {
		return metadata.NoNode
	}
	return p.Leader
}

func rack(b *metadata.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}

// What an asker may do, as bits numbered by Kafka's AclOperation (KIP-430).
// There is no authorizer, so it is everything there is to do.
const (
	notAsked          = -1 << 31
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

func nodes(list []metadata.NodeID) []int32 {
	ids := make([]int32, len(list))
	for i, n := range list {
		ids[i] = int32(n)
	}
	return ids
}

// offline is those of list that cannot be reached.
func (v *View) offline(list []metadata.NodeID) []metadata.NodeID {
	return slices.DeleteFunc(slices.Clone(list), v.alive)
}
