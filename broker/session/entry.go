package session

import (
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// Topic is a topic as a fetcher names it: by its id, or below version 13 of
// Fetch by its name.
type Topic struct {
	topicKey
	entries map[int32]*Entry // by index, of a session that is in a cache
}

// topicKey is a topic's id or its name, and the other one's zero.
type topicKey struct {
	ID   metadata.TopicID
	Name string
}

func keyOf(version int16, id metadata.TopicID, name string) topicKey {
	if version >= topicIDs {
		return topicKey{ID: id}
	}
	return topicKey{Name: name}
}

// Ask is what a fetcher wants of a partition.
type Ask struct {
	Offset           record.Offset
	LogStart         record.Offset // of a follower; else -1
	MaxBytes         int32
	LeaderEpoch      record.LeaderEpoch // in which the fetcher thinks it lives, or NoEpoch
	LastFetchedEpoch record.LeaderEpoch // of the record before Offset, or NoEpoch
}

// told is what a fetcher knows of a partition.
type told struct {
	highWatermark record.Offset
	logStart      record.Offset
}

// nothing makes it what no partition has, so that the next answer names it.
func (t *told) nothing() { t.highWatermark, t.logStart = -2, -2 }

// Entry is one partition of a session.
type Entry struct {
	Ask
	// Found is for whoever answers the fetch: how many bytes there are for the
	// entry while the fetch waits.
	Found int64

	session    *Session // nil once it is out of it
	topic      *Topic
	prev, next *Entry // in the session's ready or settled
	watch      *Watch
	before     *Entry // in watch
	after      *Entry
	told       told
	index      int32
	ready      bool
}

// Topic is the topic of the partition.
func (e *Entry) Topic() *Topic { return e.topic }

// Index is the partition's number.
func (e *Entry) Index() int32 { return e.index }

// Session is the session that has the entry; nil if none has it any more.
func (e *Entry) Session() *Session { return e.session }

// Watched reports whether a partition tells the entry its news.
func (e *Entry) Watched() bool { return e.watch != nil }

// News reports whether the fetcher has not been told so of its partition.
func (e *Entry) News(highWatermark, logStart record.Offset) bool {
	return e.told.highWatermark != highWatermark || e.told.logStart != logStart
}

// Tell says what the present answer tells the fetcher of the partition, without
// an error. An entry with records goes to the end of the queue, to be looked at
// again when all others had their turn.
func (e *Entry) Tell(highWatermark, logStart record.Offset, records bool) {
	assert.That(e.ready, "session: an answer has an entry that was not ready")
	e.told.highWatermark, e.told.logStart = highWatermark, logStart
	if records {
		e.session.ready.remove(e)
		e.session.ready.push(e)
	}
}

// Fail says that the present answer has an error for the partition. The entry
// stays in the queue, and whatever comes next is news.
func (e *Entry) Fail() { e.told.nothing() }

// ask says what the fetcher wants from now on. A follower whose log did not just
// grow by what it was told has dropped the answer: it is told all anew.
func (e *Entry) ask(a Ask) {
	if e.session.peer != noPeer && (a.LeaderEpoch != e.LeaderEpoch || a.Offset <= e.Offset) {
		e.told.nothing()
	}
	e.Ask = a
	e.session.wake(e)
}

// Watch is the entries that are about one partition, which holds it. The zero
// value is empty.
type Watch struct{ first, last *Entry }

// Empty reports whether nobody fetches the partition.
func (w *Watch) Empty() bool { return w.first == nil }

// Add makes w tell e its news.
func (w *Watch) Add(e *Entry) {
	assert.That(e.watch == nil && e.session != nil, "session: an entry that cannot be watched")
	e.watch, e.before, e.after = w, w.last, nil
	if w.last == nil {
		w.first = e
	} else {
		w.last.after = e
	}
	w.last = e
}

func (e *Entry) unwatch() {
	w := e.watch
	if w == nil {
		return
	}
	if e.before == nil {
		w.first = e.after
	} else {
		e.before.after = e.after
	}
	if e.after == nil {
		w.last = e.before
	} else {
		e.after.before = e.before
	}
	e.watch, e.before, e.after = nil, nil, nil
}

// News says that the partition changed: its entries get into their sessions'
// queues, and those whose fetch waits are appended to woken. What was appended to
// the log and is not committed is news for followers only.
func (w *Watch) News(followersOnly bool, woken []*Entry) []*Entry {
	for e := w.first; e != nil; e = e.after {
		s := e.session
		if followersOnly && s.peer == noPeer {
			continue
		}
		s.wake(e)
		if s.waits {
			woken = append(woken, e)
		}
	}
	return woken
}

// Clear lets go of all entries: the partition is none any more.
func (w *Watch) Clear() {
	for w.first != nil {
		w.first.unwatch()
	}
}
