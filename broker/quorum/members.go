package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// membership is who belongs to a quorum. It is never changed in place.
//
// Invariants: there is a voter; no id is there twice; of two incarnations of a
// node the later in members is the newer.
type membership struct {
	quorum  uint64   // names the quorum: the founder's id. 0 before it is founded
	members []member // in the order in which they were added
	wishes  []wish   // by node
}

type member struct {
	id    uint64
	voter bool // else a learner: it is sent every entry, and is not counted
}

// A wish is what an operator asked for: that a node votes or does not, whatever
// the nodes' configuration says.
type wish struct {
	node NodeID
	vote bool
}

// foundedBy is the membership of a quorum whose voters are ids, by node.
func foundedBy(founder uint64, ids []uint64) membership {
	ms := membership{quorum: founder}
	for _, id := range ids {
		ms.members = append(ms.members, member{id, true})
	}
	return ms
}

func (ms membership) find(id uint64) (m member, at int) {
	for i, m := range ms.members {
		if m.id == id {
			return m, i
		}
	}
	return member{}, -1
}

func (ms membership) voter(id uint64) bool { m, _ := ms.find(id); return m.voter }

// newest is the latest incarnation of a node.
func (ms membership) newest(n NodeID) (m member, ok bool) {
	for _, m := range slices.Backward(ms.members) {
		if nodeOf(m.id) == n {
			return m, true
		}
	}
	return member{}, false
}

// ids are those of the voters, or of the learners, ascending.
func (ms membership) ids(voters bool) []uint64 {
	var ids []uint64
	for _, m := range ms.members {
		if m.voter == voters {
			ids = append(ids, m.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// only reports whether id is the only voter.
func (ms membership) only(id uint64) bool {
	for _, m := range ms.members {
		if m.voter != (m.id == id) {
			return false
		}
	}
	return len(ms.members) > 0
}

// wished is what was asked for about a node.
func (ms membership) wished(n NodeID) (vote, ok bool) {
	for _, w := range ms.wishes {
		if w.node == n {
			return w.vote, true
		}
	}
	return false, false
}

func (ms membership) confState() *raftpb.ConfState {
	return &raftpb.ConfState{Voters: ms.ids(true), Learners: ms.ids(false)}
}

// matches reports whether cs is the same in raft's words.
func (ms membership) matches(cs *raftpb.ConfState) bool {
	return slices.Equal(ms.ids(true), slices.Sorted(slices.Values(cs.GetVoters()))) &&
		slices.Equal(ms.ids(false), slices.Sorted(slices.Values(cs.GetLearners()))) &&
		len(cs.GetVotersOutgoing())+len(cs.GetLearnersNext()) == 0 && !cs.GetAutoLeave()
}

// with is ms and one more learner.
func (ms membership) with(id uint64) membership {
	if _, at := ms.find(id); at >= 0 {
		return ms
	}
	ms.members = append(slices.Clip(ms.members), member{id, false})
	return ms
}

// change is one step of a membership to the next. The wish, if there is one,
// is about the id's node.
type change struct {
	what raftChange
	id   uint64
	wish wishKind
}

type (
	raftChange = raftpb.ConfChangeType
	wishKind   uint8
)

const (
	noWish wishKind = iota
	wishVote
	wishNoVote
)

const (
	addLearner  = raftpb.ConfChangeAddLearnerNode // a voter no longer votes, then
	makeVoter   = raftpb.ConfChangeAddNode        // of a learner
	dropMember  = raftpb.ConfChangeRemoveNode
	changesNone = raftpb.ConfChangeUpdateNode // only a wish
)

// errNoChange says that a change does not fit the membership. Every node comes
// to the same judgement about an entry.
var errNoChange = errors.New("not a change of this membership")

// apply returns the membership after c, by raft's rules and some more: of one
// voter more or less, and never of none.
func (ms membership) apply(c change) (membership, error) {
	m, at := ms.find(c.id)
	ms.members = slices.Clone(ms.members)
	switch {
	case c.what == addLearner && at < 0:
		ms.members = append(ms.members, member{c.id, false})
	case at < 0:
		return membership{}, fmt.Errorf("%w: %#x is no member", errNoChange, c.id)
	case c.what == addLearner && m.voter:
		ms.members[at].voter = false
	case c.what == addLearner: // known to itself from the snapshot that it was sent
		ms.members = append(slices.Delete(ms.members, at, at+1), m)
	case c.what == makeVoter:
		ms.members[at].voter = true
	case c.what == dropMember:
		ms.members = slices.Delete(ms.members, at, at+1)
	}
	if len(ms.ids(true)) == 0 {
		return membership{}, fmt.Errorf("%w: no voter would be left", errNoChange)
	}
	if c.wish != noWish {
		ms.wishes = wish{nodeOf(c.id), c.wish == wishVote}.addTo(ms.wishes)
	}
	return ms, nil
}

func (w wish) addTo(wishes []wish) []wish {
	at, found := slices.BinarySearchFunc(wishes, w.node, func(w wish, n NodeID) int { return int(w.node) - int(n) })
	wishes = slices.Clone(wishes)
	if found {
		wishes[at] = w
		return wishes
	}
	return slices.Insert(wishes, at, w)
}

// encode returns the change as the data of an entry, which is raft's own form.
func (c change) encode() []byte {
	cc := &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: c.what.Enum(), NodeId: &c.id}}}
	if c.wish != noWish {
		cc.Context = []byte{byte(c.wish)}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(cc)
	check(err)
	return b
}

// decodeChange reads the data of an entry.
func decodeChange(b []byte) (change, *raftpb.ConfChangeV2, error) {
	cc := new(raftpb.ConfChangeV2)
	if err := proto.Unmarshal(b, cc); err != nil {
		return change{}, nil, err
	}
	if len(cc.GetChanges()) != 1 || cc.GetTransition() != raftpb.ConfChangeTransitionAuto || len(cc.GetContext()) > 1 {
		return change{}, nil, fmt.Errorf("%d changes at once", len(cc.GetChanges()))
	}
	c := change{what: cc.Changes[0].GetType(), id: cc.Changes[0].GetNodeId()}
	if len(cc.GetContext()) == 1 {
		c.wish = wishKind(cc.GetContext()[0])
	}
	if c.what < makeVoter || c.what > addLearner || !isRaftID(c.id) || c.wish > wishNoVote {
		return change{}, nil, fmt.Errorf("a change of kind %d about %#x", c.what, c.id)
	}
	return c, cc, nil
}

func (c change) String() string {
	s := fmt.Sprintf("%v %s", c.what, showID(c.id))
	switch c.wish {
	case wishVote:
		s += " who shall vote"
	case wishNoVote:
		s += " who shall not vote"
	}
	return s
}

func showID(id uint64) string { return fmt.Sprintf("%d/%x", nodeOf(id), incarnationOf(id)) }

// appendTo writes ms to the end of b: the quorum, the number of members, for
// each its id and 1 if it votes, the number of wishes, for each the node and 1
// if it shall vote. All are uvarints.
func (ms membership) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, ms.quorum)
	b = binary.AppendUvarint(b, uint64(len(ms.members)))
	for _, m := range ms.members {
		b = appendBool(binary.AppendUvarint(b, m.id), m.voter)
	}
	b = binary.AppendUvarint(b, uint64(len(ms.wishes)))
	for _, w := range ms.wishes {
		b = appendBool(binary.AppendUvarint(b, uint64(w.node)), w.vote)
	}
	return b
}

// maxMembers bounds what is read, and how many may join.
const maxMembers = 1000

// membership reads what appendTo wrote. It is bad if an invariant does not hold.
func (f *fields) membership() membership {
	ms := membership{quorum: f.next()}
	n := f.next()
	for i := uint64(0); i < n && n <= maxMembers && !f.bad; i++ {
		m := member{f.next(), f.flag()}
		if _, at := ms.find(m.id); at >= 0 || !isRaftID(m.id) {
			f.fail()
		}
		ms.members = append(ms.members, m)
	}
	k := f.next()
	for i := uint64(0); i < k && k <= maxMembers && !f.bad; i++ {
		w := wish{NodeID(f.node()), f.flag()}
		if l := len(ms.wishes); l > 0 && ms.wishes[l-1].node >= w.node {
			f.fail()
		}
		ms.wishes = append(ms.wishes, w)
	}
	if n > maxMembers || k > maxMembers || !isRaftID(ms.quorum) || len(ms.ids(true)) == 0 {
		f.fail()
	}
	if f.bad {
		return membership{}
	}
	return ms
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func (ms membership) String() string {
	s := "quorum=" + showID(ms.quorum) + " voters="
	for i, id := range ms.ids(true) {
		if i > 0 {
			s += ","
		}
		s += showID(id)
	}
	for i, id := range ms.ids(false) {
		if i == 0 {
			s += " learners="
		} else {
			s += ","
		}
		s += showID(id)
	}
	for _, w := range ms.wishes {
		s += fmt.Sprintf(" wish=%d:%t", w.node, w.vote)
	}
	return s
}
