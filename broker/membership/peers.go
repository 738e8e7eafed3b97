package membership

import (
	"slices"

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
