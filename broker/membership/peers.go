package membership

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// Peers are the nodes that self may call, and where: those that are registered, and
// those that are known otherwise.
//
// A node that comes back somewhere else has to be heard before it can register. So one
// that is fenced is where it says itself that it listens; and while nobody leads the
// quorum, so that nobody can be fenced, every node is, or else where the command line
// has it: all of them may have moved.
func Peers(image metadata.Image, known *Acquaintances, self metadata.NodeID, led bool) []wire.Peer {
	var peers []wire.Peer
	for b := range image.Brokers() {
		if b.Node == self || b.PeerPort == 0 {
			continue
		}
		at := wire.Peer{ID: b.Node, Host: b.PeerHost, Port: b.PeerPort}
		if configured, ok := find(known.Configured, b.Node); ok && !led {
			at = configured
		}
		if said, ok := find(known.Heard, b.Node); ok && (b.Fenced || !led) {
			at = said
		}
		peers = append(peers, at)
	}
	for _, list := range [...][]wire.Peer{known.Heard, known.Configured} {
		for _, p := range list {
			if _, ok := find(peers, p.ID); p.ID != self && !ok {
				peers = append(peers, p)
			}
		}
	}
	return peers
}

func find(peers []wire.Peer, node metadata.NodeID) (wire.Peer, bool) {
	i := slices.IndexFunc(peers, func(p wire.Peer) bool { return p.ID == node })
	if i < 0 {
		return wire.Peer{}, false
	}
	return peers[i], true
}

// Acquaintances are nodes that said where they listen, before anything that is
// committed says it.
//
// A node that is somewhere else than before is believed at once, but not if it
// moves to and fro: then two nodes have one id, and following both would make
// and break connections for ever.
type Acquaintances struct {
	Configured []wire.Peer // the controllers that this node was started with
	Heard      []wire.Peer // one for each node that spoke, those that did first in front
	moves      []move      // of those in Heard that have moved; oldest first
}

// move is when a node moved last.
type move struct {
	node   metadata.NodeID
	at     clock.Instant
	settle time.Duration // how long it may not move again
	said   bool          // that it wanted to
}

const (
	// maxIntroduced bounds what nodes that are not registered can make another
	// remember.
	maxIntroduced = 100
	// minSettle and maxSettle are how long a node stays where it moved to: twice as
	// long at every time that it moves as soon as it may.
	minSettle, maxSettle = 10 * time.Second, 10 * time.Minute
)

// Met takes note that a node says it listens at address, host:port. It reports
// whether Heard changed, and returns a line if two nodes seem to say so.
func (a *Acquaintances) Met(node metadata.NodeID, address string, now clock.Instant) (news bool, line *Line) {
	peer, ok := parsePeer(node, address)
	if !ok || slices.Contains(a.Heard, peer) {
		return false, nil
	}
	same := func(p wire.Peer) bool { return p.ID == node }
	if from, ok := find(a.Heard, node); ok {
		if stays, line := a.moved(from, peer, now); stays {
			return false, line
		}
	}
	peers := slices.DeleteFunc(slices.Clone(a.Heard), same)
	if len(peers) == maxIntroduced {
		peers = peers[1:]
	}
	a.Heard = append(peers, peer)
	return true, nil
}

// moved reports whether a node that wants to move stays where it is.
func (a *Acquaintances) moved(from, to wire.Peer, now clock.Instant) (stays bool, line *Line) {
	at := slices.IndexFunc(a.moves, func(m move) bool { return m.node == to.ID })
	if at < 0 {
		if len(a.moves) == maxIntroduced {
			a.moves = slices.Delete(a.moves, 0, 1)
		}
		a.moves = append(a.moves, move{node: to.ID, at: now, settle: minSettle})
		return false, nil
	}
	m := &a.moves[at]
	switch since := now.Sub(m.at); {
	case since >= 2*m.settle:
		*m = move{node: to.ID, at: now, settle: minSettle}
	case since >= m.settle:
		*m = move{node: to.ID, at: now, settle: min(2*m.settle, maxSettle)}
	case m.said:
		return true, nil
	default:
		m.said = true
		return true, &Line{slog.LevelWarn, "two nodes have this id, and ask to join in turn: stop one, or give it a --node-id of its own", []slog.Attr{
			slog.Int("node", int(to.ID)), slog.String("at", from.String()), slog.String("and_at", to.String()),
		}}
	}
	return false, nil
}

func parsePeer(node metadata.NodeID, address string) (wire.Peer, bool) {
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 {
		return wire.Peer{}, false
	}
	port, err := strconv.ParseUint(address[colon+1:], 10, 16)
	if err != nil {
		return wire.Peer{}, false
	}
	host := strings.TrimSuffix(strings.TrimPrefix(address[:colon], "["), "]")
	return wire.Peer{ID: node, Host: host, Port: int32(port)}, true
}
