package quorum

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// What a quorum saves is a sequence of records, of three kinds:
//
//	hard state  1, term, vote (0 for none), commit
//	entry       2, term, index, data up to the record's end
//	snapshot    3, index, term, number of voters, voters, data up to the end
//
// The kind is a byte, numbers are uvarints as short as they can be, a voter is
// its node id plus one. A record has its length and checksum from the journal.
//
// The first record is a snapshot, and there is no other; a new quorum begins
// with one of index 0 and no data, which names the voters. The last hard state
// counts. An entry takes the place of the one with its index and of all after
// that one. Every sequence that a crash can leave of what was saved, which is
// any number of records from the first that has at least what was acknowledged,
// is itself a valid sequence.
const (
	kindHardState = 1
	kindEntry     = 2
	kindSnapshot  = 3
)

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
	b = binary.AppendUvarint(append(b, kindEntry), e.GetTerm())
	b = binary.AppendUvarint(b, e.GetIndex())
	return append(b, e.GetData()...)
}

type snapshotRecord struct {
	index, term uint64
	voters      []uint64 // ascending
	data        []byte
}

func snapshotRecordOf(s *raftpb.Snapshot) snapshotRecord {
	m := s.GetMetadata()
	return snapshotRecord{m.GetIndex(), m.GetTerm(), m.GetConfState().GetVoters(), s.GetData()}
}

func (s snapshotRecord) proto() *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: s.data, Metadata: &raftpb.SnapshotMetadata{
		Index: &s.index, Term: &s.term, ConfState: &raftpb.ConfState{Voters: s.voters}}}
}

func (s snapshotRecord) encode() []byte {
	b := make([]byte, 0, 1+(3+len(s.voters))*binary.MaxVarintLen64+len(s.data))
	b = binary.AppendUvarint(append(b, kindSnapshot), s.index)
	b = binary.AppendUvarint(b, s.term)
	b = binary.AppendUvarint(b, uint64(len(s.voters)))
	for _, v := range s.voters {
		b = binary.AppendUvarint(b, v)
	}
	return append(b, s.data...)
}

// past is what a sequence of records comes to.
//
// Invariants: entries follow the snapshot without gaps; their terms do not
// fall and are at most the hard state's; what is committed is there.
type past struct {
	snapshot snapshotRecord
	hard     hardState
	entries  []*raftpb.Entry
}

// replay reads what was saved. It shares no bytes with records.
func replay(records [][]byte) (past, error) {
	var p past
	for i, r := range records {
		if err := p.add(r, i == 0); err != nil {
			return past{}, fmt.Errorf("%w: record %d of %d: %w", ErrDamaged, i+1, len(records), err)
		}
	}
	if p.hard.commit < p.snapshot.index {
		if p.snapshot.index > 0 && p.hard == (hardState{}) {
			return past{}, fmt.Errorf("%w: a snapshot without a hard state", ErrDamaged)
		}
		return past{}, fmt.Errorf("%w: committed up to %d, but the snapshot reaches %d", ErrDamaged, p.hard.commit, p.snapshot.index)
	}
	return p, nil
}

func (p *past) last() (index, term uint64) {
	if n := len(p.entries); n > 0 {
		return p.entries[n-1].GetIndex(), p.entries[n-1].GetTerm()
	}
	return p.snapshot.index, p.snapshot.term
}

func (p *past) add(r []byte, first bool) error {
	if len(r) == 0 {
		return fmt.Errorf("it is empty")
	}
	if (r[0] == kindSnapshot) != first {
		return fmt.Errorf("it is of kind %d, and only the first is a snapshot", r[0])
	}
	d := fields{b: r[1:]}
	switch r[0] {
	case kindHardState:
		h := hardState{d.next(), d.next(), d.next()}
		if d.bad || len(d.b) > 0 {
			return fmt.Errorf("a hard state of %d bytes is malformed", len(r))
		}
		return p.addHardState(h)
	case kindEntry:
		term, index := d.next(), d.next()
		if d.bad {
			return fmt.Errorf("an entry of %d bytes is malformed", len(r))
		}
		return p.addEntry(term, index, append([]byte(nil), d.b...))
	case kindSnapshot:
		s := snapshotRecord{index: d.next(), term: d.next()}
		n := d.next()
		for i := uint64(0); i < n && !d.bad; i++ {
			s.voters = append(s.voters, d.next())
		}
		if d.bad || n == 0 {
			return fmt.Errorf("a snapshot of %d bytes is malformed", len(r))
		}
		if (s.index == 0) != (s.term == 0) {
			return fmt.Errorf("a snapshot at index %d of term %d", s.index, s.term)
		}
		s.data = append([]byte(nil), d.b...)
		p.snapshot = s
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
		return fmt.Errorf("two votes in term %d: %d and %d", h.term, old.vote, h.vote)
	case h.commit > last:
		return fmt.Errorf("committed up to %d, but the log ends at %d", h.commit, last)
	case h.term < lastTerm || h.term == 0:
		return fmt.Errorf("term %d, after an entry of term %d", h.term, lastTerm)
	}
	p.hard = h
	return nil
}

func (p *past) addEntry(term, index uint64, data []byte) error {
	last, _ := p.last()
	switch {
	case index <= p.snapshot.index || index > last+1:
		return fmt.Errorf("entry %d does not fit (%d, %d]", index, p.snapshot.index, last)
	case index <= p.hard.commit:
		return fmt.Errorf("entry %d takes the place of one that is committed", index)
	}
	p.entries = p.entries[:index-p.snapshot.index-1]
	if _, before := p.last(); term < before || term > p.hard.term || term == 0 {
		return fmt.Errorf("entry %d is of term %d, between terms %d and %d", index, term, before, p.hard.term)
	}
	p.entries = append(p.entries, &raftpb.Entry{Term: &term, Index: &index, Data: data})
	return nil
}

// Describe says in a line what a saved record is; data describes what the
// caller put into an entry or snapshot.
func Describe(r []byte, data func([]byte) string) string {
	if len(r) == 0 {
		return "empty record"
	}
	d := fields{b: r[1:]}
	var line string
	switch r[0] {
	case kindHardState:
		line = fmt.Sprintf("hard state term=%d vote=%d commit=%d", d.next(), d.next(), d.next())
	case kindEntry:
		line = fmt.Sprintf("entry term=%d index=%d", d.next(), d.next())
		if len(d.b) > 0 {
			line += ": " + data(d.b)
		}
	case kindSnapshot:
		line = fmt.Sprintf("snapshot index=%d term=%d voters=", d.next(), d.next())
		for n := d.next(); n > 0 && !d.bad; n-- {
			line += fmt.Sprintf("%d,", d.next()-1)
		}
		if line = line[:len(line)-1]; len(d.b) > 0 {
			line += ": " + data(d.b)
		}
	default:
		return fmt.Sprintf("record of unknown kind %d", r[0])
	}
	if d.bad {
		return line + " (malformed)"
	}
	return line
}

// fields reads uvarints off the front of b. Once one is bad all are 0.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) next() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 || n > 1 && f.b[n-1] == 0 {
		f.b, f.bad = nil, true
		return 0
	}
	f.b = f.b[n:]
	return v
}
