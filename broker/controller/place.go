package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"

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
		partitions = d.cfg.Broker.NumPartitions()
	}
	if replicas == -1 {
		replicas = d.cfg.Broker.DefaultReplicationFactor()
	}
	switch {
	case replicas <= 0:
		return nil, fmt.Errorf("%w: %d, want at least 1, or -1 for the default", metadata.ErrInvalidReplicationFactor, replicas)
	case partitions <= 0:
		return nil, fmt.Errorf("%w: %d, want at least 1, or -1 for the default", metadata.ErrInvalidPartitions, partitions)
	case int(partitions) >= d.cfg.MaxRecords:
		return nil, fmt.Errorf("%w: %d partitions, fewer than %d at once are allowed", metadata.ErrPolicyViolation, partitions, d.cfg.MaxRecords)
	case int(replicas) > d.image.BrokerCount():
		return nil, fmt.Errorf("%w: %d, but there are %d brokers", metadata.ErrInvalidReplicationFactor, replicas, d.image.BrokerCount())
	}
	return d.spread(int(partitions), int(replicas), rng), nil
}

// spread gives each partition the next broker as its first replica, from a
// random one, and the brokers after that as the others; the distance to the
// second grows by one each time around, so that the partitions of a broker that
// fails are led by all others.
func (d *draft) spread(partitions, replicas int, rng *rand.Rand) [][]metadata.NodeID {
	var brokers []metadata.NodeID
	for b := range d.image.Brokers() {
		brokers = append(brokers, b.Node)
	}
	n := len(brokers)
	first := rng.IntN(n)
	placed := make([][]metadata.NodeID, partitions)
	for p := range placed {
		placed[p] = append(make([]metadata.NodeID, 0, replicas), brokers[(first+p)%n])
		for r := 1; r < replicas; r++ {
			step := 1 + (p/n+r-1)%(n-1)
			placed[p] = append(placed[p], brokers[(first+p+step)%n])
		}
	}
	return placed
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
		case len(a.replicas) == 0:
			return nil, fmt.Errorf("%w: partition %d has no replicas", metadata.ErrInvalidReplicaAssignment, a.partition)
		case len(a.replicas) != len(w.assignments[0].replicas):
			return nil, fmt.Errorf("%w: partition %d has %d replicas, another %d",
				metadata.ErrInvalidReplicaAssignment, a.partition, len(a.replicas), len(w.assignments[0].replicas))
		}
		for i, r := range a.replicas {
			if slices.Contains(a.replicas[:i], r) {
				return nil, fmt.Errorf("%w: broker %d has partition %d twice", metadata.ErrInvalidReplicaAssignment, r, a.partition)
			}
			if _, ok := d.image.Broker(r); !ok {
				return nil, fmt.Errorf("%w: there is no broker %d", metadata.ErrInvalidReplicaAssignment, r)
			}
		}
		placed[a.partition] = a.replicas
	}
	return placed, nil
}
