package check

import (
	"slices"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// era is what is committed in leader epochs from one on, up to the next era's: one
// that began with an election of a leader that may have lacked something. What that
// one lacked is given up, then and there; what is committed in the era stays.
type era struct {
	since         record.LeaderEpoch // the first is the epoch of the election
	begun         bool               // somebody has led in it
	highWatermark record.Offset
	committed     []entry // everything below it, of the log that first had it
	reigns        []reign // by epoch
}

// reign is how far the high watermark had come when leaders of an epoch last moved
// it.
type reign struct {
	epoch record.LeaderEpoch
	upTo  record.Offset
}

// rose says that the leader of an epoch has moved the high watermark.
func (e *era) rose(epoch record.LeaderEpoch) {
	i, ok := slices.BinarySearchFunc(e.reigns, epoch, func(r reign, e record.LeaderEpoch) int { return int(r.epoch) - int(e) })
	if !ok {
		e.reigns = slices.Insert(e.reigns, i, reign{epoch: epoch})
	}
	e.reigns[i].upTo = e.highWatermark
}

// before is what was committed by leaders before an epoch. Who learns late that
// it has led need not have what was committed after it.
func (e *era) before(epoch record.LeaderEpoch) (at record.Offset) {
	for _, r := range e.reigns {
		if r.epoch < epoch {
			at = max(at, r.upTo)
		}
	}
	return at
}

// eraOf is the era of a leader epoch, by its place in eras.
func (t *truth) eraOf(epoch record.LeaderEpoch) int {
	i := len(t.eras) - 1
	for i > 0 && t.eras[i].since > epoch {
		i--
	}
	return i
}

// newest is the last era in which somebody has led.
func (t *truth) newest() *era {
	i := len(t.eras) - 1
	for !t.eras[i].begun {
		i--
	}
	return t.eras[i]
}

// begin begins an era with the log of who is first to lead in it: it has of the era
// before what that log has of it.
func (t *truth) begin(i int, l *life) {
	e := t.eras[i]
	before := i - 1
	for !t.eras[before].begun {
		before--
	}
	e.begun = true
	for _, was := range t.eras[before].committed {
		if at, ok := find(l.ghost.entries, was.base); !ok || l.ghost.entries[at].chain != was.chain {
			break
		}
		e.committed = append(e.committed, was)
		e.highWatermark = was.id.next
	}
	e.rose(e.since - 1)
}

// enters says that a replica lives in the era of a leader epoch from here on: it
// leads, or has what its leader has. Of what it knew to be committed it may have
// lost what is not below end.
func (l *life) enters(t *truth, epoch record.LeaderEpoch, end record.Offset) {
	if i := t.eraOf(epoch); i > l.era {
		l.era = i
		l.highWatermark, l.committed = min(l.highWatermark, end), min(l.committed, end)
	}
}

// uncleanly says whether a partition has ever been led by who may have lacked
// something: then an offset may have had several batches.
func (c *Checker) uncleanly(p history.Partition) bool {
	t := c.truths[c.names[p]]
	return t != nil && len(t.eras) > 1
}

// Lax says of a topic's partitions that they may be led by who lacks something, or
// one of them, that an operator has said so.
func (c *Checker) Lax(p history.Partition) { c.lax[p] = true }

// Applied looks at what has changed in the metadata of some node, change by change.
func (c *Checker) Applied(d metadata.Delta) {
	for _, p := range d.Partitions {
		t := c.truth(storage.LogID{Topic: p.Topic, Partition: p.Index})
		was := t.state
		if was != nil && p.Epoch <= was.Epoch {
			continue // another node has told of it
		}
		t.state = p
		if was == nil || p.LeaderEpoch == was.LeaderEpoch || !unclean(was, p) {
			continue
		}
		t.eras = append(t.eras, &era{since: p.LeaderEpoch})
		c.Unclean++
		name := history.Partition{Index: p.Index}
		if topic, ok := c.newest.TopicByID(p.Topic); ok {
			name.Topic = topic.Name
		}
		if !c.lax[name] {
			c.Violate("nobody leads without everything unless somebody says so", "%s: from %v to %v", name, was, p)
		}
	}
}

// unclean says whether a partition's leader was elected though nobody vouched for it.
// One that was let into the ISR by the leader before it, with it, may be elected with
// that same change.
func unclean(was, is *metadata.Partition) bool {
	return is.Leader != metadata.NoNode && !slices.Contains(was.ISR, is.Leader) && !slices.Contains(was.ELR, is.Leader) &&
		(is.Recovering || len(is.ISR) == 1)
}
