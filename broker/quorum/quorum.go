// Package quorum keeps the metadata log: one sequence of entries on which a
// majority of the voters agrees, whatever stops or loses messages. It is etcd's
// raft behind one door, and a pure state machine: time, what the disk did and
// what peers say come in as calls; what to save, to send and to apply goes out
// in an Out.
//
// Three promises are made on top of raft's:
//
//   - nothing is sent or handed out before what it rests on is durable; there is
//     at most one Save outstanding, and what comes meanwhile goes into the next;
//   - a node is told that it leads once it was handed the first entry of its own
//     term, and with it everything its predecessors committed;
//   - two runs with equal inputs and equal random numbers are equal. Raft draws
//     its election timeouts from crypto/rand, so it is never asked for one: the
//     timer is here, and raft is told to campaign.
//
// A node that is the only voter wins at its first Woken, with one Save, needs no
// further wakes and never steps down.
//
// Source: Ongaro's Raft; election timing and pre-vote after section 9.6 of his
// thesis.
package quorum

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/assert"
)

var (
	// ErrNotLeader says this node may not propose.
	ErrNotLeader = errors.New("not the leader of the quorum")
	// ErrTooLarge says a proposal is larger than the quorum takes.
	ErrTooLarge = errors.New("proposal too large for the quorum")
	// ErrDamaged says saved records are not what a quorum saved.
	ErrDamaged = errors.New("damaged quorum records")
	// ErrOtherQuorum says the records were saved by a quorum with other voters.
	ErrOtherQuorum = errors.New("the data belongs to another quorum")
)

// Config of a Quorum.
type Config struct {
	ID     NodeID
	Voters []NodeID // has ID in it
	// Tick is the unit of time of elections. Kafka has no such thing; its
	// controller.quorum.election.timeout.ms is ElectionTicks of these.
	Tick time.Duration
	// ElectionTicks is how long a follower waits for its leader at least, and
	// how long a leader leads without hearing from a majority at most. A
	// follower waits up to twice as long.
	ElectionTicks int
	// RetryAfter is how long a Save that found no space waits.
	RetryAfter time.Duration
	// MaxProposalBytes is the size of the largest proposal.
	MaxProposalBytes int
	// Log takes raft's own lines, for a developer. It may be nil.
	Log func(line string)
}

// DefaultConfig is for one voter that is node id. Elections take one to two
// seconds, as Kafka's do.
func DefaultConfig(id NodeID) Config {
	return Config{
		ID: id, Voters: []NodeID{id}, Tick: 100 * time.Millisecond, ElectionTicks: 10,
		RetryAfter: time.Second, MaxProposalBytes: 8 << 20,
	}
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	switch {
	case c.ID < 0:
		return fmt.Errorf("quorum: id %d, want at least 0", c.ID)
	case !slices.Contains(c.Voters, c.ID):
		return fmt.Errorf("quorum: node %d is not among the voters %v", c.ID, c.Voters)
	case c.Tick <= 0 || c.RetryAfter <= 0:
		return fmt.Errorf("quorum: tick %v and retry %v, want more than nothing", c.Tick, c.RetryAfter)
	case c.ElectionTicks < 3:
		return fmt.Errorf("quorum: election after %d ticks, want at least 3", c.ElectionTicks)
	case c.MaxProposalBytes < 1:
		return fmt.Errorf("quorum: largest proposal %d bytes, want at least 1", c.MaxProposalBytes)
	}
	for i, v := range c.Voters {
		if v < 0 || slices.Contains(c.Voters[:i], v) {
			return fmt.Errorf("quorum: voter %d is negative or named twice", v)
		}
	}
	return nil
}

// NodeID names a node, by the number that its broker has too.
type NodeID int32

// NoNode is the id of no node.
const NoNode NodeID = -1

// Index is the position of an entry. The first is 1.
type Index uint64

// Term numbers reigns. In one term at most one node leads.
type Term uint64

// Ticket stands for a proposal. It comes back exactly once: with its entry, in
// Lost or in Unknown. No ticket is 0.
type Ticket uint64

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
	// Messages go to other nodes. They may be lost, doubled and overtake.
	Messages []Message
	// Leader is set when it changed.
	Leader *Leader
}

// Save is what must be durable before anything goes on. It is not changed any
// more.
type Save struct {
	Records [][]byte
	Replace bool // Records take the place of everything saved before, or nothing is changed
}

// Entry is a committed entry. Data is empty in those that raft makes for
// itself; they only move the index.
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

// Quorum is one voter's part of the metadata log.
//
// Invariants: raft is not asked for work while a save is outstanding; store
// holds exactly what is durable, except for a vote of a lone voter for itself,
// which goes with the next save.
type Quorum struct {
	cfg    Config
	rand   *rand.Rand
	node   *raft.RawNode
	store  *raft.MemoryStorage
	voters []uint64

	hard      hardState // the last that raft gave
	written   hardState // the last that is in a Save
	founded   bool      // there is something in the journal, or in the outstanding Save
	saving    *saving   // nil unless a Save is outstanding
	retryAt   clock.Instant
	compact   *Snapshot // to be saved next
	compacted Index     // of the latest durable snapshot

	applied     Index
	appliedTerm Term
	told        Leader
	pending     []proposal // by term, then in order of proposal
	lastTicket  Ticket

	started  bool
	nextTick clock.Instant
	elapsed  int // ticks since the leader was heard, or a vote given
	patience int // ticks until the next election
}

type proposal struct {
	term   Term
	ticket Ticket
}

// saving is an outstanding Save and what follows once it is durable.
type saving struct {
	save    *Save
	ready   raft.Ready // unless this is a compaction
	compact *Snapshot
}

// New returns a quorum that goes on from what was saved, oldest first; nothing
// at all founds a new one. What is known to be committed is in out. The first
// wake is due at once.
func New(cfg Config, rng *rand.Rand, saved [][]byte, out *Out) (*Quorum, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	q := &Quorum{cfg: cfg, rand: rng, retryAt: clock.Never, told: Leader{Node: NoNode}}
	voters := slices.Sorted(slices.Values(cfg.Voters))
	for _, v := range voters {
		q.voters = append(q.voters, raftID(v))
	}
	past := past{snapshot: snapshotRecord{voters: q.voters}}
	if len(saved) > 0 {
		var err error
		if past, err = replay(saved); err != nil {
			return nil, err
		}
		if !slices.Equal(past.snapshot.voters, q.voters) {
			return nil, fmt.Errorf("%w: its voters are %v, not %v", ErrOtherQuorum, nodeIDs(past.snapshot.voters), voters)
		}
		q.founded = true
	}
	q.hard, q.written = past.hard, past.hard
	q.store = raft.NewMemoryStorage()
	snapshot := past.snapshot.proto()
	check(q.store.ApplySnapshot(snapshot))
	check(q.store.Append(past.entries))
	check(q.store.SetHardState(past.hard.proto()))
	node, err := raft.NewRawNode(&raft.Config{
		ID: raftID(cfg.ID), Storage: q.store, ElectionTick: cfg.ElectionTicks, HeartbeatTick: 1,
		PreVote: true, CheckQuorum: true, DisableProposalForwarding: true,
		MaxSizePerMsg: 1 << 20, MaxCommittedSizePerReady: math.MaxUint64, MaxInflightMsgs: 256,
		Logger: logger{cfg.Log},
	})
	if err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	q.node = node
	q.patience = q.drawPatience()
	if past.snapshot.index > 0 {
		q.applied, q.appliedTerm = Index(past.snapshot.index), Term(past.snapshot.term)
		q.compacted = q.applied
		out.Restore = &Snapshot{q.applied, past.snapshot.data}
	}
	q.run(out)
	return q, nil
}

// NextWake is when Woken wants to be called, or clock.Never.
func (q *Quorum) NextWake() clock.Instant {
	switch {
	case !q.started:
		return 0
	case q.lone():
		return q.retryAt
	}
	return min(q.nextTick, q.retryAt)
}

// Woken says what time it is. To be called early, late or more than once does
// no harm: a tick that is missed does not count.
func (q *Quorum) Woken(now clock.Instant, out *Out) {
	if q.saving != nil && now >= q.retryAt {
		q.retryAt = clock.Never
		out.Save = q.saving.save
	}
	switch {
	case q.lone():
		if !q.started {
			check(q.node.Campaign())
		}
	case !q.started:
		q.nextTick = now.Add(q.cfg.Tick)
	case now >= q.nextTick:
		q.tick()
		if q.nextTick = q.nextTick.Add(q.cfg.Tick); q.nextTick <= now {
			q.nextTick = now.Add(q.cfg.Tick)
		}
	}
	q.started = true
	q.run(out)
}

// Propose asks for data, which must not be empty, to become an entry. Unless it
// returns an error the ticket comes back once.
func (q *Quorum) Propose(data []byte, out *Out) (Ticket, error) {
	assert.That(len(data) > 0, "quorum: empty proposal")
	if !q.Leading() {
		return 0, ErrNotLeader
	}
	if len(data) > q.cfg.MaxProposalBytes {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), q.cfg.MaxProposalBytes)
	}
	term := Term(q.node.BasicStatus().GetTerm())
	if err := q.node.Propose(data); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	q.lastTicket++
	q.pending = append(q.pending, proposal{term, q.lastTicket})
	ticket := q.lastTicket
	q.run(out)
	return ticket, nil
}

// Saved says that the outstanding Save is durable.
func (q *Quorum) Saved(out *Out) {
	assert.That(q.saving != nil, "quorum: nothing was to be saved")
	s := q.saving
	q.saving, q.retryAt = nil, clock.Never
	if s.compact != nil {
		_, err := q.store.CreateSnapshot(uint64(s.compact.Index), nil, s.compact.Data)
		check(err)
		check(q.store.Compact(uint64(s.compact.Index)))
		q.compacted = s.compact.Index
	} else {
		q.keep(s.ready)
		q.finish(s.ready, out)
	}
	q.run(out)
}

// SaveFailed says that nothing of the outstanding Save was written, for lack of
// space. The same Save will be asked for again.
func (q *Quorum) SaveFailed(now clock.Instant) {
	assert.That(q.saving != nil, "quorum: nothing was to be saved")
	q.retryAt = now.Add(q.cfg.RetryAfter)
}

// Received takes a message of another node.
func (q *Quorum) Received(m Message, out *Out) {
	if m.To != q.cfg.ID || !slices.Contains(q.voters, raftID(m.From)) {
		return
	}
	if err := q.node.Step(m.body); err != nil {
		return // raft refuses what comes from nowhere; so a message may be lost
	}
	switch m.body.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if q.node.BasicStatus().Lead == m.body.GetFrom() {
			q.elapsed = 0
		}
	}
	q.run(out)
}

// Compact gives up the entries up to and including index, which was handed out,
// for data that they come to. It takes effect when it is durable; a later call
// may take its place.
func (q *Quorum) Compact(index Index, data []byte, out *Out) {
	assert.That(index <= q.applied, "quorum: snapshot of what was not handed out")
	if index <= q.compacted {
		return
	}
	q.compact = &Snapshot{index, data}
	q.run(out)
}

// Leading reports whether this node leads, and was told so.
func (q *Quorum) Leading() bool { return q.told.Node == q.cfg.ID }

// Leader is who leads, as the last Out said.
func (q *Quorum) Leader() Leader { return q.told }

// Applied is the index of the last entry handed out.
func (q *Quorum) Applied() Index { return q.applied }

// Compacted is the index of the latest durable snapshot, or 0.
func (q *Quorum) Compacted() Index { return q.compacted }

// Saving reports whether a Save is outstanding.
func (q *Quorum) Saving() bool { return q.saving != nil }

func (q *Quorum) lone() bool { return len(q.voters) == 1 }

func (q *Quorum) drawPatience() int { return q.cfg.ElectionTicks + q.rand.IntN(q.cfg.ElectionTicks) }

// raftID is a node's id for raft, to which 0 means nobody.
func raftID(n NodeID) uint64 { return uint64(n) + 1 }

func nodeID(id uint64) NodeID { return NodeID(id) - 1 }

func nodeIDs(ids []uint64) []NodeID {
	nodes := make([]NodeID, len(ids))
	for i, id := range ids {
		nodes[i] = nodeID(id)
	}
	return nodes
}

// check is for errors that only a mistake in this package can cause.
func check(err error) {
	if err != nil {
		panic(&assert.Failure{What: "quorum: " + err.Error()})
	}
}
