// Package office is a node's seat in the cluster's government: its copy of the
// metadata log and, while it is the active controller, the controller's
// decisions and who waits for them.
//
// What is decided is proposed to the log, and answered once it is committed. A
// heartbeat waits longer: until a majority of the quorum has confirmed that this
// node still leads, since its answer is a lease (see package membership).
package office

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/metalog"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/record"
)

// Config of an Office.
type Config struct {
	Node       metadata.NodeID
	Quorum     quorum.Config
	Controller controller.Config
	// Controllers says where the configured voters are, before they register.
	Controllers []wire.Peer
	// SnapshotEntries is how long the metadata log grows before it is replaced
	// by a snapshot.
	SnapshotEntries uint64
	// VoterTimeout is how long the answer to a change of voters waits at most,
	// whatever the request says. It is less than a call between nodes may take.
	// Kafka: controller.quorum.request.timeout.ms.
	VoterTimeout time.Duration
}

// Out is what a call decided. The caller acts on it and resets it.
type Out struct {
	// Save must be made durable; then Saved is called, or SaveFailed.
	Save *quorum.Save
	// Messages go to other nodes. They may be lost.
	Messages []quorum.Message
	// Deltas are how the image moved, oldest first. They come before Replies.
	Deltas  []metadata.Delta
	Replies []wire.Reply
	// Leader is set when another node, or none, became the active controller.
	Leader *metadata.NodeID
	Lines  []Line
	// Joining are nodes that ask to join the quorum, and where they listen.
	Joining []quorum.Joining
	// Err says the log holds what cannot be read: the node must stop.
	Err error
}

// Line is one line for the operator.
type Line struct {
	Level slog.Level
	Text  string
	Attrs []slog.Attr
}

// promise is a request whose answer waits.
type promise struct {
	caller    wire.Caller
	request   *wire.Request // nil if nobody asked
	response  kmsg.Response
	confirmed bool // a heartbeat's: a majority is asked
	change    *voterChange
}

// Office is one node's.
type Office struct {
	cfg        Config
	rand       *rand.Rand
	log        *metalog.Log
	out        metalog.Out
	controller *controller.Controller
	sessions   *controller.Sessions

	down map[metadata.NodeID]bool // while another node was the active controller
	gone []metadata.NodeID        // unregistered, and perhaps still members of the quorum

	promises map[metalog.Promise]promise
	last     metalog.Promise

	leaderless leaderless
	change     *voterChange // that is waited for, or nil
}

// New goes on with the metadata log that was saved.
func New(cfg Config, rng *rand.Rand, saved [][]byte, out *Out) (*Office, error) {
	o := &Office{
		cfg: cfg, rand: rng,
		controller: controller.New(cfg.Controller), sessions: controller.NewSessions(controller.NewSessionsConfig(cfg.Node, cfg.Controller.Broker)),
		down: make(map[metadata.NodeID]bool), promises: make(map[metalog.Promise]promise),
	}
	log, err := metalog.New(cfg.Quorum, rng, saved, cfg.SnapshotEntries, &o.out)
	if err != nil {
		return nil, err
	}
	o.log = log
	o.settle(0, out)
	return o, nil
}

// Log is the node's copy of the metadata log, for questions.
func (o *Office) Log() *metalog.Log { return o.log }

// NextWake is when Wake wants to be called.
func (o *Office) NextWake() clock.Instant {
	at := o.log.NextWake()
	if o.change != nil {
		at = min(at, o.change.until)
	}
	if o.log.Leading() {
		at = min(at, o.sessions.NextWake())
	}
	return at
}

// Wake says what time it is. The active controller does what nobody asked it
// for: it fences brokers that are silent, and gives partitions back to their
// preferred leaders.
func (o *Office) Wake(now clock.Instant, out *Out) {
	o.log.Wake(now, &o.out)
	o.settle(now, out)
	o.watch(now, out)
	if o.log.Leading() && now >= o.sessions.NextWake() {
		for _, records := range o.controller.Due(o.log.Scratch(), o.sessions, now) {
			o.propose([][]metadata.Record{records}, promise{}, now, out)
		}
	}
	o.forget()
	o.settle(now, out)
	o.expireChange(now, out)
}

// forget has the nodes leave the quorum that have left the cluster.
func (o *Office) forget() {
	if len(o.gone) > 0 && o.log.Leading() && o.log.Forget(o.gone[0], &o.out) {
		o.gone = o.gone[1:]
	}
}

// Resign has another node lead, as before a stop that was asked for.
func (o *Office) Resign(now clock.Instant, out *Out) {
	o.log.Resign(now, &o.out)
	o.settle(now, out)
}

// Received takes what another node's quorum says.
func (o *Office) Received(body *wire.QuorumMessages, now clock.Instant, out *Out) {
	for _, b := range body.Messages {
		m, err := quorum.UnmarshalMessage(b)
		if err != nil {
			out.Lines = append(out.Lines, Line{slog.LevelWarn, "quorum message refused",
				[]slog.Attr{slog.Int("from", int(body.From)), slog.String("error", err.Error())}})
			break
		}
		o.log.Received(m, now, &o.out)
	}
	o.settle(now, out)
}

// Down takes the hint that a node's process has ended.
func (o *Office) Down(node metadata.NodeID, now clock.Instant, out *Out) {
	o.down[node] = true
	o.sessions.Suspect(node, now)
	if o.log.Leader() == node {
		o.log.Suspect(node, now, &o.out)
	}
	o.settle(now, out)
}

// Saved says that the outstanding save is durable.
func (o *Office) Saved(now clock.Instant, out *Out) {
	o.log.Saved(&o.out)
	o.settle(now, out)
}

// SaveFailed says that there was no space for the outstanding save.
func (o *Office) SaveFailed(now clock.Instant) { o.log.SaveFailed(now) }

// Request decides about a request that only the active controller may decide
// about (see controller.ForController), if this node is that; else it refuses
// it, with NOT_CONTROLLER. view is what the node knows.
func (o *Office) Request(caller wire.Caller, r *wire.Request, view controller.View, now clock.Instant, wall record.Timestamp, out *Out) {
	if !o.log.Leading() {
		out.Replies = append(out.Replies, wire.Reply{Caller: caller, Response: notController(r)})
		return
	}
	o.sessions.Heard(r.Body, now)
	res, ok := o.controller.Decide(o.log.Scratch(), r.Body, o.rand)
	p := promise{caller: caller, request: r, response: res.Response}
	if !ok {
		view.Quorum = o.quorum(now, wall)
		if p, ok = o.voters(p, view, now); !ok {
			out.Replies = append(out.Replies, wire.Reply{Caller: caller, Response: wire.Response{Body: p.response}})
			o.settle(now, out)
			return
		}
	}
	o.propose(res.Batches(), p, now, out)
}

// quorum is what is known of those that keep the log.
func (o *Office) quorum(now clock.Instant, wall record.Timestamp) controller.Quorum {
	when := func(at clock.Instant) record.Timestamp {
		if at < 0 {
			return -1
		}
		return wall - record.Timestamp(now.Sub(at).Milliseconds())
	}
	st := o.log.Quorum().Status(now)
	q := controller.Quorum{Leading: o.log.Leading(), Term: int32(st.Term), Committed: metadata.Offset(st.Commit)}
	for _, m := range st.Members {
		q.Members = append(q.Members, controller.QuorumMember{
			Node: metadata.NodeID(m.Node), Incarnation: m.Incarnation, Voter: m.Voter,
			Match: metadata.Offset(m.Match), Heard: when(m.Heard), CaughtUp: when(m.CaughtUp),
		})
	}
	return q
}

// Directory is the id of this node's data directory.
func (o *Office) Directory() [16]byte {
	m := controller.QuorumMember{Incarnation: o.log.Quorum().Incarnation()}
	return m.Directory()
}

// Lone reports whether nothing is decided without this node, and everything with
// it alone.
func (o *Office) Lone() bool { return o.log.Quorum().Lone() }

// propose asks for what was decided to become true.
func (o *Office) propose(batches [][]metadata.Record, p promise, now clock.Instant, out *Out) {
	o.last++
	o.promises[o.last] = p
	o.log.Propose(batches, o.last, &o.out)
	o.settle(now, out)
}

// settle takes what the log decided, until nothing is left.
func (o *Office) settle(now clock.Instant, out *Out) {
	for {
		got := o.out
		o.out = metalog.Out{}
		if got.Save != nil {
			out.Save = got.Save
		}
		out.Messages = append(out.Messages, got.Messages...)
		out.Deltas = append(out.Deltas, got.Deltas...)
		o.left(got.Deltas)
		out.Joining = append(out.Joining, got.Joining...)
		for _, w := range got.Warnings {
			out.Lines = append(out.Lines, Line{slog.LevelWarn, w.Text, []slog.Attr{slog.Int("node", int(w.Node))}})
		}
		if got.Err != nil {
			out.Err = got.Err
		}
		if got.Leader != nil {
			o.led(metadata.NodeID(got.Leader.Node), now, out)
		}
		for _, k := range got.Kept {
			o.kept(k, now, out)
		}
		for _, p := range got.Broken {
			o.broken(p, out)
		}
		if len(got.Kept) == 0 { // nothing else asks for more
			o.madeChange(out)
			return
		}
	}
}

// left takes note of nodes that were unregistered while this one leads. They are
// forgotten at the next Wake.
func (o *Office) left(deltas []metadata.Delta) {
	if !o.log.Leading() {
		o.gone = nil
		return
	}
	for _, d := range deltas {
		for _, n := range d.Brokers {
			if _, ok := o.log.Image().Broker(n); !ok {
				o.gone = append(o.gone, n)
			}
		}
	}
}

// led says who leads the quorum now.
func (o *Office) led(node metadata.NodeID, now clock.Instant, out *Out) {
	out.Leader = &node
	if node != metadata.NoNode {
		o.found(node, now, out)
	}
	o.lostChange(node, out)
	if node != o.cfg.Node {
		o.sessions.Deactivate()
	} else {
		o.sessions.Activate(o.log.Image(), now)
		for n := range o.down { //pawl:unordered each is noted by itself
			o.sessions.Suspect(n, now)
		}
		clear(o.down)
		out.Lines = append(out.Lines, Line{slog.LevelInfo, "active controller", []slog.Attr{slog.Int("node", int(node))}})
	}
}

// kept answers who waited for what is true now.
func (o *Office) kept(k metalog.Kept, now clock.Instant, out *Out) {
	p := o.promises[k.Promise]
	delete(o.promises, k.Promise)
	if p.change != nil {
		o.agreed(p.change, out)
		return
	}
	if p.request == nil {
		return
	}
	if req, ok := p.request.Body.(*kmsg.BrokerHeartbeatRequest); ok {
		if !p.confirmed {
			p.confirmed = true
			o.last++
			o.promises[o.last] = p
			o.log.Read(o.last, &o.out)
			return
		}
		resp := p.response.(*kmsg.BrokerHeartbeatResponse)
		wire.SetTag(&resp.UnknownTags, wire.TagReadIndex, int64(k.Offset))
		o.sessions.Answered(req, resp, now)
	}
	out.Replies = append(out.Replies, wire.Reply{Caller: p.caller, Response: wire.Response{Body: p.response, Offset: k.Offset}})
}

// broken tells who waited that this node is not the controller any more. What a
// client wanted may have been done all the same, so nobody may ask for it again
// in its name.
func (o *Office) broken(id metalog.Promise, out *Out) {
	p := o.promises[id]
	delete(o.promises, id)
	if p.change != nil {
		o.unknownChange(p.change, out)
		return
	}
	if p.request == nil {
		return
	}
	resp := notController(p.request)
	switch {
	case p.request.Forwarded:
		resp = wire.Response{Err: wire.ErrPeerGone}
	case p.request.Peer == wire.NoPeer:
		resp = wire.Response{Close: true}
	}
	out.Replies = append(out.Replies, wire.Reply{Caller: p.caller, Response: resp})
}

// notController is the answer to a node that asks the wrong one.
func notController(r *wire.Request) wire.Response {
	if r.Forwarded {
		return wire.Response{Err: metadata.ErrNotController}
	}
	return wire.Response{Body: controller.Refuse(r.Body, metadata.ErrNotController)}
}
