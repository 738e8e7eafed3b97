package wire

import "github.com/twmb/franz-go/pkg/kmsg"

// peerAPIs has every API that nodes serve each other, by key, and nobody else.
// None is advertised: both sides are pawl, and say their version in a hello.
//
// An Envelope's content may be any request of a client (apis.go). CreateTopics
// without one is of a broker itself, for a topic that is created because somebody
// names it.
var peerAPIs = [...]Range{
	{kmsg.Fetch, 17, 17, 17},
	{kmsg.CreateTopics, 7, 7, 7},
	{kmsg.AlterPartition, 3, 3, 3},
	{kmsg.Envelope, 0, 0, 0},
	{kmsg.BrokerRegistration, 4, 4, 4},
	{kmsg.BrokerHeartbeat, 1, 1, 1},
	{kmsg.AllocateProducerIDs, 0, 0, 0},
	{keyPeerHello, 0, 0, 0},
	{keyQuorumMessages, 0, 0, 0},
	{keyProgress, 0, 0, 0},
}

// ServedToPeers returns the versions of the API that nodes speak with each
// other.
func ServedToPeers(key int16) (Range, bool) {
	for _, r := range peerAPIs {
		if r.Key.Int16() == key {
			return r, true
		}
	}
	return Range{}, false
}

// newPeerRequest returns an empty request of an API of peerAPIs.
func newPeerRequest(key kmsg.Key) kmsg.Request {
	switch key {
	case keyPeerHello:
		return &PeerHello{}
	case keyQuorumMessages:
		return &QuorumMessages{}
	case keyProgress:
		return &Progress{}
	}
	return kmsg.RequestForKey(key.Int16())
}

// nameOf is the API's name, for people.
func nameOf(key kmsg.Key) string {
	switch key {
	case keyPeerHello:
		return "PeerHello"
	case keyQuorumMessages:
		return "QuorumMessages"
	case keyProgress:
		return "Progress"
	}
	return key.Name()
}
