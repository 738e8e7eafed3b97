package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/fetcher"
	"github.com/pawlbroker/pawl/broker/forward"
	"github.com/pawlbroker/pawl/broker/membership"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/office"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
)

// cluster is the node's part in the cluster: the deciders that are about more
// than one node, and what they decided last.
type cluster struct {
	office  *office.Office // nil while the node recovers
	member  *membership.Member
	forward *forward.Table
	fetcher *fetcher.Fetcher

	officeOut  office.Out
	memberOut  membership.Out
	forwardOut forward.Out
	fetcherOut fetcher.Out

	altering partition.Alterations    // asked of the controller
	known    membership.Acquaintances // nodes that may not be registered

	ids     controller.ProducerIDs // that this node may give out
	asking  bool                   // for more of them
	waiting []Request              // for producer ids
	opened  bool                   // the partitions of the image are open

	typedOf *metadata.Topic // which never changes; most partitions are of the topic of the one before
	typed   partition.Topic
}

// Who made a call, in the low bits of its id.
const (
	byMember CallID = iota
	byForward
	byFetcher
	byTable
	callers
)

// ownConn is the connection of the node with itself.
const ownConn = ^uint64(0)

func (c *cluster) init(cfg Config, env Env) {
	c.member = membership.New(cfg.member(env.Rand))
	c.forward = forward.New(forward.DefaultConfig())
	c.fetcher = fetcher.New(cfg.fetcher())
	c.known.Configured = cfg.Controllers
}

// image is what is committed of the cluster's metadata, as far as the node knows.
func (c *cluster) image() metadata.Image {
	if c.office == nil {
		return metadata.Image{}
	}
	return c.office.Log().Image()
}

func (c *cluster) nextWake() clock.Instant {
	if c.office == nil {
		return clock.Never
	}
	return min(c.office.NextWake(), c.member.NextWake(), c.forward.NextWake(), c.fetcher.NextWake())
}

func (c *cluster) wake(now clock.Instant) {
	if c.office == nil {
		return
	}
	c.office.Wake(now, &c.officeOut)
	c.member.Wake(now, &c.memberOut)
	c.forward.Wake(now, &c.forwardOut)
	c.fetcher.Wake(now, &c.fetcherOut)
}

// restore goes on with the metadata log that was saved.
func (n *Node) restore(rec *storage.Recovered) {
	c := &n.cluster
	o, err := office.New(n.cfg.office(), n.env.Rand, rec.Quorum, &c.officeOut)
	if err != nil {
		n.stop(fmt.Errorf("metadata log: %w", err))
		return
	}
	c.office = o
	n.introduce()
	var damaged []storage.LogID
	for _, id := range sortedLogs(n.recovered) {
		if n.recovered[id].Damage != nil {
			damaged = append(damaged, id)
		}
	}
	c.member.Recovered(o.Directory(), damagedLogs(damaged), rec.Clean, n.env.Clock.Now(), &c.memberOut)
}

// damagedLogs is how logs are named to the controller.
func damagedLogs(ids []storage.LogID) []wire.DamagedLog {
	var logs []wire.DamagedLog
	for _, id := range ids {
		logs = append(logs, wire.DamagedLog{Topic: id.Topic, Index: id.Partition})
	}
	return logs
}

// actCluster does what the cluster's deciders decided, and reports whether they
// decided anything.
func (n *Node) actCluster() bool {
	if n.cluster.office == nil {
		return false
	}
	a, b, c, d := n.actOffice(), n.actMember(), n.actForward(), n.actFetcher()
	return a || b || c || d
}

func (n *Node) actOffice() bool {
	c, now := &n.cluster, n.env.Clock.Now()
	out := c.officeOut
	c.officeOut = office.Out{}
	if out.Save != nil {
		n.env.Disk.Submit(job.SaveQuorum{Records: out.Save.Records, Replace: out.Save.Replace})
	}
	for _, j := range out.Joining {
		n.met(metadata.NodeID(j.Node), j.Address)
	}
	n.sendQuorum(out.Messages)
	for _, d := range out.Deltas {
		if n.env.Applied != nil {
			n.env.Applied(d)
		}
		n.follow(d)
	}
	for _, l := range out.Lines {
		n.line(l.Level, l.Text, l.Attrs...)
	}
	if out.Err != nil {
		n.stop(out.Err)
		return true
	}
	log := c.office.Log()
	c.member.Lone(c.office.Lone(), now, &c.memberOut)
	c.member.Image(log.Image(), log.Applied(), now, &c.memberOut)
	c.forward.Applied(log.Applied(), &c.forwardOut)
	if out.Leader != nil {
		c.member.Leader(*out.Leader, now, &c.memberOut)
		c.forward.Leader(*out.Leader, &c.forwardOut)
		n.introduce()
	}
	n.out.Replies = append(n.out.Replies, out.Replies...)
	return out.Save != nil || out.Leader != nil || len(out.Messages)+len(out.Deltas)+len(out.Replies)+len(out.Lines) > 0
}

// sendQuorum sends messages of the quorum, those to one node together.
func (n *Node) sendQuorum(messages []quorum.Message) {
	var last *wire.QuorumMessages
	for i, m := range messages {
		if i == 0 || m.To != messages[i-1].To {
			last = &wire.QuorumMessages{From: n.cfg.ID, Address: n.cfg.peerAddress()}
			defer n.send(metadata.NodeID(m.To), last)
		}
		last.Messages = append(last.Messages, m.Marshal())
	}
}

func (n *Node) actMember() bool {
	c := &n.cluster
	out := c.memberOut
	c.memberOut = membership.Out{}
	for _, call := range out.Calls {
		n.call(byMember, call.To, call.Seq, call.Req)
	}
	for _, l := range out.Lines {
		n.line(l.Level, l.Text, l.Attrs...)
	}
	if out.Lease != nil {
		n.table.Lease(*out.Lease, n.moment(), &n.out)
	}
	if out.Joined {
		n.joined()
	}
	if out.Released && n.phase == leaving {
		n.phase = stopping
		c.office.Resign(n.env.Clock.Now(), &c.officeOut)
		n.table.Drain(n.moment(), &n.out)
	}
	if out.Err != nil {
		n.stop(out.Err)
	}
	return out.Lease != nil || out.Joined || out.Released || out.Err != nil || len(out.Calls)+len(out.Lines) > 0
}

func (n *Node) actForward() bool {
	c := &n.cluster
	out := c.forwardOut
	c.forwardOut = forward.Out{}
	for _, call := range out.Calls {
		if call.To == n.cfg.ID && call.Inner != nil {
			n.loop(byForward, call.Seq, *call.Inner)
			continue
		}
		n.call(byForward, call.To, call.Seq, call.Req)
	}
	for _, a := range out.Answers {
		n.forwarded(a)
	}
	return len(out.Calls)+len(out.Answers) > 0
}

func (n *Node) actFetcher() bool {
	c := &n.cluster
	out := c.fetcherOut
	c.fetcherOut = fetcher.Out{}
	for _, call := range out.Calls {
		n.call(byFetcher, call.To, call.Seq, call.Req)
	}
	for _, r := range out.Received {
		n.table.Received(r.From, r.LeaderEpoch, &r.FetchedPartition, n.moment(), &n.out)
	}
	for _, l := range out.Lines {
		n.line(l.Level, l.Text, l.Attrs...)
	}
	return len(out.Calls)+len(out.Received)+len(out.Lines) > 0
}

// actReplication takes to others what the table decided about replicas, and
// reports whether it was anything.
func (n *Node) actReplication() bool {
	c, out := &n.cluster, &n.out
	busy := len(out.AlterISR)+len(out.Follow)+len(out.Progress) > 0
	for _, f := range out.Follow {
		c.fetcher.Follow(fetcher.Follow(f), n.env.Clock.Now())
	}
	for _, r := range partition.Reports(n.cfg.ID, c.member.Epoch(), out.Progress) {
		n.send(r.To, r.Req)
	}
	out.Follow, out.Progress = out.Follow[:0], out.Progress[:0]
	if len(out.Damaged) > 0 {
		busy = true
		c.member.Damaged(damagedLogs(out.Damaged), n.env.Clock.Now(), &c.memberOut)
		out.Damaged = nil
	}
	if proposals := out.AlterISR; len(proposals) > 0 {
		out.AlterISR = nil
		seq, req := c.altering.Ask(n.cfg.ID, c.member.Epoch(), proposals)
		if leader := c.office.Log().Leader(); leader != metadata.NoNode {
			n.call(byTable, leader, seq, req)
		} else {
			c.altering.Altered(n.table, seq, nil, metadata.ErrNotController, n.moment(), out)
		}
	}
	return busy
}

// call sends a request to a node, which may be this one.
func (n *Node) call(by CallID, to metadata.NodeID, seq uint64, req kmsg.Request) {
	switch {
	case to == n.cfg.ID:
		n.loop(by, seq, wire.Request{Body: req})
	case n.env.Peers == nil:
		n.answered(by, PeerReply{From: to, Call: CallID(seq), Err: wire.ErrPeerGone})
	default:
		n.env.Peers.Call(to, CallID(seq)*callers+by, req)
	}
}

// loop handles a request of this node to itself.
func (n *Node) loop(by CallID, seq uint64, r wire.Request) {
	r.Peer = n.cfg.ID
	n.request(Request{Caller: Caller{Conn: ownConn, Seq: uint64(CallID(seq)*callers + by)}, Request: r})
}

// ownReply takes this node's answer to itself.
func (n *Node) ownReply(r wire.Reply) {
	reply := PeerReply{From: n.cfg.ID, Call: CallID(r.Caller.Seq), Response: r.Response.Body, Err: r.Response.Err}
	if r.Response.Close {
		reply.Err = wire.ErrPeerGone
	}
	n.peerReply(reply)
}

// send sends a request that has no answer.
func (n *Node) send(to metadata.NodeID, req kmsg.Request) {
	if n.env.Peers != nil && to != n.cfg.ID {
		n.env.Peers.Call(to, 0, req)
	}
}

// peerReply takes the answer to a call to whoever made it.
func (n *Node) peerReply(r PeerReply) {
	by := r.Call % callers
	r.Call /= callers
	n.answered(by, r)
}

func (n *Node) answered(by CallID, r PeerReply) {
	c, now, seq := &n.cluster, n.env.Clock.Now(), uint64(r.Call)
	switch by {
	case byMember:
		c.member.Answer(seq, r.Response, r.Err, now, &c.memberOut)
	case byForward:
		c.forward.Answer(seq, r.Response, r.Err, now, &c.forwardOut)
	case byFetcher:
		fetched, _ := r.Response.(*wire.Fetched)
		c.fetcher.Answer(r.From, seq, fetched, r.Err, now, &c.fetcherOut)
	case byTable:
		resp, _ := r.Response.(*kmsg.AlterPartitionResponse)
		c.altering.Altered(n.table, seq, resp, r.Err, n.moment(), &n.out)
	}
}

// peerDown takes the hint that a node's process has ended.
func (n *Node) peerDown(peer metadata.NodeID) {
	if c := &n.cluster; c.office != nil {
		c.office.Down(peer, n.env.Clock.Now(), &c.officeOut)
	}
}

// saved says what became of the quorum's save.
func (n *Node) saved(err error) {
	c, now := &n.cluster, n.env.Clock.Now()
	if errors.Is(err, storage.ErrNoSpace) {
		assert.Reached("broker: no space for metadata")
		c.office.SaveFailed(now)
		return
	}
	c.office.Saved(now, &c.officeOut)
}

// joined begins to serve: the image has this process's registration. It opens
// the partitions of which this node has a replica, the first time.
func (n *Node) joined() {
	c := &n.cluster
	n.tellBrokers()
	c.fetcher.Register(c.member.Epoch())
	if !c.opened {
		c.opened = true
		n.table.SetImage(c.image())
		for p := range c.image().PartitionsOf(n.cfg.ID) {
			n.assign(p)
		}
		n.dropStrays()
	}
	if n.phase != joining {
		return
	}
	n.phase = serving
	n.line(slog.LevelInfo, "serving", slog.Int("node", int(n.cfg.ID)), slog.String("cluster", n.cfg.ClusterID))
	early := n.early
	n.early = nil
	for _, r := range early {
		n.request(r)
	}
}

// follow makes the node what the image says.
func (n *Node) follow(d metadata.Delta) {
	c, at := &n.cluster, n.moment()
	if len(d.Brokers) > 0 {
		n.introduce()
	}
	if !c.opened {
		return
	}
	n.table.SetImage(c.image())
	if len(d.Brokers) > 0 {
		n.tellBrokers()
	}
	for _, t := range d.Deleted {
		for i := range t.Partitions {
			n.table.Drop(storage.LogID{Topic: t.ID, Partition: i}, true, metadata.ErrUnknownTopic, at, &n.out)
		}
	}
	for _, p := range d.Partitions {
		n.assign(p)
	}
	configured := slices.Values(d.Configured)
	if len(d.BrokerConfigs) > 0 {
		configured = c.image().Topics()
	}
	for t := range configured {
		n.table.Configure(t.Name, n.topic(t).Config, at, &n.out)
	}
}

func (n *Node) topic(t *metadata.Topic) partition.Topic {
	c := &n.cluster
	if c.typedOf != t {
		c.typedOf, c.typed = t, partition.Topic{ID: t.ID, Name: t.Name, Config: t.Config(n.cfg.Broker)}
	}
	return c.typed
}

// assign gives the table one partition as the image has it.
func (n *Node) assign(p *metadata.Partition) {
	image := n.cluster.image()
	id := storage.LogID{Topic: p.Topic, Partition: p.Index}
	t, ok := image.TopicByID(p.Topic)
	if !ok {
		return // deleted by a later record
	}
	if !slices.Contains(p.Replicas, n.cfg.ID) {
		n.table.Drop(id, true, metadata.ErrUnknownTopic, n.moment(), &n.out)
		return
	}
	n.table.Assign(partition.Assignment{Topic: n.topic(t), Partition: p, MinISR: image.EffectiveMinISR(p)}, n.recovered[id], n.moment(), &n.out)
	delete(n.recovered, id)
}

// tellBrokers tells the table who the brokers are.
func (n *Node) tellBrokers() {
	c := &n.cluster
	n.table.SetBrokers(n.cfg.ID, c.member.Epoch(), partition.Brokers(c.image()), n.moment(), &n.out)
}

// introduce tells the network which other nodes there are.
func (n *Node) introduce() {
	if c := &n.cluster; n.env.Peers != nil {
		n.env.Peers.SetPeers(membership.Peers(c.image(), &c.known, n.cfg.ID, c.office.Log().Leader() != metadata.NoNode))
	}
}

// met takes note of where a node says that it listens.
func (n *Node) met(node metadata.NodeID, address string) {
	news, line := n.cluster.known.Met(node, address, n.env.Clock.Now())
	if news {
		n.introduce()
	}
	if line != nil {
		n.line(line.Level, line.Text, line.Attrs...)
	}
}

// dropStrays deletes what is left of deleted topics. A log of a topic that the
// image has never heard of is kept: better to waste space than to take a lost
// image for an order to delete.
func (n *Node) dropStrays() {
	image := n.cluster.image()
	for _, id := range sortedLogs(n.recovered) {
		_, known := image.Partition(id.Topic, id.Partition) // with other replicas: those of this node are open
		if known || image.Deleted(id.Topic) {
			assert.Reached("broker: log of a deleted topic removed at start")
			n.out.Jobs = append(n.out.Jobs, job.Delete{Log: id})
		} else {
			n.line(slog.LevelWarn, "log belongs to no known topic; it is kept and not served", slog.String("log", id.String()))
		}
	}
	clear(n.recovered)
}

func sortedLogs(m map[storage.LogID]*storage.RecoveredLog) []storage.LogID {
	//pawl:total-order ids are the keys of a map
	return slices.SortedFunc(maps.Keys(m), func(a, b storage.LogID) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
}
