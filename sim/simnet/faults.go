package simnet

import "time"

// Fault is a way for the network to misbehave by itself. Hits counts each.
type Fault uint8

const (
	Split        Fault = iota // a send arrived in pieces
	Reset                     // a connection was reset
	LostResponse              // a response was lost with its connection

	faults
)

var faultNames = [faults]string{"split send", "connection reset", "lost response"}

// String is the fault in words.
func (f Fault) String() string { return faultNames[f] }

// Hits is how often f has happened.
func (n *Net) Hits(f Fault) int64 { return n.hits[f] }

// Mute makes the way from one host to another silent. What is held back goes on
// its way after as many calls of Unmute.
func (n *Net) Mute(from, to Host) { n.path(from, to).silent++ }

// Unmute takes back one Mute.
func (n *Net) Unmute(from, to Host) {
	p := n.path(from, to)
	if p.silent > 0 {
		p.silent--
		n.kick(p)
	}
}

// Slow adds to every delay on the way from one host to another from here on.
// What is less than zero takes back what was added.
func (n *Net) Slow(from, to Host, extra time.Duration) {
	p := n.path(from, to)
	p.extra = max(0, p.extra+extra)
}

// Open lists the connections to a port that a host has open, oldest first.
func (n *Net) Open(at Host, port Port) []ConnID {
	h := n.host(at)
	var out []ConnID
	for _, c := range h.conns {
		if c.port == port && c.hosts[Acceptor] == h && c.peers[Acceptor] != nil {
			out = append(out, c.id)
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
	n.post(c, Dialer, packet{kind: fin, why: WasReset})
	n.post(c, Acceptor, packet{kind: fin, why: WasReset})
}

// LoseNextResponse resets the connection when its acceptor next sends something,
// which is lost.
func (n *Net) LoseNextResponse(id ConnID) {
	if c := n.conns[id]; c != nil {
		c.loseNext = true
	}
}

// Heal ends every silence and slowness.
func (n *Net) Heal() {
	for _, p := range n.order {
		was := p.silent
		p.silent, p.extra = 0, 0
		if was > 0 {
			n.kick(p)
		}
	}
}
