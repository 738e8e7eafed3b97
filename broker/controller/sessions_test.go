package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
)

func ms(n int) clock.Instant { return clock.Instant(time.Duration(n) * time.Millisecond) }

// someBrokers is an image with brokers 0 to n-1, which are not fenced.
func someBrokers(t *testing.T, n int) metadata.Image {
	t.Helper()
	var records []metadata.Record
	for i := range n {
		records = append(records, &metadata.RegisterBroker{Node: metadata.NodeID(i), Epoch: metadata.BrokerEpoch(i)})
	}
	m, _, err := metadata.Apply(metadata.Image{}, 1, records)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func beat(n, epoch int) *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.BrokerID, req.BrokerEpoch = int32(n), int64(epoch)
	return req
}

// lease reports whether the answer to a heartbeat gives a lease.
func lease(s *Sessions, req *kmsg.BrokerHeartbeatRequest, now clock.Instant) bool {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	resp.IsFenced = false
	s.Answered(req, resp, now)
	return !resp.IsFenced
}

func wantExpired(t *testing.T, s *Sessions, m metadata.Image, now clock.Instant, want ...metadata.NodeID) {
	t.Helper()
	if got := s.Expired(m, now); !slices.Equal(got, want) {
		t.Fatalf("at %v: fenced are %v, want %v", time.Duration(now), got, want)
	}
}

func newSessions() *Sessions { return NewSessions(NewSessionsConfig(0, metadata.BrokerConfig{})) }

func TestSilentBrokersAreFencedAfterTheSessionTimeout(t *testing.T) {
	s, m := newSessions(), someBrokers(t, 3)
	s.Activate(m, ms(1000))
	s.Heard(beat(1, 1), ms(5000))
	wantExpired(t, s, m, ms(9999))
	if at := s.NextWake(); at > ms(10_000) {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	wantExpired(t, s, m, ms(10_000), 2) // never broker 0, whose process this is
	wantExpired(t, s, m, ms(13_999))
	s.Heard(beat(1, 0), ms(13_999)) // of the process before: says nothing
	wantExpired(t, s, m, ms(14_000), 1)
}

func TestSuspectsAreFencedWhenNoLeaseIsValid(t *testing.T) {
	s, m := newSessions(), someBrokers(t, 3)
	s.Activate(m, ms(1000))
	// A new controller does not know what the one before has answered.
	s.Suspect(1, ms(1010))
	wantExpired(t, s, m, ms(1549))
	wantExpired(t, s, m, ms(1550), 1)

	req := beat(2, 2)
	s.Heard(req, ms(2000))
	if !lease(s, req, ms(2100)) {
		t.Fatal("no lease")
	}
	s.Suspect(2, ms(2200))
	if at := s.NextWake(); at > ms(2650) {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
	wantExpired(t, s, m, ms(2649))
	wantExpired(t, s, m, ms(2650), 2)
}

// L09 and the like: a connection that breaks is a hint, and not a proof.
func TestSuspectsThatAreHeardAgainStay(t *testing.T) {
	s, m := newSessions(), someBrokers(t, 2)
	s.Activate(m, ms(0))
	s.Suspect(1, ms(100))
	s.Heard(beat(1, 1), ms(101))
	wantExpired(t, s, m, ms(9100))
	wantExpired(t, s, m, ms(9101), 1)
}

// A process that registers has none before it that lives; if that is wrong its
// heartbeats go on.
func TestARegistrationMakesTheProcessBeforeASuspect(t *testing.T) {
	s, m := newSessions(), someBrokers(t, 2)
	s.Activate(m, ms(0))
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID = 1
	s.Heard(req, ms(1000))
	wantExpired(t, s, m, ms(1000), 1)
}

func TestALateAnswerGivesNoLeaseToABrokerThatIsFencedMeanwhile(t *testing.T) {
	s, m := newSessions(), someBrokers(t, 2)
	s.Activate(m, ms(0))
	early, late := beat(1, 1), beat(1, 1)
	s.Heard(early, ms(1000))
	s.Suspect(1, ms(1001))
	wantExpired(t, s, m, ms(1001), 1)
	if lease(s, early, ms(1002)) {
		t.Fatal("a lease for a fenced broker")
	}
	// It comes back, and what was asked before is still worth nothing.
	s.Heard(late, ms(1003))
	if lease(s, early, ms(1004)) {
		t.Fatal("a lease that began before the broker was fenced")
	}
	if !lease(s, late, ms(1005)) || lease(s, late, ms(1006)) {
		t.Fatal("an answer is given once")
	}
}

func TestSessionsOfANodeThatIsNotActiveAreEmpty(t *testing.T) {
	s, m := newSessions(), someBrokers(t, 2)
	s.Suspect(1, ms(0))
	s.Heard(beat(1, 1), ms(0))
	wantExpired(t, s, m, ms(100_000))
	s.Activate(m, ms(0))
	s.Deactivate()
	if s.NextWake() != clock.Never {
		t.Fatal("wakes")
	}
	wantExpired(t, s, m, ms(100_000))
}

func TestHeartbeatsWithoutAnswersAreBounded(t *testing.T) {
	s, m := newSessions(), someBrokers(t, 2)
	s.Activate(m, ms(0))
	first := beat(1, 1)
	s.Heard(first, ms(0))
	for range 10 * maxOpen {
		s.Heard(beat(1, 1), ms(1))
	}
	if n := len(s.of[1].open); n != maxOpen || lease(s, first, ms(2)) {
		t.Fatalf("%d are open", n)
	}
}

func TestNothingIsDueToALoneNode(t *testing.T) {
	c := New(DefaultConfig())
	s, m := NewSessions(NewSessionsConfig(0, metadata.BrokerConfig{})), someBrokers(t, 1)
	s.Activate(m, ms(7))
	if got := c.Due(m, s, ms(7)); got != nil {
		t.Fatalf("%v", got)
	}
	if at := s.NextWake(); at != ms(300_007) {
		t.Fatalf("wakes at %v", time.Duration(at))
	}
}

// What a controller finds undone, and what it does every now and then.
func TestDueDecidesInOrder(t *testing.T) {
	broker, err := metadata.NewBrokerConfig([]metadata.Config{{Name: "min.insync.replicas", Value: "2"}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Broker = broker
	c, s, id := New(cfg), newSessions(), metadata.TopicID{1}
	m, _, err := metadata.Apply(someBrokers(t, 4), 2, []metadata.Record{
		&metadata.AddTopic{ID: id, Name: "t"},
		&metadata.Partition{Topic: id, Index: 0, Replicas: []metadata.NodeID{1, 2}, ISR: []metadata.NodeID{1, 2}, Leader: 2},
		&metadata.Partition{Topic: id, Index: 1, Replicas: []metadata.NodeID{1, 2}, ELR: []metadata.NodeID{2}, Leader: metadata.NoNode},
		&metadata.Partition{Topic: id, Index: 2, Replicas: []metadata.NodeID{2, 3}, ISR: []metadata.NodeID{2, 3}, Leader: 2, Removing: []metadata.NodeID{3}},
		&metadata.Partition{Topic: id, Index: 3, Replicas: []metadata.NodeID{1, 3}, ISR: []metadata.NodeID{1, 3}, Leader: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Activate(m, ms(0))
	step := func(at int, want ...string) {
		t.Helper()
		for n := range 4 {
			s.Heard(beat(n, n), ms(at))
		}
		if wake := s.NextWake(); wake > ms(at) {
			t.Fatalf("wakes at %v and not at %d ms", time.Duration(wake), at)
		}
		var got []string
		for _, records := range c.Due(m, s, ms(at)) {
			for _, r := range records {
				p, ok := r.(*metadata.Partition)
				if !ok {
					got = append(got, r.String())
					continue
				}
				got = append(got, shortly(p))
			}
			if m, _, err = metadata.Apply(m, m.Offset()+1, records); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("at %d ms: %q, want %q", at, got, want)
		}
	}
	step(0, "set own file min.insync.replicas=2",
		"1 replicas=[1 2] isr=[2] leader=2 leader_epoch=1 epoch=1")
	step(550) // partition 2 was not seen before
	step(1100, "2 replicas=[2] isr=[2] leader=2 leader_epoch=1 epoch=1")
	for at := 1650; at < 300_000; at += 550 {
		step(at)
	}
	step(300_300,
		"0 replicas=[1 2] isr=[1 2] leader=1 leader_epoch=1 epoch=1",
		"3 replicas=[1 3] isr=[1 3] leader=1 leader_epoch=1 epoch=1")
	s.Suspect(1, ms(300_301))
	if got := c.Due(m, s, ms(300_301)); len(got) != 1 || len(got[0]) != 3 {
		t.Fatalf("%v", got)
	}
}

// A leaseMachine is one controller and a broker with a clock of its own, that
// send to each other over a network which delays and loses; the broker believes
// that it may serve reads for as long as a lease lasts.
type leaseMachine struct {
	s     *Sessions
	m     metadata.Image
	now   clock.Instant
	drift int // percent by which the broker's clock is slower

	toController []onItsWay
	toBroker     []onItsWay
	pending      []onItsWay    // heard, and not answered yet
	lease        clock.Instant // by the true clock; what it is at the latest
	fenced       bool
}

type onItsWay struct {
	at  clock.Instant // the heartbeat was sent
	req *kmsg.BrokerHeartbeatRequest
}

func (l *leaseMachine) Pass(t *rapid.T) {
	l.now = l.now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "ms")) * time.Millisecond)
}

func (l *leaseMachine) Beat(*rapid.T) {
	l.toController = append(l.toController, onItsWay{l.now, beat(1, 1)})
}

func draw(t *rapid.T, from *[]onItsWay) onItsWay {
	if len(*from) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(*from)-1).Draw(t, "message")
	x := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return x
}

func (l *leaseMachine) Hear(t *rapid.T) {
	x := draw(t, &l.toController)
	l.heard(t, x)
	l.pending = append(l.pending, x)
}

func (l *leaseMachine) heard(t *rapid.T, x onItsWay) {
	l.s.Heard(x.req, l.now)
	if l.fenced {
		l.fenced = false // it is unfenced, and has something to lead
		l.become(t, false)
	}
}

func (l *leaseMachine) Answer(t *rapid.T) {
	if x := draw(t, &l.pending); lease(l.s, x.req, l.now) {
		l.toBroker = append(l.toBroker, x)
	}
}

func (l *leaseMachine) Receive(t *rapid.T) {
	l.received(draw(t, &l.toBroker))
}

func (l *leaseMachine) received(x onItsWay) {
	length := 450 * time.Millisecond * time.Duration(100+l.drift) / 100
	l.lease = max(l.lease, x.at.Add(length))
}

// Round is a heartbeat on a network that is as it should be.
func (l *leaseMachine) Round(t *rapid.T) {
	x := onItsWay{l.now, beat(1, 1)}
	l.Pass(t)
	l.heard(t, x)
	if lease(l.s, x.req, l.now) {
		l.received(x)
	}
}

func (l *leaseMachine) Lose(t *rapid.T) {
	draw(t, rapid.SampledFrom([]*[]onItsWay{&l.toController, &l.pending, &l.toBroker}).Draw(t, "what"))
}

func (l *leaseMachine) Suspect(*rapid.T) { l.s.Suspect(1, l.now) }

// Another takes the place of a controller. Its answers are lost, or come late.
func (l *leaseMachine) Another(*rapid.T) {
	l.s.Activate(l.m, l.now)
	l.pending = nil
}

func (l *leaseMachine) Due(t *rapid.T) {
	if len(l.s.Expired(l.m, l.now)) == 0 {
		return
	}
	l.fenced = true
	l.become(t, true)
	if l.lease > l.now {
		t.Fatalf("fenced at %v, and may serve until %v", time.Duration(l.now), time.Duration(l.lease))
	}
}

func (l *leaseMachine) become(t *rapid.T, fenced bool) {
	var err error
	if l.m, _, err = metadata.Apply(l.m, l.m.Offset()+1, []metadata.Record{&metadata.BrokerChange{Node: 1, Epoch: 1, Fenced: fenced}}); err != nil {
		t.Fatal(err)
	}
}

// An answer that is on its way when a broker is fenced must not be one that lets
// it serve later on either.
func (l *leaseMachine) Check(t *rapid.T) {
	if !l.fenced {
		return
	}
	for _, x := range l.toBroker {
		if x.at.Add(495*time.Millisecond) > l.now {
			t.Fatalf("a lease from %v is on its way to a fenced broker at %v", time.Duration(x.at), time.Duration(l.now))
		}
	}
}

func TestNobodyIsFencedWhoMayServe(t *testing.T) {
	brokers := someBrokers(t, 2)
	rapid.Check(t, func(t *rapid.T) {
		l := &leaseMachine{s: newSessions(), m: brokers, drift: rapid.IntRange(-10, 10).Draw(t, "drift")}
		l.s.Activate(l.m, 0)
		t.Repeat(rapid.StateMachineActions(l))
	})
}
