package broker

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/forward"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/broker/wire"
)

// request takes a request to whoever decides about it.
func (n *Node) request(r Request) {
	switch body := r.Body.(type) {
	case *kmsg.ApiVersionsRequest:
		n.reply(r.Caller, wire.APIVersions(body.Version))
		return
	case *wire.QuorumMessages:
		if c := &n.cluster; c.office != nil { // else they are sent again
			n.met(r.Peer, body.Address)
			c.office.Received(body, n.env.Clock.Now(), &c.officeOut)
		}
		return
	case *wire.Progress: // has no answer either, not even a refusal
		n.table.Progress(r.Peer, body, n.moment(), &n.out)
		return
	}
	switch n.phase {
	case recovering, joining:
		if r.Peer == wire.NoPeer {
			n.early = append(n.early, r)
			return
		}
		if n.phase == recovering {
			n.refuse(r.Caller)
			return
		}
	case stopping, closing, stopped:
		n.refuse(r.Caller)
		return
	}
	switch body := r.Body.(type) {
	case *kmsg.ProduceRequest:
		n.table.Produce(r.Caller, &r.Request, n.moment(), &n.out)
	case *kmsg.FetchRequest:
		n.table.Fetch(r.Caller, &r.Request, n.moment(), &n.out)
	case *kmsg.ListOffsetsRequest:
		n.table.ListOffsets(r.Caller, &r.Request, n.moment(), &n.out)
	case *kmsg.OffsetForLeaderEpochRequest:
		n.table.OffsetForLeaderEpoch(r.Caller, &r.Request, &n.out)
	case *kmsg.DeleteRecordsRequest:
		n.table.DeleteRecords(r.Caller, &r.Request, n.moment(), &n.out)
	case *kmsg.DescribeLogDirsRequest:
		n.table.DescribeLogDirs(r.Caller, &r.Request, partition.LogDir{Path: n.cfg.DataDir, Total: -1, Usable: -1}, &n.out)
	case *kmsg.DescribeProducersRequest:
		n.table.DescribeProducers(r.Caller, &r.Request, n.moment(), &n.out)
	case *kmsg.MetadataRequest:
		n.metadata(r, body)
	case *kmsg.InitProducerIDRequest:
		n.initProducerID(r, body)
	default:
		if n.control(r) || n.describe(r) {
			return
		}
		n.line(slog.LevelError, "request without a handler", slog.Int("key", int(r.Body.Key())))
		n.refuse(r.Caller)
	}
}

func (n *Node) reply(c Caller, body wire.Body) {
	n.out.Replies = append(n.out.Replies, partition.Reply{Caller: c, Response: wire.Response{Body: body}})
}

// refuse answers a request that cannot be served now by closing its connection:
// the client connects again, here or elsewhere.
func (n *Node) refuse(c Caller) {
	n.out.Replies = append(n.out.Replies, partition.Reply{Caller: c, Response: wire.Response{Close: true}})
}

// control has the active controller decide about a request: here, or on the
// node that is the controller. It reports whether it is such a request.
func (n *Node) control(r Request) bool {
	c, now := &n.cluster, n.env.Clock.Now()
	if !controller.ForController(r.Body) {
		return false
	}
	if r.Peer == wire.NoPeer && !c.office.Log().Leading() {
		c.forward.Request(&r.Request, asker{request: r}, now, &c.forwardOut)
	} else {
		c.office.Request(r.Caller, &r.Request, n.view(r), now, n.env.Clock.Wall(), &c.officeOut)
	}
	return true
}

// asker is who waits for the active controller's answer: a client, or a request
// that goes on once something is there.
type asker struct {
	request Request
	again   bool // handle the request again
	ids     bool // the answer is producer ids, and those who wait go on
}

// forwarded takes an answer of the active controller to whoever waits for it.
func (n *Node) forwarded(a forward.Answer) {
	who := a.Asker.(asker)
	switch {
	case who.ids:
		n.gotProducerIDs(a)
	case who.again:
		n.created(who.request, a.Response)
	case errors.Is(a.Err, metadata.ErrNotController):
		c := &n.cluster
		n.reply(who.request.Caller, c.office.Leaderless(who.request.Body, n.view(who.request), n.env.Clock.Now(), n.env.Clock.Wall()))
	case a.Err != nil:
		lost := fmt.Errorf("%w: the active controller's answer is lost, so that it may have been done: %w", wire.ErrTimedOut, a.Err)
		n.reply(who.request.Caller, controller.Refuse(who.request.Body, lost))
	default:
		n.reply(who.request.Caller, a.Response)
	}
}

// describe answers a request from the image. It reports whether it is such a
// request.
func (n *Node) describe(r Request) bool {
	view := n.view(r)
	resp, ok := view.Answer(r.Body)
	if ok {
		n.reply(r.Caller, resp)
	}
	return ok
}

// view is what the node knows when it answers r.
func (n *Node) view(r Request) controller.View {
	v := controller.View{
		Image: n.cluster.image(), Config: n.cfg.Broker, Self: n.cfg.ID, ClusterID: n.cfg.ClusterID,
		Controller: n.cluster.office.Log().Leader(),
	}
	if n.cfg.Port == 0 {
		v.Host, v.Port = r.Host, r.Port
	}
	return v
}

// metadata answers a Metadata request, after it has had the topics created that
// do not exist and may be created.
func (n *Node) metadata(r Request, body *kmsg.MetadataRequest) {
	view := n.view(r)
	resp, create := view.Metadata(body, nil)
	if len(create) > 0 {
		c := &n.cluster
		c.forward.Ask(controller.AutoCreate(create), asker{request: r, again: true}, n.env.Clock.Now(), &c.forwardOut)
		return
	}
	n.reply(r.Caller, resp)
}

// created answers a Metadata request for which topics were to be created. If
// nobody says what became of that, they are unknown: the client asks again.
func (n *Node) created(r Request, answer kmsg.Response) {
	var refused []controller.Refusal
	if made, ok := answer.(*kmsg.CreateTopicsResponse); ok {
		refused = controller.Refusals(made)
	}
	view := n.view(r)
	resp, _ := view.Metadata(r.Body.(*kmsg.MetadataRequest), refused)
	n.reply(r.Caller, resp)
}

// initProducerID answers an InitProducerID request, after the node has been
// given a block of ids if the last is used up.
func (n *Node) initProducerID(r Request, body *kmsg.InitProducerIDRequest) {
	c := &n.cluster
	if resp, ok := c.ids.InitProducerID(body); ok {
		n.reply(r.Caller, resp)
		return
	}
	c.waiting = append(c.waiting, r)
	if !c.asking {
		c.asking = true
		req := kmsg.NewPtrAllocateProducerIDsRequest()
		req.BrokerID, req.BrokerEpoch = int32(n.cfg.ID), int64(c.member.Epoch())
		c.forward.Ask(req, asker{ids: true}, n.env.Clock.Now(), &c.forwardOut)
	}
}

// gotProducerIDs gives producer ids to those who wait for some.
func (n *Node) gotProducerIDs(a forward.Answer) {
	c := &n.cluster
	waiting := c.waiting
	c.waiting, c.asking = nil, false
	if resp, ok := a.Response.(*kmsg.AllocateProducerIDsResponse); ok {
		c.ids = controller.ProducerIDsOf(resp)
	}
	if c.ids.Left() <= 0 {
		n.line(slog.LevelWarn, "no producer ids from the active controller")
		for _, r := range waiting {
			n.reply(r.Caller, controller.NoProducerIDs(r.Body.(*kmsg.InitProducerIDRequest)))
		}
		return
	}
	for _, r := range waiting {
		n.request(r)
	}
}
