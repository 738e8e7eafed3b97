package session

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// oracle is what Kafka's broker does about fetch sessions, in the plainest way:
// it looks at every partition for every answer, and at every session to evict
// one.
type oracle struct {
	sessions map[int32]*oracleSession
	slots    int
}

type oracleSession struct {
	id, epoch     int32
	byID          bool
	peer          metadata.NodeID
	created, used clock.Instant
	size          int // as last used
	parts         map[string]*oraclePart
	full          bool // of the present fetch
	isolation     int8
}

type oraclePart struct {
	offset record.Offset
	hw     record.Offset // as told, or -1
	start  record.Offset
}

// evictAfter is Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
const evictAfter = 2 * time.Minute

// begin is FetchManager.newContext.
func (o *oracle) begin(req *kmsg.FetchRequest, peer metadata.NodeID, now clock.Instant) (*oracleSession, int16) {
	if req.SessionEpoch == 0 || req.SessionEpoch == -1 {
		if s := o.sessions[req.SessionID]; s != nil && s.peer == peer {
			delete(o.sessions, s.id)
		}
		s := &oracleSession{peer: peer, byID: req.Version >= 13, created: now, used: now, epoch: 1, full: true, parts: make(map[string]*oraclePart)}
		s.update(req)
		s.size = len(s.parts)
		if req.SessionEpoch == 0 && (len(o.sessions) < o.slots || o.evict(s, now)) {
			s.id = -1 // to be told what it is
		}
		return s, 0
	}
	s := o.sessions[req.SessionID]
	switch {
	case s == nil || s.peer != peer:
		return nil, 70
	case s.epoch != req.SessionEpoch:
		return nil, 71
	case s.byID != (req.Version >= 13):
		return nil, 106
	}
	s.update(req)
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			delete(s.parts, fmt.Sprintf("%s-%d", t.Topic, p))
		}
	}
	if len(s.parts) == 0 {
		delete(o.sessions, s.id)
		s = &oracleSession{peer: peer, full: true, parts: make(map[string]*oraclePart)}
		s.update(req)
		return s, 0
	}
	s.used, s.size, s.full = now, len(s.parts), false
	s.epoch++
	return s, 0
}

func (s *oracleSession) update(req *kmsg.FetchRequest) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			name := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
			q := s.parts[name]
			if q == nil {
				q = &oraclePart{hw: -1, start: -1}
				s.parts[name] = q
			}
			if s.peer != noPeer && record.Offset(p.FetchOffset) <= q.offset {
				q.hw, q.start = -1, -1 // pawl's own: a follower whose log did not grow
			}
			q.offset = record.Offset(p.FetchOffset)
		}
	}
}

// evict is FetchSessionCacheShard.tryEvict.
func (o *oracle) evict(s *oracleSession, now clock.Instant) bool {
	all := slices.Collect(maps.Values(o.sessions))
	if len(all) == 0 {
		return false
	}
	stale := slices.MinFunc(all, func(a, b *oracleSession) int { return cmp.Compare(a.used, b.used) })
	if now.Sub(stale.used) > evictAfter {
		// Of several that were used at one time any will do; the model passes time
		// between any two fetches, so there are none.
		delete(o.sessions, stale.id)
		return true
	}
	all = slices.DeleteFunc(all, func(v *oracleSession) bool {
		aged := v.used.Sub(v.created) > evictAfter
		return !aged && (s.peer == noPeer || v.peer != noPeer)
	})
	if len(all) == 0 {
		return false
	}
	value := func(v *oracleSession) [3]int { return [3]int{toInt(v.peer != noPeer), v.size, int(v.id)} }
	least := slices.MinFunc(all, func(a, b *oracleSession) int { x, y := value(a), value(b); return slices.Compare(x[:], y[:]) })
	x, y := value(s), value(least)
	x[2] = 0
	if slices.Compare(x[:], y[:]) < 0 {
		return false
	}
	delete(o.sessions, least.id)
	return true
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *oracleSession) limit(p *part) record.Offset {
	if s.peer != noPeer {
		return p.end
	}
	return p.highWatermark
}

// ends is DelayedFetch.tryComplete: whether the wait is over.
func (s *oracleSession) ends(parts map[string]*part) bool {
	for name, q := range s.parts {
		if p := parts[name]; p == nil || p.failed || q.offset < s.limit(p) {
			return true
		}
	}
	return len(s.parts) == 0
}

// answer is the contexts' updateAndGenerateResponseData.
func (s *oracleSession) answer(parts map[string]*part) []answer {
	var all []answer
	for name, q := range s.parts {
		p := parts[name]
		if p == nil || p.failed {
			all = append(all, answer{name: name, err: true})
			q.hw = -1
			continue
		}
		n := max(int(s.limit(p)-q.offset), 0)
		if n > 0 || s.full || q.hw != p.highWatermark || q.start != p.start {
			all = append(all, answer{name, false, p.highWatermark, p.start, n})
			q.hw, q.start = p.highWatermark, p.start
		}
	}
	return all
}

// machine has both, and compares them.
type machine struct {
	*server
	oracle  oracle
	twins   map[*Session]*oracleSession // whose fetch waits
	ids     []int32
	answers int
}

func byName(answers []answer) []answer {
	slices.SortFunc(answers, func(a, b answer) int { return strings.Compare(a.name, b.name) })
	return answers
}

func (m *machine) Fetch(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 61, 130}).Draw(t, "seconds")) * time.Second)
	peer := rapid.SampledFrom([]metadata.NodeID{noPeer, noPeer, 1, 2}).Draw(t, "peer")
	id := rapid.SampledFrom(append([]int32{0, 0, 77}, m.ids...)).Draw(t, "session")
	epoch := rapid.Int32Range(-1, 4).Draw(t, "epoch")
	version := rapid.SampledFrom([]int16{12, 13, 17, 17, 17}).Draw(t, "version")
	if s := m.oracle.sessions[id]; s != nil && rapid.IntRange(0, 9).Draw(t, "right") > 0 {
		peer, epoch = s.peer, s.epoch
		if version = 17; !s.byID {
			version = 12
		}
	}
	var topics, forget []string
	for range rapid.IntRange(0, 4).Draw(t, "topics") {
		topics = append(topics, fmt.Sprintf("t-%d@%d", rapid.IntRange(0, 5).Draw(t, "partition"), rapid.IntRange(0, 4).Draw(t, "offset")))
	}
	if epoch > 0 {
		for range rapid.IntRange(0, 2).Draw(t, "forget") {
			forget = append(forget, fmt.Sprintf("t-%d", rapid.IntRange(0, 5).Draw(t, "partition")))
		}
	}
	slices.Sort(topics)
	topics = slices.CompactFunc(topics, func(a, b string) bool { return a[:4] == b[:4] })
	req := request(version, id, epoch, strings.Join(topics, " "), strings.Join(forget, " "))

	want, code := m.oracle.begin(req, peer, m.now)
	got, answers, done, err := m.begin(req, peer)
	if wire.Code(err) != code {
		t.Fatalf("error %v, want code %d", err, code)
	}
	if err != nil {
		return
	}
	if (got.ID() != 0) != (want.id != 0) {
		t.Fatalf("session %d, want %d", got.ID(), want.id)
	}
	if want.id == -1 {
		want.id = got.ID()
		m.oracle.sessions[want.id] = want
		m.ids = append(m.ids, want.id)
	}
	m.compare(t, want, answers, done, want.ends(m.parts))
	if !done {
		m.twins[got] = want
	} else if got.ID() == 0 {
		m.cache.Close(got, &Out{})
	}
}

// compare compares an answer, if there is one, with what it ought to be.
func (m *machine) compare(t *rapid.T, want *oracleSession, got []answer, done, wantDone bool) {
	if done != wantDone {
		t.Fatalf("the wait is over %v, want %v", done, wantDone)
	}
	if !done {
		return
	}
	if all := want.answer(m.parts); !slices.Equal(byName(got), byName(all)) {
		t.Fatalf("answer %v, want %v", got, all)
	}
	m.answers += len(got)
}

// wake answers the fetches of sessions that wait, those with news or all.
func (m *machine) wake(t *rapid.T, must bool) {
	m.waiting = slices.DeleteFunc(m.waiting, func(s *Session) bool {
		got, done := m.answer(s, must)
		m.compare(t, m.twins[s], got, done, must || m.twins[s].ends(m.parts))
		if done {
			s.Wait(false)
			if s.ID() == 0 {
				m.cache.Close(s, &Out{})
			}
		}
		return done
	})
}

// Change makes something happen to a partition. Whoever has news of it must be
// among the woken.
func (m *machine) Change(t *rapid.T) {
	name := fmt.Sprintf("t-%d", rapid.IntRange(0, 5).Draw(t, "partition"))
	what := rapid.SampledFrom([]string{"produce", "produce", "commit", "commit", "delete", "fail", "heal", "drop"}).Draw(t, "what")
	woken := m.change(name, what == "produce", func(p *part) {
		switch what {
		case "produce":
			p.end++
		case "commit":
			p.highWatermark = p.end
		case "delete":
			p.start = p.highWatermark
		case "fail":
			p.failed = true
		case "heal":
			p.failed = false
		case "drop":
			m.drop(name)
		}
	})
	for _, s := range m.waiting {
		if m.twins[s].ends(m.parts) && !slices.Contains(woken, s) {
			t.Fatalf("%s: a fetch that has an answer was not woken", what)
		}
	}
	m.wake(t, false)
}

// Expire makes the time of every fetch that waits pass.
func (m *machine) Expire(t *rapid.T) { m.wake(t, true) }

func (m *machine) Check(t *rapid.T) {
	if got, want := m.cache.stats.Sessions, len(m.oracle.sessions); got != want {
		t.Fatalf("%d sessions, want %d", got, want)
	}
	weight, partitions := 0, 0
	for id, s := range m.cache.sessions {
		w := m.oracle.sessions[id]
		if w == nil || s.size != len(w.parts) || s.epoch != w.epoch {
			t.Fatalf("session %d has %d partitions, want %v", id, s.size, w)
		}
		s.check()
		weight += s.held
		partitions += s.size
	}
	if weight != m.cache.weight || partitions != m.cache.stats.Partitions {
		t.Fatalf("weight %d, want %d; partitions %d, want %d", m.cache.weight, weight, m.cache.stats.Partitions, partitions)
	}
}

// check panics unless the session's lists are what they ought to be.
func (s *Session) check() {
	n := 0
	for _, l := range []*list{&s.ready, &s.settled} {
		var last *Entry
		for e := l.first; e != nil; e = e.next {
			assert.That(e.session == s && e.prev == last && e.ready == (l == &s.ready), "session: an entry is not where it is")
			assert.That(s.topics == nil || e.topic.entries[e.index] == e, "session: an entry that is not found")
			last = e
			n++
		}
		assert.That(l.last == last, "session: a list ends elsewhere")
	}
	assert.That(n == s.size, "session: size is not the size")
}

// TestLikeKafka compares sessions with an oracle that looks at everything.
func TestLikeKafka(t *testing.T) {
	answers := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		cfg.Slots = rapid.IntRange(0, 3).Draw(t, "slots")
		m := &machine{
			server: newServer(cfg), twins: make(map[*Session]*oracleSession),
			oracle: oracle{sessions: make(map[int32]*oracleSession), slots: cfg.Slots},
		}
		t.Repeat(rapid.StateMachineActions(m))
		answers += m.answers
	})
	if answers == 0 {
		t.Error("nothing was ever answered")
	}
}
