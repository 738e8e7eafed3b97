package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// SessionsConfig says how long the active controller waits.
type SessionsConfig struct {
	// Node is the controller's own, whose broker lives because this runs.
	Node metadata.NodeID
	// Timeout is after how much silence a broker is fenced. Kafka:
	// broker.session.timeout.ms.
	Timeout time.Duration
	// Grace is how long after an answer to a broker's heartbeat no lease can be
	// valid that it gave, by the controller's clock: the lease and the drift of
	// two clocks.
	Grace time.Duration
	// RebalanceEvery is how often partitions are given back to their preferred
	// leaders; zero for never. Kafka: leader.imbalance.check.interval.seconds.
	RebalanceEvery time.Duration
}

// LongestLease is the lease that the grace of every controller is for, with clocks
// that drift by a tenth.
const LongestLease = 500 * time.Millisecond

// NewSessionsConfig is how long a controller with that configuration waits.
func NewSessionsConfig(node metadata.NodeID, b metadata.BrokerConfig) SessionsConfig {
	c := SessionsConfig{Node: node, Grace: LongestLease * 11 / 10,
		Timeout: time.Duration(b.Int("broker.session.timeout.ms")) * time.Millisecond}
	if b.Bool("auto.leader.rebalance.enable") {
		c.RebalanceEvery = time.Duration(b.Int("leader.imbalance.check.interval.seconds")) * time.Second
	}
	return c
}

// rebalanceAgain is when to go on if not all leaders changed at once.
const rebalanceAgain = time.Second

// Sessions is what the active controller knows about brokers and writes down
// nowhere: who was heard and answered when. A controller that has just become
// active counts everybody as heard and as answered at that moment.
//
// A broker is to be fenced when it was silent for the timeout. It is to be
// fenced sooner if its process has probably ended (Suspect): once no lease of
// its can be valid any more, unless it is heard from again.
//
// It also says when it is time for what the controller does by itself.
type Sessions struct {
	cfg    SessionsConfig
	active bool
	since  clock.Instant // it became active
	of     map[metadata.NodeID]*session

	adoptAt     clock.Instant // what has to be done once
	rebalanceAt clock.Instant
	handoverAt  clock.Instant
	handovers   map[partitionID]handedOver
}

// session is one broker's.
type session struct {
	epoch    metadata.BrokerEpoch
	heard    clock.Instant
	answered clock.Instant
	suspect  bool
	// open are the heartbeats that were heard and may be answered with a lease,
	// oldest first. Those that were heard before the broker was to be fenced may
	// not.
	open []*kmsg.BrokerHeartbeatRequest
}

// maxOpen is how many heartbeats of a broker may wait for their answers.
const maxOpen = 32

type partitionID struct {
	topic metadata.TopicID
	index int32
}

// handedOver is a partition that waits for the end of its reassignment.
type handedOver struct {
	epoch int32 // leader epoch
	since clock.Instant
}

// NewSessions returns sessions of a controller that is not active.
func NewSessions(cfg SessionsConfig) *Sessions { return &Sessions{cfg: cfg} }

// Activate forgets everything: the node has just become the active controller,
// with that image.
func (s *Sessions) Activate(m metadata.Image, now clock.Instant) {
	*s = Sessions{cfg: s.cfg, active: true, since: now, of: make(map[metadata.NodeID]*session),
		adoptAt: now, rebalanceAt: clock.Never, handoverAt: now.Add(s.cfg.Grace), handovers: make(map[partitionID]handedOver)}
	if s.cfg.RebalanceEvery > 0 {
		s.rebalanceAt = now.Add(s.cfg.RebalanceEvery)
	}
	s.track(m, now)
}

// Deactivate says the node is not the active controller any more.
func (s *Sessions) Deactivate() { *s = Sessions{cfg: s.cfg} }

// track sees to it that all brokers that are not fenced have a session, and no
// others.
func (s *Sessions) track(m metadata.Image, now clock.Instant) {
	for b := range m.Brokers() {
		if !b.Fenced && b.Node != s.cfg.Node {
			s.session(b.Node, b.Epoch, now)
		}
	}
	maps.DeleteFunc(s.of, func(n metadata.NodeID, _ *session) bool {
		b, ok := m.Broker(n)
		return !ok || b.Fenced
	})
}

// session returns a broker's session, which is new if there is none of that
// epoch.
func (s *Sessions) session(n metadata.NodeID, epoch metadata.BrokerEpoch, now clock.Instant) *session {
	o := s.of[n]
	switch {
	case o == nil:
		o = &session{epoch: epoch, heard: now, answered: s.since}
		s.of[n] = o
	case o.epoch < epoch:
		*o = session{epoch: epoch, heard: now, answered: o.answered}
	}
	return o
}

// Heard takes note of a request of a broker, before it is decided about. A
// heartbeat shows that the broker lives. A registration is by a process that has
// no epoch yet, so that a process that has one has probably ended.
func (s *Sessions) Heard(req kmsg.Request, now clock.Instant) {
	switch req := req.(type) {
	case *kmsg.BrokerRegistrationRequest:
		s.Suspect(metadata.NodeID(req.BrokerID), now)
	case *kmsg.BrokerHeartbeatRequest:
		n, epoch := metadata.NodeID(req.BrokerID), metadata.BrokerEpoch(req.BrokerEpoch)
		if !s.active || n == s.cfg.Node {
			return
		}
		o := s.session(n, epoch, now)
		if o.epoch != epoch {
			return // of a process before
		}
		o.heard, o.suspect = now, false
		if len(o.open) == maxOpen {
			o.open = slices.Delete(o.open, 0, 1)
		}
		o.open = append(o.open, req)
	}
}

// Answered is called when a heartbeat's answer goes out, which gives a lease. It
// makes the answer say that the broker is fenced, so that it gives none, if it
// was decided in the meantime that the broker is to be.
func (s *Sessions) Answered(req *kmsg.BrokerHeartbeatRequest, resp *kmsg.BrokerHeartbeatResponse, now clock.Instant) {
	n := metadata.NodeID(req.BrokerID)
	if n == s.cfg.Node || resp.ErrorCode != 0 || resp.IsFenced {
		return
	}
	o := s.of[n]
	if o == nil {
		resp.IsFenced = true
		return
	}
	i := slices.Index(o.open, req)
	if i < 0 {
		assert.Reached("controller: heartbeat answered after its broker was fenced")
		resp.IsFenced = true
		return
	}
	o.open = slices.Delete(o.open, i, i+1)
	o.answered = now
}

// Suspect says that a broker's process has probably ended.
func (s *Sessions) Suspect(n metadata.NodeID, _ clock.Instant) {
	if o := s.of[n]; o != nil {
		o.suspect = true
	}
}

// Expired returns the brokers that are to be fenced, by id. m is what the
// controller decides on.
func (s *Sessions) Expired(m metadata.Image, now clock.Instant) []metadata.NodeID {
	if !s.active {
		return nil
	}
	s.track(m, now)
	var expired []metadata.NodeID
	for _, n := range slices.Sorted(maps.Keys(s.of)) {
		if s.due(s.of[n]) <= now {
			if s.of[n].suspect {
				assert.Reached("controller: suspected broker fenced")
			}
			expired = append(expired, n)
			delete(s.of, n)
		}
	}
	return expired
}

// due is when a broker is to be fenced, if nothing happens.
func (s *Sessions) due(o *session) clock.Instant {
	at := o.heard.Add(s.cfg.Timeout)
	if o.suspect {
		at = min(at, o.answered.Add(s.cfg.Grace))
	}
	// Whatever the timeout: not before the last lease has run out.
	return max(at, o.answered.Add(s.cfg.Grace))
}

// HandedOver returns the partitions whose reassignment can end, or that can do
// without what was given up: another replica than those that go has led for so
// long that no lease of theirs is valid, or another has to be elected.
func (s *Sessions) HandedOver(m metadata.Image, now clock.Instant) []*metadata.Partition {
	var ready []*metadata.Partition
	waiting := make(map[partitionID]handedOver)
	for p := range m.Reassigning() {
		if _, ok := ended(m, p); !ok {
			continue
		}
		id := partitionID{p.Topic, p.Index}
		h, seen := s.handovers[id]
		if !seen || h.epoch != int32(p.LeaderEpoch) {
			h = handedOver{int32(p.LeaderEpoch), now}
		}
		waiting[id] = h
		if !slices.Contains(goal(p), p.Leader) || h.since.Add(s.cfg.Grace) <= now {
			ready = append(ready, p)
		}
	}
	s.handovers = waiting
	return ready
}

// NextWake is when Due wants to be called, or clock.Never.
func (s *Sessions) NextWake() clock.Instant {
	if !s.active {
		return clock.Never
	}
	at := min(s.adoptAt, s.rebalanceAt)
	for _, o := range s.of { //pawl:unordered the least of them
		at = min(at, s.due(o))
	}
	if len(s.of) > 0 {
		at = min(at, s.handoverAt)
	}
	return at
}
