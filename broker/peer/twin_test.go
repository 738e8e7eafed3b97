package peer

import (
	"runtime"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// TestAProcessIsToldThatAnotherHasItsID: once, however many nodes say so, and only
// as long as the other is heard.
func TestAProcessIsToldThatAnotherHasItsID(t *testing.T) {
	cfg := quick()
	cfg.TwinBackoff = 5 * time.Millisecond
	first := callAs(t, cfg, wire.PeerHello{ClusterID: "cluster", Node: 1, Incarnation: metadata.IncarnationID{1}, Address: "here:1"})
	heard := make(chan struct{}, 1<<16)
	var peers []wire.Peer
	for n := metadata.NodeID(2); n <= 4; n++ {
		there := answering(t, wire.PeerHello{ClusterID: "cluster", Node: n}, func(_ broker.Env, ev broker.Event) {
			if r, ok := ev.(broker.Request); ok && r.Peer == 1 {
				heard <- struct{}{}
			}
		})
		peers = append(peers, there.peer)
	}
	first.SetPeers(peers)
	speak := func() {
		for _, p := range peers {
			first.Call(p.ID, 0, &wire.QuorumMessages{From: 1}) // waits for the link
		}
		for range peers {
			<-heard
		}
	}
	speak()
	second := callAs(t, cfg, wire.PeerHello{ClusterID: "cluster", Node: 1, Incarnation: metadata.IncarnationID{2}, Address: "there:2"})
	second.SetPeers(peers)
	for second.Twin() == "" {
		speak()
	}
	second.until("held_by=here:1")
	if first.Twin() != "" || second.Twin() != "here:1" {
		t.Errorf("twins %q and %q, want none and here:1", first.Twin(), second.Twin())
	}
	first.Close()
	for second.Twin() != "" {
		runtime.Gosched()
	}
	second.Close()
	if n := second.log.count("another process is in the cluster under this node's id"); n != 1 {
		t.Errorf("%d lines, want 1: %s", n, second.log.String())
	}
}
