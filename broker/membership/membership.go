// Package membership is a broker's side of belonging to the cluster: it
// registers with the active controller, tells it that it lives, and knows how
// long it may believe that nobody has taken its place.
//
// The last is the lease. A broker's heartbeat that the controller answered shows
// that the controller had not fenced it when the heartbeat was sent, so a lease
// is counted from then. The controller fences nobody before the lease of its
// last answer has run out, by a clock that may be slower or faster than the
// broker's by MaxDrift. The answer says how far the metadata log was committed;
// the lease is worth something only to a broker whose image has come that far:
// otherwise it may not know yet that it was replaced by an earlier decision.
//
// A node that is the whole quorum needs no lease: nothing is decided without it.
//
// Sources: KIP-631 (registration, heartbeats), KIP-841 (fencing); Gray and
// Cheriton, Leases (1989).
package membership

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage/assert"
)

// Listener names of a registration.
const (
	ClientListener = "PLAINTEXT"
	PeerListener   = "PEER"
)

// Config of a Member.
type Config struct {
	Node        metadata.NodeID
	ClusterID   string
	Incarnation metadata.IncarnationID // drawn anew by each process
	Directory   [16]byte               // drawn once for each data directory
	Host, Rack  string
	Port        int32
	PeerHost    string
	PeerPort    int32
	// HeartbeatEvery is how often the controller is told that this broker
	// lives. Kafka: broker.heartbeat.interval.ms, which is 2 s there.
	HeartbeatEvery time.Duration
	// Lease is how long an answered heartbeat keeps the controller from giving
	// this broker's place to another, by the controller's clock.
	Lease time.Duration
	// MaxDrift is by how many percent two clocks may differ in speed.
	MaxDrift int
	// ShutdownTimeout is how long a controlled shutdown waits for the controller.
	ShutdownTimeout time.Duration
}

// DefaultConfig has heartbeats twenty times as often as Kafka, so that a broker
// whose process has died can be replaced within a second.
func DefaultConfig() Config {
	return Config{HeartbeatEvery: 100 * time.Millisecond, Lease: 500 * time.Millisecond, MaxDrift: 10, ShutdownTimeout: 5 * time.Second}
}

// Why the node must stop.
var (
	// ErrReplaced says another process registered under this node's id.
	ErrReplaced = fmt.Errorf("another process has registered under this node's id")
	// ErrOtherCluster says the controllers belong to another cluster.
	ErrOtherCluster = fmt.Errorf("the controllers belong to another cluster")
)

// Out is what a call decided. The caller acts on it and resets it.
type Out struct {
	Calls []Call
	// Lease is set when the lease changed.
	Lease *clock.Instant
	// Joined says the image has this process's registration now.
	Joined bool
	// Released says a controlled shutdown may go on.
	Released bool
	Lines    []Line
	Err      error // the node must stop
}

// Call is a request to the active controller.
type Call struct {
	To  metadata.NodeID
	Seq uint64 // comes back with the answer
	Req kmsg.Request
}

// Line is one line for the operator.
type Line struct {
	Level slog.Level
	Text  string
	Attrs []slog.Attr
}

// maxOpen is how many heartbeats may be without an answer at once.
const maxOpen = 16

// open is a heartbeat without an answer yet.
type open struct {
	seq    uint64
	sentAt clock.Instant
	told   int // how many losses the controller had been told of with it
}

// grant is a lease that becomes valid once the image has come to index.
type grant struct {
	index metadata.Offset
	until clock.Instant
}

// Member is one broker's membership.
type Member struct {
	cfg        Config
	lone       bool
	damaged    []byte // logs, as they are told to the controller
	controller metadata.NodeID
	epoch      metadata.BrokerEpoch // or -1
	previous   metadata.BrokerEpoch // of the process before this one, or -1 if that did not end as it should
	clean      bool
	joined     bool
	fenced     bool
	leaving    bool
	leaveBy    clock.Instant
	told       string // the last complaint, so that it is written once

	applied   metadata.Offset
	looked    bool // for this node in the image at applied, with what is known of its disk
	seq       uint64
	register  uint64 // the registration without an answer, or 0
	beats     []open
	losses    []wire.DamagedLog // since the registration, that the controller may not know
	known     int               // how many it knows, and are not in losses any more
	grants    []grant
	lease     clock.Instant
	nextAt    clock.Instant
	released  bool
	recovered bool
	lapse     lapse
}

// New returns a member that waits for Recovered.
func New(cfg Config) *Member {
	return &Member{cfg: cfg, controller: metadata.NoNode, epoch: -1, previous: -1, nextAt: clock.Never, leaveBy: clock.Never, lapse: lapse{lookAt: clock.Never}}
}

// Recovered says what was found on disk; only then does the broker register.
// Clean is whether the process before this one ended as it should: if not, what
// the operating system had not written yet is lost, and the controller is told.
func (m *Member) Recovered(directory [16]byte, damaged []wire.DamagedLog, clean bool, now clock.Instant, out *Out) {
	m.cfg.Directory, m.clean = directory, clean
	m.recovered, m.looked = true, false
	m.damaged = wire.EncodeDamaged(damaged)
	m.Wake(now, out)
}

// Damaged says that logs were found damaged since. The controller is told until it
// answers.
func (m *Member) Damaged(logs []wire.DamagedLog, now clock.Instant, out *Out) {
	m.losses = append(m.losses, logs...)
	m.nextAt = min(m.nextAt, now)
	m.Wake(now, out)
}

// Epoch is the broker epoch of this process, or -1.
func (m *Member) Epoch() metadata.BrokerEpoch { return m.epoch }

// Joined reports whether the image has this process's registration.
func (m *Member) Joined() bool { return m.joined }

// Fenced reports whether the image has this broker as fenced.
func (m *Member) Fenced() bool { return m.fenced }

// Lease is until when nobody has taken this broker's place.
func (m *Member) Lease() clock.Instant { return m.lease }

// NextWake is when Wake wants to be called.
func (m *Member) NextWake() clock.Instant { return min(m.nextAt, m.leaveBy, m.lapse.lookAt) }

// Leader says who the active controller is.
func (m *Member) Leader(node metadata.NodeID, now clock.Instant, out *Out) {
	if node == m.controller {
		return
	}
	m.controller = node
	m.register, m.beats = 0, nil // the answers of the one before are worth nothing
	m.nextAt = now
	m.Wake(now, out)
}

// Lone says whether this node is the whole quorum.
func (m *Member) Lone(lone bool, now clock.Instant, out *Out) {
	if lone == m.lone {
		return
	}
	m.lone = lone
	if lone {
		m.setLease(clock.Never, out)
	} else {
		m.setLease(now.Add(m.term()), out)
	}
	m.watch(now, out)
}

// Image says how far the image has come.
func (m *Member) Image(image metadata.Image, applied metadata.Offset, now clock.Instant, out *Out) {
	if applied != m.applied || !m.looked {
		m.applied, m.looked = applied, true
		m.look(image, now, out)
		m.redeem(out)
	}
	m.Wake(now, out)
}

// look finds this node in the image.
func (m *Member) look(image metadata.Image, now clock.Instant, out *Out) {
	b, ok := image.Broker(m.cfg.Node)
	switch {
	case ok && b.Incarnation == m.cfg.Incarnation:
		m.epoch, m.fenced = b.Epoch, b.Fenced
		if !m.joined {
			m.joined, out.Joined = true, true
			m.nextAt = now
		}
	case ok && m.joined:
		out.Err = fmt.Errorf("%w: node %d, at %s:%d", ErrReplaced, m.cfg.Node, b.Host, b.Port)
	case m.joined: // somebody unregistered it, and it lives
		m.joined, m.epoch, m.register = false, -1, 0
		m.nextAt = now
	case ok && m.clean:
		m.previous = b.Epoch
	}
}

// redeem makes those leases valid whose index the image has reached.
func (m *Member) redeem(out *Out) {
	lease := m.lease
	keep := m.grants[:0]
	for _, g := range m.grants {
		if g.index <= m.applied {
			lease = max(lease, g.until)
		} else {
			keep = append(keep, g)
		}
	}
	m.grants = keep
	m.setLease(lease, out)
}

func (m *Member) setLease(until clock.Instant, out *Out) {
	if m.lone {
		until = clock.Never
	}
	if until != m.lease {
		m.lease = until
		lease := until // or until itself would be moved to the heap at every call
		out.Lease = &lease
	}
}

// term is how long a lease lasts by this broker's clock, which may run slower
// than the controller's.
func (m *Member) term() time.Duration {
	return m.cfg.Lease * time.Duration(100-m.cfg.MaxDrift) / 100
}

// Wake says what time it is.
func (m *Member) Wake(now clock.Instant, out *Out) {
	if now >= m.leaveBy {
		m.release(out)
	}
	m.watch(now, out)
	if now < m.nextAt || !m.recovered {
		return
	}
	m.nextAt = clock.Never
	switch {
	case m.controller == metadata.NoNode:
	case m.epoch < 0:
		if m.register == 0 {
			m.sendRegistration(out)
		}
	case m.joined:
		m.nextAt = now.Add(m.cfg.HeartbeatEvery)
		if !m.lone || m.leaving || len(m.losses) > 0 {
			m.sendHeartbeat(now, out)
		}
	}
}

func (m *Member) sendRegistration(out *Out) {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version = 4
	req.BrokerID, req.ClusterID, req.IncarnationID = int32(m.cfg.Node), m.cfg.ClusterID, m.cfg.Incarnation
	req.PreviousBrokerEpoch = int64(m.previous)
	req.LogDirs = [][16]byte{m.cfg.Directory}
	if m.cfg.Rack != "" {
		req.Rack = &m.cfg.Rack
	}
	for _, l := range []struct {
		name, host string
		port       int32
	}{{ClientListener, m.cfg.Host, m.cfg.Port}, {PeerListener, m.cfg.PeerHost, m.cfg.PeerPort}} {
		listener := kmsg.NewBrokerRegistrationRequestListener()
		listener.Name, listener.Host, listener.Port = l.name, l.host, uint16(l.port)
		req.Listeners = append(req.Listeners, listener)
	}
	if len(m.damaged) > 0 {
		wire.SetTagBytes(&req.UnknownTags, wire.TagDamaged, m.damaged)
	}
	m.register = m.call(req, out)
}

func (m *Member) sendHeartbeat(now clock.Instant, out *Out) {
	if len(m.beats) == maxOpen {
		m.beats = m.beats[1:]
	}
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version = 1
	req.BrokerID, req.BrokerEpoch = int32(m.cfg.Node), int64(m.epoch)
	req.CurrentMetadataOffset, req.WantShutdown = int64(m.applied), m.leaving
	if len(m.losses) > 0 {
		wire.SetTagBytes(&req.UnknownTags, wire.TagDamaged, wire.EncodeDamaged(m.losses))
	}
	m.beats = append(m.beats, open{m.call(req, out), now, m.known + len(m.losses)})
}

func (m *Member) call(req kmsg.Request, out *Out) uint64 {
	m.seq++
	out.Calls = append(out.Calls, Call{m.controller, m.seq, req})
	return m.seq
}

// Answer takes the answer to a call, or why there is none.
func (m *Member) Answer(seq uint64, resp any, err error, now clock.Instant, out *Out) {
	switch resp := resp.(type) {
	case *kmsg.BrokerRegistrationResponse:
		if seq == m.register {
			m.registered(resp, now, out)
		}
		return
	case *kmsg.BrokerHeartbeatResponse:
		m.answered(seq, resp, now, out)
		m.watch(now, out)
		return
	}
	assert.That(err != nil, "membership: an answer to something else")
	if seq == m.register {
		m.retry(now)
	}
}

// retry registers again, a heartbeat from now.
func (m *Member) retry(now clock.Instant) {
	m.register = 0
	m.nextAt = min(m.nextAt, now.Add(m.cfg.HeartbeatEvery))
}

func (m *Member) registered(resp *kmsg.BrokerRegistrationResponse, now clock.Instant, out *Out) {
	switch resp.ErrorCode {
	case 0:
		return // the image says so, sooner or later
	case wire.Code(metadata.ErrNotController):
	case wire.Code(metadata.ErrInconsistentClusterID):
		out.Err = fmt.Errorf("%w: this node's is %s", ErrOtherCluster, m.cfg.ClusterID)
	case wire.Code(metadata.ErrDuplicateBroker):
		m.complain("another process is registered under this node's id; waiting for it to be gone", out)
	default:
		m.complain("registration refused", out, slog.Int("error_code", int(resp.ErrorCode)))
	}
	m.retry(now)
}

func (m *Member) answered(seq uint64, resp *kmsg.BrokerHeartbeatResponse, now clock.Instant, out *Out) {
	at := -1
	for i, b := range m.beats {
		if b.seq == seq {
			at = i
		}
	}
	if at < 0 {
		return
	}
	sentAt, told := m.beats[at].sentAt, m.beats[at].told
	m.beats = m.beats[at+1:] // those before it are no use any more
	if resp.ErrorCode != 0 {
		if resp.ErrorCode != wire.Code(metadata.ErrNotController) {
			m.complain("heartbeat refused", out, slog.Int("error_code", int(resp.ErrorCode)))
		}
		return
	}
	m.told = ""
	if told > m.known {
		m.losses, m.known = m.losses[told-m.known:], told
	}
	if index, ok := wire.GetTag(&resp.UnknownTags, wire.TagReadIndex); ok && !resp.IsFenced {
		m.grants = append(m.grants, grant{metadata.Offset(index), sentAt.Add(m.term())})
		m.redeem(out)
	}
	if resp.ShouldShutdown && m.leaving {
		m.release(out)
	}
}

// Shutdown begins a controlled shutdown: the controller is asked to have others
// lead. Released says when it is done.
func (m *Member) Shutdown(now clock.Instant, out *Out) {
	m.leaving = true
	if !m.joined || m.controller == metadata.NoNode {
		m.release(out)
		return
	}
	m.leaveBy, m.nextAt = now.Add(m.cfg.ShutdownTimeout), now
	m.Wake(now, out)
}

func (m *Member) release(out *Out) {
	m.leaveBy = clock.Never
	if !m.released {
		m.released, out.Released = true, true
	}
}

// complain writes a line unless it was the last that was written.
func (m *Member) complain(text string, out *Out, attrs ...slog.Attr) {
	if m.told != text {
		m.told = text
		out.Lines = append(out.Lines, Line{slog.LevelWarn, text, attrs})
	}
}
