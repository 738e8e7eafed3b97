// Package peer carries a node's requests to other nodes, and their answers back:
// it is the Env's Peers. What other nodes ask of this one is broker/tcp's.
//
// To every other node there are several links (wire.Link), each a connection of
// its own that is made again and again for as long as the node is named. A link
// has a goroutine that dials and then reads, and while it is connected one that
// encodes and writes. Whatever happens to a link, a call has exactly one answer.
package peer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
)

// Carrier is a node's links to other nodes.
type Carrier struct {
	cfg  Config
	self wire.PeerHello
	log  *slog.Logger
	post func(...broker.Event)
	twin twin

	mu    sync.Mutex
	peers map[metadata.NodeID]*links
	over  bool // closed: there is nobody to call any more

	workers sync.WaitGroup
}

// links are the links to one node.
type links struct {
	peer   wire.Peer
	links  [wire.Links]*link
	hangUp context.CancelFunc
}

// New returns a carrier that knows nobody. self is what it says of its own node
// to others.
func New(cfg Config, self wire.PeerHello, log *slog.Logger) (*Carrier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Carrier{cfg: cfg, self: self, log: log, peers: map[metadata.NodeID]*links{}}, nil
}

// Open says where answers go. It comes before anything else; post must not block.
func (c *Carrier) Open(post func(...broker.Event)) {
	assert.That(c.post == nil, "peer: opened twice")
	c.post = post
}

// SetPeers implements broker.Peers.
func (c *Carrier) SetPeers(peers []wire.Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	for id, known := range c.peers {
		if !slices.Contains(peers, known.peer) { // gone, or somewhere else
			known.hangUp()
			delete(c.peers, id)
		}
	}
	for _, p := range peers {
		assert.That(p.ID != c.self.Node, "peer: a node is no peer of its own")
		if c.peers[p.ID] == nil {
			c.peers[p.ID] = c.connect(p)
		}
	}
}

// connect begins to make the links to a node.
func (c *Carrier) connect(p wire.Peer) *links {
	ctx, hangUp := context.WithCancel(context.Background())
	known := &links{peer: p, hangUp: hangUp}
	for i := range known.links {
		l := newLink(c, p, wire.Link(i))
		known.links[i] = l
		c.workers.Go(func() { l.run(ctx) })
	}
	return known
}

// Call implements broker.Peers.
func (c *Carrier) Call(to metadata.NodeID, id broker.CallID, req kmsg.Request) {
	if l := c.find(to, wire.LinkOf(req)); l != nil {
		l.call(id, req)
	} else if !wire.OneWay(req) {
		c.post(gone(to, id))
	}
}

// Hangup implements broker.Peers.
func (c *Carrier) Hangup(to metadata.NodeID, kind wire.Link) {
	if l := c.find(to, kind); l != nil {
		l.hangUp()
	}
}

func (c *Carrier) find(to metadata.NodeID, kind wire.Link) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.peers[to]; known != nil {
		return known.links[kind]
	}
	return nil
}

// Connected reports whether a node can be called: its links are there.
func (c *Carrier) Connected(to metadata.NodeID) bool {
	for i := range wire.Links {
		l := c.find(to, wire.Link(i))
		if l == nil || !l.connected() {
			return false
		}
	}
	return true
}

// Close hangs up on everybody and waits for the goroutines. Calls fail from then
// on.
func (c *Carrier) Close() {
	c.mu.Lock()
	c.over = true
	for id, known := range c.peers {
		known.hangUp()
		delete(c.peers, id)
	}
	c.mu.Unlock()
	c.workers.Wait()
}

// gone is the answer to a call that has none.
func gone(from metadata.NodeID, id broker.CallID) broker.PeerReply {
	return broker.PeerReply{From: from, Call: id, Err: wire.ErrPeerGone}
}

// timeoutOf is how long a call may be without an answer.
func (c *Carrier) timeoutOf(req kmsg.Request) time.Duration {
	if f, ok := req.(*kmsg.FetchRequest); ok {
		return c.cfg.CallTimeout + time.Duration(max(f.MaxWaitMillis, 0))*time.Millisecond
	}
	return c.cfg.CallTimeout
}
