package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/record"
)

// A leader that hears of a smaller ISR before it hears of a larger minimum, which
// was decided first, commits nothing without whoever left: that is an eligible
// leader.
func TestAnISRCountsWhenTheMetadataHaveIt(t *testing.T) {
	c := newCluster(t)
	do := func(cmd string, args ...string) {
		d := &datadriven.TestData{Cmd: cmd}
		for i := 0; i < len(args); i += 2 {
			d.CmdArgs = append(d.CmdArgs, datadriven.CmdArg{Key: args[i], Vals: []string{args[i+1]}})
		}
		c.command(d)
	}
	do("assign", "leader", "1", "isr", "1,2", "replicas", "1,2", "min", "1")
	m, _, err := metadata.Apply(metadata.Image{}, 1, []metadata.Record{
		&metadata.AddTopic{ID: clusterTopic.ID, Name: "t"},
		&metadata.Partition{Topic: clusterTopic.ID, Replicas: []metadata.NodeID{1, 2}, ISR: []metadata.NodeID{1, 2}, Leader: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	leader := c.nodes[1]
	leader.table.SetImage(m)
	do("produce", "acks", "1")
	do("run", "node", "1")
	do("pass", "ms", fmt.Sprint(time.Minute.Milliseconds()))
	if len(leader.proposals) != 1 || len(leader.proposals[0].ISR) != 1 {
		t.Fatalf("proposals %v", leader.proposals)
	}
	var out Out
	leader.table.ISRDecided(leader.proposals[0], 1, nil, c.at, &out)
	if hw := c.highWatermark(1); hw != 0 {
		t.Fatalf("high watermark %d: it has committed without node 2", hw)
	}
	// With the ISR comes what it was decided on: two replicas must be in sync.
	do("assign", "leader", "1", "isr", "1", "elr", "2", "replicas", "1,2", "min", "2", "state", "1")
	if hw := c.highWatermark(1); hw != 0 {
		t.Fatalf("high watermark %d: it has committed with one in sync of two", hw)
	}
	do("assign", "leader", "1", "isr", "1", "replicas", "1,2", "min", "1", "state", "2")
	if hw := c.highWatermark(1); hw != 1 {
		t.Fatalf("high watermark %d, want 1: one is enough", hw)
	}
}

func (c *cluster) highWatermark(node metadata.NodeID) record.Offset {
	return c.nodes[node].table.partition(clusterLog).replica.HighWatermark()
}
