package quorum

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/pawlbroker/pawl/broker/clock"
)

// A cluster is three voters, their disks and a network that loses, doubles and
// reorders messages. Everything that happens is drawn from one seed.
type cluster struct {
	t     testing.TB
	rng   *rand.Rand
	nodes []*voter
	net   [][]byte // messages on their way
	now   clock.Instant
	trace io.Writer // hash of all that came out
	calm  bool      // no more faults

	enough int // proposals

	leaders map[Term]NodeID
	chosen  map[Index]string // what was handed out at an index, by anyone
	promise []string         // data whose ticket came back
	lost    map[string]bool  // data whose ticket came back lost
	made    int
	crashes int
	reigns  int
	restore int
}

type voter struct {
	id        NodeID
	q         *Quorum
	disk      [][]byte
	save      *Save
	state     []string
	proposals map[Ticket]string
	cut       bool
}

func newCluster(t testing.TB, seed uint64, trace io.Writer) *cluster {
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 7)), trace: trace,
		enough: math.MaxInt, leaders: map[Term]NodeID{}, chosen: map[Index]string{}, lost: map[string]bool{}}
	for id := range NodeID(3) {
		c.nodes = append(c.nodes, &voter{id: id})
		c.start(c.nodes[id])
	}
	return c
}

func (c *cluster) start(v *voter) {
	v.save, v.state, v.proposals = nil, nil, map[Ticket]string{}
	cfg := DefaultConfig(v.id)
	cfg.Voters = []NodeID{0, 1, 2}
	var out Out
	q, err := New(cfg, rand.New(rand.NewPCG(c.rng.Uint64(), uint64(v.id))), v.disk, &out)
	if err != nil {
		for _, r := range v.disk {
			c.t.Log(showRecord(r))
		}
		c.t.Fatalf("node %d: %v", v.id, err)
	}
	v.q = q
	c.act(v, &out)
}

func (c *cluster) act(v *voter, out *Out) {
	fmt.Fprintf(c.trace, "%d %d %s\n", c.now, v.id, showOut(out))
	if out.Save != nil {
		v.save = out.Save
	}
	if out.Restore != nil {
		c.restore++
		v.state = nil
		if err := json.Unmarshal(out.Restore.Data, &v.state); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, e := range out.Committed {
		what := fmt.Sprintf("%d %s", e.Term, e.Data)
		if before, ok := c.chosen[e.Index]; ok && before != what {
			c.t.Fatalf("index %d: %q, and %q", e.Index, before, what)
		}
		c.chosen[e.Index] = what
		if len(e.Data) > 0 {
			v.state = append(v.state, string(e.Data))
		}
		if e.Ticket != 0 {
			if v.proposals[e.Ticket] != string(e.Data) {
				c.t.Fatalf("ticket %d of node %d came back with %q", e.Ticket, v.id, e.Data)
			}
			delete(v.proposals, e.Ticket)
			c.promise = append(c.promise, string(e.Data))
		}
	}
	for _, ticket := range out.Lost {
		c.lost[v.proposals[ticket]] = true
		delete(v.proposals, ticket)
	}
	for _, ticket := range out.Unknown {
		delete(v.proposals, ticket)
	}
	for _, m := range out.Messages {
		c.mayBeSaid(v, m)
		c.net = append(c.net, m.Marshal())
	}
	if out.Leader != nil && out.Leader.Node == v.id {
		if other, ok := c.leaders[out.Leader.Term]; ok && other != v.id {
			c.t.Fatalf("term %d has two leaders: %d and %d", out.Leader.Term, other, v.id)
		}
		c.leaders[out.Leader.Term] = v.id
		c.reigns++
		for _, data := range c.promise {
			if !slices.Contains(v.state, data) {
				c.t.Fatalf("node %d leads term %d without %q, which was promised", v.id, out.Leader.Term, data)
			}
		}
	}
}

// mayBeSaid checks that what a message promises is on its sender's disk.
func (c *cluster) mayBeSaid(v *voter, m Message) {
	switch m.body.GetType() {
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgAppResp:
	default:
		return
	}
	past, err := replay(v.disk)
	last, _ := past.last()
	ok := err == nil || len(v.disk) == 0
	switch m.body.GetType() {
	case raftpb.MsgVote:
		ok = ok && (past.hard.term > m.body.GetTerm() || past.hard.term == m.body.GetTerm() && past.hard.vote == raftID(v.id))
	case raftpb.MsgVoteResp:
		ok = ok && (m.body.GetReject() || past.hard.term > m.body.GetTerm() ||
			past.hard.term == m.body.GetTerm() && past.hard.vote == m.body.GetTo())
	case raftpb.MsgAppResp:
		ok = ok && (m.body.GetReject() || last >= m.body.GetIndex() && past.hard.term >= m.body.GetTerm())
	}
	if !ok {
		c.t.Fatalf("node %d says %v, and has %+v and entries up to %d on disk: %v", v.id, m, past.hard, last, err)
	}
}

func (c *cluster) chance(percent int) bool { return c.rng.IntN(100) < percent }

// step lets one thing happen.
func (c *cluster) step() {
	v := c.nodes[c.rng.IntN(len(c.nodes))]
	var out Out
	switch k := c.rng.IntN(100); {
	case k < 55 && len(c.net) > 0:
		c.deliver()
		return
	case k < 75 && v.save != nil:
		if !c.calm && c.chance(3) {
			v.q.SaveFailed(c.now)
			return
		}
		c.write(v, len(v.save.Records))
		v.save = nil
		v.q.Saved(&out)
	case k < 80 && c.made < c.enough:
		data := fmt.Sprintf("p%d", c.made)
		ticket, err := v.q.Propose([]byte(data), &out)
		if errors.Is(err, ErrNotLeader) {
			return
		}
		c.made++
		v.proposals[ticket] = data
	case k == 80 && !c.calm:
		c.crash(v)
		return
	case k == 81 && v.q.Applied() > 0:
		data, _ := json.Marshal(v.state)
		v.q.Compact(v.q.Applied(), data, &out)
	case k == 82 && !c.calm:
		v.cut = !v.cut
		return
	default:
		c.wake()
		return
	}
	c.act(v, &out)
}

func (c *cluster) wake() {
	next := clock.Never
	for _, v := range c.nodes {
		next = min(next, v.q.NextWake())
	}
	c.now = max(c.now, next)
	for _, v := range c.nodes {
		if v.q.NextWake() <= c.now {
			var out Out
			v.q.Woken(c.now, &out)
			c.act(v, &out)
		}
	}
}

func (c *cluster) deliver() {
	i := c.rng.IntN(len(c.net))
	if c.calm {
		i = 0
	}
	b := c.net[i]
	if c.calm || !c.chance(5) { // else it comes again
		c.net = slices.Delete(c.net, i, i+1)
	}
	m, err := UnmarshalMessage(b)
	if err != nil {
		c.t.Fatal(err)
	}
	if !c.calm && (c.chance(10) || c.nodes[m.From].cut || c.nodes[m.To].cut) {
		return
	}
	var out Out
	c.nodes[m.To].q.Received(m, &out)
	c.act(c.nodes[m.To], &out)
}

func (c *cluster) crash(v *voter) {
	c.crashes++
	if v.save != nil {
		n := c.rng.IntN(len(v.save.Records) + 1)
		if v.save.Replace && n < len(v.save.Records) {
			n = 0
		}
		c.write(v, n)
	}
	c.start(v)
}

func (c *cluster) write(v *voter, n int) {
	if v.save.Replace && n > 0 {
		v.disk = nil
	}
	v.disk = append(v.disk, v.save.Records[:n]...)
}

// settle ends all faults and waits until a new proposal is everywhere.
func (c *cluster) settle() {
	c.calm = true
	for _, v := range c.nodes {
		v.cut = false
	}
	c.enough = c.made + 3
	for range 20_000 {
		c.step()
		a, b, d := c.nodes[0].state, c.nodes[1].state, c.nodes[2].state
		if c.made == c.enough && slices.Equal(a, b) && slices.Equal(a, d) &&
			len(c.nodes[0].proposals)+len(c.nodes[1].proposals)+len(c.nodes[2].proposals) == 0 {
			for _, data := range c.promise {
				if !slices.Contains(a, data) {
					c.t.Fatalf("%q was promised and is gone", data)
				}
			}
			for _, data := range a {
				if c.lost[data] {
					c.t.Fatalf("%q was lost and is there", data)
				}
			}
			return
		}
	}
	c.t.Fatal("the cluster does not settle")
}

func TestThreeVotersKeepWhatTheyPromise(t *testing.T) {
	seeds := uint64(200) // each run twice
	if testing.Short() {
		seeds = 20
	}
	crashes, reigns, promised, restored := 0, 0, 0, 0
	for seed := range seeds {
		var sums [2]uint64
		for i := range sums {
			h := fnv.New64a()
			c := newCluster(t, seed, h)
			for range 1500 {
				c.step()
			}
			c.settle()
			sums[i] = h.Sum64()
			crashes, reigns, promised, restored = crashes+c.crashes, reigns+c.reigns, promised+len(c.promise), restored+c.restore
		}
		if sums[0] != sums[1] {
			t.Fatalf("seed %d: two runs differ", seed)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d seeds: %d crashes, %d reigns, %d promises, %d snapshots restored", seeds, crashes/2, reigns/2, promised/2, restored/2)
	if crashes == 0 || reigns == 0 || promised == 0 || restored == 0 {
		t.Fatal("the seeds do not try everything")
	}
}

// leaderOfThree is the leader of a cluster without faults, and what it says
// when something is proposed.
func leaderOfThree(t testing.TB) (*Quorum, Out) {
	c := newCluster(t, 1, io.Discard)
	c.calm = true
	for range 5000 {
		c.wake()
		for len(c.net) > 0 {
			c.deliver()
		}
		for _, v := range c.nodes {
			if v.save != nil {
				var out Out
				c.write(v, len(v.save.Records))
				v.save = nil
				v.q.Saved(&out)
				c.act(v, &out)
			}
			if v.q.Leading() {
				var out Out
				if _, err := v.q.Propose([]byte("x"), &out); err != nil {
					t.Fatal(err)
				}
				c.act(v, &out)
				out = Out{}
				c.write(v, len(v.save.Records))
				v.save = nil
				v.q.Saved(&out)
				return v.q, out
			}
		}
	}
	t.Fatal("nobody leads")
	return nil, Out{}
}

func TestLeaderWithoutMajorityStepsDown(t *testing.T) {
	q, _ := leaderOfThree(t)
	now := q.NextWake()
	for range 3 * DefaultConfig(0).ElectionTicks {
		var out Out
		q.Woken(now, &out)
		if !q.Leading() {
			return
		}
		now = now.Add(100 * time.Millisecond)
	}
	t.Fatal("it leads without having heard from anyone")
}

func TestMessageFromNoVoterIsIgnored(t *testing.T) {
	q, said := leaderOfThree(t)
	m := said.Messages[0]
	var out Out
	q.Received(Message{From: 9, To: q.cfg.ID, body: m.body}, &out)
	q.Received(m, &out) // is for another
	if s := showOut(&out); s != "" {
		t.Fatalf("it acted on what was not for it: %s", s)
	}
}

func TestProposalMayBeTooLarge(t *testing.T) {
	var out Out
	cfg := DefaultConfig(1)
	cfg.MaxProposalBytes = 3
	q, err := New(cfg, rand.New(rand.NewPCG(1, 1)), nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Propose([]byte("abc"), &out); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("before it leads: %v", err)
	}
	q.Woken(0, &out)
	q.Saved(&out)
	if _, err := q.Propose([]byte("abcd"), &out); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("four bytes of three: %v", err)
	}
	if _, err := q.Propose([]byte("abc"), &out); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCommitAlone(b *testing.B) {
	var out Out
	q, err := New(DefaultConfig(1), rand.New(rand.NewPCG(1, 1)), nil, &out)
	if err != nil {
		b.Fatal(err)
	}
	q.Woken(0, &out)
	q.Saved(&out)
	data := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		out = Out{}
		if _, err := q.Propose(data, &out); err != nil {
			b.Fatal(err)
		}
		q.Saved(&out)
		if q.Applied()%10_000 == 0 {
			q.Compact(q.Applied(), data, &out)
			q.Saved(&out)
		}
	}
}
