package maelstrom

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/maelstrom/mesh"
)

// kindClient is the kind of connection over which a node asks another what a
// client asked of it. The kinds below are those of the links between brokers.
const kindClient = int(wire.Links)

const (
	// carrierTick is how often the carrier looks at the time.
	carrierTick = 20 * time.Millisecond
	// silentStart is how long a node says nothing to others unless they do.
	// Maelstrom starts all nodes at once, and no longer listens to one that sends to
	// another before that is there.
	silentStart = 300 * time.Millisecond
)

// carrier is a node's connections with other nodes: its broker's links to them,
// theirs to its broker, and those for what clients ask. It has the part of
// broker/peer and broker/tcp, over Maelstrom's network in place of sockets.
//
// One mutex is over all of it. Nothing is done under it that waits: what is sent
// goes to the outbox, events to the broker's inbox, and answers are read from
// files by a goroutine that does not hold it.
type carrier struct {
	self   wire.PeerHello
	others []member
	log    *slog.Logger
	post   func(...broker.Event)
	local  *link // the connection of this node's own clients

	mu      sync.Mutex
	dialAt  time.Time // connections are made from then on
	mesh    *mesh.Mesh
	links   []*peerLink // to other brokers
	remotes map[metadata.NodeID]*remote
	doors   map[uint64]*door // connections that others opened
	last    uint64           // the last of them
	answers []answer         // to be sent by the sender
	some    sync.Cond        // there are answers, or it is over
	over    bool
	stop    chan struct{}
	workers sync.WaitGroup
}

// localConn is the local link's connection; those of others come after it.
const localConn = 1

// newCarrier returns a carrier that sends messages with send, which must not
// block. It does nothing before Open.
func newCarrier(c cluster, clusterID string, local *link, send func(to string, f mesh.Frame), log *slog.Logger) *carrier {
	r := &carrier{
		self: wire.PeerHello{ClusterID: clusterID, Node: c.self.id, Version: "maelstrom"}, others: c.others(), log: log, local: local,
		remotes: map[metadata.NodeID]*remote{}, doors: map[uint64]*door{}, last: localConn, stop: make(chan struct{}),
	}
	r.some.L = &r.mu
	rand.Read(r.self.Incarnation[:]) // never fails
	r.mesh = mesh.New(mesh.DefaultConfig(), hex.EncodeToString(r.self.Incarnation[:]), send, r.accept)
	for _, m := range r.others {
		r.remotes[m.id] = &remote{c: r, to: m, waiting: map[int32]chan []byte{}}
	}
	return r
}

// Open implements host.Peers. The carrier works from then on, until it is closed.
func (r *carrier) Open(post func(...broker.Event)) {
	r.post, r.dialAt = post, time.Now().Add(silentStart)
	r.workers.Go(r.sendAnswers)
	r.workers.Go(func() {
		ticker := time.NewTicker(carrierTick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.tick(time.Now())
			case <-r.stop:
				return
			}
		}
	})
}

// receive takes a message between nodes.
func (r *carrier) receive(from string, f mesh.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || !slices.ContainsFunc(r.others, func(m member) bool { return m.name == from }) {
		return
	}
	r.mesh.Receive(time.Now(), from, f)
}

func (r *carrier) tick(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.mesh.Tick(now)
	if now.Before(r.dialAt) {
		return
	}
	for _, l := range r.links {
		l.tick(now)
	}
	for _, m := range r.remotes {
		m.tick(now)
	}
}

// close ends all connections. What waits for an answer over one has none.
func (r *carrier) close() {
	r.mu.Lock()
	r.over = true
	for _, m := range r.remotes {
		m.down()
	}
	r.some.Broadcast()
	r.mu.Unlock()
	close(r.stop)
	r.workers.Wait()
}
