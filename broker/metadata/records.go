package metadata

import (
	"cmp"
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
// record. No list of nodes in a record is empty and not nil.
type Record interface {
	kind() kind
	encode(b []byte) []byte
	fmt.Stringer
}

// Config is one configuration somebody set.
type Config struct{ Name, Value string }

type (
	// RegisterBroker says a broker's process has joined. It takes the place of
	// what the same node registered before. With the epoch and the incarnation
	// that are registered it amends the registration.
	RegisterBroker struct {
		Node        NodeID
		Incarnation IncarnationID
		Epoch       BrokerEpoch // greater than that of every broker before
		Host        string
		Port        int32
		Rack        string // empty if it has none
		PeerHost    string // where other nodes reach it; empty if there are none
		PeerPort    int32
		Directory   [16]byte // its data directory's; zero if it is not told
		Fenced      bool     // may not lead, and is in no ISR
		InShutdown  bool     // is handing over what it leads, to stop

		at Offset // of the latest record about it, in an image; not written
	}

	// BrokerChange says what has become of one registration. Kafka:
	// BrokerRegistrationChangeRecord (KIP-841).
	BrokerChange struct {
		Node       NodeID
		Epoch      BrokerEpoch // which is not changed
		Fenced     bool
		InShutdown bool
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

		// ELR are the replicas that left the ISR after it was smaller than the
		// minimum, and so have everything that was committed: any of them may
		// lead when the ISR is empty (KIP-966). A subset of Replicas; disjoint
		// from ISR.
		ELR []NodeID
		// LastKnownELR is the leader that there was before there was none, if
		// there is none. Kafka's list has the same name, and at most one node.
		LastKnownELR []NodeID
		// Adding and Removing are the replicas that a reassignment that is under
		// way brings in and takes out (KIP-455). Subsets of Replicas. One that is
		// in both was being brought in by a reassignment that was given up, and
		// has not gone yet.
		Adding, Removing []NodeID
		// Recovering says the leader was elected out of neither ISR nor ELR, and
		// has not said since that it has come to terms with that (KIP-704). Then
		// ISR is the leader alone.
		Recovering bool
	}

	// ConfigureTopic sets one configuration of a topic, or, if Unset, removes it.
	ConfigureTopic struct {
		Topic TopicID
		Name  string
		Value string
		Unset bool
	}

	// ConfigureBroker sets one configuration of a broker, or, if Unset, removes
	// it. Node is that broker, EveryBroker for the default of all, or OwnFile.
	ConfigureBroker struct {
		Node  NodeID
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

// What a ConfigureBroker names instead of a broker.
const (
	// EveryBroker is for the default of all brokers.
	EveryBroker NodeID = -1
	// OwnFile is for what the configuration that the active controller was
	// started with says, where all nodes must have one opinion. Everything else
	// comes before it.
	OwnFile NodeID = -2
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
	kindRegisterPeer     kind = 10 // a RegisterBroker that needs more fields than kind 1 has
	kindBrokerChange     kind = 11
	kindReplicated       kind = 12 // a Partition that needs more fields than kind 5 has
	kindConfigureBroker  kind = 13
)

func (r *RegisterBroker) kind() kind {
	if r.PeerHost == "" && r.PeerPort == 0 && r.Directory == [16]byte{} && !r.Fenced && !r.InShutdown {
		return kindRegisterBroker
	}
	return kindRegisterPeer
}
func (r *Partition) kind() kind {
	if len(r.ELR) == 0 && len(r.LastKnownELR) == 0 && len(r.Adding) == 0 && len(r.Removing) == 0 && !r.Recovering {
		return kindPartition
	}
	return kindReplicated
}
func (*BrokerChange) kind() kind     { return kindBrokerChange }
func (*ConfigureBroker) kind() kind  { return kindConfigureBroker }
func (*UnregisterBroker) kind() kind { return kindUnregisterBroker }
func (*AddTopic) kind() kind         { return kindAddTopic }
func (*RemoveTopic) kind() kind      { return kindRemoveTopic }
func (*ConfigureTopic) kind() kind   { return kindConfigureTopic }
func (*ProducerIDs) kind() kind      { return kindProducerIDs }
func (*DeletedTopic) kind() kind     { return kindDeletedTopic }
func (*BrokerEpochs) kind() kind     { return kindBrokerEpochs }

func (r *RegisterBroker) String() string {
	s := fmt.Sprintf("register broker=%d epoch=%d incarnation=%s host=%s port=%d rack=%q",
		r.Node, r.Epoch, r.Incarnation, r.Host, r.Port, r.Rack)
	if r.PeerHost != "" || r.PeerPort != 0 {
		s += fmt.Sprintf(" peer_host=%s peer_port=%d", r.PeerHost, r.PeerPort)
	}
	if r.Directory != [16]byte{} {
		s += fmt.Sprintf(" directory=%s", IncarnationID(r.Directory))
	}
	return s + brokerState(r.Fenced, r.InShutdown)
}
func (r *BrokerChange) String() string {
	return fmt.Sprintf("change broker=%d epoch=%d", r.Node, r.Epoch) + cmp.Or(brokerState(r.Fenced, r.InShutdown), " active")
}

func brokerState(fenced, inShutdown bool) string {
	var s string
	if fenced {
		s = " fenced"
	}
	if inShutdown {
		s += " in_shutdown"
	}
	return s
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
	var b strings.Builder
	fmt.Fprintf(&b, "partition topic=%s index=%d replicas=%v isr=%v leader=%d leader_epoch=%d epoch=%d",
		r.Topic, r.Index, r.Replicas, r.ISR, r.Leader, r.LeaderEpoch, r.Epoch)
	list := func(name string, nodes []NodeID) {
		if len(nodes) > 0 {
			fmt.Fprintf(&b, " %s=%v", name, nodes)
		}
	}
	list("elr", r.ELR)
	list("last_known_elr", r.LastKnownELR)
	list("adding", r.Adding)
	list("removing", r.Removing)
	if r.Recovering {
		b.WriteString(" recovering")
	}
	return b.String()
}
func (r *ConfigureTopic) String() string {
	if r.Unset {
		return fmt.Sprintf("unset topic=%s %s", r.Topic, r.Name)
	}
	return fmt.Sprintf("set topic=%s %s=%s", r.Topic, r.Name, r.Value)
}
func (r *ConfigureBroker) String() string {
	what := fmt.Sprintf("broker=%d", r.Node)
	switch r.Node {
	case EveryBroker:
		what = "every broker"
	case OwnFile:
		what = "own file"
	}
	if r.Unset {
		return fmt.Sprintf("unset %s %s", what, r.Name)
	}
	return fmt.Sprintf("set %s %s=%s", what, r.Name, r.Value)
}
func (r *ProducerIDs) String() string  { return fmt.Sprintf("producer ids next=%d", r.Next) }
func (r *DeletedTopic) String() string { return fmt.Sprintf("deleted topic=%s", r.ID) }
func (r *BrokerEpochs) String() string { return fmt.Sprintf("broker epochs next=%d", r.Next) }
