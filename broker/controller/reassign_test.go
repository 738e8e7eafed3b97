package controller

import (
	"reflect"
	"testing"

	"github.com/pawlbroker/pawl/broker/metadata"
)

func TestAReassignmentIsDoneWhenAllThatStayAreInSync(t *testing.T) {
	type list = []metadata.NodeID
	for _, c := range []struct {
		what     string
		from, to metadata.Partition
		done     bool
	}{
		{"none is under way", metadata.Partition{Replicas: list{1, 2}, ISR: list{1, 2}}, metadata.Partition{}, false},
		{"one that joins is not in sync",
			metadata.Partition{Replicas: list{3, 4, 1, 2}, ISR: list{1, 2, 3}, Adding: list{3, 4}, Removing: list{1, 2}}, metadata.Partition{}, false},
		{"one that stays is not in sync",
			metadata.Partition{Replicas: list{3, 1, 2}, ISR: list{2, 3}, Adding: list{3}, Removing: list{2}}, metadata.Partition{}, false},
		{"all joined", metadata.Partition{Replicas: list{3, 4, 1, 2}, ISR: list{1, 2, 4, 3}, Adding: list{3, 4}, Removing: list{1, 2}, Leader: 1},
			metadata.Partition{Replicas: list{3, 4}, ISR: list{4, 3}, Leader: 1}, true},
		{"those that leave need not be in sync",
			metadata.Partition{Replicas: list{3, 1, 2}, ISR: list{3}, ELR: list{2}, LastKnownELR: list{1}, Adding: list{3}, Removing: list{1, 2}},
			metadata.Partition{Replicas: list{3}, ISR: list{3}}, true},
		{"only some join", metadata.Partition{Replicas: list{1, 2}, ISR: list{2, 1}, Adding: list{2}}, metadata.Partition{Replicas: list{1, 2}, ISR: list{2, 1}}, true},
		{"only some leave", metadata.Partition{Replicas: list{1, 2}, ISR: list{1}, ELR: list{2}, Removing: list{2}}, metadata.Partition{Replicas: list{1}, ISR: list{1}}, true},
		{"all leave", metadata.Partition{Replicas: list{1, 2}, ISR: list{1, 2}, Removing: list{1, 2}}, metadata.Partition{}, false},
	} {
		to, done := complete(c.from)
		if !c.done {
			c.to = c.from
		}
		if done != c.done || !reflect.DeepEqual(to, c.to) {
			t.Errorf("%s: done %t: %v", c.what, done, &to)
		}
	}
}
