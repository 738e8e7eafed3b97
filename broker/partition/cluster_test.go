package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/fetcher"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/codec"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// cluster is the tables of three nodes, each with a disk in memory and a fetcher,
// and one partition of topic t. Nothing happens between nodes unless a command
// says so; what goes over the wire is encoded and decoded.
type cluster struct {
	t       *testing.T
	nodes   map[metadata.NodeID]*member
	brokers []BrokerInfo
	at      Moment
	callers map[wire.Caller]call
	seq     uint64
	sb      strings.Builder
}

// member is one node.
type member struct {
	id        metadata.NodeID
	epoch     metadata.BrokerEpoch
	disk      *simdisk.Disk
	jobs      *job.Holder
	table     *Table
	fetcher   *fetcher.Fetcher
	queue     []job.Job
	flights   []*job.Flight
	progress  []ProgressTo
	proposals []ISRProposal
	rec       *storage.RecoveredLog
}

// call is a request that is not answered: of a client, or of a fetcher.
type call struct {
	from metadata.NodeID // NoPeer for a client
	seq  uint64          // of the fetcher
	req  *kmsg.FetchRequest
}

var (
	clusterTopic = Topic{ID: topicID("t"), Name: "t", Config: metadata.TypedTopicConfig(nil, metadata.BrokerConfig{})}
	clusterLog   = storage.LogID{Topic: topicID("t")}
)

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, nodes: map[metadata.NodeID]*member{}, at: Moment{Wall: 1_000_000}, callers: map[wire.Caller]call{}}
	for id := range metadata.NodeID(3) {
		n := &member{id: id + 1, epoch: metadata.BrokerEpoch(id + 11), disk: simdisk.New()}
		c.nodes[n.id] = n
		c.brokers = append(c.brokers, BrokerInfo{Node: n.id, Epoch: n.epoch, Active: true, Host: fmt.Sprint("host", n.id), Port: 9092})
	}
	for _, id := range []metadata.NodeID{1, 2, 3} {
		c.start(c.nodes[id])
	}
	return c
}

// start begins a node's process.
func (c *cluster) start(n *member) {
	n.jobs = job.NewHolder(n.disk, storage.DefaultConfig())
	res := job.Run(n.jobs, []job.Job{job.Recover{}})[0]
	if res.Err != nil {
		c.t.Fatal(res.Err)
	}
	n.rec = nil
	for i := range res.Recovered.Logs {
		n.rec = &res.Recovered.Logs[i]
	}
	cfg := DefaultConfig()
	cfg.FollowMaxBytes = 2000
	n.table = New(cfg, rand.New(rand.NewPCG(1, uint64(n.id))))
	fc := fetcher.DefaultConfig()
	fc.Self = n.id
	n.fetcher = fetcher.New(fc)
	n.fetcher.Register(n.epoch)
	n.queue, n.flights, n.progress, n.proposals = nil, nil, nil, nil
	var out Out
	n.table.SetBrokers(n.id, n.epoch, c.brokers, c.at, &out)
	n.table.Lease(clock.Never, c.at, &out)
	c.act(n, &out)
}

// act prints what a node decided, and keeps it for later.
func (c *cluster) act(n *member, out *Out) {
	say := func(format string, args ...any) { fmt.Fprintf(&c.sb, "%d: %s\n", n.id, fmt.Sprintf(format, args...)) }
	for _, j := range out.Jobs {
		say("job %v", j)
		n.queue = append(n.queue, j)
	}
	for _, l := range out.Lines {
		say("line: %s", l.Text)
	}
	for _, p := range out.AlterISR {
		say("proposes %v at %d of leader epoch %d", p.ISR, p.PartitionEpoch, p.LeaderEpoch)
		n.proposals = append(n.proposals, p)
	}
	for _, f := range out.Follow {
		if f.Leader == metadata.NoNode {
			say("follows nobody")
		} else {
			say("follows %d in epoch %d from %d behind epoch %d, paused=%t", f.Leader, f.LeaderEpoch, f.Offset, f.LastFetchedEpoch, f.Paused)
		}
		n.fetcher.Follow(fetcher.Follow(f), c.at.Now)
	}
	for _, p := range out.Progress {
		say("has %d on disk, for %d", p.Durable, p.To)
		n.progress = append(n.progress, p)
	}
	for _, id := range out.Damaged {
		say("damaged: partition %d", id.Partition)
	}
	for _, r := range out.Replies {
		c.reply(n, r)
	}
}

// reply carries an answer back.
func (c *cluster) reply(n *member, r Reply) {
	from := c.callers[r.Caller]
	delete(c.callers, r.Caller)
	if from.from == wire.NoPeer {
		fmt.Fprintf(&c.sb, "%d: reply to %d: %s\n", n.id, r.Caller.Seq, c.describe(r.Response))
		return
	}
	var frame wire.Frame
	if err := frame.Append(1, r.Response.Body); err != nil {
		c.t.Fatal(err)
	}
	resp, err := wire.DecodeResponse(from.req, contentsOf(c.t, &frame)[4:])
	if err != nil {
		c.t.Fatal(err)
	}
	f := resp.(*wire.Fetched)
	fmt.Fprintf(&c.sb, "%d answers %d:%s\n", n.id, from.from, fetchedText(f))
	to := c.nodes[from.from]
	var fo fetcher.Out
	to.fetcher.Answer(n.id, from.seq, f, nil, c.at.Now, &fo)
	c.fetched(to, &fo)
}

func contentsOf(t *testing.T, f *wire.Frame) (b []byte) {
	at := 0
	for _, h := range f.Holes {
		b = append(b, f.Bytes[at:h.At]...)
		region := make([]byte, h.Region.Len)
		if _, err := h.Region.File.ReadAt(region, h.Region.Pos); err != nil {
			t.Fatal(err)
		}
		b, at = append(b, region...), h.At
	}
	return append(b, f.Bytes[at:]...)
}

func fetchedText(f *wire.Fetched) string {
	var sb strings.Builder
	if f.ErrorCode != 0 {
		fmt.Fprintf(&sb, " error %d", f.ErrorCode)
	}
	for _, p := range f.Partitions {
		fmt.Fprintf(&sb, " hw=%d", p.HighWatermark)
		for _, b := range p.Batches {
			fmt.Fprintf(&sb, " %d-%d", b.BaseOffset(), b.LastOffset())
		}
		if p.Err != nil {
			fmt.Fprintf(&sb, " err=%v start=%d", p.Err, p.LogStart)
		}
		if p.Diverging.Epoch != record.NoEpoch {
			fmt.Fprintf(&sb, " epoch %d ends at %d", p.Diverging.Epoch, p.Diverging.End)
		}
	}
	if sb.Len() == 0 {
		return " nothing new"
	}
	return sb.String()
}

// fetched takes what a fetcher has to its node.
func (c *cluster) fetched(n *member, fo *fetcher.Out) {
	for _, call := range fo.Calls {
		c.send(n, call)
	}
	for _, r := range fo.Received {
		var out Out
		n.table.Received(r.From, r.LeaderEpoch, &r.FetchedPartition, c.at, &out)
		c.act(n, &out)
	}
}

// send takes a fetcher's request to a leader.
func (c *cluster) send(n *member, k fetcher.Call) {
	caller := wire.Caller{Conn: uint64(n.id), Seq: k.Seq}
	c.callers[caller] = call{n.id, k.Seq, k.Req}
	leader := c.nodes[k.To]
	var out Out
	leader.table.Fetch(caller, &wire.Request{Body: k.Req, Peer: n.id}, c.at, &out)
	c.act(leader, &out)
}

func (c *cluster) describe(r wire.Response) string {
	text := describe(c.t, r)
	if f, ok := r.Body.(*wire.FetchResponse); ok {
		for _, top := range f.Topics {
			for _, p := range top.Partitions {
				if m := p.More; m != nil {
					text += fmt.Sprintf(" leader=%d epoch=%d read-from=%d", m.Leader, m.LeaderEpoch, m.ReadReplica)
				}
			}
		}
		for _, n := range f.Nodes {
			text += fmt.Sprintf(" node %d is at %s:%d", n.ID, n.Host, n.Port)
		}
	}
	if p, ok := r.Body.(*kmsg.ProduceResponse); ok {
		if l := p.Topics[0].Partitions[0].CurrentLeader; l.LeaderID >= 0 {
			text += fmt.Sprintf(" leader=%d epoch=%d", l.LeaderID, l.LeaderEpoch)
		}
		for _, n := range p.Brokers {
			text += fmt.Sprintf(" node %d is at %s:%d", n.NodeID, n.Host, n.Port)
		}
	}
	return text
}

func (c *cluster) caller() wire.Caller {
	c.seq++
	k := wire.Caller{Conn: 100, Seq: c.seq}
	c.callers[k] = call{from: wire.NoPeer}
	return k
}

// TestClusterStories runs the stories in testdata/cluster: nodes that lead and
// follow. Times are in milliseconds.
func TestClusterStories(t *testing.T) {
	datadriven.Walk(t, "testdata/cluster", func(t *testing.T, path string) {
		c := newCluster(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c.sb.Reset()
			c.command(d)
			return c.sb.String()
		})
	})
}

func (c *cluster) num(d *datadriven.TestData, name string, def int64) int64 {
	if d.HasArg(name) {
		d.ScanArgs(c.t, name, &def)
	}
	return def
}

func (c *cluster) ids(d *datadriven.TestData, name, def string) (ids []metadata.NodeID) {
	if d.HasArg(name) {
		d.ScanArgs(c.t, name, &def)
	}
	for _, f := range strings.FieldsFunc(def, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(f)
		if err != nil {
			c.t.Fatal(err)
		}
		ids = append(ids, metadata.NodeID(n))
	}
	return ids
}

func (c *cluster) command(d *datadriven.TestData) {
	n := c.nodes[metadata.NodeID(c.num(d, "node", 1))]
	var out Out
	switch d.Cmd {
	case "assign":
		c.assign(d)
	case "broker":
		c.broker(d)
	case "produce":
		b := record.NewBuilder()
		for i := range c.num(d, "records", 1) {
			b.Append(record.Timestamp(c.num(d, "timestamp", int64(c.at.Wall))+i), nil, make([]byte, c.num(d, "bytes", 10)))
		}
		o := record.Options{}
		if d.HasArg("id") {
			o.Producer = &record.Producer{ID: record.ProducerID(c.num(d, "id", 0)), BaseSequence: record.Sequence(c.num(d, "first", 0))}
		}
		c.produce(n, int16(c.num(d, "acks", -1)), b.Build(o), &out)
	case "run":
		c.run(n, int(c.num(d, "jobs", int64(len(n.queue)))))
	case "write":
		c.write(n, int(c.num(d, "jobs", int64(len(n.queue)))))
	case "sync":
		f := n.flights[0]
		n.flights = n.flights[1:]
		f.SyncSegments()
		c.done(n, f.Finish())
	case "fetch":
		var fo fetcher.Out
		n.fetcher.Wake(c.at.Now, &fo)
		c.fetched(n, &fo)
	case "progress":
		c.sayProgress(n, d)
	case "decide":
		c.decide(n, d, &out)
	case "consume":
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxWaitMillis, req.MinBytes, req.SessionEpoch = int16(c.num(d, "version", 12)), int32(c.num(d, "wait", 0)), 1, -1
		if d.HasArg("rack") {
			d.ScanArgs(c.t, "rack", &req.Rack)
		}
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = "t", clusterTopic.ID
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = c.num(d, "offset", 0), 1<<20, int32(c.num(d, "epoch", -1))
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
		n.table.Fetch(c.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, c.at, &out)
	case "list":
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = int16(c.num(d, "version", 7))
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = "t"
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = c.num(d, "timestamp", -1)
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
		n.table.ListOffsets(c.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, c.at, &out)
	case "delete-records":
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version, req.TimeoutMillis = 2, int32(c.num(d, "timeout", 1000))
		topic := "t"
		d.MaybeScanArgs(c.t, "topic", &topic)
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = topic
		for range c.num(d, "times", 1) {
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = int32(c.num(d, "partition", 0)), c.num(d, "offset", -1)
			rt.Partitions = append(rt.Partitions, p)
		}
		req.Topics = append(req.Topics, rt)
		n.table.DeleteRecords(c.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, c.at, &out)
	case "lease":
		n.table.Lease(c.at.Now+clock.Instant(c.num(d, "ms", 0))*1_000_000, c.at, &out)
	default:
		c.life(n, d, &out)
	}
	c.act(n, &out)
}

// life is the commands about processes, disks and time.
func (c *cluster) life(n *member, d *datadriven.TestData, out *Out) {
	switch d.Cmd {
	case "pass":
		ms := c.num(d, "ms", 0)
		c.at.Now += clock.Instant(time.Duration(ms) * time.Millisecond)
		c.at.Wall += record.Timestamp(ms)
		for _, id := range []metadata.NodeID{1, 2, 3} {
			var out Out
			m := c.nodes[id]
			m.table.Wake(c.at, &out)
			c.act(m, &out)
		}
	case "restart":
		n.disk = n.disk.Crash(rand.New(rand.NewPCG(1, 1)))
		c.start(n)
	case "reset": // as a process before this one did
		for _, res := range job.Run(n.jobs, []job.Job{job.Reset{Log: clusterLog, Start: record.Offset(c.num(d, "start", 0))}}) {
			if res.Err != nil {
				c.t.Fatal(res.Err)
			}
		}
		c.start(n)
	case "lose-file": // the oldest segment
		names, err := n.disk.List("logs")
		if err != nil || len(names) == 0 {
			c.t.Fatal(names, err)
		}
		slices.Sort(names)
		if err := n.disk.Remove("logs/" + names[slices.IndexFunc(names, func(s string) bool { return strings.HasSuffix(s, ".log") })]); err != nil {
			c.t.Fatal(err)
		}
	case "spoil": // as a read that met damage would
		n.table.spoil(n.table.partition(clusterLog), &storage.DamageError{File: "f", What: "rot"}, c.at, out)
	case "checkpoint":
		for _, res := range job.Run(n.jobs, []job.Job{job.BeginCheckpoint{Snapshots: n.table.Snapshots()}, job.FinishCheckpoint{}}) {
			if res.Err != nil {
				c.t.Fatal(res.Err)
			}
		}
	case "full":
		n.disk.SetCapacity(n.disk.Used())
	case "space":
		n.disk.SetCapacity(-1)
	case "drop":
		n.table.Drop(clusterLog, true, metadata.ErrUnknownTopic, c.at, out)
	case "census":
		fmt.Fprintf(&c.sb, "%+v\n", n.table.Census())
	case "status":
		for _, s := range n.table.Status() {
			fmt.Fprintf(&c.sb, "log [%d,%d) on disk %d hw=%d epochs=%v leads=%t settled=%t in-sync=%t damage=%v producers=%d\n",
				s.LogStart, s.LogEnd, s.OnDisk, s.HighWatermark, s.Epochs, s.Leads, s.Settled, s.InSync, s.Damage, s.Producers)
		}
	default:
		c.t.Fatalf("unknown command %s", d.Cmd)
	}
}

// assign gives the same image to nodes, or to some of them.
func (c *cluster) assign(d *datadriven.TestData) {
	p := &metadata.Partition{
		Topic: clusterTopic.ID, Leader: metadata.NodeID(c.num(d, "leader", -1)), LeaderEpoch: record.LeaderEpoch(c.num(d, "epoch", 0)),
		Epoch: metadata.PartitionEpoch(c.num(d, "state", 0)), Replicas: c.ids(d, "replicas", "1,2,3"),
		ISR: c.ids(d, "isr", "1,2,3"), ELR: c.ids(d, "elr", ""), Recovering: d.HasArg("recovering"),
	}
	for _, id := range c.ids(d, "nodes", "1,2,3") {
		n := c.nodes[id]
		var out Out
		n.table.Assign(Assignment{Topic: clusterTopic, Partition: p, MinISR: int(c.num(d, "min", 2))}, n.rec, c.at, &out)
		c.act(n, &out)
	}
}

// broker changes what all nodes know of a broker.
func (c *cluster) broker(d *datadriven.TestData) {
	b := &c.brokers[c.num(d, "id", 0)-1]
	b.Active, b.Epoch = !d.HasArg("fenced"), metadata.BrokerEpoch(c.num(d, "epoch", int64(b.Epoch)))
	if d.HasArg("rack") {
		d.ScanArgs(c.t, "rack", &b.Rack)
	}
	c.nodes[b.Node].epoch = b.Epoch
	c.nodes[b.Node].fetcher.Register(b.Epoch)
	for _, id := range []metadata.NodeID{1, 2, 3} {
		var out Out
		n := c.nodes[id]
		n.table.SetBrokers(id, n.epoch, slices.Clone(c.brokers), c.at, &out)
		c.act(n, &out)
	}
}

func (c *cluster) produce(n *member, acks int16, b record.Batch, out *Out) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 10, acks, 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = "t"
	rt.Partitions = append(rt.Partitions, kmsg.NewProduceRequestTopicPartition())
	req.Topics = append(req.Topics, rt)
	facts, err := codec.Check(b, 1<<20)
	n.table.Produce(c.caller(), &wire.Request{Body: req, Peer: wire.NoPeer, Produce: []wire.ProduceEntry{{Batch: b, Facts: facts, Err: err}}}, c.at, out)
}

// run does the first jobs of a node, as one run of a lane.
func (c *cluster) run(n *member, count int) {
	count = min(count, len(n.queue))
	jobs := n.queue[:count:count]
	n.queue = n.queue[count:]
	c.done(n, job.Run(n.jobs, jobs))
}

func (c *cluster) done(n *member, results []job.Result) {
	for _, res := range results {
		if res.Err != nil && !errors.Is(res.Err, storage.ErrNoSpace) && !errors.Is(res.Err, storage.ErrNotNext) {
			fmt.Fprintf(&c.sb, "%d: ends: %v\n", n.id, res.Err)
			return
		}
		var out Out
		n.table.Done(res, c.at, &out)
		c.act(n, &out)
	}
}

// write begins the first jobs of a node as a commit group, which a sync ends.
func (c *cluster) write(n *member, count int) {
	f, rest := job.Begin(n.jobs, n.queue[:count:count])
	if f == nil {
		fmt.Fprintf(&c.sb, "%d: nothing is begun\n", n.id)
		return
	}
	if len(rest) > 0 {
		c.t.Fatalf("not one commit group: %v", n.queue[:count])
	}
	n.queue = n.queue[count:]
	n.flights = append(n.flights, f)
	c.done(n, f.Early())
}

// sayProgress takes what a node has to say of its disk to the leaders, or loses it.
func (c *cluster) sayProgress(n *member, d *datadriven.TestData) {
	said := n.progress
	n.progress = nil
	for _, r := range Reports(n.id, n.epoch, said) {
		if d.HasArg("lost") {
			continue
		}
		var out Out
		leader := c.nodes[r.To]
		leader.table.Progress(n.id, r.Req, c.at, &out)
		c.act(leader, &out)
	}
}

// decide answers a node's first proposal.
func (c *cluster) decide(n *member, d *datadriven.TestData, out *Out) {
	if len(n.proposals) == 0 {
		fmt.Fprintf(&c.sb, "nothing was proposed\n")
		return
	}
	p := n.proposals[0]
	n.proposals = n.proposals[1:]
	var err error
	switch {
	case d.HasArg("refused"):
		err = metadata.ErrIneligibleReplica
	case d.HasArg("gone"):
		err = wire.ErrPeerGone
	}
	n.table.ISRDecided(p, metadata.PartitionEpoch(c.num(d, "state", int64(p.PartitionEpoch)+1)), err, c.at, out)
}
