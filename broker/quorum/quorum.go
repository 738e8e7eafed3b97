// Package quorum keeps the metadata log: one sequence of entries on which a
// majority of the voters agrees, whatever stops or loses messages. It is etcd's
// raft behind one door, and a pure state machine: time, what the disk did and
// what peers say come in as calls; what to save, to send and to apply goes out
// in an Out.
//
// Four promises are made on top of raft's:
//
//   - nothing is sent or handed out before what it rests on is durable; there is
//     at most one Save outstanding, and what comes meanwhile goes into the next;
//   - a node is told that it leads once it was handed the first entry of its own
//     term, and with it everything its predecessors committed;
//   - a voter that has lost its disk is not taken for the one it was (ids.go),
//     and the voters found one quorum and never two (found.go);
//   - two runs with equal inputs and equal random numbers are equal. Raft draws
//     its election timeouts from crypto/rand, so it is never asked for one: the
//     timer is here, and raft is told to campaign.
//
// Every node is a member. The configured controllers vote; all others are raft's
// learners, which are sent the log and not counted. The leader takes in whoever
// asks to join, makes voters of configured controllers as they catch up, and
// changes one thing at a time (change.go).
//
// A node that is the only voter founds its quorum and wins at its first Woken,
// with one Save, and never steps down; as long as it is the only member it needs
// no further wakes.
//
// Source: Ongaro's Raft; election timing and pre-vote after section 9.6 of his
// thesis, membership after chapter 4, reads after 6.4. What a change of voters
// means to an operator is KIP-853's.
package quorum

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/assert"
)

var (
	// ErrNotLeader says this node may not propose, read, or change voters.
	ErrNotLeader = errors.New("not the leader of the quorum")
	// ErrTooLarge says a proposal is larger than the quorum takes.
	ErrTooLarge = errors.New("proposal too large for the quorum")
	// ErrDamaged says saved records are not what a quorum saved.
	ErrDamaged = errors.New("damaged quorum records")
	// ErrOtherNode says the records were saved by a node with another id.
	ErrOtherNode = errors.New("the data belongs to another node")
)

// Config of a Quorum.
type Config struct {
	ID NodeID
	// Voters are the configured controllers: they found the quorum, and vote
	// once they have caught up if they join later. ID need not be among them.
	Voters []NodeID
	// Address is where other nodes reach this one. It is not looked at; the
	// leader's Out has it when this node joins.
	Address string
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
	case len(c.Voters) == 0 || len(c.Voters) > maxConfigured:
		return fmt.Errorf("quorum: %d voters, want 1 to %d", len(c.Voters), maxConfigured)
	case c.Tick <= 0 || c.RetryAfter <= 0:
		return fmt.Errorf("quorum: tick %v and retry %v, want more than nothing", c.Tick, c.RetryAfter)
	case c.ElectionTicks < 3:
		return fmt.Errorf("quorum: election after %d ticks, want at least 3", c.ElectionTicks)
	case c.MaxProposalBytes < 1:
		return fmt.Errorf("quorum: largest proposal %d bytes, want at least 1", c.MaxProposalBytes)
	case len(c.Address) > maxAddress:
		return fmt.Errorf("quorum: address of %d bytes, want at most %d", len(c.Address), maxAddress)
	}
	for i, v := range c.Voters {
		if v < 0 || slices.Contains(c.Voters[:i], v) {
			return fmt.Errorf("quorum: voter %d is negative or named twice", v)
		}
	}
	return nil
}

func (c Config) electionTimeout() time.Duration { return time.Duration(c.ElectionTicks) * c.Tick }

// Quorum is one node's part of the metadata log.
//
// Invariants: raft is not asked for work, nor told what other nodes say, while a
// save is outstanding; store holds exactly what is durable, except for a vote of
// a lone voter for itself, which goes with the next save, together with its
// identity and the quorum's foundation if they are new.
type Quorum struct {
	cfg        Config
	configured []NodeID // cfg.Voters, ascending
	rand       *rand.Rand
	id         uint64
	node       *raft.RawNode
	store      *raft.MemoryStorage
	members    membership
	history    []historical // memberships since the durable snapshot; the last is members

	hard      hardState // the last that raft gave
	written   hardState // the last that is in a Save
	named     bool      // the identity is durable: this node may speak
	unsaved   [][]byte  // to go before anything else
	unsavedAt bool      // unsaved takes the place of all that was saved
	saving    *saving   // nil unless a Save is outstanding
	retryAt   clock.Instant
	found     *membership // to be saved next: the quorum's foundation
	left      bool        // to be saved next: that this node is in no quorum any more
	compact   *Snapshot   // to be saved next
	compacted Index       // of the latest durable snapshot
	inbox     inbox       // what came while a Save was outstanding

	applied     Index
	appliedTerm Term
	told        Leader
	toldMembers membership
	pending     []proposal // by term, then in order of proposal
	lastTicket  Ticket
	changing    bool // a change of the membership was proposed, and is not handed out
	joins       []uint64
	twins       []heard // when who was not let in, because its node is there, first asked
	reads       reads

	now      clock.Instant // of the last call that had it
	started  bool
	nextTick clock.Instant
	election election
	greeting greeting
	warned   []Warning     // in this reign
	heard    []heard       // by id
	since    clock.Instant // whoever was not heard before may still have been there
}

// historical is the membership from an index on.
type historical struct {
	from    Index
	members membership
}

type proposal struct {
	term   Term
	ticket Ticket // 0 if nobody waits for it
	change bool
}

// saving is an outstanding Save and what follows once it is durable: unless one
// of the fields is set, only that the node may speak.
type saving struct {
	save    *Save
	ready   *raft.Ready
	compact *Snapshot
	found   *membership
	left    bool
}

// New returns a quorum that goes on from what was saved, oldest first. With
// nothing at all the node is new; if it is the only configured voter it founds a
// quorum, else it looks for one. What is known to be committed is in out. The
// first wake is due at once.
func New(cfg Config, rng *rand.Rand, saved [][]byte, out *Out) (*Quorum, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	q := &Quorum{cfg: cfg, rand: rng, retryAt: clock.Never, told: Leader{Node: NoNode}}
	q.configured = slices.Sorted(slices.Values(cfg.Voters))
	p, err := replay(saved)
	if err != nil {
		return nil, err
	}
	if q.named = p.id != 0; !q.named {
		p.id = raftID(cfg.ID, drawIncarnation(rng))
		q.unsaved = [][]byte{encodeIdentity(p.id)}
	}
	if nodeOf(p.id) != cfg.ID {
		return nil, fmt.Errorf("%w: node %d, this is node %d", ErrOtherNode, nodeOf(p.id), cfg.ID)
	}
	q.id = p.id
	q.written = p.hard
	if !p.founded() && slices.Equal(q.configured, []NodeID{cfg.ID}) {
		p.snapshot = foundingSnapshot(foundedBy(q.id, []uint64{q.id}))
		p.hard.term, p.hard.commit = max(p.hard.term, foundingTerm), foundingIndex
		q.unsavedAt = len(saved) > 1
		q.unsaved = [][]byte{encodeIdentity(q.id), p.snapshot.encode()}
		if len(saved) == 1 {
			q.unsaved = q.unsaved[1:]
		}
		q.written = hardState{term: foundingTerm, commit: foundingIndex} // as the snapshot says
	}
	if err := q.begin(p, out); err != nil {
		return nil, err
	}
	q.election.patience = q.drawPatience()
	q.election.at = clock.Never
	q.run(out)
	return q, nil
}

// begin starts raft from what is durable, or will be with the next save.
func (q *Quorum) begin(p past, out *Out) error {
	q.hard = p.hard
	q.store = raft.NewMemoryStorage()
	q.members = p.snapshot.members
	q.applied, q.appliedTerm, q.compacted = 0, 0, 0
	q.history = []historical{{Index(p.snapshot.index), q.members}}
	if p.founded() {
		check(q.store.ApplySnapshot(p.snapshot.proto()))
		q.applied, q.appliedTerm = Index(p.snapshot.index), Term(p.snapshot.term)
		q.compacted = q.applied
		if q.applied > foundingIndex {
			out.Restore = &Snapshot{q.applied, p.snapshot.data}
		}
	}
	check(q.store.Append(p.entries))
	return q.startRaft(nil)
}

// startRaft begins to ask raft. Unless there is a membership it has that of the
// snapshot, and hands out the entries after it.
func (q *Quorum) startRaft(ms *membership) error {
	check(q.store.SetHardState(q.hard.proto()))
	cfg := &raft.Config{
		ID: q.id, Storage: q.store, ElectionTick: q.cfg.ElectionTicks, HeartbeatTick: 1,
		PreVote: true, CheckQuorum: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		MaxSizePerMsg: 1 << 20, MaxCommittedSizePerReady: math.MaxUint64, MaxInflightMsgs: 256, MaxInflightBytes: 16 << 20,
		Logger: logger{q.cfg.Log},
	}
	if ms != nil {
		cfg.Storage, cfg.Applied = resumed{q.store, ms.confState()}, uint64(q.applied)
	}
	node, err := raft.NewRawNode(cfg)
	if err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	q.node = node
	return nil
}

// NextWake is when Woken wants to be called, or clock.Never.
func (q *Quorum) NextWake() clock.Instant {
	switch {
	case !q.started:
		return 0
	case q.alone():
		return q.retryAt
	}
	return min(q.nextTick, q.retryAt, q.election.at)
}

// Woken says what time it is. To be called early, late or more than once does
// no harm: a tick that is missed does not count.
func (q *Quorum) Woken(now clock.Instant, out *Out) {
	q.now = now
	if q.saving != nil && now >= q.retryAt {
		q.retryAt = clock.Never
		out.Save = q.saving.save
	}
	if !q.started {
		q.start(out)
	} else if !q.alone() {
		if now >= q.election.at {
			q.campaignInHaste()
		}
		if now >= q.nextTick {
			q.tick(out)
			if q.nextTick = q.nextTick.Add(q.cfg.Tick); q.nextTick <= now {
				q.nextTick = now.Add(q.cfg.Tick)
			}
		}
	}
	q.run(out)
}

// start begins a node's part.
func (q *Quorum) start(out *Out) {
	q.started, q.since = true, q.now
	q.nextTick = q.now.Add(q.cfg.Tick)
	switch {
	case q.lone():
		check(q.node.Campaign())
	case len(q.unsaved) > 0:
		q.saveIdentity(out)
	default:
		q.greet(out)
	}
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
	ticket := q.lastTicket
	q.pending = append(q.pending, proposal{term: term, ticket: ticket})
	q.run(out)
	return ticket, nil
}

// Saved says that the outstanding Save is durable.
func (q *Quorum) Saved(out *Out) {
	assert.That(q.saving != nil, "quorum: nothing was to be saved")
	s := q.saving
	q.saving, q.retryAt, q.named = nil, clock.Never, true
	switch {
	case s.compact != nil:
		q.compactedTo(s.compact)
	case s.found != nil:
		q.foundedWith(*s.found, out)
	case s.left:
		check(q.begin(past{id: q.id}, out))
		q.greet(out)
	case s.ready != nil:
		q.keep(s.ready)
		q.finish(s.ready, out)
	default:
		q.greet(out)
	}
	q.run(out)
}

// SaveFailed says that nothing of the outstanding Save was written, for lack of
// space. The same Save will be asked for again.
func (q *Quorum) SaveFailed(now clock.Instant) {
	assert.That(q.saving != nil, "quorum: nothing was to be saved")
	q.retryAt = now.Add(q.cfg.RetryAfter)
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

// Incarnation is what this node's data directory was drawn; never 0.
func (q *Quorum) Incarnation() uint32 { return incarnationOf(q.id) }

// Lone reports whether this node is the only voter.
func (q *Quorum) Lone() bool { return q.lone() }

// founded reports whether this node belongs to a quorum.
func (q *Quorum) founded() bool { return q.members.quorum != 0 }

// lone reports whether this node is the only voter.
func (q *Quorum) lone() bool { return q.members.only(q.id) }

// alone reports whether this node is the only member.
func (q *Quorum) alone() bool { return len(q.members.members) == 1 && q.lone() }

// votes reports whether this node is a voter, as far as it knows.
func (q *Quorum) votes() bool { return q.members.voter(q.id) }

// check is for errors that only a mistake in this package can cause.
func check(err error) {
	if err != nil {
		panic(&assert.Failure{What: "quorum: " + err.Error()})
	}
}
