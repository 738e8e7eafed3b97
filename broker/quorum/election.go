package quorum

import (
	"time"

	"go.etcd.io/raft/v3"

	"github.com/pawlbroker/pawl/broker/clock"
)

// election is this node's own timer.
type election struct {
	elapsed  int           // ticks since the leader was heard, or a vote given
	patience int           // ticks until the next candidacy
	quiet    int           // ticks since the leader was heard
	at       clock.Instant // of a candidacy in haste, or Never
	hastes   int           // candidacies in haste that are left
}

// A node that knows its leader dead does not wait for an election timeout: it
// campaigns within hasteTicks, by a draw finer than a tick, and a few times more
// if the others were not ready or campaigned at the same time.
const (
	hasteTicks = 3
	maxHastes  = 4
)

func (q *Quorum) drawPatience() int { return q.cfg.ElectionTicks + q.rand.IntN(q.cfg.ElectionTicks) }

// tick moves raft's clock. Only a leader's tick does not ask for an election
// timeout.
func (q *Quorum) tick(out *Out) {
	e := &q.election
	if q.node.BasicStatus().RaftState == raft.StateLeader {
		e.elapsed, e.quiet = 0, 0
		q.node.Tick()
		q.noteProgress()
		return
	}
	// Deprecated, but it moves the clock of leases and, unlike Tick, draws no
	// random number.
	q.node.TickQuiesced()
	e.elapsed++
	e.quiet++
	if q.votes() && (e.elapsed >= e.patience || q.lone()) {
		e.elapsed, e.patience = 0, q.drawPatience()
		check(q.node.Campaign())
	}
	q.greet(out)
}

// Suspect says that a node's process is known to be dead: not that it is silent,
// but that its machine said so. If it led, this node forgets it, as it must to
// vote for another, and soon campaigns. That is a pre-vote first, so nothing
// happens if a majority still hears the leader.
func (q *Quorum) Suspect(node NodeID, now clock.Instant, out *Out) {
	q.now = now
	st := q.node.BasicStatus()
	switch {
	case st.RaftState == raft.StateLeader:
		for _, m := range q.members.members {
			if nodeOf(m.id) == node && m.id != q.id {
				q.node.ReportUnreachable(m.id)
			}
		}
	case st.Lead != raft.None && nodeOf(st.Lead) == node:
		check(q.node.ForgetLeader())
		if q.votes() {
			q.election.hastes = maxHastes
			q.hasten(0)
		}
	}
	q.run(out)
}

// Resign has the leader hand over to another voter, if one is there: as before a
// stop that was asked for. Until it has, and for an election timeout at most, it
// takes no proposals. On another node it does nothing.
func (q *Quorum) Resign(now clock.Instant, out *Out) {
	q.now = now
	if q.Leading() {
		q.handOver()
	}
	q.run(out)
}

// handOver gives the lead to the voter that is there and has the most.
func (q *Quorum) handOver() {
	var to, match uint64
	for _, id := range q.members.ids(true) {
		if p, ok := q.progress(id); ok && id != q.id && q.isThere(id) && p.Match > match && nodeOf(id) != q.cfg.ID {
			to, match = id, p.Match
		}
	}
	if to != 0 && q.node.BasicStatus().LeadTransferee == raft.None {
		q.node.TransferLeader(to)
	}
}

func (q *Quorum) hasten(ticks int) {
	spread := hasteTicks * q.cfg.Tick
	q.election.at = q.now.Add(time.Duration(ticks)*q.cfg.Tick + time.Duration(q.rand.Int64N(int64(spread))))
}

// campaignInHaste is due at election.at.
func (q *Quorum) campaignInHaste() {
	e := &q.election
	e.at = clock.Never
	st := q.node.BasicStatus()
	if st.Lead != raft.None || !q.votes() {
		e.hastes = 0
		return
	}
	e.elapsed = 0
	check(q.node.Campaign())
	if e.hastes--; e.hastes > 0 {
		q.hasten(hasteTicks)
	}
}

// leaderHeard restarts the timers.
func (q *Quorum) leaderHeard() {
	e := &q.election
	e.elapsed, e.quiet, e.hastes, e.at = 0, 0, 0, clock.Never
}

// voted gives whom this node voted for the time to win.
func (q *Quorum) voted() {
	e := &q.election
	if e.elapsed = 0; e.at != clock.Never {
		q.hasten(hasteTicks)
	}
}
