package fetcher

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
)

const (
	fullEpoch  int32 = 0
	finalEpoch int32 = -1
	firstEpoch int32 = 1
	lastEpoch  int32 = 1<<31 - 1
)

// leader is one node that this node fetches from.
//
// Invariant: links and order hold the same links; followed counts those that are
// not gone, and active those that are to be fetched.
type leader struct {
	node     metadata.NodeID
	links    map[storage.LogID]*link
	order    order
	dirty    []*link // oldest first
	active   int
	followed int

	sessionID    int32
	sessionEpoch int32         // of the next Fetch
	inFlight     uint64        // the call that has no answer yet; 0 if there is none
	full         bool          // it names all partitions
	named        int           // how many, if so
	closing      bool          // it ends the session, because nothing is followed any more
	nudgeAt      clock.Instant // 0: not
	nudged       bool

	failures int
	retryAt  clock.Instant
	silent   bool // the operator was told that it cannot be fetched from
}

// follow returns the link of a partition, which is followed from now on.
func (l *leader) follow(log storage.LogID) *link {
	k := l.links[log]
	switch {
	case k == nil:
		k = &link{leader: l, log: log}
		l.links[log] = k
		l.order.push(k)
	case !k.gone:
		return k
	}
	k.gone = false
	l.followed++
	return k
}

// leave says that a partition is not followed from the leader any more.
func (l *leader) leave(k *link) {
	k.gone, k.retryAt, k.failures = true, 0, 0
	l.followed--
}

// drop forgets a link that is gone.
func (l *leader) drop(k *link) {
	assert.That(k.gone && l.links[k.log] == k, "fetcher: a link dropped that is in use")
	delete(l.links, k.log)
	l.order.remove(k)
}

// done reports whether nothing is followed and nothing is to be cleaned up.
func (l *leader) done() bool { return l.followed == 0 && l.inFlight == 0 && l.sessionID == 0 }

// nextWake is when the leader is to be sent something.
func (l *leader) nextWake() clock.Instant {
	switch {
	case l.inFlight != 0 && (l.nudgeAt == 0 || l.nudged):
		return clock.Never
	case l.inFlight != 0:
		return l.nudgeAt
	case l.active > 0:
		return l.retryAt
	case l.followed == 0:
		return 0
	}
	return clock.Never
}

// send sends what is due.
func (l *leader) send(f *Fetcher, now clock.Instant, out *Out) {
	switch {
	case l.inFlight != 0:
		l.nudge(f, out)
	case l.active > 0:
		l.fetch(f, out)
	case l.sessionID != 0:
		l.close(f, out)
	}
}

// fetch sends a Fetch of everything that is to be fetched.
func (l *leader) fetch(f *Fetcher, out *Out) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(f.cfg.MaxWait.Milliseconds()), f.cfg.MinBytes, f.cfg.MaxBytes
	req.SessionID, req.SessionEpoch = l.sessionID, l.sessionEpoch
	l.full, l.named, l.nudgeAt, l.nudged = l.sessionEpoch == fullEpoch, 0, 0, false
	n := naming{req: req, partitionMaxBytes: f.cfg.PartitionMaxBytes}
	if l.full {
		l.nameAll(&n)
		f.Stats.FullFetches++
	} else {
		l.nameChanged(&n)
	}
	l.named = n.named
	f.Stats.Fetches++
	f.Stats.Named += int64(n.named)
	f.Stats.Forgotten += int64(n.forgotten)
	l.inFlight = f.call(l.node, req, out)
}

// nudge ends the wait of the Fetch that is at the leader.
func (l *leader) nudge(f *Fetcher, out *Out) {
	assert.Reached("fetcher: a fetch that waits is called back")
	l.nudged = true
	req := kmsg.NewPtrFetchRequest()
	req.SessionEpoch = finalEpoch
	f.Stats.Nudges++
	f.call(l.node, req, out)
}

// close ends the session with a leader of whom nothing is followed.
func (l *leader) close(f *Fetcher, out *Out) {
	req := kmsg.NewPtrFetchRequest()
	req.SessionID, req.SessionEpoch = l.sessionID, finalEpoch
	l.closing, l.nudgeAt = true, 0
	l.inFlight = f.call(l.node, req, out)
}

// closed says that the session has ended, or that the leader cannot be told so.
func (l *leader) closed() {
	l.closing, l.sessionID, l.sessionEpoch = false, 0, fullEpoch
}

// nameAll names every partition that is to be fetched.
func (l *leader) nameAll(n *naming) {
	for k := l.order.first; k != nil; {
		next := k.next
		k.dirty, k.missed, k.inTold = false, false, k.active()
		switch {
		case k.gone:
			l.drop(k)
		case k.inTold:
			k.told = k.want
			n.name(k)
		}
		k = next
	}
	l.undirty()
}

// nameChanged names every partition that the leader's session does not have as it
// ought to.
func (l *leader) nameChanged(n *naming) {
	for _, k := range l.dirty {
		k.dirty = false
		switch {
		case k.active() && !k.settled():
			k.told, k.inTold, k.missed = k.want, true, false
			n.name(k)
		case !k.active() && k.inTold:
			k.inTold, k.missed = false, false
			n.forget(k)
		}
		if k.gone {
			l.drop(k)
		}
	}
	l.undirty()
}

func (l *leader) undirty() {
	clear(l.dirty)
	l.dirty = l.dirty[:0]
}

// naming puts partitions into a request, by topic.
type naming struct {
	req               *kmsg.FetchRequest
	partitionMaxBytes int32
	named, forgotten  int
	topics, forgets   map[[16]byte]int // where they are in the request
}

func (n *naming) name(k *link) {
	if n.topics == nil {
		n.topics = make(map[[16]byte]int)
	}
	i, ok := n.topics[k.log.Topic]
	if !ok {
		i = len(n.req.Topics)
		n.topics[k.log.Topic] = i
		t := kmsg.NewFetchRequestTopic()
		t.TopicID = k.log.Topic
		n.req.Topics = append(n.req.Topics, t)
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition = k.log.Partition
	p.CurrentLeaderEpoch = int32(k.want.leaderEpoch)
	p.FetchOffset = int64(k.want.offset)
	p.LastFetchedEpoch = int32(k.want.lastEpoch)
	p.LogStartOffset = int64(k.want.logStart)
	p.PartitionMaxBytes = n.partitionMaxBytes
	n.req.Topics[i].Partitions = append(n.req.Topics[i].Partitions, p)
	n.named++
}

func (n *naming) forget(k *link) {
	if n.forgets == nil {
		n.forgets = make(map[[16]byte]int)
	}
	i, ok := n.forgets[k.log.Topic]
	if !ok {
		i = len(n.req.ForgottenTopics)
		n.forgets[k.log.Topic] = i
		t := kmsg.NewFetchRequestForgottenTopic()
		t.TopicID = k.log.Topic
		n.req.ForgottenTopics = append(n.req.ForgottenTopics, t)
	}
	n.req.ForgottenTopics[i].Partitions = append(n.req.ForgottenTopics[i].Partitions, k.log.Partition)
	n.forgotten++
}
