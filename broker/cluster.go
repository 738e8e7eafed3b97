package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
)

// cluster is the node's part in the cluster: the metadata log, the image that
// it comes to, and what this node proposed and waits for.
//
// Invariant: scratch is image with every pending proposal applied; pending is
// empty unless this node leads the quorum.
type cluster struct {
	quorum  *quorum.Quorum
	out     quorum.Out
	image   metadata.Image // committed
	scratch metadata.Image // what the controller decides on
	pending []proposal     // oldest first
	opened  bool           // the partitions of image are open

	snapshotAt quorum.Index // of the last snapshot that was asked for

	ids controller.ProducerIDs // that this node may give out
}

// proposal is what waits for a metadata entry to be committed.
type proposal struct {
	ticket  quorum.Ticket
	replies []partition.Reply      // to be sent then
	again   []Request              // to be handled anew then
	ids     controller.ProducerIDs // to be this node's then, unless empty
	joins   bool                   // this is the node's registration
}

// restore goes on with the metadata log that was saved.
func (n *Node) restore(saved [][]byte) error {
	q, err := quorum.New(n.cfg.Quorum, n.env.Rand, saved, &n.cluster.out)
	if err != nil {
		return err
	}
	n.cluster.quorum = q
	return nil
}

// settle does what the quorum decided, until nothing is left to do. Applying an
// entry may lead to another proposal.
func (n *Node) settle() {
	c := &n.cluster
	for n.phase != stopped {
		out := c.out
		c.out = quorum.Out{}
		if out.Save != nil {
			n.env.Disk.Submit(job.SaveQuorum{Records: out.Save.Records, Replace: out.Save.Replace})
		}
		if out.Restore != nil {
			n.apply(uint64(out.Restore.Index), out.Restore.Data)
		}
		for i, e := range out.Committed {
			if len(e.Data) > 0 {
				n.apply(uint64(e.Index), e.Data)
			}
			n.committed(e.Ticket)
			out.Committed[i] = quorum.Entry{}
		}
		n.lost(out.Lost)
		n.lost(out.Unknown)
		if out.Leader != nil && metadata.NodeID(out.Leader.Node) == n.cfg.ID {
			n.lead()
		}
		n.snapshot()
		if out.Save == nil && out.Restore == nil && out.Committed == nil && out.Leader == nil && out.Lost == nil && out.Unknown == nil {
			return
		}
	}
}

// snapshot gives up the metadata log so far for the image it comes to, when it
// has become long.
func (n *Node) snapshot() {
	c := &n.cluster
	if c.quorum == nil || !c.opened {
		return
	}
	applied := c.quorum.Applied()
	if uint64(applied-max(c.quorum.Compacted(), c.snapshotAt)) < n.cfg.SnapshotEntries {
		return
	}
	assert.Reached("broker: metadata snapshot")
	c.snapshotAt = applied
	c.quorum.Compact(applied, metadata.Encode(c.image.Records()), &c.out)
}

// apply moves the image on by the records of one entry, or of a snapshot.
func (n *Node) apply(index uint64, data []byte) {
	records, err := metadata.Decode(data)
	if err != nil {
		n.stop(fmt.Errorf("metadata log entry %d: %w", index, err))
		return
	}
	image, delta, err := metadata.Apply(n.cluster.image, metadata.Offset(index), records)
	if err != nil {
		n.stop(fmt.Errorf("metadata log entry %d: %w", index, err))
		return
	}
	n.cluster.image = image
	if n.cluster.opened {
		n.follow(delta)
	}
}

// follow makes the table of partitions what the image says.
func (n *Node) follow(delta metadata.Delta) {
	at := n.moment()
	n.table.SetImage(n.cluster.image)
	for _, t := range delta.Deleted {
		for i := range t.Partitions {
			n.table.Drop(storage.LogID{Topic: t.ID, Partition: i}, true, metadata.ErrUnknownTopic, at, &n.out)
		}
	}
	for _, t := range delta.Created {
		n.open(t)
	}
	for _, t := range delta.Configured {
		n.table.Configure(t.Name, t.Config(n.cfg.Broker))
	}
}

// open opens the partitions of a topic.
func (n *Node) open(t *metadata.Topic) {
	top := partition.Topic{ID: t.ID, Name: t.Name, Config: t.Config(n.cfg.Broker)}
	for p := range n.cluster.image.Partitions(t.ID) {
		id := storage.LogID{Topic: t.ID, Partition: p.Index}
		n.table.Assign(partition.Assignment{Topic: top, Partition: p, MinISR: 1}, n.recovered[id], n.moment(), &n.out)
		delete(n.recovered, id)
	}
}

// lead starts this node's work as the active controller: its image is current.
// Here that means it opens the partitions, registers, and serves once the
// registration is committed.
func (n *Node) lead() {
	c := &n.cluster
	c.scratch = c.image
	if !c.opened {
		c.opened = true
		n.table.SetImage(c.image)
		n.table.SetBrokers(n.cfg.ID, 0, nil, n.moment(), &n.out)
		n.table.Lease(clock.Never, n.moment(), &n.out)
		for t := range c.image.Topics() {
			n.open(t)
		}
		n.dropStrays()
	}
	if n.phase != joining {
		return
	}
	records, err := n.controller.Register(c.scratch, controller.Registration{
		Node: n.cfg.ID, Incarnation: n.incarnation(), Host: n.cfg.Host, Port: n.cfg.Port, Rack: n.cfg.Rack,
	})
	if err != nil {
		n.stop(fmt.Errorf("register: %w", err))
		return
	}
	n.propose(records, proposal{joins: true})
}

// incarnation draws a name for this run of the process.
func (n *Node) incarnation() metadata.IncarnationID {
	var id metadata.IncarnationID
	binary.LittleEndian.PutUint64(id[:8], n.env.Rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], n.env.Rand.Uint64())
	return id
}

// dropStrays deletes what is left of deleted topics. A log of a topic that the
// image has never heard of is kept: better to waste space than to take a lost
// image for an order to delete.
func (n *Node) dropStrays() {
	for _, id := range sortedLogs(n.recovered) {
		if n.cluster.image.Deleted(id.Topic) {
			assert.Reached("broker: log of a deleted topic removed at start")
			n.out.Jobs = append(n.out.Jobs, job.Delete{Log: id})
		} else {
			n.line(slog.LevelWarn, "log belongs to no known topic; it is kept and not served", slog.String("log", id.String()))
		}
	}
	clear(n.recovered)
}

// propose asks the quorum for what the controller decided. Without records the
// answer still waits for what was proposed before.
func (n *Node) propose(records []metadata.Record, p proposal) {
	c := &n.cluster
	if len(records) == 0 {
		if k := len(c.pending); k > 0 {
			c.pending[k-1].replies = append(c.pending[k-1].replies, p.replies...)
			c.pending[k-1].again = append(c.pending[k-1].again, p.again...)
			return
		}
		n.kept(p)
		return
	}
	scratch, _, err := metadata.Apply(c.scratch, c.scratch.Offset()+1, records)
	assert.That(err == nil, "broker: the controller decided what cannot be applied")
	ticket, err := c.quorum.Propose(metadata.Encode(records), &c.out)
	if err != nil {
		n.broken(p)
		return
	}
	p.ticket = ticket
	c.scratch = scratch
	c.pending = append(c.pending, p)
}

// committed keeps what waited for a proposal.
func (n *Node) committed(ticket quorum.Ticket) {
	c := &n.cluster
	if ticket == 0 {
		return
	}
	assert.That(len(c.pending) > 0 && c.pending[0].ticket == ticket, "broker: proposals committed out of order")
	p := c.pending[0]
	if c.pending = c.pending[1:]; len(c.pending) == 0 {
		c.scratch = c.image
	}
	n.kept(p)
}

func (n *Node) kept(p proposal) {
	if p.ids.Left() > 0 {
		n.cluster.ids = p.ids
	}
	if p.joins {
		n.serve()
	}
	n.out.Replies = append(n.out.Replies, p.replies...)
	for _, r := range p.again {
		n.request(r)
	}
}

// serve begins to answer clients.
func (n *Node) serve() {
	n.phase = serving
	n.line(slog.LevelInfo, "serving", slog.Int("node", int(n.cfg.ID)), slog.String("cluster", n.cfg.ClusterID))
	early := n.early
	n.early = nil
	for _, r := range early {
		n.request(r)
	}
}

// lost breaks what waited for proposals that will not be committed.
func (n *Node) lost(tickets []quorum.Ticket) {
	c := &n.cluster
	for _, t := range tickets {
		for i, p := range c.pending {
			if p.ticket == t {
				c.pending = append(c.pending[:i], c.pending[i+1:]...)
				n.broken(p)
				break
			}
		}
	}
	if len(tickets) > 0 {
		c.scratch = c.image
	}
}

// broken closes the connections of those who waited for a proposal whose fate
// is unknown to this node.
func (n *Node) broken(p proposal) {
	for _, r := range p.replies {
		n.refuse(r.Caller)
	}
	for _, r := range p.again {
		n.refuse(r.Caller)
	}
}

// saved says what became of the quorum's save.
func (n *Node) saved(err error) {
	if errors.Is(err, storage.ErrNoSpace) {
		assert.Reached("broker: no space for metadata")
		n.cluster.quorum.SaveFailed(n.env.Clock.Now())
		return
	}
	n.cluster.quorum.Saved(&n.cluster.out)
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

// nextWake is when the quorum wants to be woken.
func (c *cluster) nextWake() clock.Instant {
	if c.quorum == nil {
		return clock.Never
	}
	return c.quorum.NextWake()
}
