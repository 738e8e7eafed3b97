package producer

import (
	"maps"
	"slices"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/storage/record"
)

// Active is what is known of one producer, for those who look on.
type Active struct {
	ID           record.ProducerID
	Epoch        record.ProducerEpoch
	LastSequence record.Sequence
	Seen         clock.Instant // when it last wrote, or when that was recovered
}

// Active lists the producers that are known, by id.
func (s *State) Active() []Active {
	list := make([]Active, 0, len(s.producers))
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		e := s.producers[id]
		list = append(list, Active{id, e.last().epoch, e.last().last, e.seen})
	}
	return list
}
