package controller

import (
	"fmt"

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
//   - The answer says that the change has begun. A node votes as soon as it has
//     caught up, and not before; DescribeQuorum shows when.
//   - Where the node can be reached is in its registration; the listeners of the
//     request are not looked at.

// VoterChange is what the quorum is asked to do.
type VoterChange struct {
	Node metadata.NodeID
	Add  bool // else it is removed
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
	return &VoterChange{metadata.NodeID(req.VoterID), true}, nil
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
	return &VoterChange{metadata.NodeID(req.VoterID), false}, nil
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
