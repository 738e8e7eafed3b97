package standalone

import (
	"fmt"
	"sync"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// Status is a node as of its last event.
type Status struct {
	Phase      string // what it is doing: "serving" once it is ready
	Ready      bool
	Fenced     bool            // the controller has given its place to others
	Controller bool            // it is the active controller
	Leader     metadata.NodeID // the active controller as far as it knows, or metadata.NoNode
	Leased     bool            // nobody can have taken its place
	Stats      partition.Stats
	Brokers    int // of the cluster, as the next four
	Topics     int
	Partitions int
	Leaderless int // partitions
	Moving     int // partitions
	Disk       vfs.Counts
}

// Health is how the partitions of a node are.
type Health struct {
	Replicas        int // on this node
	Leads           int // of them
	UnderReplicated int // of those that it leads
	UnderMinISR     int // likewise
}

// Status is what the node is doing, for operators.
func (b *Broker) Status() Status {
	s, _, _ := b.node.look()
	if c, ok := b.dir.FS.(vfs.Counted); ok {
		s.Disk = c.Counts()
	}
	return s
}

// NotReady says why clients should not be sent to the node at the moment, or is
// empty. It is about this moment: while a controller is elected no node is ready.
func (b *Broker) NotReady() string {
	twin := ""
	if b.peers.carrier != nil {
		twin = b.peers.carrier.Twin()
	}
	return notReady(b.Status(), twin)
}

func notReady(s Status, twin string) string {
	leaderless := "no active controller is known: more than half of the voters must reach each other"
	switch {
	case s.Ready && s.Leader == metadata.NoNode:
		return leaderless
	case s.Ready && s.Fenced:
		return "fenced: the controller does not hear from this node"
	case s.Ready && !s.Leased:
		return fmt.Sprintf("the lease is over: the active controller, node %d, does not answer", s.Leader)
	case s.Ready:
		return ""
	case s.Phase == "joining" && twin != "":
		return "joining: another process is in the cluster under this node's id, at " + twin
	case s.Phase == "joining" && s.Leader == metadata.NoNode:
		return "joining: " + leaderless
	case s.Phase == "joining":
		return fmt.Sprintf("joining: the active controller, node %d, has not registered this node yet", s.Leader)
	case s.Phase == "":
		return "starting"
	}
	return s.Phase
}

// Health looks at every partition of the node.
func (b *Broker) Health() Health {
	_, image, _ := b.node.look()
	var h Health
	for p := range image.PartitionsOf(b.node.self) {
		h.Replicas++
		if p.Leader != b.node.self {
			continue
		}
		h.Leads++
		if len(p.ISR) < len(p.Replicas)-len(p.Adding) {
			h.UnderReplicated++
		}
		if len(p.ISR) < image.EffectiveMinISR(p) {
			h.UnderMinISR++
		}
	}
	return h
}

// UnsafeToRestart says why the node should not be stopped at the moment: what
// would be out of reach without it and would not be if one waited. At most limit
// lines are returned, and none if it may be stopped.
func (b *Broker) UnsafeToRestart(limit int) []string {
	status, image, voters := b.node.look()
	return unsafe(b.node.self, status, image, voters, limit)
}

func unsafe(self metadata.NodeID, status Status, image metadata.Image, voters []metadata.NodeID, limit int) (reasons []string) {
	if !status.Ready {
		reasons = append(reasons, "this node is "+status.Phase+", not serving")
	}
	votes, others := false, 0
	for _, v := range voters {
		if v == self {
			votes = true
		} else if r, ok := image.Broker(v); ok && r.Active() {
			others++
		}
	}
	if votes && len(voters) > 1 && others < len(voters)/2+1 {
		reasons = append(reasons, fmt.Sprintf("without this node %d of %d voters would be left, which decide nothing", others, len(voters)))
	}
	for p := range image.PartitionsOf(self) {
		if len(reasons) >= limit {
			return reasons
		}
		if r := needed(self, image, p); r != "" {
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// needed is why a partition cannot do without a node that others could stand in
// for, or empty.
func needed(self metadata.NodeID, image metadata.Image, p *metadata.Partition) string {
	left, counts := 0, false
	for _, n := range p.ISR {
		if n == self {
			counts = true
		} else {
			left++
		}
	}
	possible := len(p.Replicas) - len(p.Adding) - 1 // at the best of times
	if least := min(image.EffectiveMinISR(p), possible); counts && left < least {
		t, _ := image.TopicByID(p.Topic)
		return fmt.Sprintf("%s/%d would have %d replicas in sync, and needs %d", t.Name, p.Index, left, least)
	}
	return ""
}

// watched is a node that tells other goroutines how it is.
type watched struct {
	*broker.Node
	self  metadata.NodeID
	ready chan struct{} // closed once it serves
	left  chan struct{} // closed once it serves no more, and others lead in its place

	mu     sync.Mutex
	last   Status
	image  metadata.Image
	voters []metadata.NodeID
}

func newWatched(self metadata.NodeID) *watched {
	return &watched{self: self, ready: make(chan struct{}), left: make(chan struct{})}
}

// Step implements host.Node.
func (w *watched) Step(ev broker.Event) {
	w.Node.Step(ev)
	phase, ok := w.Node.Ready()
	image := w.Node.Image()
	now := Status{
		Phase: phase, Ready: ok, Stats: w.Node.Stats(), Brokers: image.BrokerCount(), Topics: image.TopicCount(),
		Partitions: image.PartitionCount(), Leaderless: image.LeaderlessCount(), Moving: image.ReassigningCount(),
		Fenced: w.last.Fenced, Leader: w.Node.Leader(), Leased: w.Node.Leased(),
	}
	q := w.Node.Quorum()
	now.Controller = q != nil && q.Leading()
	changed := image.Offset() != w.image.Offset() // the loop's own to read
	var voters []metadata.NodeID
	if changed {
		r, known := image.Broker(w.self)
		now.Fenced = known && r.Fenced
		if q != nil {
			for _, m := range q.Members() {
				if m.Voter {
					voters = append(voters, metadata.NodeID(m.Node))
				}
			}
		}
	}
	w.mu.Lock()
	before := w.last.Phase
	if w.last = now; changed {
		w.image, w.voters = image, voters
	}
	w.mu.Unlock()
	if phase != before {
		w.entered(phase, ok)
	}
}

// entered tells those who wait for a phase that it has come.
func (w *watched) entered(phase string, ready bool) {
	switch {
	case ready:
		close(w.ready)
	case phase == "stopping" || phase == "closing" || phase == "stopped":
		select {
		case <-w.left:
		default:
			close(w.left)
		}
	}
}

// look returns the node's status, its image and who votes on it.
func (w *watched) look() (Status, metadata.Image, []metadata.NodeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.image, w.voters
}
