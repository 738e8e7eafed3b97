package quorum

// Out is what a call decided. The caller acts on it, in the order of the
// fields, and resets it.
type Out struct {
	// Save must be made durable; then Saved is called, or SaveFailed.
	Save *Save
	// Restore takes the place of everything applied before.
	Restore *Snapshot
	// Committed continues what was applied before, without gaps.
	Committed []Entry
	// Lost proposals were not committed and never will be.
	Lost []Ticket
	// Unknown proposals may be in a snapshot that was restored.
	Unknown []Ticket
	// Reads may be answered as soon as what is applied reaches their index.
	Reads []Read
	// LostReads cannot be answered: this node no longer leads.
	LostReads []Ticket
	// Messages go to other nodes. They may be lost, doubled and overtake.
	Messages []Message
	// Leader is set when it changed.
	Leader *Leader
	// Members is set when they changed.
	Members []Member
	// Joining tells the leader, and whoever passes it on, where nodes that ask to
	// join can be reached, also those that are members already.
	Joining []Joining
	// Warnings are for the operator. None is repeated before the leader changes.
	Warnings []Warning
}

// Save is what must be durable before anything goes on. It is not changed any
// more.
type Save struct {
	Records [][]byte
	Replace bool // Records take the place of everything saved before, or nothing is changed
}

// Entry is a committed entry. Data is empty in those that are the quorum's own;
// they only move the index.
type Entry struct {
	Index  Index
	Term   Term
	Data   []byte
	Ticket Ticket // 0 unless this process proposed it
}

// Snapshot is what the entries up to and including Index come to, as the caller
// gave it to Compact.
type Snapshot struct {
	Index Index
	Data  []byte
}

// Leader is who leads, as far as this node knows.
type Leader struct {
	Node NodeID // or NoNode
	Term Term
}

// Read says that whatever was committed when the read was asked for is at most
// at Index.
type Read struct {
	Ticket Ticket // the caller's
	Index  Index
}

// Member is a node of the quorum. A node that has lost its disk may be there
// twice for a while, the new incarnation after the old one.
type Member struct {
	Node        NodeID
	Incarnation uint32 // drawn with the data directory; never 0
	Voter       bool
}

// Joining is a node that asked to join.
type Joining struct {
	Node    NodeID
	Address string // its Config.Address
}

// Warning says what is wrong with a node, in constant words.
type Warning struct {
	Node NodeID
	Text string
}

const (
	warnTwin       = "two nodes have this id: one that asks to join is refused as long as the other is there"
	warnTwinSelf   = "another node has this node's id, and is a member; this one is not let in"
	warnTwinOther  = "another node that has this node's id asks to join, and is refused"
	warnQuorum     = "the node belongs to another quorum, so nothing it says is believed; its data directory is of another cluster, or of a foundation that failed"
	warnConfigured = "the node is configured with other controllers than this one"
	warnFull       = "the quorum has too many members to let the node in"
)

// warn tells the operator, once in a reign.
func (q *Quorum) warn(n NodeID, text string, out *Out) {
	w := Warning{n, text}
	for _, old := range q.warned {
		if old == w {
			return
		}
	}
	if len(q.warned) < maxConfigured {
		q.warned = append(q.warned, w)
		out.Warnings = append(out.Warnings, w)
	}
}
