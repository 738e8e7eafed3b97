package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// Raft trusts its peers, and panics when what one says cannot be. Here is what
// it is never told, whoever says it: a bad peer may be ignored, and must not end
// this process.

var errNotSaid = errors.New("no node says this")

// validBody checks what can be seen from the message alone.
func validBody(m *raftpb.Message) error {
	switch {
	case !isRaftID(m.GetFrom()) || !isRaftID(m.GetTo()) || nodeOf(m.GetFrom()) == nodeOf(m.GetTo()):
		return fmt.Errorf("%w: from %#x to %#x", errNotSaid, m.GetFrom(), m.GetTo())
	case m.GetTerm() == 0 || m.GetTerm() > maxTerm || m.GetLogTerm() > maxTerm:
		return fmt.Errorf("%w: terms %d and %d", errNotSaid, m.GetTerm(), m.GetLogTerm())
	case m.GetIndex() > maxIndex || m.GetCommit() > maxIndex || m.GetRejectHint() > maxIndex:
		return fmt.Errorf("%w: index %d, committed %d, hint %d", errNotSaid, m.GetIndex(), m.GetCommit(), m.GetRejectHint())
	case len(m.GetResponses()) > 0 || m.GetVote() != 0:
		return fmt.Errorf("%w: it is for a disk", errNotSaid)
	case len(m.GetEntries()) > 0 && m.GetType() != raftpb.MsgApp || m.GetSnapshot() != nil && m.GetType() != raftpb.MsgSnap:
		return fmt.Errorf("%w: %d entries", errNotSaid, len(m.GetEntries()))
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return validEntries(m)
	case raftpb.MsgSnap:
		s, err := snapshotRecordOf(m.GetSnapshot())
		if err == nil && s.term > m.GetTerm() {
			err = fmt.Errorf("%w: a snapshot of term %d in term %d", errNotSaid, s.term, m.GetTerm())
		}
		return err
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		if n := len(m.GetContext()); n != 0 && n != 8 {
			return fmt.Errorf("%w: a context of %d bytes", errNotSaid, n)
		}
		return nil
	case raftpb.MsgVote:
		if c := string(m.GetContext()); c != "" && c != handedOver {
			return fmt.Errorf("%w: a vote with the context %q", errNotSaid, c)
		}
		return nil
	case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp, raftpb.MsgPreVote, raftpb.MsgTimeoutNow:
		return nil
	}
	return fmt.Errorf("%w: it is not for between nodes", errNotSaid)
}

// handedOver is what raft adds to a candidacy that the leader wants.
const handedOver = "CampaignTransfer"

// validEntries checks that the entries of a MsgApp could stand in one log, after
// the entry that the message names.
func validEntries(m *raftpb.Message) error {
	index, term := m.GetIndex(), m.GetLogTerm()
	if index < foundingIndex || term < foundingTerm {
		return fmt.Errorf("%w: entries after index %d of term %d", errNotSaid, index, term)
	}
	for _, e := range m.GetEntries() {
		index++
		if e.GetIndex() != index || e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return fmt.Errorf("%w: entry %d of term %d where %d is due", errNotSaid, e.GetIndex(), e.GetTerm(), index)
		}
		term = e.GetTerm()
		switch e.GetType() {
		case raftpb.EntryNormal:
		case raftpb.EntryConfChangeV2:
			if _, _, err := decodeChange(e.GetData()); err != nil {
				return fmt.Errorf("%w: entry %d: %w", errNotSaid, index, err)
			}
		default:
			return fmt.Errorf("%w: entry %d of type %d", errNotSaid, index, e.GetType())
		}
	}
	return nil
}

// fits reports whether raft can be told m in the state it is in. What a node
// acknowledges, and what its leader therefore knows it to have, is durable; so
// nobody can truly speak of more than that.
func (q *Quorum) fits(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		// Who belongs to no quorum has no say in it.
		return q.founded()
	case raftpb.MsgTimeoutNow:
		st := q.node.BasicStatus()
		return st.Lead == m.GetFrom() && st.GetTerm() == m.GetTerm() && q.votes()
	case raftpb.MsgHeartbeat:
		return m.GetCommit() <= q.last()
	case raftpb.MsgAppResp:
		return m.GetReject() || m.GetIndex() <= q.last()
	case raftpb.MsgHeartbeatResp:
		c := m.GetContext()
		return len(c) == 0 || q.Leading() && Term(m.GetTerm()) == q.told.Term && binary.LittleEndian.Uint64(c) <= q.reads.asked
	}
	return true
}
