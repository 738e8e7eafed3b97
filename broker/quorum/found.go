package quorum

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/assert"
)

// How several configured controllers found one quorum.
//
// Each tells the others who it is: its id, which is another with every data
// directory, and the id that it last heard of them. The one with the lowest
// node id founds, once each of the others has said that it belongs to no quorum
// and has heard of *this* founder. It saves the quorum, which is all their ids,
// and then tells it. Another adopts a quorum that it is in, and saves it, and
// only who has saved one votes. So
//
//   - a node belongs to one quorum for as long as it has its disk, and a founder
//     founds one;
//   - of two quorums, founded by a controller before and after it lost its disk,
//     at most one has a majority: they share all voters but the founder, each of
//     whom adopts one of them, and of the first the founder is dead;
//   - that a founder without a disk founds anew although there is a quorum takes
//     the loss of all other controllers' disks as well.
//
// A quorum is named by its founder's id, and messages name the quorum, so that a
// node which was left behind in a foundation that failed does not take part in
// what it does not know. If it never voted there, it leaves as soon as the leader
// of another quorum counts on it: where there is a leader there is a majority.
//
// A node that is in no quorum, or not heard of by its leader, asks to join.

// greeting is what a node knows of the configured controllers from what they
// said of themselves.
type greeting struct {
	peers []peer // of configured, but for this node; in their order
	ticks int
}

type peer struct {
	node       NodeID
	id         uint64 // 0 if nothing was heard
	seen       uint64 // of this node, by the peer
	quorum     uint64 // 0 if it is in none
	configured bool   // with the same controllers
	at         clock.Instant
}

// joinTicks is how often a node asks to join.
const joinTicks = 3

func (q *Quorum) peer(n NodeID) *peer {
	g := &q.greeting
	if g.peers == nil {
		for _, v := range q.configured {
			if v != q.cfg.ID {
				g.peers = append(g.peers, peer{node: v, at: never})
			}
		}
	}
	for i := range g.peers {
		if g.peers[i].node == n {
			return &g.peers[i]
		}
	}
	return nil
}

// greet says hello to the controllers, or asks to join, if there is reason to.
func (q *Quorum) greet(out *Out) {
	if !q.named {
		return
	}
	if !q.founded() && slices.Contains(q.configured, q.cfg.ID) {
		for _, v := range q.configured {
			q.hello(v, out)
		}
	}
	q.greeting.ticks++
	if q.greeting.ticks%joinTicks != 1 {
		return
	}
	// A voter campaigns. If that has not helped, perhaps it is none any more.
	if patience := q.cfg.ElectionTicks; !q.founded() || q.election.quiet >= 4*patience || q.election.quiet >= patience && !q.votes() {
		q.join(out)
	}
}

func (q *Quorum) hello(to NodeID, out *Out) {
	if p := q.peer(to); p != nil {
		q.say(to, &word{kind: helloWord, id: q.id, seen: p.id, voters: q.configured}, out)
	}
}

// join asks everybody who might know the leader.
func (q *Quorum) join(out *Out) {
	to := slices.Clone(q.configured)
	for _, id := range q.members.ids(true) {
		to = append(to, nodeOf(id))
	}
	slices.Sort(to)
	for _, n := range slices.Compact(to) {
		if n != q.cfg.ID {
			q.say(n, &word{kind: joinWord, id: q.id, address: q.cfg.Address}, out)
		}
	}
}

func (q *Quorum) say(to NodeID, w *word, out *Out) {
	out.Messages = append(out.Messages, Message{From: q.cfg.ID, To: to, quorum: q.members.quorum, word: w})
}

func (q *Quorum) takeWord(m Message, out *Out) {
	q.hear(m.word.id)
	switch m.word.kind {
	case helloWord:
		q.takeHello(m, out)
	case foundWord:
		q.takeFound(m.word)
	case joinWord:
		q.takeJoin(m, out)
	case refuseWord:
		q.takeRefuse(m, out)
	case commitWord:
		q.takeCommitted(m)
	}
}

func (q *Quorum) takeHello(m Message, out *Out) {
	w, p := m.word, q.peer(m.From)
	if p == nil || !slices.Equal(w.voters, q.configured) {
		q.warn(m.From, warnConfigured, out)
	}
	if p == nil {
		return
	}
	news := p.id != w.id
	*p = peer{m.From, w.id, w.seen, m.quorum, slices.Equal(w.voters, q.configured), q.now}
	switch {
	case m.quorum != 0:
	case !q.founded():
		if news {
			q.hello(m.From, out)
		}
		q.mayFound()
	default:
		q.hello(m.From, out)
		if q.compacted == foundingIndex && q.history[0].members.voter(w.id) {
			q.say(m.From, &word{kind: foundWord, id: q.id, members: q.history[0].members}, out)
		}
	}
}

// mayFound founds the quorum if this node is to, and everybody is there.
func (q *Quorum) mayFound() {
	if q.configured[0] != q.cfg.ID || q.found != nil {
		return
	}
	ids := []uint64{q.id}
	for _, v := range q.configured[1:] {
		p := q.peer(v)
		if p.id == 0 || p.quorum != 0 || p.seen != q.id || !p.configured {
			return
		}
		ids = append(ids, p.id)
	}
	ms := foundedBy(q.id, ids)
	q.found = &ms
}

// takeFound adopts a quorum. One that its founder tells must be by the founder
// that was heard last, so that what is left of a dead one's words does not bind
// this node.
func (q *Quorum) takeFound(w *word) {
	ms := w.members
	if q.founded() || q.found != nil || !ms.voter(q.id) || nodeOf(ms.quorum) != q.configured[0] {
		return
	}
	nodes := make([]NodeID, len(ms.members))
	for i, m := range ms.members {
		nodes[i] = nodeOf(m.id)
	}
	if !slices.Equal(nodes, q.configured) || !ms.voter(w.id) || len(ms.ids(false))+len(ms.wishes) > 0 {
		return
	}
	if w.id == ms.quorum && q.peer(nodeOf(w.id)).id != w.id {
		return
	}
	q.found = &ms
}

func (q *Quorum) saveFoundation(out *Out) {
	ms := *q.found
	q.found = nil
	s := &Save{Replace: true, Records: [][]byte{encodeIdentity(q.id), foundingSnapshot(ms).encode()}}
	hard := hardState{max(q.hard.term, foundingTerm), q.hard.vote, foundingIndex}
	q.written = hard
	s.Records = append(s.Records, hard.encode())
	q.ask(&saving{save: s, found: &ms}, out)
}

// foundedWith begins with a quorum whose foundation is durable. The founder, who
// knows that all are there, campaigns at once.
func (q *Quorum) foundedWith(ms membership, out *Out) {
	check(q.begin(past{id: q.id, snapshot: foundingSnapshot(ms), hard: q.written}, out))
	if ms.quorum != q.id {
		return
	}
	for _, v := range q.configured[1:] {
		q.say(v, &word{kind: foundWord, id: q.id, members: ms}, out)
	}
	q.election.hastes = maxHastes
	q.election.at = q.now.Add(q.cfg.Tick / 2) // they have to save it first
}

// mayLeave reports whether m shows that this node is in a quorum that nothing
// will come of, and in which it has promised nothing.
func (q *Quorum) mayLeave(m Message) bool {
	switch m.body.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		return q.hard.vote == 0 && q.hard.term == foundingTerm && q.last() == foundingIndex && !q.node.HasReady()
	}
	return false
}

// leave makes this node one that belongs to no quorum.
func (q *Quorum) leave(out *Out) {
	assert.Reached("quorum: a foundation that failed is left")
	q.left = false
	q.written = hardState{}
	q.ask(&saving{save: &Save{Replace: true, Records: [][]byte{encodeIdentity(q.id)}}, left: true}, out)
}

// takeJoin is for the leader; another node passes it on.
func (q *Quorum) takeJoin(m Message, out *Out) {
	w := m.word
	st := q.node.BasicStatus()
	node := nodeOf(w.id)
	switch {
	case !q.founded() || node == q.cfg.ID && w.id == q.id:
		return
	case !q.Leading():
		if leader := nodeOf(st.Lead); st.Lead != raft.None && m.From == node && leader != q.cfg.ID && leader != node {
			out.Joining = append(out.Joining, Joining{node, w.address})
			out.Messages = append(out.Messages, Message{From: q.cfg.ID, To: leader, quorum: m.quorum, word: w})
		}
		return
	case m.quorum != 0 && m.quorum != q.members.quorum:
		q.warn(node, warnQuorum, out)
		q.refuse(w.id, refusedOther, out)
		return
	}
	if node != q.cfg.ID {
		out.Joining = append(out.Joining, Joining{node, w.address})
	}
	if _, at := q.members.find(w.id); at < 0 && !slices.Contains(q.joins, w.id) && len(q.joins) < maxConfigured {
		q.joins = append(q.joins, w.id)
	}
}

func (q *Quorum) refuse(id uint64, why reason, out *Out) {
	if nodeOf(id) != q.cfg.ID {
		q.say(nodeOf(id), &word{kind: refuseWord, id: id, why: why}, out)
	}
}

func (q *Quorum) takeRefuse(m Message, out *Out) {
	mine := m.word.id == q.id
	switch {
	case nodeOf(m.word.id) != q.cfg.ID:
	case m.word.why == refusedTwin && mine:
		q.warn(q.cfg.ID, warnTwinSelf, out)
	case m.word.why == refusedTwin:
		q.warn(q.cfg.ID, warnTwinOther, out) // the refusal came to who can be reached
	case m.word.why == refusedOther && mine:
		q.warn(m.From, warnQuorum, out)
	case m.word.why == refusedFull && mine:
		q.warn(m.From, warnFull, out)
	}
}
