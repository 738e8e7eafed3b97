package quorum

import (
	"encoding/binary"
	"fmt"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Message is what one node says to another. It never changes, so it may be
// handed over without a copy; between processes it travels as bytes.
type Message struct {
	From, To NodeID
	quorum   uint64          // the sender's; 0 if it belongs to none
	body     *raftpb.Message // raft's own, or nil
	word     *word           // if there is no body
}

// A word is a message that raft does not know.
type word struct {
	kind byte
	id   uint64 // whom it is about: the sender, or who joins
	// seen is, in a hello, the receiver's id as far as the sender knows.
	seen    uint64
	voters  []NodeID   // in a hello: whom the sender was configured with
	members membership // in a found
	address string     // in a join
	why     reason     // in a refuse
	index   uint64     // in a committed
	term    uint64     // of the entry at index
}

const (
	raftMessage = 1 // the quorum, raft's message
	helloWord   = 2 // "I am a controller and not in a quorum", or in which
	foundWord   = 3 // "the quorum is founded, and you are in it"
	joinWord    = 4 // "I want to follow", passed on to the leader
	refuseWord  = 5 // "no"
	commitWord  = 6 // "this entry is committed", to who wants to lead
)

type reason byte

const (
	refusedTwin   reason = 1
	refusedOther  reason = 2
	refusedFull   reason = 3
	lastReason           = refusedFull
	maxAddress           = 1000
	maxConfigured        = 100
)

// String describes the message, the same in every run.
func (m Message) String() string {
	head := fmt.Sprintf("%d>%d ", m.From, m.To)
	if m.body != nil {
		return head + strings.TrimSpace(raft.DescribeMessage(m.body, nil))
	}
	w := m.word
	switch w.kind {
	case helloWord:
		head += fmt.Sprintf("hello id=%s voters=%v", showID(w.id), w.voters)
		if w.seen != 0 {
			head += " seen=" + showID(w.seen)
		}
		if m.quorum != 0 {
			head += " quorum=" + showID(m.quorum)
		}
		return head
	case foundWord:
		return head + "found " + w.members.String()
	case joinWord:
		return head + fmt.Sprintf("join id=%s address=%q", showID(w.id), w.address)
	}
	if w.kind == commitWord {
		return head + fmt.Sprintf("committed index=%d term=%d", w.index, w.term)
	}
	return head + fmt.Sprintf("refuse id=%s why=%d", showID(w.id), w.why)
}

// Marshal returns the message as bytes, the same in every run.
func (m Message) Marshal() []byte {
	if m.body != nil {
		b := binary.AppendUvarint([]byte{raftMessage}, m.quorum)
		b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m.body)
		check(err)
		return b
	}
	w := m.word
	b := binary.AppendUvarint([]byte{w.kind}, uint64(m.From))
	b = binary.AppendUvarint(b, uint64(m.To))
	b = binary.AppendUvarint(b, m.quorum)
	b = binary.AppendUvarint(b, w.id)
	switch w.kind {
	case helloWord:
		b = binary.AppendUvarint(b, w.seen)
		b = binary.AppendUvarint(b, uint64(len(w.voters)))
		for _, v := range w.voters {
			b = binary.AppendUvarint(b, uint64(v))
		}
	case foundWord:
		b = w.members.appendTo(b)
	case joinWord:
		b = append(binary.AppendUvarint(b, uint64(len(w.address))), w.address...)
	case refuseWord:
		b = append(b, byte(w.why))
	case commitWord:
		b = binary.AppendUvarint(binary.AppendUvarint(b, w.index), w.term)
	}
	return b
}

// UnmarshalMessage reads a message. Bytes that are none, or say what no node
// says, give an error.
func UnmarshalMessage(b []byte) (Message, error) {
	if len(b) == 0 {
		return Message{}, fmt.Errorf("quorum message: it is empty")
	}
	f := fields{b: b[1:]}
	if b[0] == raftMessage {
		m := Message{quorum: f.next(), body: new(raftpb.Message)}
		if f.bad || m.quorum != 0 && !isRaftID(m.quorum) {
			return Message{}, fmt.Errorf("quorum message: of %d bytes, of no quorum", len(b))
		}
		if err := proto.Unmarshal(f.b, m.body); err != nil {
			return Message{}, fmt.Errorf("quorum message: %w", err)
		}
		if err := validBody(m.body); err != nil {
			return Message{}, fmt.Errorf("quorum message of type %v: %w", m.body.GetType(), err)
		}
		m.From, m.To = nodeOf(m.body.GetFrom()), nodeOf(m.body.GetTo())
		return m, nil
	}
	w := &word{kind: b[0]}
	m := Message{From: f.node(), To: f.node(), quorum: f.next(), word: w}
	w.id = f.next()
	switch w.kind {
	case helloWord:
		w.seen = f.next()
		n := f.next()
		for i := uint64(0); i < n && n <= maxConfigured && !f.bad; i++ {
			w.voters = append(w.voters, f.node())
		}
		if n > maxConfigured || w.seen != 0 && (!isRaftID(w.seen) || nodeOf(w.seen) != m.To) {
			f.fail()
		}
	case foundWord:
		w.members = f.membership()
	case joinWord:
		w.address = string(f.bytes(maxAddress))
	case refuseWord:
		w.why = reason(f.next())
		if w.why == 0 || w.why > lastReason {
			f.fail()
		}
	case commitWord:
		w.index, w.term = f.next(), f.next()
	default:
		f.fail()
	}
	sender := w.kind == helloWord || w.kind == foundWord || w.kind == commitWord
	if f.bad || len(f.b) > 0 || !isRaftID(w.id) || m.quorum != 0 && !isRaftID(m.quorum) || m.From == m.To || sender && nodeOf(w.id) != m.From {
		return Message{}, fmt.Errorf("quorum message of kind %d and %d bytes is malformed", b[0], len(b))
	}
	return m, nil
}
