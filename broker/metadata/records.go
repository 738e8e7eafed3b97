package metadata

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/pawlbroker/pawl/storage/record"
)

// Offset is a position in the metadata log. It only grows, and not by ones.
type Offset uint64

// BrokerEpoch numbers the registrations of brokers; the cluster never gives
// one twice. What was decided for one registration does not concern the next
// (KIP-380).
type BrokerEpoch int64

// PartitionEpoch counts the changes of one partition. Kafka: partition epoch,
// zkVersion.
type PartitionEpoch int32

// IncarnationID names one run of a broker's process.
type IncarnationID [16]byte

// String is Kafka's form: 22 characters of URL-safe base64.
func (id IncarnationID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Record is one change of the cluster. Exactly the types of this file are
// records. Records never change once they are made.
//
// They are modelled on KRaft's (KIP-631), but a Partition record always tells
// all of a partition, and a topic's configuration at creation is in its Topic
// record.
type Record interface {
	kind() kind
	encode(b []byte) []byte
	fmt.Stringer
}

// Config is one configuration somebody set.
type Config struct{ Name, Value string }

type (
	// RegisterBroker says a broker's process has joined. It takes the place of
	// what the same node registered before.
	RegisterBroker struct {
		Node        NodeID
		Incarnation IncarnationID
		Epoch       BrokerEpoch // greater than that of every broker before
		Host        string
		Port        int32
		Rack        string // empty if it has none
	}

	// UnregisterBroker says a broker has left for good.
	UnregisterBroker struct{ Node NodeID }

	// AddTopic makes a topic without partitions.
	AddTopic struct {
		ID      TopicID
		Name    string
		Configs []Config // by name, no name twice
	}

	// RemoveTopic ends a topic and its partitions. Its id is not used again.
	RemoveTopic struct{ ID TopicID }

	// Partition is one partition as it is from now on. It is the next partition
	// of its topic, or one that exists.
	Partition struct {
		Topic       TopicID
		Index       int32
		Replicas    []NodeID // in order of preference; no node twice
		ISR         []NodeID // a subset of Replicas
		Leader      NodeID   // in ISR, or NoNode
		LeaderEpoch record.LeaderEpoch
		Epoch       PartitionEpoch
	}

	// ConfigureTopic sets one configuration of a topic, or, if Unset, removes it.
	ConfigureTopic struct {
		Topic TopicID
		Name  string
		Value string
		Unset bool
	}

	// ProducerIDs says all producer ids below Next are given away.
	ProducerIDs struct{ Next record.ProducerID }

	// DeletedTopic says a topic of that id existed. It is written into
	// snapshots only, where there is no RemoveTopic.
	DeletedTopic struct{ ID TopicID }

	// BrokerEpochs says all broker epochs below Next are given away. It is
	// written into snapshots only.
	BrokerEpochs struct{ Next BrokerEpoch }
)

// kind is a record's type as encoded. Numbers are never used again for
// something else; a record whose fields change gets a number of its own.
type kind uint8

const (
	kindRegisterBroker   kind = 1
	kindUnregisterBroker kind = 2
	kindAddTopic         kind = 3
	kindRemoveTopic      kind = 4
	kindPartition        kind = 5
	kindConfigureTopic   kind = 6
	kindProducerIDs      kind = 7
	kindDeletedTopic     kind = 8
	kindBrokerEpochs     kind = 9
)

func (*RegisterBroker) kind() kind   { return kindRegisterBroker }
func (*UnregisterBroker) kind() kind { return kindUnregisterBroker }
func (*AddTopic) kind() kind         { return kindAddTopic }
func (*RemoveTopic) kind() kind      { return kindRemoveTopic }
func (*Partition) kind() kind        { return kindPartition }
func (*ConfigureTopic) kind() kind   { return kindConfigureTopic }
func (*ProducerIDs) kind() kind      { return kindProducerIDs }
func (*DeletedTopic) kind() kind     { return kindDeletedTopic }
func (*BrokerEpochs) kind() kind     { return kindBrokerEpochs }

func (r *RegisterBroker) String() string {
	return fmt.Sprintf("register broker=%d epoch=%d incarnation=%s host=%s port=%d rack=%q",
		r.Node, r.Epoch, r.Incarnation, r.Host, r.Port, r.Rack)
}
func (r *UnregisterBroker) String() string { return fmt.Sprintf("unregister broker=%d", r.Node) }
func (r *AddTopic) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "add topic=%s name=%s", r.ID, r.Name)
	for _, c := range r.Configs {
		fmt.Fprintf(&b, " %s=%s", c.Name, c.Value)
	}
	return b.String()
}
func (r *RemoveTopic) String() string { return fmt.Sprintf("remove topic=%s", r.ID) }
func (r *Partition) String() string {
	return fmt.Sprintf("partition topic=%s index=%d replicas=%v isr=%v leader=%d leader_epoch=%d epoch=%d",
		r.Topic, r.Index, r.Replicas, r.ISR, r.Leader, r.LeaderEpoch, r.Epoch)
}
func (r *ConfigureTopic) String() string {
	if r.Unset {
		return fmt.Sprintf("unset topic=%s %s", r.Topic, r.Name)
	}
	return fmt.Sprintf("set topic=%s %s=%s", r.Topic, r.Name, r.Value)
}
func (r *ProducerIDs) String() string  { return fmt.Sprintf("producer ids next=%d", r.Next) }
func (r *DeletedTopic) String() string { return fmt.Sprintf("deleted topic=%s", r.ID) }
func (r *BrokerEpochs) String() string { return fmt.Sprintf("broker epochs next=%d", r.Next) }
