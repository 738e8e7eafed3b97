package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// What a quorum saves is a sequence of records, of five kinds:
//
//	hard state  1, term, vote (0 for none), commit
//	entry       2, term, index, data up to the record's end
//	identity    4, version of the format, the node's id to raft
//	snapshot    5, index, term, membership, data up to the end
//	change      6, term, index, raft's ConfChangeV2 up to the end: an entry too
//
// The kind is a byte, numbers are uvarints as short as they can be; the
// membership is as membership.appendTo has it. A record has its length and
// checksum from the journal. A first record of kind 3 is from version 1, in which
// only a lone node could be written, and which is refused.
//
// The first record is the identity. A snapshot can only be the second; a node
// without one belongs to no quorum yet, and has no entries. A new quorum begins
// with a snapshot of index 1 and term 1 without data, which names the voters. The
// last hard state counts; a snapshot is one as well, of its term and index and no
// vote. An entry takes the place of the one with its index and of all after that
// one. Every sequence that a crash can leave of what was saved, which is any
// number of records from the first that has at least what was acknowledged, is
// itself a valid sequence.
const (
	kindHardState  = 1
	kindEntry      = 2
	kindSnapshotV1 = 3
	kindIdentity   = 4
	kindSnapshot   = 5
	kindChange     = 6
)

const formatVersion = 2

// Where a quorum begins. It is not 0, so that who joins later cannot take the
// entries that follow for the whole log, and must be sent a snapshot, which
// tells who the members are.
const (
	foundingIndex = 1
	foundingTerm  = 1
)

// maxTerm and maxIndex bound what is believed of another node. No quorum gets
// there.
const (
	maxTerm  = math.MaxInt64 / 2
	maxIndex = math.MaxInt64 / 2
)

// ErrOldFormat says the records were saved by a version of pawl that this one
// does not read.
var ErrOldFormat = errors.New("the metadata log was written by another version of pawl")

type hardState struct{ term, vote, commit uint64 }

func hardStateOf(h *raftpb.HardState) hardState {
	return hardState{h.GetTerm(), h.GetVote(), h.GetCommit()}
}

func (h hardState) proto() *raftpb.HardState {
	return &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

func (h hardState) encode() []byte {
	b := binary.AppendUvarint([]byte{kindHardState}, h.term)
	return binary.AppendUvarint(binary.AppendUvarint(b, h.vote), h.commit)
}

func encodeEntry(e *raftpb.Entry) []byte {
	b := make([]byte, 0, 1+2*binary.MaxVarintLen64+len(e.GetData()))
	kind := byte(kindEntry)
	if e.GetType() != raftpb.EntryNormal {
		kind = kindChange
	}
	b = binary.AppendUvarint(append(b, kind), e.GetTerm())
	b = binary.AppendUvarint(b, e.GetIndex())
	return append(b, e.GetData()...)
}

func encodeIdentity(id uint64) []byte {
	return binary.AppendUvarint([]byte{kindIdentity, formatVersion}, id)
}

type snapshotRecord struct {
	index, term uint64
	members     membership
	data        []byte
}

func foundingSnapshot(ms membership) snapshotRecord {
	return snapshotRecord{index: foundingIndex, term: foundingTerm, members: ms}
}

// proto is the snapshot as raft has it. Its data is the membership, of which
// raft knows only a part, and after it the caller's.
func (s snapshotRecord) proto() *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: append(s.members.appendTo(nil), s.data...), Metadata: &raftpb.SnapshotMetadata{
		Index: &s.index, Term: &s.term, ConfState: s.members.confState()}}
}

// snapshotRecordOf is the reverse of proto. It shares the bytes of s.
func snapshotRecordOf(s *raftpb.Snapshot) (snapshotRecord, error) {
	m := s.GetMetadata()
	f := fields{b: s.GetData()}
	r := snapshotRecord{m.GetIndex(), m.GetTerm(), f.membership(), nil}
	r.data = f.b
	switch {
	case f.bad:
		return snapshotRecord{}, fmt.Errorf("a snapshot of %d bytes has no membership", len(s.GetData()))
	case r.index < foundingIndex || r.term < foundingTerm || r.index > maxIndex || r.term > maxTerm:
		return snapshotRecord{}, fmt.Errorf("a snapshot at index %d of term %d", r.index, r.term)
	case !r.members.matches(m.GetConfState()):
		return snapshotRecord{}, fmt.Errorf("a snapshot with two memberships: %v, and %v", r.members, m.GetConfState().GetVoters())
	}
	return r, nil
}

func (s snapshotRecord) encode() []byte {
	b := make([]byte, 0, 1+(4+2*len(s.members.members))*binary.MaxVarintLen64+len(s.data))
	b = binary.AppendUvarint(append(b, kindSnapshot), s.index)
	b = binary.AppendUvarint(b, s.term)
	return append(s.members.appendTo(b), s.data...)
}

// past is what a sequence of records comes to.
//
// Invariants: entries follow the snapshot without gaps, and there are none
// without one; their terms do not fall and are at most the hard state's; what is
// committed is there.
type past struct {
	id       uint64 // 0 if there is nothing
	snapshot snapshotRecord
	hard     hardState
	entries  []*raftpb.Entry
}

// replay reads what was saved. It shares no bytes with records.
func replay(records [][]byte) (past, error) {
	var p past
	for i, r := range records {
		if i == 0 && len(r) > 0 && r[0] == kindSnapshotV1 {
			return past{}, fmt.Errorf("%w: version 1 of its format, want version %d", ErrOldFormat, formatVersion)
		}
		if err := p.add(r, i); err != nil {
			if errors.Is(err, ErrOldFormat) {
				return past{}, err
			}
			return past{}, fmt.Errorf("%w: record %d of %d: %w", ErrDamaged, i+1, len(records), err)
		}
	}
	return p, nil
}

func (p *past) founded() bool { return p.snapshot.index > 0 }

func (p *past) last() (index, term uint64) {
	if n := len(p.entries); n > 0 {
		return p.entries[n-1].GetIndex(), p.entries[n-1].GetTerm()
	}
	return p.snapshot.index, p.snapshot.term
}

func (p *past) add(r []byte, at int) error {
	if len(r) == 0 {
		return fmt.Errorf("it is empty")
	}
	switch kind := r[0]; {
	case (kind == kindIdentity) != (at == 0):
		return fmt.Errorf("it is of kind %d, and the first and no other is an identity", kind)
	case kind == kindSnapshot && at != 1:
		return fmt.Errorf("it is a snapshot, which only the second can be")
	}
	f := fields{b: r[1:]}
	switch r[0] {
	case kindHardState:
		h := hardState{f.next(), f.next(), f.next()}
		if f.bad || len(f.b) > 0 {
			return fmt.Errorf("a hard state of %d bytes is malformed", len(r))
		}
		return p.addHardState(h)
	case kindEntry, kindChange:
		term, index := f.next(), f.next()
		if f.bad {
			return fmt.Errorf("an entry of %d bytes is malformed", len(r))
		}
		return p.addEntry(r[0], term, index, append([]byte(nil), f.b...))
	case kindIdentity:
		version := f.next()
		if !f.bad && version != formatVersion {
			return fmt.Errorf("%w: version %d of its format, want version %d", ErrOldFormat, version, formatVersion)
		}
		if p.id = f.next(); f.bad || len(f.b) > 0 || !isRaftID(p.id) {
			return fmt.Errorf("an identity of %d bytes is malformed", len(r))
		}
		return nil
	case kindSnapshot:
		s := snapshotRecord{index: f.next(), term: f.next(), members: f.membership()}
		if f.bad || s.index == 0 || s.term == 0 || s.index > maxIndex || s.term > maxTerm {
			return fmt.Errorf("a snapshot of %d bytes is malformed", len(r))
		}
		s.data = append([]byte(nil), f.b...)
		p.snapshot = s
		p.hard = hardState{term: s.term, commit: s.index}
		return nil
	}
	return fmt.Errorf("it is of unknown kind %d", r[0])
}

func (p *past) addHardState(h hardState) error {
	old := p.hard
	last, lastTerm := p.last()
	switch {
	case h.term < old.term || h.commit < old.commit:
		return fmt.Errorf("term %d and commit %d go back from %d and %d", h.term, h.commit, old.term, old.commit)
	case h.term == old.term && old.vote != 0 && h.vote != old.vote:
		return fmt.Errorf("two votes in term %d: %#x and %#x", h.term, old.vote, h.vote)
	case h.vote != 0 && !isRaftID(h.vote):
		return fmt.Errorf("a vote for %#x", h.vote)
	case h.commit > last:
		return fmt.Errorf("committed up to %d, but the log ends at %d", h.commit, last)
	case h.term < lastTerm || h.term == 0 || h.term > maxTerm:
		return fmt.Errorf("term %d, after an entry of term %d", h.term, lastTerm)
	}
	p.hard = h
	return nil
}

func (p *past) addEntry(kind byte, term, index uint64, data []byte) error {
	last, _ := p.last()
	switch {
	case !p.founded():
		return fmt.Errorf("entry %d of a node in no quorum", index)
	case index <= p.snapshot.index || index > last+1:
		return fmt.Errorf("entry %d does not fit (%d, %d]", index, p.snapshot.index, last)
	case index <= p.hard.commit:
		return fmt.Errorf("entry %d takes the place of one that is committed", index)
	}
	p.entries = p.entries[:index-p.snapshot.index-1]
	if _, before := p.last(); term < before || term > p.hard.term || term == 0 {
		return fmt.Errorf("entry %d is of term %d, between terms %d and %d", index, term, before, p.hard.term)
	}
	e := &raftpb.Entry{Term: &term, Index: &index, Data: data}
	if kind == kindChange {
		e.Type = raftpb.EntryConfChangeV2.Enum()
		if _, _, err := decodeChange(data); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
	}
	p.entries = append(p.entries, e)
	return nil
}

// Describe says in a line what a saved record is; data describes what the
// caller put into an entry or snapshot.
func Describe(r []byte, data func([]byte) string) string {
	if len(r) == 0 {
		return "empty record"
	}
	f := fields{b: r[1:]}
	var line string
	switch r[0] {
	case kindHardState:
		line = fmt.Sprintf("hard state term=%d", f.next())
		if vote := f.next(); vote == 0 {
			line += " vote=none"
		} else {
			line += " vote=" + showID(vote)
		}
		line += fmt.Sprintf(" commit=%d", f.next())
	case kindEntry, kindChange:
		line = fmt.Sprintf("entry term=%d index=%d", f.next(), f.next())
		switch {
		case r[0] == kindChange:
			c, _, err := decodeChange(f.b)
			if f.bad = f.bad || err != nil; err == nil {
				line += ": " + c.String()
			}
		case len(f.b) > 0:
			line += ": " + data(f.b)
		}
	case kindIdentity:
		line = fmt.Sprintf("identity version=%d", f.next())
		line += " id=" + showID(f.next())
	case kindSnapshot:
		line = fmt.Sprintf("snapshot index=%d term=%d", f.next(), f.next())
		line += " " + f.membership().String()
		if len(f.b) > 0 {
			line += ": " + data(f.b)
		}
	default:
		return fmt.Sprintf("record of unknown kind %d", r[0])
	}
	if f.bad {
		return line + " (malformed)"
	}
	return line
}

// fields reads uvarints off the front of b. Once one is bad all are 0.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) fail() { f.b, f.bad = nil, true }

func (f *fields) next() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 || n > 1 && f.b[n-1] == 0 {
		f.fail()
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) flag() bool {
	v := f.next()
	if v > 1 {
		f.fail()
	}
	return v == 1
}

func (f *fields) node() NodeID {
	v := f.next()
	if v > math.MaxInt32 {
		f.fail()
		return 0
	}
	return NodeID(v)
}

func (f *fields) bytes(limit uint64) []byte {
	n := f.next()
	if n > limit || n > uint64(len(f.b)) {
		f.fail()
		return nil
	}
	b := f.b[:n:n]
	f.b = f.b[n:]
	return b
}
