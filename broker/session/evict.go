package session

import (
	"cmp"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
)

// rank is the order in which sessions are evicted: least first.
type rank struct {
	privileged bool // of a follower
	size       int
	id         int32
}

func (r rank) compare(q rank) int {
	if r.privileged != q.privileged {
		if q.privileged {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(r.size, q.size), cmp.Compare(r.id, q.id))
}

// admit makes room for a session of what a request names, by evicting others if
// it may. It reports whether there is room.
func (c *Cache) admit(req *kmsg.FetchRequest, peer metadata.NodeID, now clock.Instant, out *Out) bool {
	weight, size := weigh(req), 0
	for i := range req.Topics {
		size += len(req.Topics[i].Partitions)
	}
	if c.cfg.Slots == 0 || weight > c.cfg.Weight {
		return false
	}
	for len(c.sessions) >= c.cfg.Slots || c.weight+weight > c.cfg.Weight {
		if !c.evict(rank{peer != noPeer, size, 0}, now, out) {
			return false
		}
	}
	return true
}

// evict ends one session for another one's sake. It reports whether there was
// one.
func (c *Cache) evict(r rank, now clock.Instant, out *Out) bool {
	victim := c.oldest
	if victim == nil {
		return false
	}
	if now.Sub(victim.used) <= c.cfg.EvictAfter {
		tree := c.byAny
		if r.privileged {
			tree = c.byPeers
		}
		least, ok := tree.Min()
		if !ok || r.compare(least.rank) < 0 {
			return false
		}
		victim = least
	}
	c.stats.Evictions++
	c.end(victim, out)
	return true
}

// use says that a session is used now.
func (c *Cache) use(s *Session, now clock.Instant) {
	c.unlink(s)
	c.link(s)
	s.used = now
	if r := (rank{s.peer != noPeer, s.size, s.id}); r != s.rank {
		c.unrank(s)
		s.rank = r
	}
	aged := now.Sub(s.created) > c.cfg.EvictAfter
	if !s.anyMay && aged {
		c.byAny.ReplaceOrInsert(s)
		s.anyMay = true
	}
	if !s.peersMay && (aged || !s.rank.privileged) {
		c.byPeers.ReplaceOrInsert(s)
		s.peersMay = true
	}
}

// unrank takes a session out of the trees.
func (c *Cache) unrank(s *Session) {
	if s.anyMay {
		c.byAny.Delete(s)
	}
	if s.peersMay {
		c.byPeers.Delete(s)
	}
	s.anyMay, s.peersMay = false, false
}

// link makes a session the newest.
func (c *Cache) link(s *Session) {
	s.older, s.newer = c.newest, nil
	if c.newest == nil {
		c.oldest = s
	} else {
		c.newest.newer = s
	}
	c.newest = s
}

// unlink takes a session out of the list by age.
func (c *Cache) unlink(s *Session) {
	if s.older == nil {
		c.oldest = s.newer
	} else {
		s.older.newer = s.newer
	}
	if s.newer == nil {
		c.newest = s.older
	} else {
		s.newer.older = s.older
	}
	s.older, s.newer = nil, nil
}
