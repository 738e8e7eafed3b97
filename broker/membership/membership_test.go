package membership

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

const ms = clock.Instant(time.Millisecond)

func testConfig() Config {
	c := DefaultConfig()
	c.Node, c.ClusterID, c.Incarnation = 1, "cluster", metadata.IncarnationID{1}
	return c
}

// image is one in which node 1 is registered.
func image(t testing.TB, incarnation byte, epoch metadata.BrokerEpoch) metadata.Image {
	t.Helper()
	m, _, err := metadata.Apply(metadata.Image{}, 10, []metadata.Record{
		&metadata.RegisterBroker{Node: 1, Incarnation: metadata.IncarnationID{incarnation}, Epoch: epoch},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// one returns the only call of out, and empties it.
func one(t testing.TB, out *Out) Call {
	t.Helper()
	if len(out.Calls) != 1 {
		t.Fatalf("%d calls, want 1: %v", len(out.Calls), out.Calls)
	}
	call := out.Calls[0]
	*out = Out{}
	return call
}

func none(t testing.TB, out *Out) {
	t.Helper()
	if len(out.Calls) != 0 {
		t.Fatalf("calls %v, want none", out.Calls)
	}
}

func beat(index int64) *kmsg.BrokerHeartbeatResponse {
	r := kmsg.NewPtrBrokerHeartbeatResponse()
	r.IsCaughtUp, r.IsFenced = true, false
	wire.SetTag(&r.UnknownTags, wire.TagReadIndex, index)
	return r
}

// joinedMember is one that has just sent its first heartbeat, at 0.
func joinedMember(t *testing.T) (*Member, Call) {
	var out Out
	m := New(testConfig())
	m.Leader(2, 0, &out)
	none(t, &out)
	m.Recovered([16]byte{9}, []wire.DamagedLog{{Topic: metadata.TopicID{7}, Index: 3}}, true, 0, &out)
	call := one(t, &out)
	req := call.Req.(*kmsg.BrokerRegistrationRequest)
	damaged, _ := wire.GetTagBytes(&req.UnknownTags, wire.TagDamaged)
	if logs, ok := wire.DecodeDamaged(damaged); !ok || len(logs) != 1 || logs[0].Index != 3 {
		t.Errorf("damaged logs in the registration: %v", damaged)
	}
	if call.To != 2 || req.LogDirs[0] != [16]byte{9} {
		t.Errorf("registration %+v to %d", req, call.To)
	}
	m.Answer(call.Seq, kmsg.NewPtrBrokerRegistrationResponse(), nil, 0, &out)
	m.Image(image(t, 1, 5), 10, 0, &out)
	if !out.Joined || m.Epoch() != 5 {
		t.Fatalf("joined=%v epoch=%d", out.Joined, m.Epoch())
	}
	return m, one(t, &out)
}

func TestALeaseIsCountedFromWhenTheHeartbeatWasSent(t *testing.T) {
	m, first := joinedMember(t)
	var out Out
	m.Answer(first.Seq, beat(10), nil, 300*ms, &out)
	if out.Lease == nil || *out.Lease != 450*ms {
		t.Errorf("lease %v, want until 450 ms: 500 less a tenth, from 0", m.Lease())
	}
}

func TestALeaseCountsOnlyForAnImageThatHasComeAsFar(t *testing.T) {
	m, first := joinedMember(t)
	var out Out
	m.Answer(first.Seq, beat(12), nil, ms, &out)
	if out.Lease != nil {
		t.Fatalf("a lease until %v with an image that may not know who leads", *out.Lease)
	}
	m.Image(image(t, 1, 5), 11, 2*ms, &out)
	if out.Lease != nil {
		t.Fatal("a lease one entry too early")
	}
	m.Image(image(t, 1, 5), 12, 3*ms, &out)
	if out.Lease == nil || *out.Lease != 450*ms {
		t.Errorf("lease until %v, want 450 ms", m.Lease())
	}
}

func TestNoLeaseOfAFencedBroker(t *testing.T) {
	m, first := joinedMember(t)
	var out Out
	resp := beat(10)
	resp.IsFenced = true
	m.Answer(first.Seq, resp, nil, ms, &out)
	if out.Lease != nil {
		t.Errorf("lease until %v", *out.Lease)
	}
}

func TestAnswersOfAnEarlierControllerAreWorthNothing(t *testing.T) {
	m, first := joinedMember(t)
	var out Out
	m.Leader(3, 50*ms, &out)
	second := one(t, &out)
	if second.To != 3 {
		t.Errorf("heartbeat to %d, want the new controller", second.To)
	}
	m.Answer(first.Seq, beat(10), nil, 60*ms, &out)
	if out.Lease != nil {
		t.Errorf("lease until %v by a controller that was replaced", *out.Lease)
	}
}

// The controller is told which logs were lost until it has answered, and who comes
// after it is told again.
func TestLostLogsAreToldUntilTheControllerAnswers(t *testing.T) {
	m, first := joinedMember(t)
	var out Out
	told := func(c Call) (indexes []int32) {
		b, _ := wire.GetTagBytes(&c.Req.(*kmsg.BrokerHeartbeatRequest).UnknownTags, wire.TagDamaged)
		logs, ok := wire.DecodeDamaged(b)
		if !ok {
			t.Fatalf("tag %v", b)
		}
		for _, l := range logs {
			indexes = append(indexes, l.Index)
		}
		return indexes
	}
	expect := func(c Call, want ...int32) {
		t.Helper()
		if got := told(c); !slices.Equal(got, want) {
			t.Errorf("told of %v, want %v", got, want)
		}
	}
	expect(first)
	m.Damaged([]wire.DamagedLog{{Index: 4}}, 10*ms, &out)
	second := one(t, &out) // at once
	expect(second, 4)
	m.Damaged([]wire.DamagedLog{{Index: 5}}, 20*ms, &out)
	third := one(t, &out)
	expect(third, 4, 5)
	m.Answer(first.Seq, beat(10), nil, 30*ms, &out) // of before
	m.Answer(second.Seq, beat(10), nil, 30*ms, &out)
	out = Out{}
	m.Leader(3, 40*ms, &out)
	fourth := one(t, &out)
	expect(fourth, 5)
	refused := kmsg.NewPtrBrokerHeartbeatResponse()
	refused.ErrorCode = wire.Code(metadata.ErrNotController)
	m.Answer(fourth.Seq, refused, nil, 50*ms, &out)
	out = Out{}
	m.Wake(140*ms, &out)
	fifth := one(t, &out)
	expect(fifth, 5)
	m.Answer(fifth.Seq, beat(10), nil, 150*ms, &out)
	out = Out{}
	m.Wake(240*ms, &out)
	expect(one(t, &out))
}

// A node that is the whole quorum has no other reason for a heartbeat.
func TestALoneNodeTellsItselfOfLostLogs(t *testing.T) {
	m, _ := joinedMember(t)
	var out Out
	m.Lone(true, 1*ms, &out)
	m.Wake(100*ms, &out)
	none(t, &out)
	m.Damaged([]wire.DamagedLog{{Index: 4}}, 110*ms, &out)
	one(t, &out)
}

func TestANodeReplacedByAnotherProcessStops(t *testing.T) {
	m, _ := joinedMember(t)
	var out Out
	m.Image(image(t, 2, 6), 20, ms, &out)
	if !errors.Is(out.Err, ErrReplaced) {
		t.Errorf("err %v, want ErrReplaced", out.Err)
	}
}

func TestRegistrationIsTriedAgain(t *testing.T) {
	var out Out
	m := New(testConfig())
	m.Recovered([16]byte{}, nil, true, 0, &out)
	m.Leader(2, 0, &out)
	for _, c := range []struct {
		name string
		code int16
		err  error
		line bool
		stop error
	}{
		{name: "connection lost", err: wire.ErrPeerGone},
		{name: "not the controller", code: wire.Code(metadata.ErrNotController)},
		{name: "the id is in use", code: wire.Code(metadata.ErrDuplicateBroker), line: true},
		{name: "refused", code: wire.Code(metadata.ErrInvalidRequest), line: true},
		{name: "another cluster", code: wire.Code(metadata.ErrInconsistentClusterID), stop: ErrOtherCluster},
	} {
		call := one(t, &out)
		var resp any
		if c.err == nil {
			r := kmsg.NewPtrBrokerRegistrationResponse()
			r.ErrorCode = c.code
			resp = r
		}
		m.Answer(call.Seq, resp, c.err, m.NextWake()*0, &out)
		if got := len(out.Lines) == 1; got != c.line {
			t.Errorf("%s: lines %v", c.name, out.Lines)
		}
		if !errors.Is(out.Err, c.stop) {
			t.Errorf("%s: err %v, want %v", c.name, out.Err, c.stop)
		}
		none(t, &out)
		out = Out{}
		m.Wake(m.NextWake(), &out)
	}
}

func TestAControlledShutdownWaitsForTheControllerButNotForEver(t *testing.T) {
	m, _ := joinedMember(t)
	var out Out
	m.Shutdown(10*ms, &out)
	call := one(t, &out)
	if !call.Req.(*kmsg.BrokerHeartbeatRequest).WantShutdown {
		t.Error("the controller is not asked")
	}
	m.Answer(call.Seq, beat(10), nil, 11*ms, &out)
	if out.Released {
		t.Error("released while it still leads")
	}
	resp := beat(10)
	m.Wake(110*ms, &out)
	call = one(t, &out)
	resp.ShouldShutdown = true
	m.Answer(call.Seq, resp, nil, 111*ms, &out)
	if !out.Released {
		t.Error("not released")
	}

	m, _ = joinedMember(t)
	out = Out{}
	m.Shutdown(10*ms, &out)
	m.Wake(5010*ms, &out)
	if !out.Released {
		t.Error("not released after the time limit")
	}
}

func TestALoneNodesLeaseHasNoEnd(t *testing.T) {
	var out Out
	m := New(testConfig())
	m.Lone(true, 0, &out)
	if out.Lease == nil || *out.Lease != clock.Never {
		t.Fatalf("lease %v, want for ever", out.Lease)
	}
	m.Lone(false, 1000*ms, &out)
	if *out.Lease != 1450*ms {
		t.Errorf("lease until %v once others decide too, want 1450 ms", *out.Lease)
	}
}

// Whatever is answered, late, twice or never: the lease is never longer than
// what some answered heartbeat of the present controller allows.
func TestLeaseProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, first := joinedMember(t)
		sent := map[uint64]clock.Instant{first.Seq: 0}
		var now, best clock.Instant
		applied := metadata.Offset(10)
		type promise struct {
			index metadata.Offset
			until clock.Instant
		}
		var promises []promise
		var out Out
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now += clock.Instant(rapid.Int64Range(0, int64(200*ms)).Draw(rt, "time"))
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				m.Wake(now, &out)
			case 1:
				seq := rapid.Uint64Range(0, 80).Draw(rt, "seq")
				index := applied + metadata.Offset(rapid.IntRange(0, 3).Draw(rt, "ahead"))
				if at, ok := sent[seq]; ok {
					promises = append(promises, promise{index, at + 450*ms})
				}
				m.Answer(seq, beat(int64(index)), nil, now, &out)
			case 2:
				applied += metadata.Offset(rapid.IntRange(0, 2).Draw(rt, "applied"))
				m.Image(image(t, 1, 5), applied, now, &out)
			}
			for _, c := range out.Calls {
				sent[c.Seq] = now
			}
			out = Out{}
			for _, p := range promises {
				if p.index <= applied {
					best = max(best, p.until)
				}
			}
			if m.Lease() > best {
				rt.Fatalf("lease until %v, no answer allows more than %v", m.Lease(), best)
			}
		}
	})
}

// KAFKA-15586: who did not end as it should does not say which process it was.
func TestOnlyACleanEndIsToldInTheRegistration(t *testing.T) {
	for _, clean := range []bool{true, false} {
		var out Out
		m := New(testConfig())
		image, _, err := metadata.Apply(metadata.Image{}, 3, []metadata.Record{
			&metadata.RegisterBroker{Node: testConfig().Node, Epoch: 7, Incarnation: metadata.IncarnationID{99}},
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Recovered([16]byte{9}, nil, clean, 0, &out)
		m.Image(image, 3, 0, &out)
		m.Leader(2, 0, &out)
		want := int64(-1)
		if clean {
			want = 7
		}
		if req := one(t, &out).Req.(*kmsg.BrokerRegistrationRequest); req.PreviousBrokerEpoch != want {
			t.Errorf("clean %t: previous epoch %d, want %d", clean, req.PreviousBrokerEpoch, want)
		}
	}
}
