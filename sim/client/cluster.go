package client

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simnet"
)

// Cluster is what a client knows of the nodes, and its connections to them: one
// to each, opened when it is needed. It learns who leads a partition from
// Metadata, and asks again when a node says that it does not, or says nothing.
//
// With one node there is nothing to learn, and it never asks.
type Cluster struct {
	k        *kernel.Kernel
	rng      *rand.Rand
	who      string
	patience time.Duration
	broken   func(what string) // told of ErrProtocol

	sessions []*Session // by node
	home     int        // who is asked what any node can answer
	leads    map[history.Partition]lead
	waiting  []*routed // for a leader to become known, oldest first
	asking   bool      // a Metadata is on its way, or will be
}

// lead is who leads a partition, as far as is known.
type lead struct {
	node  int // -1 if it is not known
	epoch int32
	topic [16]byte // whose epoch that is; zero if nobody said
}

// routed is a request that waits for its leader.
type routed struct {
	part   history.Partition
	stale  func() bool
	req    kmsg.Request
	answer Answer
	until  time.Duration // when patience ends, since the beginning
}

const (
	whatRefresh kernel.What = iota
)

// NewCluster returns a client of the given number that knows where the nodes are
// and nothing else of them. patience is how long it waits for a connection, a
// response or a leader.
func NewCluster(k *kernel.Kernel, net *simnet.Net, client int, from simnet.Host, nodes []simnet.Host, patience time.Duration, broken func(string)) *Cluster {
	c := &Cluster{
		k: k, rng: k.Stream("cluster", uint64(client)), who: fmt.Sprintf("c%d", client), patience: patience, broken: broken,
		leads: map[history.Partition]lead{},
	}
	for _, node := range nodes {
		c.sessions = append(c.sessions, NewSession(k, net, client, from, node, patience, broken))
	}
	c.home = c.rng.IntN(len(nodes))
	return c
}

// Nodes is how many nodes there are.
func (c *Cluster) Nodes() int { return len(c.sessions) }

// Ask asks a node for what any of them can answer. The callback comes later,
// never from inside Ask.
func (c *Cluster) Ask(req kmsg.Request, answer Answer) {
	home := c.home
	c.sessions[home].Ask(req, func(resp kmsg.Response, err error) {
		if err != nil && c.home == home {
			c.home = c.rng.IntN(len(c.sessions)) // it may be better elsewhere
		}
		answer(resp, err)
	})
}

// AskNode asks one node.
func (c *Cluster) AskNode(node int, req kmsg.Request, answer Answer) {
	c.sessions[node].Ask(req, answer)
}

// AskLeader asks the node that leads a partition, or is said to. The request is
// not sent if stale, which may be nil, says so by the time it could be.
func (c *Cluster) AskLeader(p history.Partition, stale func() bool, req kmsg.Request, answer Answer) {
	if node := c.Leader(p); node >= 0 {
		c.askLeader(node, p, stale, req, answer)
		return
	}
	c.waiting = append(c.waiting, &routed{p, stale, req, answer, time.Duration(c.k.Now()) + c.patience})
	c.refresh(0)
}

func (c *Cluster) askLeader(node int, p history.Partition, stale func() bool, req kmsg.Request, answer Answer) {
	c.sessions[node].AskUnless(stale, req, func(resp kmsg.Response, err error) {
		if err != nil {
			c.Moved(p) // by now, perhaps
		}
		answer(resp, err)
	})
}

// Leader is who leads a partition, as far as is known, or -1.
func (c *Cluster) Leader(p history.Partition) int {
	if len(c.sessions) == 1 {
		return 0
	}
	if l, ok := c.leads[p]; ok {
		return l.node
	}
	return -1
}

// Epoch is the leader epoch to ask with: that of the leader which is known, or
// -1.
func (c *Cluster) Epoch(p history.Partition) int32 {
	if l, ok := c.leads[p]; ok && l.node >= 0 {
		return l.epoch
	}
	return -1
}

// Moved says that what is known of a partition's leader may be wrong.
func (c *Cluster) Moved(p history.Partition) {
	if l, ok := c.leads[p]; ok {
		l.node = -1
		c.leads[p] = l
	}
}

// Learn finds out who leads a partition, in time.
func (c *Cluster) Learn(p history.Partition) {
	c.waiting = append(c.waiting, &routed{part: p, until: time.Duration(c.k.Now()) + c.patience})
	c.refresh(0)
}

func (c *Cluster) refresh(after time.Duration) {
	if !c.asking {
		c.asking = true
		c.k.After(after, c, whatRefresh, 0)
	}
}

// Happen is for the kernel.
func (c *Cluster) Happen(kernel.What, uint64) {
	c.expire()
	if len(c.waiting) == 0 {
		c.asking = false
		return
	}
	req := kmsg.NewPtrMetadataRequest()
	var names []string
	for _, w := range c.waiting {
		if !slices.Contains(names, w.part.Topic) {
			names = append(names, w.part.Topic)
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = kmsg.StringPtr(w.part.Topic)
			req.Topics = append(req.Topics, topic)
		}
	}
	c.Ask(req, func(resp kmsg.Response, err error) {
		c.asking = false
		if err == nil {
			c.learn(resp.(*kmsg.MetadataResponse))
		}
		c.dispatch()
	})
}

// expire gives up what has waited for too long.
func (c *Cluster) expire() {
	now := time.Duration(c.k.Now())
	for len(c.waiting) > 0 && c.waiting[0].until <= now {
		w := c.waiting[0]
		c.waiting = c.waiting[1:]
		if w.answer != nil {
			w.answer(nil, fmt.Errorf("%w: no leader", ErrNotSent))
		}
	}
}

// dispatch sends what has a leader now, and asks again if there is more. A node
// may still name one that has just denied it.
func (c *Cluster) dispatch() {
	waiting := c.waiting
	c.waiting = nil
	for _, w := range waiting {
		switch node := c.Leader(w.part); {
		case node < 0:
			c.waiting = append(c.waiting, w)
		case w.answer != nil:
			c.askLeader(node, w.part, w.stale, w.req, w.answer)
		}
	}
	c.expire()
	if len(c.waiting) > 0 {
		c.home = c.rng.IntN(len(c.sessions))
		c.refresh(kernel.Between(c.rng, 5*time.Millisecond, 60*time.Millisecond))
	}
}

// learn takes who leads what from a node that may know less than another did
// before.
func (c *Cluster) learn(r *kmsg.MetadataResponse) {
	where := map[int32]int{-1: -1}
	for _, b := range r.Brokers {
		node := int(b.NodeID)
		if node < 1 || node > len(c.sessions) || b.Host != fmt.Sprintf("n%d", node) {
			c.broken(fmt.Sprintf("Metadata has node %d at %s:%d", b.NodeID, b.Host, b.Port))
			return
		}
		where[b.NodeID] = node - 1
	}
	for _, t := range r.Topics {
		if t.ErrorCode != 0 || t.Topic == nil {
			continue
		}
		for _, p := range t.Partitions {
			part := history.Partition{Topic: *t.Topic, Index: p.Partition}
			old, known := c.leads[part]
			same := t.TopicID == old.topic || t.TopicID == [16]byte{} || old.topic == [16]byte{}
			if known && same && p.LeaderEpoch < old.epoch && p.LeaderEpoch >= 0 {
				continue // the past
			}
			node, ok := where[p.Leader]
			if !ok {
				node = -1 // a broker that is not there at present
			}
			if p.LeaderEpoch < 0 && same {
				p.LeaderEpoch = old.epoch
			}
			c.leads[part] = lead{node, p.LeaderEpoch, t.TopicID}
		}
	}
}

// passes says whether an error of a partition's leader may not come again, from
// this node or from another, and whether the leader may be another.
func passes(code int16) (again, moved bool) {
	switch code {
	case codeUnknownTopic, codeLeaderNotAvailable, codeNotLeader, codeFencedEpoch, codeUnknownEpoch, codeUnknownTopicID:
		return true, true
	case codeStorage, codeNotEnough, codeOffsetNotAvailable, codeBrokerNotAvailable:
		return true, false
	}
	return false, false
}
