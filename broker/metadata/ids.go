// Package metadata is what the cluster knows about itself: brokers, topics,
// partitions, configuration. An Image is that knowledge at one point of the
// metadata log; Apply moves it on. Both are pure.
package metadata

import (
	"encoding/base64"
)

// NodeID names a broker.
type NodeID int32

// NoNode is the id of no broker: the leader of a partition without one.
const NoNode NodeID = -1

// TopicID names a topic for ever. A topic created under a deleted one's name
// has another id. The zero id is no topic.
type TopicID [16]byte

// String is Kafka's form: 22 characters of URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }
