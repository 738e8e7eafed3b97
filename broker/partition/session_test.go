package partition

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/wire"
)

// sessionFetch is a fetch of a session: session epoch=0 [topics=(t@5 ...)]
// [forget=(t ...)] [wait=0] [min=1] [rack=r] [unknown]. Epoch 0 begins one, which
// those that follow are of; they end it with epoch -1.
func (s *story) sessionFetch(d *datadriven.TestData) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes = 12, 1, 1<<20
	d.ScanArgs(s.t, "epoch", &req.SessionEpoch)
	d.MaybeScanArgs(s.t, "wait", &req.MaxWaitMillis)
	d.MaybeScanArgs(s.t, "min", &req.MinBytes)
	d.MaybeScanArgs(s.t, "rack", &req.Rack)
	req.SessionID = s.session
	if d.HasArg("unknown") {
		req.SessionID++
	}
	for _, a := range d.CmdArgs {
		for _, text := range strings.Fields(strings.Join(a.Vals, " ")) {
			switch a.Key {
			case "topics":
				rt, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
				rt.Topic, _, _ = strings.Cut(text, "@")
				if _, err := fmt.Sscanf(text, rt.Topic+"@%d", &p.FetchOffset); err != nil {
					s.t.Fatal(err)
				}
				p.PartitionMaxBytes = 1 << 20
				rt.Partitions = append(rt.Partitions, p)
				req.Topics = append(req.Topics, rt)
			case "forget":
				rt := kmsg.NewFetchRequestForgottenTopic()
				rt.Topic, rt.Partitions = text, []int32{0}
				req.ForgottenTopics = append(req.ForgottenTopics, rt)
			}
		}
	}
	var out Out
	s.table.Fetch(s.caller(), &wire.Request{Body: req, Peer: wire.NoPeer}, s.at, &out)
	s.act(out)
}
