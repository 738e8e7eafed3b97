package sim

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/client"
)

// A topic of its own would rather lose records than be without a leader: by its
// configuration, or because an operator says so when it is.

const (
	laxName       = "lax"
	laxPartitions = 2

	laxByConfig  = 1 // values of swarm.Config.Lax
	laxByCommand = 2
)

func (w *World) lax() bool { return w.cfg.Lax > 0 && len(w.machines) > 1 }

// laxTopic is the topic as it is to be.
func (w *World) laxTopic() client.NewTopic {
	t := w.topic(laxName, laxPartitions)
	t.Replication = int16(min(w.cfg.LaxReplicas, w.cfg.Nodes))
	t.Configs["min.insync.replicas"] = "1"
	if w.cfg.Lax == laxByConfig {
		t.Configs["unclean.leader.election.enable"] = "true"
	}
	return t
}

// gamble adds the client of the topic.
func (w *World) gamble(id int, clients client.Config) {
	if !w.lax() {
		return
	}
	for i := range laxPartitions {
		if w.cfg.Lax == laxByConfig {
			w.check.Lax(history.Partition{Topic: laxName, Index: int32(i)})
		}
	}
	w.gambler = client.NewGambler(w.k, w.cluster(id), history.Client(id), client.LaxTopic{
		Name: laxName, Partitions: laxPartitions, Force: w.cfg.Lax == laxByCommand, Forcing: w.check.Lax,
	}, w.check, clients)
}

// laxPartition is a partition of the topic, as the newest image has it.
func (w *World) laxPartition(index int32) (*metadata.Partition, bool) {
	t, ok := w.check.Newest().Topic(laxName)
	if !ok {
		return nil, false
	}
	return w.check.Newest().Partition(t.ID, index)
}

// isLax says whether a partition is one of the topic: what it alone has may be lost.
func (w *World) isLax(p *metadata.Partition) bool {
	t, ok := w.check.Newest().Topic(laxName)
	return ok && t.ID == p.Topic
}

// led has an operator see to it that what has no leader gets one.
func (w *World) led() {
	if w.gambler == nil || w.cfg.Lax != laxByCommand {
		return
	}
	for i := range int32(laxPartitions) {
		if p, ok := w.laxPartition(i); ok && p.Leader == metadata.NoNode {
			w.gambler.Elect(i)
		}
	}
}

// forsaken lets a replica miss what the others have, and then the others not come
// back: the partition must be available again without them. Nothing else is wrong
// meanwhile.
func (w *World) forsaken() {
	if w.gambler == nil || w.ended() || w.hopeless() || w.operator != nil {
		return
	}
	const index = 0
	if !w.runUntil(healLimit, func() bool { p, ok := w.laxPartition(index); return ok && p.Leader != metadata.NoNode && w.joined() }) {
		if !w.ended() && !w.stranded() {
			w.stuck = "the nodes do not come back, or a partition that anybody may lead has no leader"
		}
		return
	}
	p, _ := w.laxPartition(index)
	behind := p.Replicas[slices.IndexFunc(p.Replicas, func(n metadata.NodeID) bool { return n != p.Leader })]
	rest := slices.DeleteFunc(slices.Clone(p.Replicas), func(n metadata.NodeID) bool { return n == behind })
	if !w.spares(behind) || !w.spares(rest...) {
		return
	}
	w.count("last replicas in sync gone")
	w.gambler.Insist(index)
	w.bury(behind)
	written := func(what string, without ...metadata.NodeID) bool {
		was := int64(-1)
		if w.runUntil(healLimit, func() bool {
			p, ok := w.laxPartition(index)
			if out := ok && !slices.ContainsFunc(p.ISR, func(n metadata.NodeID) bool { return slices.Contains(without, n) }); !out {
				return false
			}
			if was < 0 {
				was = w.gambler.Acked[index]
			}
			return w.gambler.Acked[index] > was+1
		}) || w.ended() {
			return true
		}
		w.stuck = "nothing can be written " + what
		return false
	}
	if written("without a replica that is gone", behind) {
		w.bury(rest...)
		w.unbury(behind)
		written("without the last replicas in sync", rest...)
	}
	w.unbury(p.Replicas...)
	w.gambler.Insist(-1)
}

// spares says whether a majority of those who vote is left without some nodes: of
// those that live, for one whose disk was replaced votes only after a while, and the
// one before it still does.
func (w *World) spares(nodes ...metadata.NodeID) bool {
	c := w.controller()
	if c == nil {
		return false
	}
	voters, left := 0, 0
	for _, v := range c.node.Quorum().Members() {
		if v.Voter {
			voters++
			if node := metadata.NodeID(v.Node); w.machines[node-1].votes() && !slices.Contains(nodes, node) {
				left++
			}
		}
	}
	return 2*left > voters
}

// votes says whether a node knows that it votes, and nobody before it under its id.
func (m *machine) votes() bool {
	n := 0
	for _, v := range m.node.Quorum().Members() {
		switch {
		case metadata.NodeID(v.Node) != m.nodeID():
		case !v.Voter:
			return false
		default:
			n++
		}
	}
	return n == 1
}

// bury ends nodes, which are not started again until they are unburied.
func (w *World) bury(nodes ...metadata.NodeID) {
	for _, n := range nodes {
		m := w.machines[n-1]
		m.buried = true
		m.kill()
	}
}

func (w *World) unbury(nodes ...metadata.NodeID) {
	for _, n := range nodes {
		if m := w.machines[n-1]; m.buried {
			m.buried = false
			m.boot()
		}
	}
}
