package fetcher

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// story is a fetcher that is told what to do. It is woken after everything that
// happens, as a node does.
type story struct {
	t   *testing.T
	f   *Fetcher
	now clock.Instant
	sb  strings.Builder
}

// TestStories runs the stories in testdata. To accept new output, run go test
// -rewrite and read the diff.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		cfg := DefaultConfig()
		cfg.Self = 1
		s := &story{t: t, f: New(cfg)}
		s.f.Register(7)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.sb.Reset()
			var out Out
			switch d.Cmd {
			case "follow":
				s.follow(d)
			case "unfollow":
				for _, a := range d.CmdArgs {
					s.f.Follow(Follow{Log: logID(t, a.Key), Leader: metadata.NoNode}, s.now)
				}
			case "answer":
				s.answer(d, &out)
			case "lost":
				var from, seq int
				d.ScanArgs(t, "from", &from)
				d.ScanArgs(t, "seq", &seq)
				s.f.Answer(metadata.NodeID(from), uint64(seq), nil, wire.ErrPeerGone, s.now, &out)
			case "pass":
				var ms int
				d.ScanArgs(t, "ms", &ms)
				s.now = s.now.Add(time.Duration(ms) * time.Millisecond)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			s.f.Wake(s.now, &out)
			s.print(out)
			switch next := s.f.NextWake(); {
			case next <= s.now:
				t.Fatalf("%s: wants to be woken at %d, and it is %d", d.Pos, next, s.now)
			case next != clock.Never:
				fmt.Fprintf(&s.sb, "wake in %v\n", next.Sub(s.now))
			}
			return s.sb.String()
		})
	})
}

func logID(t *testing.T, name string) (id storage.LogID) {
	t.Helper()
	topic, index, _ := strings.Cut(name, "-")
	copy(id.Topic[:], topic)
	if _, err := fmt.Sscanf(index, "%d", &id.Partition); err != nil {
		t.Fatalf("partition %q: %v", name, err)
	}
	return id
}

func nameOf(topic [16]byte, index int32) string {
	return fmt.Sprintf("%s-%d", strings.TrimRight(string(topic[:]), "\x00"), index)
}

// follow is follow t-0 ... leader=2 [epoch=1] [offset=0] [last=-1] [start=0]
// [paused].
func (s *story) follow(d *datadriven.TestData) {
	leader, epoch, offset, last, start := 2, int32(1), int64(0), int32(-1), int64(0)
	d.MaybeScanArgs(s.t, "leader", &leader)
	d.MaybeScanArgs(s.t, "epoch", &epoch)
	d.MaybeScanArgs(s.t, "offset", &offset)
	d.MaybeScanArgs(s.t, "last", &last)
	d.MaybeScanArgs(s.t, "start", &start)
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 && a.Key != "paused" {
			s.f.Follow(Follow{
				Log: logID(s.t, a.Key), Leader: metadata.NodeID(leader), LeaderEpoch: record.LeaderEpoch(epoch), Offset: record.Offset(offset),
				LastFetchedEpoch: record.LeaderEpoch(last), LogStart: record.Offset(start), Paused: d.HasArg("paused"),
			}, s.now)
		}
	}
}

// answer is answer from=2 seq=1 [session=9] [code=0] [news=(t-0 ...)]
// [batches=(...)] [diverging=(...)] [not-leader=(...)] [bad=(...)].
func (s *story) answer(d *datadriven.TestData, out *Out) {
	var from, seq int
	resp := &wire.Fetched{}
	d.ScanArgs(s.t, "from", &from)
	d.ScanArgs(s.t, "seq", &seq)
	d.MaybeScanArgs(s.t, "session", &resp.SessionID)
	d.MaybeScanArgs(s.t, "code", &resp.ErrorCode)
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "from", "seq", "session", "code":
			continue
		}
		for _, name := range strings.Fields(strings.Join(a.Vals, " ")) {
			id := logID(s.t, name)
			p := wire.FetchedPartition{Topic: id.Topic, Index: id.Partition, HighWatermark: 3, Diverging: wire.Divergence{Epoch: record.NoEpoch}}
			switch a.Key {
			case "news":
			case "batches":
				p.Batches = []record.Batch{make(record.Batch, record.HeaderSize)}
			case "diverging":
				p.Diverging = wire.Divergence{Epoch: 0, End: 2}
			case "not-leader":
				p.Err = replica.ErrNotLeader
			case "bad":
				p.Bad = errors.New("checksum")
			default:
				s.t.Fatalf("unknown argument %s", a.Key)
			}
			resp.Partitions = append(resp.Partitions, p)
		}
	}
	s.f.Answer(metadata.NodeID(from), uint64(seq), resp, nil, s.now, out)
}

func (s *story) print(out Out) {
	for _, l := range out.Lines {
		fmt.Fprintf(&s.sb, "line: %s %v\n", l.Text, l.Attrs)
	}
	for _, r := range out.Received {
		fmt.Fprintf(&s.sb, "received %s from=%d epoch=%d", nameOf(r.Topic, r.Index), r.From, r.LeaderEpoch)
		switch {
		case r.Err != nil:
			fmt.Fprintf(&s.sb, " error: %v", r.Err)
		case r.Diverging.Epoch != record.NoEpoch:
			fmt.Fprintf(&s.sb, " diverging")
		default:
			fmt.Fprintf(&s.sb, " hw=%d batches=%d", r.HighWatermark, len(r.Batches))
		}
		if r.Bad != nil {
			fmt.Fprintf(&s.sb, " bad: %v", r.Bad)
		}
		s.sb.WriteString("\n")
	}
	for _, c := range out.Calls {
		fmt.Fprintf(&s.sb, "call %d to %d: %s\n", c.Seq, c.To, describe(c.Req))
	}
}

func describe(r *kmsg.FetchRequest) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "fetch session=%d epoch=%d", r.SessionID, r.SessionEpoch)
	if r.MaxWaitMillis > 0 {
		fmt.Fprintf(&sb, " wait=%d", r.MaxWaitMillis)
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			fmt.Fprintf(&sb, " %s@%d", nameOf(t.TopicID, p.Partition), p.FetchOffset)
			if p.CurrentLeaderEpoch != 1 || p.LastFetchedEpoch != -1 || p.LogStartOffset != 0 {
				fmt.Fprintf(&sb, "(epoch=%d last=%d start=%d)", p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset)
			}
		}
	}
	for _, t := range r.ForgottenTopics {
		for _, p := range t.Partitions {
			fmt.Fprintf(&sb, " forget %s", nameOf(t.TopicID, p))
		}
	}
	return sb.String()
}
