package session

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/btree"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

const noPeer = wire.NoPeer

// topicIDs is the first version of Fetch with topic ids.
const topicIDs = 13

// Config of a Cache.
type Config struct {
	// Slots is how many sessions are kept; with 0 there are none. Kafka:
	// max.incremental.fetch.session.cache.slots.
	Slots int
	// Weight bounds the memory of all sessions: what their partitions, topics and
	// names weigh together, a partition being 1. Kafka has no such bound.
	Weight int
	// EvictAfter is for how long a session is not evicted by an ordinary one
	// after it began, and how long one may be unused before any may evict it.
	// Kafka: two minutes.
	EvictAfter time.Duration
}

// DefaultConfig is Kafka's, with room for 500,000 partitions.
func DefaultConfig() Config {
	return Config{Slots: 1000, Weight: 500_000, EvictAfter: 2 * time.Minute}
}

// Validate returns an error that names the first field out of range.
func (c Config) Validate() error {
	switch {
	case c.Slots < 0:
		return fmt.Errorf("max.incremental.fetch.session.cache.slots %d, want at least 0", c.Slots)
	case c.Weight < 0:
		return fmt.Errorf("weight of fetch sessions %d, want at least 0", c.Weight)
	case c.EvictAfter < 0:
		return fmt.Errorf("eviction of fetch sessions after %v, want at least 0", c.EvictAfter)
	}
	return nil
}

// Out is what a call decided.
type Out struct {
	// Ended is sessions that are no more. Those whose fetch was being answered
	// have no entries any more: it cannot be answered as it should.
	Ended []*Session
}

// Stats counts what a cache did, and says what is in it.
type Stats struct {
	Sessions   int
	Partitions int
	Evictions  int64
}

// Cache is the sessions of one node.
//
// A session that is to begin while there is no room may evict one that
//   - was not used for EvictAfter; or
//   - belongs to a client, if the new one is privileged, which those of followers
//     are; or
//   - has fewer partitions and was used when it was older than EvictAfter, unless
//     it is privileged and the new one is not.
//
// If there is none, the fetch goes on without a session.
//
// Invariants: weight is the sum of the sessions' held; every session is in the
// list from oldest to newest, which is by used, and in the trees that its age and
// owner allow under its rank.
type Cache struct {
	cfg      Config
	rng      *rand.Rand
	sessions map[int32]*Session
	weight   int
	oldest   *Session
	newest   *Session
	byAny    *btree.BTreeG[*Session] // that any session may evict
	byPeers  *btree.BTreeG[*Session] // that privileged sessions may evict
	stats    Stats
}

// New returns an empty cache. Ids are drawn from rng: a client of an earlier
// process of this node must not hit another's session.
func New(cfg Config, rng *rand.Rand) *Cache {
	less := func(a, b *Session) bool { return a.rank.compare(b.rank) < 0 }
	return &Cache{
		cfg: cfg, rng: rng,
		sessions: make(map[int32]*Session),
		byAny:    btree.NewG(16, less),
		byPeers:  btree.NewG(16, less),
	}
}

// Stats returns the counters.
func (c *Cache) Stats() Stats { return c.stats }

// Begin takes in a Fetch request of a node, or of a client (wire.NoPeer), and
// returns the session whose ready entries it asks for. If the session was in use
// already, the fetch that used it is of no use any more and to be answered
// wire.ErrInvalidSessionEpoch.
//
// An error says that the request does not go with any session, and is the answer
// to it: wire.ErrFetchSessionNotFound, wire.ErrInvalidSessionEpoch or
// wire.ErrSessionTopicID.
func (c *Cache) Begin(req *kmsg.FetchRequest, peer metadata.NodeID, now clock.Instant, out *Out) (*Session, error) {
	if req.SessionEpoch != fullEpoch && req.SessionEpoch != finalEpoch {
		return c.next(req, peer, now, out)
	}
	if s := c.Ending(req, peer); s != nil {
		c.end(s, out)
	}
	s := &Session{peer: peer, full: true, byID: req.Version >= topicIDs, isolation: req.IsolationLevel, rack: req.Rack}
	if req.SessionEpoch == finalEpoch || !c.admit(req, peer, now, out) {
		s.fill(req)
		return s, nil
	}
	c.create(s, req, now)
	return s, nil
}

// Ending is the session that a request is going to end because its fetcher says
// so, or nil.
func (c *Cache) Ending(req *kmsg.FetchRequest, peer metadata.NodeID) *Session {
	if s := c.sessions[req.SessionID]; s != nil && s.peer == peer && (req.SessionEpoch == fullEpoch || req.SessionEpoch == finalEpoch) {
		return s
	}
	return nil
}

// fill puts every partition of a request into a session that is in no cache.
func (s *Session) fill(req *kmsg.FetchRequest) {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	entries, topics := make([]Entry, n), make([]Topic, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		topics[i].topicKey = keyOf(req.Version, t.TopicID, t.Topic)
		for j := range t.Partitions {
			s.add(&entries[0], &topics[i], t.Partitions[j].Partition, askOf(&t.Partitions[j]))
			entries = entries[1:]
		}
	}
}

func askOf(p *kmsg.FetchRequestTopicPartition) Ask {
	return Ask{
		Offset: record.Offset(p.FetchOffset), LogStart: record.Offset(p.LogStartOffset), MaxBytes: p.PartitionMaxBytes,
		LeaderEpoch: record.LeaderEpoch(p.CurrentLeaderEpoch), LastFetchedEpoch: record.LeaderEpoch(p.LastFetchedEpoch),
	}
}

// create makes a session, for which there is room, one of the cache.
func (c *Cache) create(s *Session, req *kmsg.FetchRequest, now clock.Instant) {
	for s.id == 0 || c.sessions[s.id] != nil {
		s.id = c.rng.Int32()
	}
	s.epoch, s.created, s.topics = firstEpoch, now, make(map[topicKey]*Topic)
	c.sessions[s.id] = s
	c.link(s)
	c.stats.Sessions++
	c.update(s, req)
	c.use(s, now)
}

// next takes in a request of a session that exists.
func (c *Cache) next(req *kmsg.FetchRequest, peer metadata.NodeID, now clock.Instant, out *Out) (*Session, error) {
	s := c.sessions[req.SessionID]
	switch {
	case s == nil || s.peer != peer:
		return nil, wire.ErrFetchSessionNotFound
	case s.epoch != req.SessionEpoch:
		return nil, fmt.Errorf("%w: %d, want %d", wire.ErrInvalidSessionEpoch, req.SessionEpoch, s.epoch)
	case s.byID != (req.Version >= topicIDs):
		return nil, wire.ErrSessionTopicID
	}
	c.update(s, req)
	c.forget(s, req)
	if s.size == 0 { // as Kafka does: the session ends, and this is a fetch without one
		c.end(s, out)
		s = &Session{peer: peer, full: true, isolation: req.IsolationLevel, rack: req.Rack}
		s.fill(req)
		return s, nil
	}
	c.use(s, now)
	for c.weight > c.cfg.Weight {
		if !c.evict(rank{peer != noPeer, s.size, 0}, now, out) {
			c.end(s, out)
			return nil, fmt.Errorf("%w: it has become too large", wire.ErrFetchSessionNotFound)
		}
	}
	if s.isolation != req.IsolationLevel || s.rack != req.Rack {
		s.isolation, s.rack = req.IsolationLevel, req.Rack
		s.wakeAll()
	}
	s.full, s.waits = false, false
	if s.epoch == lastEpoch {
		s.epoch = firstEpoch
	} else {
		s.epoch++
	}
	return s, nil
}

// update takes in what a request names. Of a partition that is named twice the
// last counts.
func (c *Cache) update(s *Session, req *kmsg.FetchRequest) {
	before := s.size
	for i := range req.Topics {
		t := &req.Topics[i]
		if len(t.Partitions) == 0 {
			continue
		}
		topic := s.topic(keyOf(req.Version, t.TopicID, t.Topic), len(t.Partitions))
		for j := range t.Partitions {
			index, ask := t.Partitions[j].Partition, askOf(&t.Partitions[j])
			if e := topic.entries[index]; e != nil {
				e.ask(ask)
				continue
			}
			e := new(Entry)
			s.add(e, topic, index, ask)
			topic.entries[index] = e
		}
	}
	c.stats.Partitions += s.size - before
	now := s.size + s.names + len(req.Rack)/nameWeight
	c.weight += max(now-s.held, 0)
	s.held = max(now, s.held)
}

// topic returns a topic of the session, to which it adds it if need be, with
// room for so many partitions.
func (s *Session) topic(key topicKey, partitions int) *Topic {
	t := s.topics[key]
	if t == nil {
		t = &Topic{topicKey: key, entries: make(map[int32]*Entry, partitions)}
		s.topics[key] = t
		s.names += key.weight()
	}
	return t
}

// forget drops what a request says that its fetcher does not want any more.
func (c *Cache) forget(s *Session, req *kmsg.FetchRequest) {
	before := s.size
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		topic := s.topics[keyOf(req.Version, t.TopicID, t.Topic)]
		if topic == nil {
			continue
		}
		for _, index := range t.Partitions {
			if e := topic.entries[index]; e != nil {
				delete(topic.entries, index)
				s.remove(e)
			}
		}
		if len(topic.entries) == 0 {
			delete(s.topics, topic.topicKey)
			s.names -= topic.weight()
		}
	}
	c.stats.Partitions += s.size - before
}

// nameWeight is how many bytes of a name weigh as much as a partition.
const nameWeight = 128

func (k topicKey) weight() int { return 1 + len(k.Name)/nameWeight }

// weigh is what a session of a request weighs, in partitions.
func weigh(req *kmsg.FetchRequest) int {
	n := len(req.Rack) / nameWeight
	for i := range req.Topics {
		t := &req.Topics[i]
		n += keyOf(req.Version, t.TopicID, t.Topic).weight() + len(t.Partitions)
	}
	return n
}

// Close ends a session: its fetch had none, or its fetcher never learned of it.
func (c *Cache) Close(s *Session, out *Out) {
	if s.id != 0 {
		c.end(s, out)
		return
	}
	s.end()
}

// end takes a session out of the cache.
func (c *Cache) end(s *Session, out *Out) {
	assert.That(c.sessions[s.id] == s, "session: one ended that is not in the cache")
	c.stats.Sessions--
	c.stats.Partitions -= s.size
	c.weight -= s.held
	c.unrank(s)
	c.unlink(s)
	delete(c.sessions, s.id)
	s.end()
	out.Ended = append(out.Ended, s)
}
