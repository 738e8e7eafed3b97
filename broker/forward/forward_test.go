package forward

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// door forwards one client's request, and is the controller's side of the wire.
type door struct {
	t   *testing.T
	tab *Table
	out Out
	now clock.Instant
}

func open(t *testing.T) *door { return &door{t: t, tab: New(DefaultConfig())} }

func (d *door) request(asker string) {
	body := kmsg.NewPtrDeleteTopicsRequest()
	body.Version = 6
	d.tab.Request(&wire.Request{Body: body, Peer: wire.NoPeer, ClientID: "c"}, asker, d.now, &d.out)
}

func (d *door) call() Call {
	d.t.Helper()
	if len(d.out.Calls) != 1 {
		d.t.Fatalf("calls %v, want one", d.out.Calls)
	}
	c := d.out.Calls[0]
	d.out = Out{}
	return c
}

// answer is what the controller's node sends.
func (d *door) answer(c Call, r wire.Response) {
	d.t.Helper()
	var f wire.Frame
	if err := f.AppendForwarded(1, r); err != nil {
		d.t.Fatal(err)
	}
	resp, err := wire.DecodeResponse(c.Req, f.Bytes[wire.PrefixSize:])
	if err != nil {
		d.t.Fatal(err)
	}
	d.tab.Answer(c.Seq, resp, nil, d.now, &d.out)
}

func (d *door) deleted(at metadata.Offset) wire.Response {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version = 6
	return wire.Response{Body: resp, Offset: at}
}

func (d *door) answers(want int) []Answer {
	d.t.Helper()
	if len(d.out.Answers) != want {
		d.t.Fatalf("%d answers, want %d", len(d.out.Answers), want)
	}
	a := d.out.Answers
	d.out = Out{}
	return a
}

func TestAnAnswerWaitsForTheImage(t *testing.T) {
	d := open(t)
	d.tab.Leader(2, &d.out)
	d.request("a")
	c := d.call()
	if c.To != 2 || c.Inner == nil {
		t.Errorf("call %+v", c)
	}
	d.answer(c, d.deleted(7))
	d.answers(0)
	d.tab.Applied(6, &d.out)
	d.answers(0)
	d.tab.Applied(7, &d.out)
	if a := d.answers(1)[0]; a.Asker != "a" || a.Err != nil || a.Response.Key() != 20 {
		t.Errorf("answer %+v", a)
	}
}

func TestTheNextControllerIsAskedOnlyIfTheLastWasNone(t *testing.T) {
	d := open(t)
	d.tab.Leader(2, &d.out)
	d.request("a")
	d.answer(d.call(), wire.Response{Err: metadata.ErrNotController})
	d.answers(0)
	d.tab.Leader(3, &d.out)
	c := d.call()
	if c.To != 3 {
		t.Errorf("asked %d, want the new controller", c.To)
	}
	// This one may have done it.
	d.tab.Answer(c.Seq, nil, wire.ErrPeerGone, d.now, &d.out)
	if a := d.answers(1)[0]; !errors.Is(a.Err, wire.ErrPeerGone) {
		t.Errorf("err %v, want that nobody knows", a.Err)
	}
	d.tab.Leader(2, &d.out)
	if len(d.out.Calls) != 0 {
		t.Error("asked again")
	}
}

func TestTheSameControllerIsAskedAgainALittleLater(t *testing.T) {
	d := open(t)
	d.tab.Leader(2, &d.out)
	d.request("a")
	d.answer(d.call(), wire.Response{Err: metadata.ErrNotController})
	if len(d.out.Calls) != 0 {
		t.Fatal("asked again at once")
	}
	d.now = d.tab.NextWake()
	d.tab.Wake(d.now, &d.out)
	d.answer(d.call(), d.deleted(0))
	d.answers(1)
	if w := d.tab.NextWake(); w != clock.Never {
		t.Errorf("nothing waits, and a wake is wanted at %v", w)
	}
}

func TestARefusalWhileNobodyLeadsWaitsForALeader(t *testing.T) {
	d := open(t)
	d.tab.Leader(2, &d.out)
	d.request("a")
	d.answer(d.call(), wire.Response{Err: metadata.ErrNotController})
	d.tab.Leader(metadata.NoNode, &d.out)
	for wakes := 0; d.tab.NextWake() != clock.Never; wakes++ {
		if wakes == 3 {
			t.Fatalf("wants to be woken again and again, at %v", d.tab.NextWake())
		}
		d.now = d.tab.NextWake()
		d.tab.Wake(d.now, &d.out)
	}
	if a := d.answers(1)[0]; !errors.Is(a.Err, metadata.ErrNotController) {
		t.Errorf("err %v", a.Err)
	}
}

func TestNobodyWaitsForEverForAController(t *testing.T) {
	d := open(t)
	d.request("a")
	if len(d.out.Calls) != 0 {
		t.Fatal("a call to nobody")
	}
	d.now = d.tab.NextWake()
	d.tab.Wake(d.now, &d.out)
	if a := d.answers(1)[0]; !errors.Is(a.Err, metadata.ErrNotController) {
		t.Errorf("err %v", a.Err)
	}
}

func TestOwnQuestionsAreAskedAsTheyAre(t *testing.T) {
	d := open(t)
	d.tab.Leader(2, &d.out)
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	d.tab.Ask(req, "ids", d.now, &d.out)
	c := d.call()
	if c.Req != req || c.Inner != nil {
		t.Errorf("call %+v", c)
	}
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	resp.ErrorCode = wire.Code(metadata.ErrNotController)
	d.tab.Answer(c.Seq, resp, nil, d.now, &d.out)
	d.answers(0)
	d.now = d.tab.NextWake()
	d.tab.Wake(d.now, &d.out)
	c = d.call()
	d.tab.Answer(c.Seq, kmsg.NewPtrAllocateProducerIDsResponse(), nil, d.now, &d.out)
	if a := d.answers(1)[0]; a.Asker != "ids" {
		t.Errorf("answer %+v", a)
	}
}

// A request has its own time limit to find a controller, and DescribeQuorum a
// glance; what is asked for without a limit has the table's.
func TestARequestWaitsNoLongerForAControllerThanItSays(t *testing.T) {
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 3000
	for _, x := range []struct {
		body kmsg.Request
		want time.Duration
	}{
		{create, 3 * time.Second},
		{kmsg.NewPtrDescribeQuorumRequest(), DefaultConfig().Glance},
		{kmsg.NewPtrUnregisterBrokerRequest(), DefaultConfig().Timeout},
	} {
		d := open(t)
		d.tab.Request(&wire.Request{Body: x.body, Peer: wire.NoPeer}, "a", d.now, &d.out)
		if at := d.tab.NextWake(); at != clock.Instant(x.want) {
			t.Errorf("%T gives up at %v, want %v", x.body, at, x.want)
		}
		d.now = clock.Instant(x.want)
		d.tab.Wake(d.now, &d.out)
		if a := d.answers(1)[0]; !errors.Is(a.Err, metadata.ErrNotController) {
			t.Errorf("answer %+v", a)
		}
	}
}
