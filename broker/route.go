package broker

import (
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/broker/wire"
)

// request takes a client's request to whoever decides about it.
func (n *Node) request(r Request) {
	if body, ok := r.Body.(*kmsg.ApiVersionsRequest); ok {
		n.reply(r.Caller, wire.APIVersions(body.Version))
		return
	}
	switch n.phase {
	case recovering, joining:
		n.early = append(n.early, r)
		return
	case stopping, stopped:
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

// control takes a request to the active controller. It reports whether it is
// such a request.
func (n *Node) control(r Request) bool {
	res, ok := n.controller.Decide(n.cluster.scratch, r.Body, n.env.Rand)
	if !ok {
		return false
	}
	n.propose(res.Records, proposal{replies: []partition.Reply{{Caller: r.Caller, Response: wire.Response{Body: res.Response}}}})
	return true
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
		Image: n.cluster.image, Config: n.cfg.Broker, Self: n.cfg.ID, ClusterID: n.cfg.ClusterID,
		Controller: metadata.NodeID(n.cluster.quorum.Leader().Node),
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
		records, refused := n.controller.AutoCreate(n.cluster.scratch, create, n.env.Rand)
		if len(records) > 0 || len(n.cluster.pending) > 0 {
			n.propose(records, proposal{again: []Request{r}})
			return
		}
		resp, _ = view.Metadata(body, refused)
	}
	n.reply(r.Caller, resp)
}

// initProducerID answers an InitProducerID request, after it has been given a
// block of ids if the last is used up.
func (n *Node) initProducerID(r Request, body *kmsg.InitProducerIDRequest) {
	c := &n.cluster
	if resp, ok := c.ids.InitProducerID(body); ok {
		n.reply(r.Caller, resp)
		return
	}
	for i := range c.pending {
		if c.pending[i].ids.Left() > 0 {
			c.pending[i].again = append(c.pending[i].again, r)
			return
		}
	}
	records, ids := n.controller.AllocateProducerIDs(c.scratch)
	if len(records) == 0 {
		n.line(slog.LevelError, "producer ids are used up")
		n.refuse(r.Caller)
		return
	}
	n.propose(records, proposal{again: []Request{r}, ids: ids})
}
