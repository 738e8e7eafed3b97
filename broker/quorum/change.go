package quorum

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/pawlbroker/pawl/storage/assert"
)

// How the members change. The leader proposes one change at a time, and the next
// once it was handed out: first who is left of an earlier incarnation goes, and
// who shall not vote no longer does, then who has caught up votes, then who asks
// to join follows.

var (
	// ErrChanging says that another change of the members is under way. It is
	// over soon.
	ErrChanging = errors.New("another change of the quorum is under way")
	// ErrNoMember says that a node does not follow the quorum.
	ErrNoMember = errors.New("the node is no member of the quorum")
	// ErrVotes says that a node votes already.
	ErrVotes = errors.New("the node is a voter already")
	// ErrNoVoter says that a node does not vote.
	ErrNoVoter = errors.New("the node is no voter")
	// ErrTooFew says that without the node the quorum could not go on: those
	// that would be left are not there, or it is the last.
	ErrTooFew = errors.New("too few voters would be left")
)

// caughtUpEntries is how far behind a learner may be that is made a voter. It is
// what a healthy follower is behind at any moment under load.
const caughtUpEntries = 64

// AddVoter asks for a node that follows to be made a voter, also if it is not a
// configured controller or was removed. Unless it returns an error, the ticket
// comes back as that of a proposal does: when that is agreed on. The node votes
// as soon as it has caught up, whoever leads by then. KIP-853: AddRaftVoter.
func (q *Quorum) AddVoter(node NodeID, out *Out) (Ticket, error) {
	m, ok := q.members.newest(node)
	switch {
	case !q.Leading():
		return 0, ErrNotLeader
	case !ok:
		return 0, fmt.Errorf("%w: node %d", ErrNoMember, node)
	case m.voter:
		return 0, fmt.Errorf("%w: node %d", ErrVotes, node)
	}
	return q.proposeChange(change{changesNone, m.id, wishVote}, out)
}

// RemoveVoter asks for a voter to be none, and not to be made one again because
// it is a configured controller. It goes on following. If it is the leader, it
// hands over first. The ticket is as AddVoter's. KIP-853: RemoveRaftVoter.
func (q *Quorum) RemoveVoter(node NodeID, out *Out) (Ticket, error) {
	if !q.Leading() {
		return 0, ErrNotLeader
	}
	var votes []member
	for _, m := range q.members.members {
		if m.voter && nodeOf(m.id) == node {
			votes = append(votes, m)
		}
	}
	newest, _ := q.members.newest(node)
	switch {
	case len(votes) == 0:
		return 0, fmt.Errorf("%w: node %d", ErrNoVoter, node)
	case len(votes) > 1:
		return 0, fmt.Errorf("%w: node %d has a new disk", ErrChanging, node)
	case !q.enoughWithout(votes[0].id):
		return 0, fmt.Errorf("%w: node %d", ErrTooFew, node)
	case votes[0].id == q.id: // the next leader does it
		return q.proposeChange(change{changesNone, q.id, wishNoVote}, out)
	case newest.id != votes[0].id:
		return q.proposeChange(change{dropMember, votes[0].id, wishNoVote}, out)
	}
	return q.proposeChange(change{addLearner, votes[0].id, wishNoVote}, out)
}

// Forget asks for a node that does not vote to be no member any more. If it is
// alive it joins again.
func (q *Quorum) Forget(node NodeID, out *Out) (Ticket, error) {
	m, ok := q.members.newest(node)
	switch {
	case !q.Leading():
		return 0, ErrNotLeader
	case !ok:
		return 0, fmt.Errorf("%w: node %d", ErrNoMember, node)
	case m.voter:
		return 0, fmt.Errorf("%w: node %d", ErrVotes, node)
	}
	return q.proposeChange(change{what: dropMember, id: m.id}, out)
}

// proposeChange is for a change that somebody asked for.
func (q *Quorum) proposeChange(c change, out *Out) (Ticket, error) {
	if q.changing {
		return 0, ErrChanging
	}
	if _, err := q.members.apply(c); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrTooFew, err)
	}
	q.lastTicket++
	ticket := q.lastTicket
	if !q.step(c, ticket) {
		return 0, fmt.Errorf("%w: the leader hands over", ErrChanging)
	}
	q.run(out)
	return ticket, nil
}

// step proposes a change, and reports whether raft took it.
func (q *Quorum) step(c change, ticket Ticket) bool {
	assert.That(!q.changing, "quorum: two changes at once")
	term := q.node.BasicStatus().GetTerm()
	err := q.node.Step(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &q.id, Entries: []*raftpb.Entry{
		{Type: raftpb.EntryConfChangeV2.Enum(), Data: c.encode()},
	}})
	if err != nil {
		return false // it is handing over
	}
	q.changing = true
	q.pending = append(q.pending, proposal{term: Term(term), ticket: ticket, change: true})
	return true
}

// change makes the change of an entry that is handed out. What does not fit is
// no change, to any node.
func (q *Quorum) change(e *raftpb.Entry) {
	q.changing = false
	c, cc, err := decodeChange(e.GetData())
	check(err) // it was looked at when it was received, and when it was read
	next, err := q.members.apply(c)
	if err != nil {
		return
	}
	cs := q.node.ApplyConfChange(cc)
	assert.That(next.matches(cs), "quorum: raft has other members")
	q.members = next
	q.history = append(q.history, historical{Index(e.GetIndex()), next})
	q.forget()
}

// maintain proposes the change that is due, if any, and reports whether it did.
func (q *Quorum) maintain(out *Out) bool {
	q.answerAlone(out)
	if !q.Leading() || q.changing {
		return false
	}
	for _, c := range [...]func(*Out) (change, bool){q.dropOld, q.demote, q.promote, q.letIn} {
		if c, ok := c(out); ok {
			return q.step(c, 0)
		}
	}
	return false
}

// dropOld removes an incarnation that a later one, which is there, takes the
// place of. If it votes, the later one must have caught up; then the old one goes
// first, because to count on one node more, which just lost a disk, is no help.
//
// A join may be much older than it seems. If the earlier incarnation is there and
// the later is not, that one goes; if it lives, it asks again.
func (q *Quorum) dropOld(*Out) (change, bool) {
	for _, m := range q.members.members {
		newest, _ := q.members.newest(nodeOf(m.id))
		if newest.id == m.id {
			continue
		}
		oldThere, newThere := q.isThere(m.id), q.isThere(newest.id)
		c := change{what: dropMember, id: m.id}
		vote, wished := q.members.wished(nodeOf(m.id))
		switch h := q.hearing(newest.id); {
		case oldThere && !newThere && !newest.voter:
			assert.Reached("quorum: who joined long ago is gone")
			return change{what: dropMember, id: newest.id}, true
		case m.id == q.id || !newThere || h == nil || h.at == never:
			continue
		case m.voter && !newest.voter && (!wished || vote):
			if oldThere || !q.caughtUp(newest.id) || !q.enoughWithout(m.id) {
				continue
			}
			c.wish = wishVote
		}
		assert.Reached("quorum: an old incarnation is gone")
		return c, true
	}
	return change{}, false
}

// demote makes a learner of a voter that an operator wants to be none. A leader
// does not do that to itself: others might not know yet that it counts no more,
// and could not win against what it alone has.
func (q *Quorum) demote(*Out) (change, bool) {
	for _, m := range q.members.members {
		vote, wished := q.members.wished(nodeOf(m.id))
		switch {
		case !m.voter || !wished || vote || !q.enoughWithout(m.id):
		case m.id == q.id:
			q.handOver()
		default:
			return change{what: addLearner, id: m.id}, true
		}
	}
	return change{}, false
}

// promote makes a voter of a node that shall be one and has caught up.
func (q *Quorum) promote(*Out) (change, bool) {
	for _, m := range q.members.members {
		if !m.voter && q.shallVote(m) && q.caughtUp(m.id) && q.enoughWith(m.id) {
			return change{what: makeVoter, id: m.id}, true
		}
	}
	return change{}, false
}

// shallVote reports whether a learner is to vote: because it was asked for, also
// by the node's having voted before it lost its disk, or because it is configured
// to.
func (q *Quorum) shallVote(m member) bool {
	node := nodeOf(m.id)
	if newest, _ := q.members.newest(node); newest.id != m.id {
		return false
	}
	for _, old := range q.members.members {
		if old.voter && nodeOf(old.id) == node {
			return false // it goes first
		}
	}
	if vote, ok := q.members.wished(node); ok {
		return vote
	}
	return slices.Contains(q.configured, node)
}

// letIn makes a member of a node that asked.
func (q *Quorum) letIn(out *Out) (change, bool) {
	for len(q.joins) > 0 {
		id := q.joins[0]
		q.joins = q.joins[1:]
		old, ok := q.members.newest(nodeOf(id))
		switch {
		case ok && old.id == id:
		case ok && q.isThere(old.id):
			q.refuseTwin(id, old.id, out)
		case len(q.members.members) >= maxMembers:
			q.warn(nodeOf(id), warnFull, out)
			q.refuse(id, refusedFull, out)
		default:
			return change{what: addLearner, id: id}, true
		}
	}
	return change{}, false
}

// refuseTwin does not let a node in whose id another has that was heard within an
// election timeout. Mostly that is its own past, which needs no words; if the
// other is heard after this one asked, there are two.
func (q *Quorum) refuseTwin(id, other uint64, out *Out) {
	at := slices.IndexFunc(q.twins, func(t heard) bool { return t.id == id })
	if at < 0 {
		if len(q.twins) < maxConfigured {
			q.twins = append(q.twins, heard{id: id, at: q.now})
		}
		return
	}
	if h := q.hearing(other); other == q.id || h != nil && h.at > q.twins[at].at {
		assert.Reached("quorum: two nodes with one id")
		q.warn(nodeOf(id), warnTwin, out)
		q.refuse(id, refusedTwin, out)
	}
}

// isThere reports whether a member was heard within an election timeout. Of a
// new leader's followers that is assumed until it could have heard them.
func (q *Quorum) isThere(id uint64) bool {
	if id == q.id {
		return true
	}
	at := q.since
	if h := q.hearing(id); h != nil {
		at = max(at, h.at)
	}
	return q.now.Sub(at) < q.cfg.electionTimeout()
}

// enoughWithout reports whether a majority of the voters but one is there.
func (q *Quorum) enoughWithout(id uint64) bool {
	return q.enough(slices.DeleteFunc(q.members.ids(true), func(v uint64) bool { return v == id }))
}

// enoughWith reports whether a majority of the voters and one more is there.
func (q *Quorum) enoughWith(id uint64) bool { return q.enough(append(q.members.ids(true), id)) }

func (q *Quorum) enough(voters []uint64) bool {
	there := 0
	for _, v := range voters {
		if q.isThere(v) {
			there++
		}
	}
	return there > len(voters)/2
}

// progress is how far raft knows a member to be. It has none of who is no member
// yet, and only a leader has any.
func (q *Quorum) progress(id uint64) (p tracker.Progress, ok bool) {
	q.node.WithProgress(func(of uint64, _ raft.ProgressType, pr tracker.Progress) {
		if of == id {
			p, ok = pr, true
		}
	})
	return p, ok
}

// caughtUp reports whether a learner could vote without holding the others up.
func (q *Quorum) caughtUp(id uint64) bool {
	p, ok := q.progress(id)
	h := q.hearing(id)
	return ok && p.State == tracker.StateReplicate && p.Match+caughtUpEntries >= q.last() &&
		h != nil && h.at != never && q.isThere(id)
}

// noteProgress notes who has all that is committed.
func (q *Quorum) noteProgress() {
	commit := q.node.BasicStatus().GetCommit()
	q.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if h := q.hearing(id); h != nil && p.Match >= commit {
			h.caughtUp = q.now
		}
	})
}

// sameMembers reports whether a and b have the same members.
func sameMembers(a, b membership) bool {
	return a.quorum == b.quorum && slices.Equal(a.members, b.members)
}
