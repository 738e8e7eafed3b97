package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/record"
)

// server is a table of partitions that answers fetches: as little of it as
// sessions need. A fetch without records waits until it is expired.
type server struct {
	cache   *Cache
	now     clock.Instant
	parts   map[string]*part // by topic and index, as in t-0
	waiting []*Session       // oldest first
	looked  int              // entries that were looked at
	budget  int              // records that an answer may have
}

type part struct {
	end, highWatermark, start record.Offset
	failed                    bool
	watch                     Watch
}

func newServer(cfg Config) *server {
	return &server{cache: New(cfg, rand.New(rand.NewPCG(1, 2))), parts: make(map[string]*part), budget: 1000}
}

// answer is what one answer says of a partition.
type answer struct {
	name                 string
	err                  bool
	highWatermark, start record.Offset
	records              int
}

func (a answer) String() string {
	if a.err {
		return a.name + " error"
	}
	return fmt.Sprintf("%s hw=%d start=%d records=%d", a.name, a.highWatermark, a.start, a.records)
}

func topicID(name string) (id metadata.TopicID) {
	copy(id[:], name)
	return id
}

func nameOf(e *Entry) string {
	name := e.Topic().Name
	if name == "" {
		id := e.Topic().ID
		name = strings.TrimRight(string(id[:]), "\x00")
	}
	return fmt.Sprintf("%s-%d", name, e.Index())
}

// begin takes in a request. It returns the session, and what it has to tell if
// that ends the wait; otherwise the session waits.
func (v *server) begin(req *kmsg.FetchRequest, peer metadata.NodeID) (s *Session, answers []answer, done bool, err error) {
	var out Out
	s, err = v.cache.Begin(req, peer, v.now, &out)
	for _, ended := range append(out.Ended, s) {
		v.waiting = slices.DeleteFunc(v.waiting, func(w *Session) bool { return w == ended })
	}
	if err != nil {
		return nil, nil, true, err
	}
	for e := range s.Ready() {
		v.look(e)
	}
	if answers, ok := v.answer(s, false); ok {
		return s, answers, true, nil
	}
	s.Wait(true)
	v.waiting = append(v.waiting, s)
	return s, nil, false, nil
}

// look settles an entry that has nothing to tell.
func (v *server) look(e *Entry) {
	v.looked++
	p := v.parts[nameOf(e)]
	if p == nil {
		return
	}
	if !e.Watched() {
		p.watch.Add(e)
	}
	if !p.failed && e.Offset >= v.limit(e, p) && !e.News(p.highWatermark, p.start) {
		e.Session().Settle(e)
	}
}

func (v *server) limit(e *Entry, p *part) record.Offset {
	if e.Session().peer != noPeer {
		return p.end
	}
	return p.highWatermark
}

// answer is the answer of a session's fetch, if there are records, an error or no
// partitions, or if it must be given.
func (v *server) answer(s *Session, must bool) (answers []answer, done bool) {
	must = must || s.Size() == 0
	for e := range s.Ready() {
		p := v.parts[nameOf(e)]
		must = must || p == nil || p.failed || e.Offset < v.limit(e, p)
	}
	if !must {
		return nil, false
	}
	left := v.budget
	for e := range s.Ready() {
		v.looked++
		p := v.parts[nameOf(e)]
		if p == nil || p.failed {
			e.Fail()
			answers = append(answers, answer{name: nameOf(e), err: true})
			continue
		}
		n := min(max(int(v.limit(e, p)-e.Offset), 0), left)
		left -= n
		if n > 0 || s.Full() || e.News(p.highWatermark, p.start) {
			answers = append(answers, answer{nameOf(e), false, p.highWatermark, p.start, n})
			e.Tell(p.highWatermark, p.start, n > 0)
		}
	}
	return answers, true
}

// change changes a partition and returns the sessions that wait for that.
func (v *server) change(name string, followersOnly bool, f func(*part)) []*Session {
	p := v.parts[name]
	if p == nil {
		p = &part{}
		v.parts[name] = p
	}
	f(p)
	var woken []*Session
	for _, e := range p.watch.News(followersOnly, nil) {
		woken = append(woken, e.Session())
	}
	if v.parts[name] == nil {
		p.watch.Clear()
	}
	return woken
}

// drop makes a partition one that there is not.
func (v *server) drop(name string) { delete(v.parts, name) }

// request is a Fetch of a version that names topics by id, or by name below that.
func request(version int16, id, epoch int32, topics, forgotten string) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch = version, id, epoch
	for _, s := range strings.Fields(topics) {
		var index int32
		var offset int64
		name, rest, _ := strings.Cut(s, "-")
		if _, err := fmt.Sscanf(rest, "%d@%d", &index, &offset); err != nil {
			panic(err)
		}
		t := kmsg.NewFetchRequestTopic()
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset = index, offset
		t.Topic, t.TopicID = name, topicID(name)
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	for _, s := range strings.Fields(forgotten) {
		var index int32
		name, rest, _ := strings.Cut(s, "-")
		if _, err := fmt.Sscanf(rest, "%d", &index); err != nil {
			panic(err)
		}
		t := kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID = name, topicID(name)
		t.Partitions = append(t.Partitions, index)
		req.ForgottenTopics = append(req.ForgottenTopics, t)
	}
	return req
}
