package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// BrokerRegistration
//
// Behavior:
//   - A broker of another cluster is INCONSISTENT_CLUSTER_ID, one that cannot be
//     reached INVALID_REGISTRATION.
//   - A broker that is registered and not fenced may be alive; another process
//     with its id is DUPLICATE_BROKER_REGISTRATION. Who asked tries again: the
//     other is fenced soon if it is gone (see Sessions). There is no doubt about
//     the controller's own node, whose process this is.
//   - A new process has a new broker epoch (KIP-380), and is in no ISR. A
//     process that registers again keeps its epoch, since what it has under way
//     for that must stay valid (KAFKA-16952).
//   - It begins fenced, until it knows the metadata up to its registration; the
//     controller's own broker knows it, and is not fenced.
//   - What was acknowledged is on disk, so a process that ended in whatever way
//     has it all, and stays an eligible leader (KIP-966). Not so of logs that it
//     says are damaged; of topics with pawl.flush=os, if it did not end cleanly
//     and so its previous epoch is not the registered one (KAFKA-15586); and of
//     everything, if it has another data directory (KAFKA-14139).
//   - A partition with a single replica is its leader's for good, damaged or not:
//     there is no other to choose from. With another directory it is not.
//   - But only if nobody follows it: a leader shows its followers what it has not
//     synced. A process that has lost that must not lead on in the same leader
//     epoch, in which it would put other records where they have those.
//
// Source: KIP-631, KIP-858 (directories), KIP-966.

// Listener names of a registration. The listener for clients is the first that
// is not for peers.
const peerListener = "PEER"

// registration is what a broker says of itself when it starts.
type registration struct {
	metadata.RegisterBroker
	damaged []wire.DamagedLog
	clean   bool // the process before ended cleanly
}

// RegisterBroker decides about a broker that has started.
func (c *Controller) RegisterBroker(m metadata.Image, req *kmsg.BrokerRegistrationRequest) Result {
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	resp.Version = req.Version
	r, err := c.registration(m, req)
	s := c.sequence(m)
	if err == nil {
		resp.BrokerEpoch, err = s.register(&r)
	}
	if err != nil {
		resp.ErrorCode, resp.BrokerEpoch = wire.Code(err), -1
	}
	return s.result(resp)
}

func (c *Controller) registration(m metadata.Image, req *kmsg.BrokerRegistrationRequest) (registration, error) {
	r := registration{RegisterBroker: metadata.RegisterBroker{Node: metadata.NodeID(req.BrokerID), Incarnation: req.IncarnationID}}
	if req.ClusterID != c.cfg.ClusterID {
		return r, fmt.Errorf("%w: broker %d is of cluster %s, this is %s", metadata.ErrInconsistentClusterID, r.Node, req.ClusterID, c.cfg.ClusterID)
	}
	listening := false
	for i := range req.Listeners {
		l := &req.Listeners[i]
		switch host := strings.Clone(l.Host); {
		case l.Name == peerListener:
			r.PeerHost, r.PeerPort = host, int32(l.Port)
		case !listening:
			listening, r.Host, r.Port = true, host, int32(l.Port)
		}
	}
	if r.Node < 0 || !listening {
		return r, fmt.Errorf("%w: broker %d names no listener for clients", metadata.ErrInvalidRegistration, r.Node)
	}
	if req.Rack != nil {
		r.Rack = strings.Clone(*req.Rack)
	}
	if len(req.LogDirs) > 0 {
		r.Directory = req.LogDirs[0]
	}
	var ok bool
	if r.damaged, ok = damagedLogs(&req.UnknownTags); !ok {
		return r, fmt.Errorf("%w: broker %d names damaged logs in a form that cannot be read", metadata.ErrInvalidRegistration, r.Node)
	}
	old, ok := m.Broker(r.Node)
	r.clean = ok && req.PreviousBrokerEpoch == int64(old.Epoch)
	return r, nil
}

// damagedLogs are the logs that a broker says are damaged. It reports false if
// that cannot be read.
func damagedLogs(tags *kmsg.Tags) ([]wire.DamagedLog, bool) {
	b, ok := wire.GetTagBytes(tags, wire.TagDamaged)
	if !ok {
		return nil, true
	}
	return wire.DecodeDamaged(b)
}

// register decides about a registration, and returns the broker's epoch.
func (s *sequence) register(r *registration) (int64, error) {
	old, again := s.image.Broker(r.Node)
	switch {
	case again && old.Incarnation == r.Incarnation:
		b := r.RegisterBroker
		b.Epoch, b.Fenced, b.InShutdown = old.Epoch, old.Fenced, old.InShutdown
		if b.String() != old.String() {
			s.records = append(s.records, &b)
		}
		return int64(b.Epoch), nil
	case again && !old.Fenced && r.Node != s.cfg.Node:
		return -1, fmt.Errorf("%w: broker %d, at %s:%d", metadata.ErrDuplicateBroker, r.Node, old.Host, old.Port)
	}
	s.replace(r, old)
	return int64(r.Epoch), nil
}

// replace makes it part of the decision that a new process takes the place of
// old, if there is one.
func (s *sequence) replace(r *registration, old *metadata.Broker) {
	b := r.RegisterBroker
	b.Epoch, b.Fenced = s.image.NextBrokerEpoch(), true
	r.Epoch = b.Epoch
	s.suppose(&b)
	displaced := s.displaced(r, old)
	if r.Node != s.cfg.Node {
		s.records = append(append(s.records, displaced...), &b)
		return
	}
	registered := b
	registered.Fenced = false
	s.suppose(&metadata.BrokerChange{Node: b.Node, Epoch: b.Epoch})
	revived := s.revived(b.Node, displaced)
	if old != nil && !old.Fenced {
		s.records = append(append(s.records, revived...), &registered)
	} else {
		s.records = append(append(s.records, &registered), revived...)
	}
}

// displaced is what becomes of partitions without the process that old was.
func (s *sequence) displaced(r *registration, old *metadata.Broker) []metadata.Record {
	node := []metadata.NodeID{r.Node}
	wiped := old != nil && r.Directory != old.Directory && old.Directory != [16]byte{}
	var records []metadata.Record
	for p := range s.image.PartitionsOf(r.Node) {
		single := len(origin(p)) == 1 && len(without(slices.Concat(p.ISR, p.ELR), node)) == 0
		unfit := wiped || !single && (r.isDamaged(p) || !r.clean && s.mayLose(p))
		if single && !unfit && len(p.Replicas) == 1 {
			continue
		}
		to := *p
		to.ISR = without(p.ISR, node)
		var q *metadata.Partition
		if unfit {
			to.ELR = without(p.ELR, node)
			q = s.change(p, to, online, r.Node)
		} else {
			q = s.change(p, to, online)
		}
		if q != nil {
			records = append(records, q)
		}
	}
	return records
}

// revived is displaced, with leaders elected for all partitions of a node that
// have none. No partition is in it twice.
func (s *sequence) revived(n metadata.NodeID, displaced []metadata.Record) []metadata.Record {
	var records []metadata.Record
	for p := range s.image.PartitionsOf(n) {
		latest := p
		if len(displaced) > 0 {
			if q := displaced[0].(*metadata.Partition); q.Topic == p.Topic && q.Index == p.Index {
				latest, displaced = q, displaced[1:]
			}
		}
		if latest.Leader == metadata.NoNode {
			if q := s.change(latest, *latest, online); q != nil {
				latest = q
			}
		}
		if latest != p {
			records = append(records, latest)
		}
	}
	return records
}

func (r *registration) isDamaged(p *metadata.Partition) bool {
	return slices.Contains(r.damaged, wire.DamagedLog{Topic: p.Topic, Index: p.Index})
}

// mayLose reports whether a partition's records can be lost with the power.
func (s *sequence) mayLose(p *metadata.Partition) bool {
	t, ok := s.image.TopicByID(p.Topic)
	return ok && t.Config(s.broker()).PageCache
}
