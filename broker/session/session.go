// Package session keeps the incremental fetch sessions (KIP-227) of the clients
// and followers that fetch from this node. A fetcher names its partitions once;
// from then on its requests name what changed, and the answers only what is new.
//
// What Kafka leaves at O(partitions) per fetch is O(changed) here: a Session has
// a queue of the entries that may have something to tell, and an Entry gets into
// it when its fetcher asks for something else or when its partition, through a
// Watch, says that it changed. An idle partition costs nothing, however many
// fetches pass. The queue is also what makes fetches fair: an entry whose records
// were sent goes behind those that wait for their turn.
//
// A fetch without a session has a Session as well, which is in no cache and ends
// with the fetch, so that there is one way to wait for data.
//
// Sources: KIP-227, KIP-516 (sessions of topic ids).
package session

import (
	"iter"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// epochs of a session's requests. Those of one session count from firstEpoch and
// return there behind the largest.
const (
	fullEpoch  int32 = 0  // name everything, and begin a session
	finalEpoch int32 = -1 // name everything, without a session
	firstEpoch int32 = 1
	lastEpoch  int32 = 1<<31 - 1
)

// Session is the partitions that one fetcher fetches.
//
// Invariants: size is how many entries are in ready and settled together; a
// session that is in a cache has an id and topics, any other has neither.
type Session struct {
	id    int32
	epoch int32 // of the next request
	peer  metadata.NodeID
	byID  bool // its topics have ids, not names
	full  bool // the fetch that is being answered named everything
	waits bool // that fetch waits for news

	isolation int8
	rack      string

	topics  map[topicKey]*Topic
	ready   list // may have something to tell, in the order of their turns
	settled list // have not
	size    int
	names   int // weight of the topics
	held    int // most that the session ever weighed: its maps do not shrink

	created  clock.Instant
	used     clock.Instant
	rank     rank // under which it is evicted, as of used
	anyMay   bool // it is in the cache's byAny
	peersMay bool // and in byPeers
	older    *Session
	newer    *Session
}

// ID is the session's id; 0 if it is in no cache, or not any more.
func (s *Session) ID() int32 { return s.id }

// Size is how many partitions the session has.
func (s *Session) Size() int { return s.size }

// Full reports whether the present fetch named every partition, so that its
// answer must do so too.
func (s *Session) Full() bool { return s.full }

// Wait says whether the session's fetch waits for news.
func (s *Session) Wait(waits bool) { s.waits = waits }

// Ready goes over the entries that may have something to tell, in the order of
// their turns. Settle and Tell may be called on the way, of the present entry.
func (s *Session) Ready() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		last := s.ready.last
		for e := s.ready.first; e != nil; {
			next := e.next
			if !yield(e) || e == last {
				return
			}
			e = next
		}
	}
}

// Entries goes over all entries, the ready ones first. It is for looking at them.
func (s *Session) Entries() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, l := range []*list{&s.ready, &s.settled} {
			for e := l.first; e != nil; e = e.next {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// Settle takes an entry out of the queue: what it has to tell was told.
func (s *Session) Settle(e *Entry) {
	assert.That(e.session == s && e.ready, "session: an entry settled that was not ready")
	s.ready.remove(e)
	s.settled.push(e)
	e.ready = false
}

// wake puts an entry into the queue.
func (s *Session) wake(e *Entry) {
	if e.ready {
		return
	}
	s.settled.remove(e)
	s.ready.push(e)
	e.ready = true
}

// wakeAll puts every entry into the queue.
func (s *Session) wakeAll() {
	for s.settled.first != nil {
		s.wake(s.settled.first)
	}
}

// add puts an entry into the session, ready.
func (s *Session) add(e *Entry, topic *Topic, index int32, ask Ask) {
	*e = Entry{session: s, topic: topic, index: index, Ask: ask, ready: true}
	e.told.nothing()
	s.ready.push(e)
	s.size++
}

// remove takes an entry out of the session.
func (s *Session) remove(e *Entry) {
	if e.ready {
		s.ready.remove(e)
	} else {
		s.settled.remove(e)
	}
	e.unwatch()
	e.session = nil
	s.size--
}

// end makes a session one that is in no cache, and empties it.
func (s *Session) end() {
	for _, l := range []*list{&s.ready, &s.settled} {
		for l.first != nil {
			s.remove(l.first)
		}
	}
	s.id, s.topics, s.waits = 0, nil, false
}

// list is a queue of entries. The zero value is empty.
type list struct{ first, last *Entry }

func (l *list) push(e *Entry) {
	e.prev, e.next = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
}

func (l *list) remove(e *Entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}
