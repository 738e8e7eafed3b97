package controller

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// place returns the replicas of each partition of a new topic: as it is
// assigned, or else spread over the brokers.
func (d *draft) place(w topicWanted, rng *rand.Rand) ([][]metadata.NodeID, error) {
	if len(w.assignments) > 0 {
		return d.placeByHand(w)
	}
	partitions, replicas := w.partitions, w.replicas
	if partitions == -1 {
		partitions = d.broker().NumPartitions()
	}
	if replicas == -1 {
		replicas = d.broker().DefaultReplicationFactor()
	}
	switch {
	case replicas <= 0:
		return nil, fmt.Errorf("%w: %d, want at least 1, or -1 for the default", metadata.ErrInvalidReplicationFactor, replicas)
	case partitions <= 0:
		return nil, fmt.Errorf("%w: %d, want at least 1, or -1 for the default", metadata.ErrInvalidPartitions, partitions)
	case int(partitions) >= d.cfg.MaxRecords:
		return nil, fmt.Errorf("%w: %d partitions, fewer than %d at once are allowed", metadata.ErrPolicyViolation, partitions, d.cfg.MaxRecords)
	}
	return newPlacer(d.image, rng).place(int(partitions), int(replicas))
}

// A placer spreads the partitions of one topic over the brokers. It promises:
//
//   - the first replica, which leads, is on a broker that is not fenced;
//   - brokers lead equally many partitions of the topic, give or take one;
//   - the replicas of a partition are in as many racks as there are, and as
//     evenly as the brokers of each rack allow; brokers without a rack are in
//     one together;
//   - within that, a broker that is not fenced comes before one that is, and
//     one that has few replicas before one that has many; and the partitions of
//     one leader have different followers, and second replicas, to whom the work
//     of a broker that fails falls.
//
// Brokers that are shutting down are given nothing. This is what Kafka's
// StripedReplicaPlacer is for, which lets the brokers of small racks lead more.
//
// The brokers take turns in an order that is drawn, in which racks alternate.
type placer struct {
	sites   []site
	leaving []metadata.NodeID // brokers that are given nothing
	racks   int
	used    []int // replicas of the partition that is being placed, by rack
}

// site is a broker as a placer sees it.
type site struct {
	node    metadata.NodeID
	rack    int // numbered from 0
	fenced  bool
	leads   int         // partitions of which it is the first replica
	holds   int         // replicas it has
	follows map[int]int // of those that a site leads, how many it has a replica of
	seconds map[int]int // and of how many it has the second
}

func newPlacer(m metadata.Image, rng *rand.Rand) *placer {
	byRack := racks(m, rng)
	p := &placer{racks: len(byRack), used: make([]int, len(byRack))}
	for b := range m.Brokers() {
		if b.InShutdown {
			p.leaving = append(p.leaving, b.Node)
		}
	}
	for i, more := 0, true; more; i++ {
		more = false
		for r, brokers := range byRack {
			if i < len(brokers) {
				more = true
				p.sites = append(p.sites, site{node: brokers[i].Node, rack: r, fenced: brokers[i].Fenced,
					follows: map[int]int{}, seconds: map[int]int{}})
			}
		}
	}
	return p
}

// racks returns the brokers that may be given replicas, rack by rack. The order
// of racks, and of the brokers of each, is drawn.
func racks(m metadata.Image, rng *rand.Rand) [][]*metadata.Broker {
	var brokers []*metadata.Broker
	for b := range m.Brokers() {
		if !b.InShutdown {
			brokers = append(brokers, b)
		}
	}
	rng.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
	var byRack [][]*metadata.Broker
	for _, b := range brokers {
		i := slices.IndexFunc(byRack, func(r []*metadata.Broker) bool { return r[0].Rack == b.Rack })
		if i < 0 {
			byRack = append(byRack, nil)
			i = len(byRack) - 1
		}
		byRack[i] = append(byRack[i], b)
	}
	return byRack
}

// has tells the placer of a partition that the topic has already.
func (p *placer) has(replicas []metadata.NodeID) {
	leader := p.site(replicas[0])
	for i, n := range replicas {
		s := p.site(n)
		switch {
		case s < 0:
		case i == 0:
			p.sites[s].leads++
			p.sites[s].holds++
		default:
			p.sites[s].holds++
			p.sites[s].follows[leader]++
			if i == 1 {
				p.sites[s].seconds[leader]++
			}
		}
	}
}

func (p *placer) site(n metadata.NodeID) int {
	return slices.IndexFunc(p.sites, func(s site) bool { return s.node == n })
}

// place returns the replicas of further partitions.
func (p *placer) place(partitions, replicas int) ([][]metadata.NodeID, error) {
	if replicas > len(p.sites) {
		return nil, fmt.Errorf("%w: %d, but there are %d brokers%s", metadata.ErrInvalidReplicationFactor, replicas, len(p.sites), p.missing())
	}
	if !slices.ContainsFunc(p.sites, func(s site) bool { return !s.fenced }) {
		return nil, fmt.Errorf("%w: %d, but all of the %d brokers are fenced%s", metadata.ErrInvalidReplicationFactor, replicas, len(p.sites), p.missing())
	}
	placed := make([][]metadata.NodeID, partitions)
	for i := range placed {
		placed[i] = p.next(replicas)
	}
	return placed, nil
}

// missing names the brokers that do not serve. Those that are fenced are counted
// among the brokers, as in Kafka, and those that are shutting down are not.
func (p *placer) missing() (text string) {
	var fenced []metadata.NodeID
	for _, s := range p.sites {
		if s.fenced {
			fenced = append(fenced, s.node)
		}
	}
	slices.Sort(fenced)
	for _, x := range []struct {
		nodes []metadata.NodeID
		what  string
	}{{fenced, "fenced"}, {p.leaving, "shutting down, and not counted"}} {
		if len(x.nodes) > 0 {
			text += fmt.Sprintf("; %s: %s", x.what, strings.Trim(fmt.Sprint(x.nodes), "[]"))
		}
	}
	return text
}

func (p *placer) next(replicas int) []metadata.NodeID {
	clear(p.used)
	leader := p.leader()
	p.sites[leader].leads++
	p.take(leader)
	chosen := append(make([]int, 0, replicas), leader)
	for len(chosen) < replicas {
		f := p.follower(chosen)
		p.sites[f].follows[leader]++
		p.take(f)
		chosen = append(chosen, f)
	}
	slices.SortStableFunc(chosen[1:], func(a, b int) int {
		x, y := &p.sites[a], &p.sites[b]
		return cmp.Or(cmp.Compare(number(x.fenced), number(y.fenced)), cmp.Compare(x.seconds[leader], y.seconds[leader]))
	})
	if len(chosen) > 1 {
		p.sites[chosen[1]].seconds[leader]++
	}
	placed := make([]metadata.NodeID, replicas)
	for i, s := range chosen {
		placed[i] = p.sites[s].node
	}
	return placed
}

func (p *placer) take(s int) {
	p.sites[s].holds++
	p.used[p.sites[s].rack]++
}

// leader is the site that leads the next partition. There is one.
func (p *placer) leader() int {
	best := -1
	for i := range p.sites {
		if !p.sites[i].fenced && (best < 0 || p.sites[i].leads < p.sites[best].leads) {
			best = i
		}
	}
	return best
}

// follower is the site that has the next replica of a partition of which chosen
// have one, the leader first.
func (p *placer) follower(chosen []int) int {
	n, best := len(p.sites), -1
	for turn := 1; turn < n; turn++ {
		i := (chosen[0] + turn) % n
		if !slices.Contains(chosen, i) && (best < 0 || p.better(i, best, chosen[0])) {
			best = i
		}
	}
	return best
}

// better reports whether site a should follow rather than site b, which it does
// not if neither is better.
func (p *placer) better(a, b, leader int) bool {
	x, y := &p.sites[a], &p.sites[b]
	return cmp.Or(
		cmp.Compare(p.used[x.rack], p.used[y.rack]),
		cmp.Compare(number(x.fenced), number(y.fenced)),
		cmp.Compare(x.holds, y.holds),
		cmp.Compare(x.follows[leader], y.follows[leader]),
	) < 0
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (d *draft) placeByHand(w topicWanted) ([][]metadata.NodeID, error) {
	switch {
	case w.replicas != -1:
		return nil, fmt.Errorf("%w: with assignments the replication factor must be -1, not %d", metadata.ErrInvalidRequest, w.replicas)
	case w.partitions != -1:
		return nil, fmt.Errorf("%w: with assignments the number of partitions must be -1, not %d", metadata.ErrInvalidRequest, w.partitions)
	}
	placed := make([][]metadata.NodeID, len(w.assignments))
	for _, a := range w.assignments {
		switch {
		case a.partition < 0 || int(a.partition) >= len(placed):
			return nil, fmt.Errorf("%w: partition %d of %d; they must be numbered from 0 without gaps",
				metadata.ErrInvalidReplicaAssignment, a.partition, len(placed))
		case placed[a.partition] != nil:
			return nil, fmt.Errorf("%w: partition %d is assigned twice", metadata.ErrInvalidReplicaAssignment, a.partition)
		}
		if err := d.mayBeReplicas(a.partition, a.replicas); err != nil {
			return nil, err
		}
		if n := len(w.assignments[0].replicas); len(a.replicas) != n {
			return nil, fmt.Errorf("%w: partition %d has %d replicas, another %d",
				metadata.ErrInvalidReplicaAssignment, a.partition, len(a.replicas), n)
		}
		if !d.anyActive(a.replicas) {
			return nil, noneActive(a.partition)
		}
		placed[a.partition] = a.replicas
	}
	return placed, nil
}

// mayBeReplicas checks replicas that somebody named for a partition.
func (d *draft) mayBeReplicas(partition int32, replicas []metadata.NodeID) error {
	if len(replicas) == 0 {
		return fmt.Errorf("%w: partition %d has no replicas", metadata.ErrInvalidReplicaAssignment, partition)
	}
	for i, r := range replicas {
		if slices.Contains(replicas[:i], r) {
			return fmt.Errorf("%w: broker %d has partition %d twice", metadata.ErrInvalidReplicaAssignment, r, partition)
		}
		if _, ok := d.image.Broker(r); !ok {
			return fmt.Errorf("%w: there is no broker %d", metadata.ErrInvalidReplicaAssignment, r)
		}
	}
	return nil
}

func (d *draft) anyActive(replicas []metadata.NodeID) bool {
	return slices.ContainsFunc(replicas, func(n metadata.NodeID) bool { return active(d.image, n) })
}

func noneActive(partition int32) error {
	return fmt.Errorf("%w: all brokers of partition %d are fenced or shutting down", metadata.ErrInvalidReplicaAssignment, partition)
}

// newPartition is a partition that is created: those of its replicas that can
// be are in sync, of which there must be one.
func (d *draft) newPartition(topic metadata.TopicID, index int32, replicas []metadata.NodeID) *metadata.Partition {
	var isr []metadata.NodeID
	for _, n := range replicas {
		if active(d.image, n) {
			isr = append(isr, n)
		}
	}
	return &metadata.Partition{Topic: topic, Index: index, Replicas: replicas, ISR: isr, Leader: isr[0]}
}

// broker is what the controller was started with, with what was set since for
// all brokers.
func (d *draft) broker() metadata.BrokerConfig {
	return d.cfg.Broker.On(d.image, metadata.EveryBroker)
}

// active reports whether a node may lead and be in sync.
func active(m metadata.Image, n metadata.NodeID) bool {
	b, ok := m.Broker(n)
	return ok && b.Active()
}
