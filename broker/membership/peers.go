package membership

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// Peers are the nodes that self may call, and where: those that are registered,
// and the controllers that self was started with, where they have not
// registered yet.
func Peers(image metadata.Image, controllers []wire.Peer, self metadata.NodeID) []wire.Peer {
	var peers []wire.Peer
	for b := range image.Brokers() {
		if b.Node != self && b.PeerPort != 0 {
			peers = append(peers, wire.Peer{ID: b.Node, Host: b.PeerHost, Port: b.PeerPort})
		}
	}
	for _, c := range controllers {
		known := func(p wire.Peer) bool { return p.ID == c.ID }
		if c.ID != self && !slices.ContainsFunc(peers, known) {
			peers = append(peers, c)
		}
	}
	return peers
}

// Introduced adds a node that says it listens at address, host:port, to peers,
// in the place of what was known of it. It reports whether that is news.
func Introduced(peers []wire.Peer, node metadata.NodeID, address string) ([]wire.Peer, bool) {
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 {
		return peers, false
	}
	port, err := strconv.ParseUint(address[colon+1:], 10, 16)
	if err != nil {
		return peers, false
	}
	host := strings.TrimSuffix(strings.TrimPrefix(address[:colon], "["), "]")
	peer := wire.Peer{ID: node, Host: host, Port: int32(port)}
	if slices.Contains(peers, peer) {
		return peers, false
	}
	peers = slices.DeleteFunc(slices.Clone(peers), func(p wire.Peer) bool { return p.ID == node })
	if len(peers) == maxIntroduced {
		peers = peers[1:]
	}
	return append(peers, peer), true
}

// maxIntroduced bounds what nodes that are not registered can make another
// remember.
const maxIntroduced = 100
