package partition

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage"
)

// What the disk does not give is given up where another replica is in sync, and
// nowhere else; nor is a log for another error.
func TestAReadThatFailsIsDamageWhereOthersAreInSync(t *testing.T) {
	for _, c := range []struct {
		isr     []metadata.NodeID
		err     error
		damaged bool
	}{
		{[]metadata.NodeID{1, 2}, syscall.EIO, true},
		{[]metadata.NodeID{1}, syscall.EIO, false},
		{[]metadata.NodeID{1, 2}, syscall.EMFILE, false},
		{[]metadata.NodeID{1}, &storage.DamageError{File: "f", What: "rot"}, true},
	} {
		t.Run(fmt.Sprint(c.isr, c.err), func(t *testing.T) {
			cl := newCluster(t)
			cl.command(&datadriven.TestData{Cmd: "assign", CmdArgs: []datadriven.CmdArg{
				{Key: "leader", Vals: []string{"1"}}, {Key: "isr", Vals: []string{"1"}}, {Key: "replicas", Vals: []string{"1,2"}},
			}})
			m, _, err := metadata.Apply(metadata.Image{}, 1, []metadata.Record{
				&metadata.AddTopic{ID: clusterTopic.ID, Name: "t"},
				&metadata.Partition{Topic: clusterTopic.ID, Replicas: []metadata.NodeID{1, 2}, ISR: c.isr, Leader: 1},
			})
			if err != nil {
				t.Fatal(err)
			}
			table := cl.nodes[1].table
			table.SetImage(m)
			var out Out
			table.ReadFailed(clusterLog, &storage.RegionError{Region: storage.Region{Log: clusterLog}, Err: c.err}, cl.at, &out)
			if damage := table.partition(clusterLog).damage; c.damaged != errors.Is(damage, c.err) {
				t.Errorf("damage %v", damage)
			}
			if c.damaged != slices.Contains(out.Damaged, clusterLog) || len(out.Lines) != 1 {
				t.Errorf("damaged %v, %d lines", out.Damaged, len(out.Lines))
			}
			table.ReadFailed(storage.LogID{Partition: 9}, c.err, cl.at, &out) // of a log that is gone
			if len(out.Lines) != 1 {
				t.Errorf("a line of a log that is not here: %v", out.Lines)
			}
		})
	}
}
