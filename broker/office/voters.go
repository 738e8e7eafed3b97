package office

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
)

// voterChange is a change of voters whose answer waits until it is made, which is
// when its entry is committed and applied here. There is one at a time (KIP-853).
type voterChange struct {
	controller.VoterChange
	caller   wire.Caller
	response kmsg.Response // nil if that is out
	until    clock.Instant
	agreed   bool // it is committed that it is to be; then whoever leads makes it
}

// errChanging says that the answer to an earlier change has not been given.
var errChanging = fmt.Errorf("%w: another change of the voters is waited for", wire.ErrTimedOut)

// voters decides about a request that is about the quorum itself. It reports false
// if that is refused, for which there is nothing to wait.
func (o *Office) voters(p promise, view controller.View, now clock.Instant) (promise, bool) {
	if resp, ok := view.Answer(p.request.Body); ok {
		p.response = resp
		return p, true
	}
	resp, change, _ := view.ChangeVoters(p.request.Body)
	p.response = resp
	if change == nil {
		return p, false
	}
	if err := o.beginChange(change); err != nil {
		controller.RefuseVoters(resp, err)
		return p, false
	}
	patience := o.cfg.VoterTimeout
	if change.Timeout > 0 {
		patience = min(patience, change.Timeout)
	}
	o.change = &voterChange{VoterChange: *change, caller: p.caller, response: resp, until: now.Add(patience)}
	p.change = o.change
	return p, true
}

// beginChange has the quorum begin a change, or says in Kafka's words why it does
// not: what may be otherwise a moment later has timed out.
func (o *Office) beginChange(c *controller.VoterChange) error {
	if o.change != nil {
		return errChanging
	}
	ask := o.log.RemoveVoter
	if c.Add {
		ask = o.log.AddVoter
	}
	err := ask(c.Node, &o.out)
	switch {
	case errors.Is(err, quorum.ErrVotes):
		return fmt.Errorf("%w: node %d", metadata.ErrDuplicateVoter, c.Node)
	case errors.Is(err, quorum.ErrNoVoter):
		return fmt.Errorf("%w: node %d", metadata.ErrVoterNotFound, c.Node)
	case errors.Is(err, quorum.ErrNotLeader):
		return metadata.ErrNotQuorumLeader
	case err != nil:
		return fmt.Errorf("%w: %w", wire.ErrTimedOut, err)
	}
	return nil
}

// agreed says that it is committed that a change is to be made.
func (o *Office) agreed(c *voterChange, out *Out) {
	c.agreed = true
	if c.Begun {
		o.answerChange(c, nil, out)
	}
}

// madeChange answers the change that is waited for, if it is made. It is asked
// after everything that can move the quorum's members.
func (o *Office) madeChange(out *Out) {
	if c := o.change; c != nil && c.Made(o.members()) {
		if c.Node == o.cfg.Node && !c.Add {
			assert.Reached("office: a leader that handed over is no voter any more")
		}
		o.answerChange(c, nil, out)
		o.change = nil
	}
}

// lostChange answers the change that is waited for when another node, or none, has
// come to lead. If this one is to go, that is part of it, and the next leader makes
// the change.
func (o *Office) lostChange(leader metadata.NodeID, out *Out) {
	c := o.change
	if c == nil || leader == o.cfg.Node || c.agreed && !c.Add && c.Node == o.cfg.Node {
		return
	}
	o.madeChange(out)
	o.unknownChange(c, out)
	o.change = nil
}

// unknownChange says that whoever leads next may make a change, or not.
func (o *Office) unknownChange(c *voterChange, out *Out) {
	o.answerChange(c, fmt.Errorf("%w: node %d does not lead any more", metadata.ErrNotQuorumLeader, o.cfg.Node), out)
}

// expireChange answers the change that is waited for when that takes too long. It
// may be made all the same.
func (o *Office) expireChange(now clock.Instant, out *Out) {
	if c := o.change; c != nil && now >= c.until {
		assert.Reached("office: a change of voters takes too long")
		o.answerChange(c, fmt.Errorf("%w: the change of the voters has begun, and is not made yet", wire.ErrTimedOut), out)
		o.change = nil
	}
}

// answerChange answers a change, once.
func (o *Office) answerChange(c *voterChange, err error, out *Out) {
	if c.response == nil {
		return
	}
	if err != nil {
		controller.RefuseVoters(c.response, err)
	}
	out.Replies = append(out.Replies, wire.Reply{Caller: c.caller, Response: wire.Response{Body: c.response, Offset: o.log.Applied()}})
	c.response = nil
}

// members are those of the quorum.
func (o *Office) members() []controller.QuorumMember {
	var list []controller.QuorumMember
	for _, m := range o.log.Quorum().Members() {
		list = append(list, controller.QuorumMember{Node: metadata.NodeID(m.Node), Incarnation: m.Incarnation, Voter: m.Voter})
	}
	return list
}
