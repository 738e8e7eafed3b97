package controller

import (
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
)

// Due returns what the active controller decides by itself at a moment, in
// batches, from what it decides on and what it knows about brokers. It is to be
// called when the time of s.NextWake has come.
func (c *Controller) Due(m metadata.Image, s *Sessions, now clock.Instant) [][]metadata.Record {
	var batches [][]metadata.Record
	decide := func(r Result) {
		next, _, err := metadata.Apply(m, m.Offset(), r.Records)
		assert.That(err == nil, "controller: decided what cannot be applied")
		m = next
		batches = append(batches, r.Batches()...)
	}
	if expired := s.Expired(m, now); len(expired) > 0 {
		decide(c.Fence(m, expired))
	}
	if now >= s.adoptAt {
		s.adoptAt = clock.Never
		decide(c.Adopt(m))
		decide(c.Mend(m))
	}
	if now >= s.handoverAt {
		s.handoverAt = now.Add(s.cfg.Grace)
		if ready := s.HandedOver(m, now); len(ready) > 0 {
			decide(c.Finish(m, ready))
		}
	}
	if now >= s.rebalanceAt {
		decide(c.Mend(m))
		res, more := c.Rebalance(m)
		decide(res)
		if s.rebalanceAt = now.Add(s.cfg.RebalanceEvery); more {
			s.rebalanceAt = now.Add(min(rebalanceAgain, s.cfg.RebalanceEvery))
		}
	}
	return batches
}
