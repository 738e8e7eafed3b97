package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// AddRaftVoter and RemoveRaftVoter
//
// Behavior:
//   - Only the active controller can; another node says NOT_LEADER_OR_FOLLOWER,
//     and its host sends the request on.
//   - A voter is named by its node's id and the id of its data directory, which
//     DescribeQuorum tells: a node that has lost its disk is not the voter it
//     was (KIP-853). Without either the request is INVALID_REQUEST.
//   - A node that is to vote must follow the metadata log with that directory,
//     else REQUEST_TIMED_OUT, and must not vote yet: DUPLICATE_VOTER.
//   - Only a voter can be removed, else VOTER_NOT_FOUND, and not the last:
//     INVALID_REQUEST.
//   - The answer waits until the change is made and committed: until the node
//     votes, which it does as soon as it has caught up, or votes no more. A leader
//     that is removed hands over first, and answers when the next has removed it.
//   - After the request's timeout the answer is REQUEST_TIMED_OUT. It never takes
//     longer than the quorum's own, which is all that a removal has, because other
//     requests that were sent here wait behind it. What has begun goes on, and
//     DescribeQuorum shows what became of it.
//   - While one change waits another is refused with REQUEST_TIMED_OUT, as is one
//     for which too few voters are there. NOT_LEADER_OR_FOLLOWER says that this
//     node has lost its office meanwhile: what has begun may go on.
//   - Where the node can be reached is in its registration; the listeners of the
//     request are not looked at.
//
// Versions:
//   - AddRaftVoter v1 can have the answer not wait for the change, but only until
//     it is agreed on that the node shall vote (KIP-1186).

// VoterChange is what the quorum is asked to do.
type VoterChange struct {
	Node      metadata.NodeID
	Directory [16]byte // of the node's that is to vote, or not
	Add       bool     // else it is removed
	// Timeout is how long its answer may wait; 0 if the request does not say.
	Timeout time.Duration
	// Begun says that the answer does not wait for the change.
	Begun bool
}

// Made reports whether the change is made, as far as the quorum has such members.
func (c *VoterChange) Made(members []QuorumMember) bool {
	votes := slices.ContainsFunc(members, func(m QuorumMember) bool {
		return m.Voter && m.Node == c.Node && m.Directory() == c.Directory
	})
	return votes == c.Add
}

// ChangeVoters decides about a request that changes who keeps the metadata log.
// It reports false for all other requests. If there is a change the caller has
// the quorum make it, and then sends the response; RefuseVoters is for when the
// quorum refuses.
func (v *View) ChangeVoters(req kmsg.Request) (resp kmsg.Response, change *VoterChange, ok bool) {
	var err error
	switch req := req.(type) {
	case *kmsg.AddRaftVoterRequest:
		change, err = v.addVoter(req)
	case *kmsg.RemoveRaftVoterRequest:
		change, err = v.removeVoter(req)
	default:
		return nil, nil, false
	}
	resp = req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err != nil {
		RefuseVoters(resp, err)
		return resp, nil, true
	}
	return resp, change, true
}

// RefuseVoters makes a response of ChangeVoters say why nothing was done.
func RefuseVoters(resp kmsg.Response, err error) {
	switch resp := resp.(type) {
	case *kmsg.AddRaftVoterResponse:
		resp.ErrorCode, resp.ErrorMessage = wire.Code(err), wire.Message(err)
	case *kmsg.RemoveRaftVoterResponse:
		resp.ErrorCode, resp.ErrorMessage = wire.Code(err), wire.Message(err)
	}
}

func (v *View) addVoter(req *kmsg.AddRaftVoterRequest) (*VoterChange, error) {
	if err := v.mayChangeVoters(req.ClusterID, req.VoterID, req.VoterDirectoryID); err != nil {
		return nil, err
	}
	follows := false
	for i := range v.Quorum.Members {
		m := &v.Quorum.Members[i]
		switch {
		case m.Node != metadata.NodeID(req.VoterID):
		case m.Voter:
			return nil, fmt.Errorf("%w: node %d", metadata.ErrDuplicateVoter, m.Node)
		case m.Directory() == req.VoterDirectoryID:
			follows = true
		}
	}
	if !follows {
		return nil, fmt.Errorf("%w: node %d does not follow the metadata log with directory %s",
			wire.ErrTimedOut, req.VoterID, metadata.TopicID(req.VoterDirectoryID))
	}
	return &VoterChange{
		Node: metadata.NodeID(req.VoterID), Directory: req.VoterDirectoryID, Add: true,
		Timeout: max(1, time.Duration(req.TimeoutMillis)*time.Millisecond), Begun: req.Version >= 1 && !req.AckWhenCommitted,
	}, nil
}

func (v *View) removeVoter(req *kmsg.RemoveRaftVoterRequest) (*VoterChange, error) {
	if err := v.mayChangeVoters(req.ClusterID, req.VoterID, req.VoterDirectoryID); err != nil {
		return nil, err
	}
	votes, others := false, false
	for i := range v.Quorum.Members {
		m := &v.Quorum.Members[i]
		switch {
		case !m.Voter:
		case m.Node == metadata.NodeID(req.VoterID) && m.Directory() == req.VoterDirectoryID:
			votes = true
		default:
			others = true
		}
	}
	switch {
	case !votes:
		return nil, fmt.Errorf("%w: node %d with directory %s", metadata.ErrVoterNotFound, req.VoterID, metadata.TopicID(req.VoterDirectoryID))
	case !others:
		return nil, fmt.Errorf("%w: node %d is the last voter", metadata.ErrInvalidRequest, req.VoterID)
	}
	return &VoterChange{Node: metadata.NodeID(req.VoterID), Directory: req.VoterDirectoryID}, nil
}

func (v *View) mayChangeVoters(cluster *string, node int32, directory [16]byte) error {
	switch {
	case cluster != nil && *cluster != v.ClusterID:
		return fmt.Errorf("%w: %s, this cluster is %s", metadata.ErrInconsistentClusterID, *cluster, v.ClusterID)
	case !v.Quorum.Leading:
		return fmt.Errorf("%w: this is node %d", metadata.ErrNotQuorumLeader, v.Self)
	case node < 0 || directory == [16]byte{}:
		return fmt.Errorf("%w: a voter is named by its node's id and its directory id", metadata.ErrInvalidRequest)
	}
	return nil
}
