package partition

// DescribeLogDirs (key 35), versions 1 to 4.
//
// Behaviour:
//   - Tells the size, in bytes, of the logs of this node's replicas, and how far
//     their ends are behind the high watermark. There is one data directory, and
//     no replica is on its way to another.
//   - Null topics ask for all replicas. Those that are not here are left out.
//
// Versions: 2 is flexible, 3 adds an error for the whole, 4 the size of the
// volume (KIP-827), which is -1 if nobody knows.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/wire"
)

// LogDir is a data directory.
type LogDir struct {
	Path          string
	Total, Usable int64 // bytes of the volume, and how many of them are free; -1 if unknown
}

// DescribeLogDirs answers a DescribeLogDirs request about the node's data
// directory.
func (t *Table) DescribeLogDirs(c wire.Caller, req *wire.Request, dir LogDir, out *Out) {
	body := req.Body.(*kmsg.DescribeLogDirsRequest)
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.SetVersion(body.Version)
	rd := kmsg.NewDescribeLogDirsResponseDir()
	rd.Dir, rd.TotalBytes, rd.UsableBytes = dir.Path, dir.Total, dir.Usable
	asked := map[string]map[int32]bool{}
	for i := range body.Topics {
		top := &body.Topics[i]
		if asked[top.Topic] == nil {
			asked[top.Topic] = map[int32]bool{}
		}
		for _, index := range top.Partitions {
			asked[top.Topic][index] = true
		}
	}
	t.Glances(func(g Glance) {
		if body.Topics != nil && !asked[g.Topic][g.Log.Partition] {
			return
		}
		if n := len(rd.Topics); n == 0 || rd.Topics[n-1].Topic != g.Topic {
			rt := kmsg.NewDescribeLogDirsResponseDirTopic()
			rt.Topic = g.Topic
			rd.Topics = append(rd.Topics, rt)
		}
		rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		rp.Partition, rp.Size = g.Log.Partition, g.View.Size()
		rp.OffsetLag = max(0, int64(g.HighWatermark-g.LogEnd))
		rt := &rd.Topics[len(rd.Topics)-1]
		rt.Partitions = append(rt.Partitions, rp)
	})
	resp.Dirs = append(resp.Dirs, rd)
	out.reply(c, wire.Response{Body: resp})
}
