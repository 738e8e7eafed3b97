package replica

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/record"
)

// story is one replica, of node 1, and the time in milliseconds.
type story struct {
	t      *testing.T
	r      *Replica
	node   Node
	now    clock.Instant
	ticket Ticket
	asked  *Proposal // the last
	sb     strings.Builder
}

// TestStories runs the stories in testdata. Each command is one input; the
// output is what it decided and the offsets afterwards. To accept new output,
// run go test -rewrite and read the diff.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{t: t, node: Node{Self: 1, Epoch: 11, MaxLag: 30 * time.Second, Retry: 100 * time.Millisecond}}
		for id := range metadata.NodeID(4) {
			s.node.Brokers = append(s.node.Brokers, Broker{ID: id + 1, Epoch: metadata.BrokerEpoch(id + 11), Active: true})
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.sb.Reset()
			var out Out
			s.command(d, &out)
			for _, done := range out.Done {
				fmt.Fprintf(&s.sb, "done ticket=%d base=%d err=%v\n", done.Ticket, done.Base, done.Err)
			}
			if p := out.Propose; p != nil {
				fmt.Fprintf(&s.sb, "propose isr=%v at epoch %d of leader epoch %d\n", p.ISR, p.Epoch, p.LeaderEpoch)
				s.asked = p
			}
			fmt.Fprintf(&s.sb, "hw=%d disk=%d ", s.r.highWatermark, s.r.written)
			if s.r.shown > s.r.written {
				fmt.Fprintf(&s.sb, "shown=%d ", s.r.shown)
			}
			fmt.Fprintf(&s.sb, "end=%d\n", s.r.logEnd)
			return s.sb.String()
		})
	})
}

func (s *story) command(d *datadriven.TestData, out *Out) {
	r := s.r
	switch d.Cmd {
	case "new":
		s.r = New(record.Offset(s.num(d, "start", 0)), record.Offset(s.num(d, "end", 0)), record.Offset(s.num(d, "hw", 0)), nil)
	case "lead":
		r.Assigned(&Term{Leader: 1, LeaderEpoch: record.LeaderEpoch(s.num(d, "epoch", 0)), Replicas: []metadata.NodeID{1}, ISR: []metadata.NodeID{1}, MinISR: 1}, &s.node, s.now, out)
	case "assign":
		t := &Term{
			Leader: metadata.NodeID(s.num(d, "leader", -1)), LeaderEpoch: record.LeaderEpoch(s.num(d, "epoch", int64(r.epoch))),
			Epoch: metadata.PartitionEpoch(s.num(d, "state", int64(r.partitionEpoch)+1)), MinISR: int(s.num(d, "min", 2)),
			Replicas: s.nodes(d, "replicas", "1,2,3"), Recovering: d.HasArg("recovering"),
		}
		t.ISR = s.nodes(d, "isr", "1,2,3")
		r.Assigned(t, &s.node, s.now, out)
	case "broker":
		b := &s.node.Brokers[s.num(d, "id", 0)-1]
		b.Epoch, b.Active = metadata.BrokerEpoch(s.num(d, "epoch", int64(b.Epoch))), !d.HasArg("fenced")
		r.Review(&s.node, s.now, out)
	case "resign":
		r.Resign(ErrNotLeader, out)
	case "produce":
		s.ticket++
		b := batch(int32(s.num(d, "records", 1)))
		base, err := r.Produce(b, s.num(d, "acks", -1) < 0, s.ticket)
		if err != nil {
			fmt.Fprintf(&s.sb, "error: %v\n", err)
			break
		}
		fmt.Fprintf(&s.sb, "append [%d,%d) epoch=%d ticket=%d\n", base, b.NextOffset(), b.LeaderEpoch(), s.ticket)
	case "await":
		s.ticket++
		r.Await(record.Offset(s.num(d, "base", 0)), record.Offset(s.num(d, "next", 0)), s.num(d, "acks", -1) < 0, s.ticket, out)
		fmt.Fprintf(&s.sb, "ticket=%d\n", s.ticket)
	case "show":
		r.Show(record.Offset(s.num(d, "to", int64(r.logEnd))))
	case "written":
		r.Written(s.now, out)
	case "rejected":
		end := r.Rejected(errors.New("disk full"), s.now.Add(time.Second), out)
		fmt.Fprintf(&s.sb, "forget from %d\n", end)
	case "check-epoch":
		fmt.Fprintf(&s.sb, "%v\n", r.CheckLeader(record.LeaderEpoch(s.num(d, "current", -1))))
	case "end-offset-for":
		e, o := r.EndOffsetFor(record.LeaderEpoch(s.num(d, "epoch", 0)))
		fmt.Fprintf(&s.sb, "epoch=%d end=%d\n", e, o)
	case "pass":
		s.now = s.now.Add(time.Duration(s.num(d, "ms", 0)) * time.Millisecond)
		if at := r.ReviewAt(&s.node); at <= s.now {
			r.Review(&s.node, s.now, out)
			s.progress()
		}
		if at := r.ReviewAt(&s.node); at != clock.Never {
			fmt.Fprintf(&s.sb, "review in %d ms\n", at.Sub(s.now).Milliseconds())
		}
	default:
		s.replication(d, out)
	}
}

// replication is the commands that are between replicas.
func (s *story) replication(d *datadriven.TestData, out *Out) {
	r := s.r
	switch d.Cmd {
	case "report":
		from := s.num(d, "from", 2)
		counts := r.Reported(Report{
			Node: metadata.NodeID(from), BrokerEpoch: metadata.BrokerEpoch(s.num(d, "process", from+10)),
			LeaderEpoch: record.LeaderEpoch(s.num(d, "epoch", int64(r.epoch))), Durable: record.Offset(s.num(d, "durable", 0)),
			LogStart: record.Offset(s.num(d, "start", 0)),
		}, &s.node, s.now, out)
		if !counts {
			fmt.Fprintf(&s.sb, "does not count\n")
		}
	case "decided":
		what := map[string]Decision{"accepted": Accepted, "refused": Refused, "outdated": Outdated, "unanswered": Unanswered}
		r.Decided(s.asked, what[d.CmdArgs[0].Key], metadata.PartitionEpoch(s.num(d, "state", int64(s.asked.Epoch)+1)), &s.node, s.now, out)
	case "judge":
		j, div := r.Judge(record.Offset(s.num(d, "offset", 0)), record.LeaderEpoch(s.num(d, "last", -1)))
		fmt.Fprintf(&s.sb, "%s", [...]string{"agrees", "diverges", "unsure"}[j])
		if j == Diverges {
			fmt.Fprintf(&s.sb, ": epoch %d ends at %d", div.Epoch, div.End)
		}
		s.sb.WriteByte('\n')
	case "extend":
		var batches []record.Batch
		base := record.Offset(s.num(d, "base", int64(r.logEnd)))
		for _, n := range s.nodes(d, "records", "1") {
			b := batch(int32(n))
			b.Assign(base, record.LeaderEpoch(s.num(d, "epoch", int64(r.epoch))))
			base = b.NextOffset()
			batches = append(batches, b)
		}
		if err := r.Extend(batches); err != nil {
			fmt.Fprintf(&s.sb, "error: %v\n", err)
		}
	case "agreed":
		r.Agreed(record.Offset(s.num(d, "hw", 0)), out)
		s.progress()
	case "progress":
		s.progress()
	case "diverged":
		end, below, err := r.Diverged(Divergence{record.LeaderEpoch(s.num(d, "epoch", 0)), record.Offset(s.num(d, "end", 0))})
		fmt.Fprintf(&s.sb, "cut at %d, below=%t err=%v\n", end, below, err)
	case "reset":
		r.Reset()
	case "raised": // on disk there is one epoch
		start := record.Offset(s.num(d, "start", 0))
		if !r.Raised(start, []EpochStart{{Epoch: record.LeaderEpoch(s.num(d, "epoch", 0)), Start: record.Offset(s.num(d, "since", 0))}}) {
			fmt.Fprintf(&s.sb, "does nothing\n")
		}
	case "truncated":
		start, end := s.num(d, "start", int64(r.logStart)), s.num(d, "end", 0)
		epochs := r.epochs
		for n := len(epochs); n > 0 && epochs[n-1].Start >= record.Offset(end); n-- {
			epochs = epochs[:n-1]
		}
		if start == end {
			epochs = nil
		}
		r.Truncated(record.Offset(start), record.Offset(end), epochs, out)
	case "no-space":
		r.TruncateFailed(s.now.Add(time.Second), out)
	case "position":
		p := r.Position(s.now)
		fmt.Fprintf(&s.sb, "fetch from %d behind epoch %d, paused=%t, knows hw=%d\n", p.Offset, p.Last, p.Paused, p.HighWatermark)
	case "lags":
		r.Lags(func(l Lag) {
			fmt.Fprintf(&s.sb, "node %d in-sync=%t may-lead=%t durable=%d start=%d\n", l.Node, l.InSync, l.MayLead, l.Durable, l.LogStart)
		})
	case "settled":
		fmt.Fprintf(&s.sb, "%t\n", r.Settled())
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
}

func (s *story) progress() {
	if durable, ok := s.r.Progress(&s.node, s.now); ok {
		fmt.Fprintf(&s.sb, "tell the leader: durable=%d\n", durable)
	}
}

func (s *story) num(d *datadriven.TestData, name string, def int64) int64 {
	if d.HasArg(name) {
		d.ScanArgs(s.t, name, &def)
	}
	return def
}

func (s *story) nodes(d *datadriven.TestData, name, def string) (ids []metadata.NodeID) {
	if d.HasArg(name) {
		d.ScanArgs(s.t, name, &def)
	}
	for _, f := range strings.Split(def, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, metadata.NodeID(n))
	}
	return ids
}

// TestWhatIsShownIsNotRefused holds the disk to its word.
func TestWhatIsShownIsNotRefused(t *testing.T) {
	fails := func(what string, f func(r *Replica, out *Out)) {
		defer func() {
			if f, ok := recover().(*assert.Failure); !ok || f.What != what {
				t.Errorf("%v fails, want %s", f, what)
			}
		}()
		r, out := New(0, 0, 0, nil), Out{}
		n := Node{Self: 1}
		r.Assigned(&Term{Leader: 1, Replicas: []metadata.NodeID{1, 2}, ISR: []metadata.NodeID{1, 2}, MinISR: 1}, &n, 0, &out)
		for range 2 {
			if _, err := r.Produce(batch(1), true, 1); err != nil {
				t.Fatal(err)
			}
		}
		f(r, &out)
	}
	refused := errors.New("disk full")
	fails("replica: an append was refused that was shown", func(r *Replica, out *Out) {
		r.Show(1)
		r.Rejected(refused, 0, out)
	})
	fails("replica: an append is shown that will be refused", func(r *Replica, out *Out) {
		r.Rejected(refused, 0, out)
		r.Show(2)
	})
}

// batch is a header that says count records; nothing else in it is looked at.
func batch(count int32) record.Batch {
	b := make(record.Batch, record.HeaderSize)
	b[26] = byte(count - 1) // last offset delta
	return b
}
