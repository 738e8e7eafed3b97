package partition

// Fetch (key 1), versions 4 to 17, of clients and of followers.
//
// Behaviour:
//   - Answered at once if any partition has an error, if there are none, or if at
//     least min bytes are there over all partitions; else it waits until there
//     are, or until max wait has passed. What a follower has not been told of the
//     high watermark ends its wait too (as KIP-1166 has it), so that its consumers
//     are not late. So does another fetch of the same node.
//   - Whole batches only, from the one that holds the asked offset: a client
//     skips what it did not ask for. The first batch found is given even if it
//     is larger than max bytes (KIP-74), so that a fetch always progresses.
//   - Consumers see what is committed: nothing at or above the high watermark.
//     Offsets between it and the log end are waited for, not refused. Followers
//     are given what the leader has written, though it may not be durable there yet:
//     their disks sync beside the leader's.
//   - What a leader answers to a consumer is never older than what the consumer
//     may know: it must hold its lease, and know of all that was committed before
//     its time. Until then the fetch waits, and in the end is answered
//     NOT_LEADER_OR_FOLLOWER or OFFSET_NOT_AVAILABLE (before version 11, which
//     does not know that, NOT_LEADER_OR_FOLLOWER).
//   - A follower serves consumers that name their rack (version 11, KIP-392),
//     below its own high watermark. It needs no lease to be right about that: what is committed
//     stays. But its end may be an old one, by about replica.lag.time.max.ms at
//     most: it serves while the metadata have it in sync and its broker is
//     known to live. Consumers are sent there by the leader if they name the
//     rack it is in, and the leader is not in that rack.
//   - The log of a fetcher that names the epoch of its last record is compared
//     with the leader's (KIP-595).
//   - Sessions (KIP-227) are package session's.
//   - Records that are not in memory are looked for, and checked the first time
//     since the start, by a job; damage is answered KAFKA_STORAGE_ERROR.
//
// Versions: 5 adds the log start offset, 7 sessions, 9 the current leader epoch
// (KIP-320), 11 the client's rack (KIP-392), 12 is flexible and has the last
// fetched epoch, 13 topic ids, 15 the replica's broker epoch (KIP-903), 16 who
// leads instead (KIP-951).

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/session"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
)

// maxFetchWait bounds how long a fetch may wait, whatever it asks for.
const maxFetchWait = 5 * time.Minute

type fetchState uint8

const (
	waiting  fetchState = iota // for data
	reading                    // for jobs
	answered                   // done with
)

// fetch is one Fetch request that is being answered.
type fetch struct {
	asker
	caller   wire.Caller
	session  *session.Session
	state    fetchState
	known    bool // it is in the table's lists
	starving bool // it is in the table's list of those that wait for the lease
	minBytes int64
	maxBytes int64
	deadline clock.Instant
	expiry   *expiry // once it has waited
	found    int64   // bytes that there are, while it waits
	parts    []fetchPart
	jobs     int  // reads that are out
	read     bool // there were some
}

// expiry is the end of a fetch's wait. It outlives the fetch, which is answered
// long before as a rule, and must not keep its memory.
type expiry struct{ fetch *fetch }

// asker is who fetches.
type asker struct {
	peer    metadata.NodeID // NoPeer for a client
	process metadata.BrokerEpoch
	version int16
	rack    string // of a client
}

// fetchPart is one partition of an answer.
type fetchPart struct {
	sight
	entry *session.Entry
}

// read is a job that a fetch waits for.
type read struct {
	fetch *fetch
	part  *Partition
	index int
}

// Fetch handles a Fetch request.
func (t *Table) Fetch(c wire.Caller, req *wire.Request, at Moment, out *Out) {
	body := req.Body.(*kmsg.FetchRequest)
	t.Stats.FetchRequests++
	f := &fetch{
		asker:    asker{peer: req.Peer, process: metadata.BrokerEpoch(body.ReplicaState.Epoch), version: body.Version, rack: body.Rack},
		caller:   c,
		minBytes: min(int64(body.MinBytes), int64(max(body.MaxBytes, 0))),
		maxBytes: min(int64(max(body.MaxBytes, 0)), t.cfg.FetchMaxBytes),
		deadline: at.Now.Add(min(time.Duration(max(body.MaxWaitMillis, 0))*time.Millisecond, maxFetchWait)),
	}
	if f.peer != wire.NoPeer {
		t.hurry(t.peers[f.peer], at, out)
	}
	if s := t.sessions.Ending(body, f.peer); s != nil {
		t.hurry(t.fetches[s], at, out)
	}
	var ended session.Out
	s, err := t.sessions.Begin(body, f.peer, at.Now, &ended)
	t.endSessions(&ended, out)
	if err != nil {
		t.refuseFetch(f, err, out)
		return
	}
	if before := t.fetches[s]; before != nil {
		t.refuseFetch(before, wire.ErrInvalidSessionEpoch, out)
	}
	f.session = s
	t.serve(f, at, out)
}

// hurry ends the wait of a fetch, if it waits: whoever sent it has sent a newer
// one.
func (t *Table) hurry(f *fetch, at Moment, out *Out) {
	if f != nil && f.state == waiting {
		f.deadline = at.Now
		t.serve(f, at, out)
	}
}

// endSessions answers the fetches of sessions that are no more.
func (t *Table) endSessions(ended *session.Out, out *Out) {
	for _, s := range ended.Ended {
		if f := t.fetches[s]; f != nil {
			t.refuseFetch(f, wire.ErrFetchSessionNotFound, out)
		}
	}
}

// refuseFetch answers a whole fetch with an error.
func (t *Table) refuseFetch(f *fetch, err error, out *Out) {
	if f.state == answered {
		return
	}
	t.end(f)
	out.reply(f.caller, wire.Response{Body: &wire.FetchResponse{Version: f.version, ErrorCode: wire.Code(err)}})
}

// end is the end of a fetch.
func (t *Table) end(f *fetch) {
	f.state = answered
	t.unpark(f)
	f.session, f.parts = nil, nil
}

// serve answers a fetch if it need not wait any longer; else it waits.
func (t *Table) serve(f *fetch, at Moment, out *Out) {
	if f.state != waiting {
		return
	}
	late := at.Now >= f.deadline
	if late && f.peer == wire.NoPeer && !f.session.Full() && !t.leased(at) {
		// Entries that had nothing to tell are not looked at, and may have had
		// something to tell elsewhere. So the client is to name them again.
		t.dropSession(f.session)
		t.refuseFetch(f, wire.ErrFetchSessionNotFound, out)
		return
	}
	found, cold, hasty, blocked := t.survey(f, late, at, out)
	if !hasty && cold == 0 && found < f.minBytes && !late && f.session.Size() > 0 {
		t.park(f)
		return
	}
	if blocked && !late {
		// To leave a partition out would say that there is nothing new.
		_, cold, _, _ = t.survey(f, true, at, out)
	}
	f.session.Wait(false)
	if cold == 0 {
		t.answer(f, out)
		return
	}
	f.state, f.read = reading, true
	t.remember(f)
	budget := f.maxBytes
	for i := range f.parts {
		budget -= f.parts[i].region.Len
	}
	for i := range f.parts {
		fp := &f.parts[i]
		if !fp.cold {
			continue
		}
		t.lastTicket++
		t.reads[t.lastTicket] = read{f, fp.part, i}
		f.jobs++
		out.Jobs = append(out.Jobs, job.Read{
			Ticket: t.lastTicket, View: fp.part.view, From: fp.entry.Offset, Limit: fp.limit,
			MaxBytes: min(int64(max(fp.entry.MaxBytes, 0)), max(budget, 0)),
		})
	}
}

// survey looks at what there is for a fetch, and what of it would be its answer.
// Entries with nothing to tell are settled, unless all have to be named. What
// cannot be judged yet is left out until the answer must be given; then it is an
// error.
func (t *Table) survey(f *fetch, late bool, at Moment, out *Out) (found int64, cold int, hasty, blocked bool) {
	full := f.session.Full()
	left, some := f.maxBytes, false
	f.parts = f.parts[:0]
	for e := range f.session.Ready() {
		v := t.look(e, &f.asker, left, at, out)
		e.Found = v.bytes()
		found += e.Found
		switch {
		case v.blocked != nil && !late:
			v.hasty, blocked = false, true
		case v.blocked != nil:
			v.fail(v.blocked, f.version)
		case v.region.Len > left && some:
			v.put = v.region.Len
			v.region = storage.Region{}
		case v.region.Len > 0:
			left -= v.region.Len
			some = true
		}
		if v.leaseless {
			t.starve(f)
		}
		hasty = hasty || v.hasty
		if v.cold {
			cold++
		}
		if full || v.told(e) {
			f.parts = append(f.parts, fetchPart{v, e})
		} else if v.blocked == nil && e.Watched() {
			f.session.Settle(e)
		}
		if !full && left <= 0 && some {
			break // the rest is for the next fetch
		}
	}
	f.found = found
	return found, cold, hasty, blocked
}

// park makes a fetch wait for news of its partitions.
func (t *Table) park(f *fetch) {
	clear(f.parts)
	f.parts = f.parts[:0]
	f.session.Wait(true)
	if f.known {
		return
	}
	t.remember(f)
	t.conns[f.caller.Conn] = append(t.conns[f.caller.Conn], f)
	f.expiry = &expiry{f}
	t.deadlines.Add(f.deadline, f.expiry)
}

// remember puts a fetch that is not answered at once into the table's lists.
func (t *Table) remember(f *fetch) {
	f.known = true
	t.fetches[f.session] = f
	if f.peer != wire.NoPeer {
		t.peers[f.peer] = f
	}
}

// news tells the fetches that wait for a partition that it changed. What is
// appended only is of no interest to consumers.
func (t *Table) news(p *Partition, appended bool, at Moment, out *Out) {
	if p.watch.Empty() {
		return
	}
	woken := p.watch.News(appended, t.woken[:0])
	for _, e := range woken {
		s := e.Session()
		if s == nil {
			continue
		}
		f := t.fetches[s]
		v := t.look(e, &f.asker, f.maxBytes, at, out)
		f.found += v.bytes() - e.Found
		e.Found = v.bytes()
		if v.leaseless {
			t.starve(f)
		}
		if v.hasty || v.cold || f.found >= f.minBytes {
			t.serve(f, at, out)
		} else if v.blocked == nil && !s.Full() && !v.told(e) {
			s.Settle(e)
		}
	}
	clear(woken)
	t.woken = woken[:0]
}

// readDone takes the result of a read.
func (t *Table) readDone(j job.Read, res job.Result, at Moment, out *Out) {
	r, ok := t.reads[j.Ticket]
	assert.That(ok, "partition: a read came back twice")
	delete(t.reads, j.Ticket)
	if res.Err != nil && t.partition(r.part.log()) == r.part {
		t.spoilIfDamaged(r.part, res.Err, at, out)
	}
	f := r.fetch
	if f.state == answered {
		return
	}
	if fp := &f.parts[r.index]; res.Err != nil {
		fp.fail(res.Err, f.version)
	} else {
		fp.region = res.Region
	}
	if f.jobs--; f.jobs == 0 {
		t.answer(f, out)
	}
}

// answer sends what was found. Only the first partition with records may go
// over the request's limit.
func (t *Table) answer(f *fetch, out *Out) {
	b := answerBuilder{t: t, f: f, left: f.maxBytes}
	for i := range f.parts {
		b.add(&f.parts[i])
	}
	s := f.session
	t.end(f)
	resp := &wire.FetchResponse{Version: f.version, SessionID: s.ID(), Topics: b.topics, Nodes: t.nodesOf(b.leaders)}
	if s.ID() == 0 {
		t.dropSession(s)
	}
	out.reply(f.caller, wire.Response{Body: resp})
}

// dropSession ends a session that nobody is going to use.
func (t *Table) dropSession(s *session.Session) {
	var ended session.Out
	t.sessions.Close(s, &ended)
}

// unpark takes a fetch out of the table's lists.
func (t *Table) unpark(f *fetch) {
	if !f.known {
		return
	}
	f.known = false
	if f.expiry != nil {
		f.expiry.fetch = nil
	}
	delete(t.fetches, f.session)
	if t.peers[f.peer] == f {
		delete(t.peers, f.peer)
	}
	fs := t.conns[f.caller.Conn]
	for i, g := range fs {
		if g != f {
			continue
		}
		if len(fs) == 1 {
			delete(t.conns, f.caller.Conn)
			return
		}
		t.conns[f.caller.Conn] = append(fs[:i], fs[i+1:]...)
		return
	}
}

// ConnClosed forgets the fetches of a connection that wait for data.
func (t *Table) ConnClosed(conn uint64, out *Out) {
	fs := t.conns[conn]
	delete(t.conns, conn)
	for _, f := range fs {
		s := f.session
		t.end(f)
		s.Wait(false)
		if s.Full() { // whoever asked never learned of the session
			t.dropSession(s)
		}
		out.reply(f.caller, wire.Response{})
	}
}

// Drain answers every fetch that waits for data, with what there is.
func (t *Table) Drain(at Moment, out *Out) {
	for {
		x, ok := t.deadlines.Due(clock.Never - 1)
		if !ok {
			return
		}
		if f := x.fetch; f != nil {
			f.deadline = at.Now
			t.serve(f, at, out)
		}
	}
}

// answerBuilder puts partitions into an answer, by topic.
type answerBuilder struct {
	t       *Table
	f       *fetch
	left    int64
	some    bool
	topics  []wire.FetchTopic
	places  map[*session.Topic]int // in topics
	leaders []metadata.NodeID
}

func (b *answerBuilder) add(fp *fetchPart) {
	e := fp.entry
	if e.Session() != b.f.session {
		return // it was dropped from the session meanwhile
	}
	records := fp.region.Len > 0
	if records && fp.region.Len > b.left && b.some {
		records, fp.put = false, fp.region.Len
	}
	part := wire.FetchPartition{
		Partition: e.Index(), ErrorCode: fp.code, HighWatermark: fp.highWatermark, LastStableOffset: fp.highWatermark,
		LogStartOffset: fp.logStart, More: fp.more,
	}
	if records {
		part.Records = fp.region
		b.left -= fp.region.Len
		b.some = true
		b.count(fp.region.Len)
	}
	if fp.more != nil && fp.more.Leader != metadata.NoNode {
		b.leaders = append(b.leaders, fp.more.Leader)
	}
	topic := b.topic(e.Topic())
	topic.Partitions = append(topic.Partitions, part)
	switch {
	case fp.code != wire.CodeNone || fp.more != nil:
		e.Fail()
	default:
		e.Tell(fp.highWatermark, fp.logStart, records)
		// What came while jobs were read for this answer is not in it: then the
		// next fetch is to look again.
		if !records && fp.put == 0 && e.Watched() && !b.f.read {
			b.f.session.Settle(e)
		}
	}
}

func (b *answerBuilder) count(bytes int64) {
	if b.f.peer == wire.NoPeer {
		b.t.Stats.BytesOut += bytes
	} else {
		b.t.Stats.ReplicatedBytesOut += bytes
	}
}

// topic returns the answer's part for a topic.
func (b *answerBuilder) topic(of *session.Topic) *wire.FetchTopic {
	if i, ok := b.places[of]; ok {
		return &b.topics[i]
	}
	if b.places == nil {
		b.places = make(map[*session.Topic]int, 1)
	}
	b.places[of] = len(b.topics)
	b.topics = append(b.topics, wire.FetchTopic{Topic: of.Name, TopicID: of.ID})
	return &b.topics[len(b.topics)-1]
}
