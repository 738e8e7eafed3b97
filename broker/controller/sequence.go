package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// sequence is a decision about brokers and their partitions, of which there may
// be more than one batch takes. Its records are in such an order that it does
// no harm if only the first of them are ever committed: a broker is fenced after
// the last partition that it led, and unfenced before the first that it is to
// lead.
//
// Its image is as if what was supposed had happened. The partitions are those
// of before, each of which is changed at most once.
type sequence struct {
	*draft
	records []metadata.Record
}

func (c *Controller) sequence(m metadata.Image) *sequence { return &sequence{draft: c.draft(m)} }

// suppose has the image say what records will.
func (s *sequence) suppose(records ...metadata.Record) {
	next, _, err := metadata.Apply(s.image, s.image.Offset(), records)
	assert.That(err == nil, "controller: supposed what cannot be")
	s.image = next
}

// alter makes the change of a partition part of the decision.
func (s *sequence) alter(p *metadata.Partition, to metadata.Partition, how election, unfit ...metadata.NodeID) {
	if q := s.change(p, to, how, unfit...); q != nil {
		s.records = append(s.records, q)
	}
}

// leave takes nodes, which are supposed to be fenced, out of all ISRs.
func (s *sequence) leave(nodes ...metadata.NodeID) {
	for i, n := range nodes {
		for p := range s.image.PartitionsOf(n) {
			before := func(other metadata.NodeID) bool { return slices.Contains(p.Replicas, other) }
			if slices.ContainsFunc(nodes[:i], before) {
				continue // done already, for all nodes
			}
			to := *p
			to.ISR = without(p.ISR, nodes)
			if len(to.ISR) < len(p.ISR) {
				s.alter(p, to, online)
			}
		}
	}
}

// revive elects leaders for those partitions of a node that have none.
func (s *sequence) revive(n metadata.NodeID) {
	for p := range s.image.PartitionsOf(n) {
		if p.Leader == metadata.NoNode {
			s.alter(p, *p, online)
		}
	}
}

// result is what was decided.
func (s *sequence) result(resp kmsg.Response) Result {
	return Result{Records: s.records, Response: resp, batches: split(s.cfg, s.records)}
}

// split cuts records into batches that are not too large.
func split(cfg *Config, records []metadata.Record) [][]metadata.Record {
	var batches [][]metadata.Record
	from, size := 0, 0
	for i, r := range records {
		n := len(metadata.Encode([]metadata.Record{r}))
		if i > from && (i-from == cfg.MaxRecords || size+n > cfg.MaxBytes) {
			batches = append(batches, records[from:i:i])
			from, size = i, 0
		}
		size += n
	}
	if from < len(records) {
		batches = append(batches, records[from:])
	}
	return batches
}
