package simnet

import (
	"time"

	"github.com/pawlbroker/pawl/sim/kernel"
)

// Fault is a way for the network to misbehave. Hits counts each.
type Fault uint8

const (
	Split        Fault = iota // a send arrived in pieces
	Reset                     // a connection was reset
	HalfOpen                  // one direction of a link fell silent
	Cut                       // both did
	Slow                      // a link became slow
	LostResponse              // a response was lost with its connection

	faults
)

var faultNames = [faults]string{"split send", "connection reset", "half-open link", "cut link", "slow link", "lost response"}

// String is the fault in words.
func (f Fault) String() string { return faultNames[f] }

// Hits is how often f has happened.
func (n *Net) Hits(f Fault) int64 { return n.hits[f] }

// Mute makes both, one or no direction of a link silent. What was held back
// goes on its way once it may.
func (n *Net) Mute(client, node int, fromClient, fromNode bool) {
	l := n.link(client, node)
	was := l.muted
	l.muted = [2]bool{Client: fromClient, Node: fromNode}
	switch {
	case fromClient && fromNode:
		n.hits[Cut]++
	case fromClient || fromNode:
		n.hits[HalfOpen]++
	}
	for id := ConnID(1); id <= n.last; id++ {
		c := n.conns[id]
		if c == nil || c.link != l {
			continue
		}
		for side := range c.ways {
			if was[side] && !l.muted[side] && len(c.ways[side].queue) > 0 {
				n.k.After(n.cfg.MaxDelay, n, kernel.What(side), uint64(id))
			}
		}
	}
}

// Slow adds to every delay of a link from here on; 0 makes it as it was.
func (n *Net) Slow(client, node int, extra time.Duration) {
	if extra > 0 {
		n.hits[Slow]++
	}
	n.link(client, node).extra = extra
}

// Open lists the connections that a node has open, oldest first.
func (n *Net) Open(node int) []ConnID {
	var out []ConnID
	for _, id := range n.listener(node).conns {
		if c := n.conns[id]; c != nil && c.peers[Node] != nil {
			out = append(out, id)
		}
	}
	return out
}

// Reset ends a connection at both ends; what is on its way is lost.
func (n *Net) Reset(id ConnID) {
	if c := n.conns[id]; c != nil {
		n.hits[Reset]++
		n.reset(c)
	}
}

func (n *Net) reset(c *conn) {
	c.loseNext = false
	for side := range c.ways {
		c.ways[side].queue = nil
	}
	// Each end hears it from the other.
	n.post(c, Client, packet{kind: fin, why: WasReset})
	n.post(c, Node, packet{kind: fin, why: WasReset})
}

// LoseNextResponse resets the connection when its node next sends something,
// which is lost.
func (n *Net) LoseNextResponse(id ConnID) {
	if c := n.conns[id]; c != nil {
		c.loseNext = true
	}
}

// Heal ends every silence and slowness.
func (n *Net) Heal(clients, nodes int) {
	for c := range clients {
		for node := range nodes {
			n.Slow(c, node, 0)
			n.Mute(c, node, false, false)
		}
	}
}
