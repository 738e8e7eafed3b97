package quorum

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/pawlbroker/pawl/broker/clock"
)

// Status is what this node knows of the quorum. Only the leader knows how far
// the others are.
type Status struct {
	Term    Term
	Leader  NodeID // or NoNode
	Commit  Index
	Members []MemberStatus // by node; the newer incarnation of one after the older
}

// MemberStatus is one member's part.
type MemberStatus struct {
	Member
	Match  Index // the last entry that it is known to have
	Lag    uint64
	Active bool // it was heard within an election timeout
	// Heard is when it last was, and CaughtUp when it last had all that was
	// committed, to a tick; -1 if never, or unknown.
	Heard, CaughtUp clock.Instant
}

// Members returns who belongs to the quorum, as of the last entry handed out, by
// node. It is empty before this node belongs to one.
func (q *Quorum) Members() []Member {
	list := []Member{}
	for _, m := range q.members.members {
		list = append(list, Member{nodeOf(m.id), incarnationOf(m.id), m.voter})
	}
	slices.SortStableFunc(list, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

// Status returns what this node knows of the quorum.
func (q *Quorum) Status(now clock.Instant) Status {
	st := q.node.BasicStatus()
	s := Status{Term: q.told.Term, Leader: q.told.Node, Commit: Index(st.GetCommit())}
	for _, m := range q.Members() {
		ms := MemberStatus{Member: m, Heard: never, CaughtUp: never}
		id := raftID(m.Node, m.Incarnation)
		if h := q.hearing(id); h != nil {
			ms.Heard, ms.CaughtUp = h.at, h.caughtUp
		}
		if id == q.id {
			ms.Match, ms.Heard, ms.CaughtUp = Index(q.last()), now, now
		}
		ms.Active = ms.Heard != never && now.Sub(ms.Heard) < q.cfg.electionTimeout()
		s.Members = append(s.Members, ms)
	}
	if st.RaftState != raft.StateLeader {
		return s
	}
	q.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		for i := range s.Members {
			if m := &s.Members[i]; raftID(m.Node, m.Incarnation) == id {
				m.Match = Index(p.Match)
				m.Lag = uint64(max(s.Commit, m.Match) - m.Match)
			}
		}
	})
	return s
}

// Absence is a voter that was not heard of.
type Absence struct {
	Node  NodeID
	Since clock.Instant // when it was last heard of, or began to be listened for
}

// Missing returns the voters that were not heard of, or before there is a quorum
// the configured controllers, by node: so many that nothing can be agreed on, if
// nobody leads. To a node that follows a leader nobody is missing.
func (q *Quorum) Missing(now clock.Instant) []Absence {
	patience := q.cfg.electionTimeout()
	if !q.Leading() {
		if q.told.Node != NoNode {
			return nil
		}
		patience *= 3 // without a leader they are asked only as often as anybody campaigns
	}
	var missing []Absence
	note := func(n NodeID, at clock.Instant) {
		at = max(at, q.since)
		if n != q.cfg.ID && now.Sub(at) >= patience {
			missing = append(missing, Absence{n, at})
		}
	}
	if !q.founded() {
		for _, v := range q.configured {
			if p := q.peer(v); p != nil {
				note(v, p.at)
			}
		}
		return missing
	}
	for _, m := range q.Members() {
		if h := q.hearing(raftID(m.Node, m.Incarnation)); m.Voter && h != nil {
			note(m.Node, h.at)
		}
	}
	return slices.CompactFunc(missing, func(a, b Absence) bool { return a.Node == b.Node })
}
