package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlbroker/pawl/storage/record"
)

// TestStories runs the stories in testdata. Each command is one input; the
// output is what it decided and the offsets afterwards. To accept new output,
// run go test -rewrite and read the diff.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var r *Replica
		var ticket Ticket
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out Out
			var sb strings.Builder
			switch d.Cmd {
			case "new":
				r = New(record.Offset(arg(t, d, "start")), record.Offset(arg(t, d, "end")), nil)
			case "lead":
				r.Lead(record.LeaderEpoch(arg(t, d, "epoch")), &out)
			case "resign":
				r.Resign(ErrNotLeader, &out)
			case "produce":
				ticket++
				b := batch(int32(arg(t, d, "records")))
				base, err := r.Produce(b, ticket)
				if err != nil {
					fmt.Fprintf(&sb, "error: %v\n", err)
					break
				}
				fmt.Fprintf(&sb, "append [%d,%d) epoch=%d ticket=%d\n", base, b.NextOffset(), b.LeaderEpoch(), ticket)
			case "await":
				ticket++
				r.Await(record.Offset(arg(t, d, "base")), record.Offset(arg(t, d, "next")), ticket, &out)
				fmt.Fprintf(&sb, "ticket=%d\n", ticket)
			case "written":
				r.Written(&out)
			case "rejected":
				end := r.Rejected(errors.New("disk full"), &out)
				fmt.Fprintf(&sb, "forget from %d\n", end)
			case "check-epoch":
				fmt.Fprintf(&sb, "%v\n", r.CheckEpoch(record.LeaderEpoch(arg(t, d, "current"))))
			case "end-offset-for":
				e, o := r.EndOffsetFor(record.LeaderEpoch(arg(t, d, "epoch")))
				fmt.Fprintf(&sb, "epoch=%d end=%d\n", e, o)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			for _, done := range out.Done {
				fmt.Fprintf(&sb, "done ticket=%d base=%d err=%v\n", done.Ticket, done.Base, done.Err)
			}
			fmt.Fprintf(&sb, "hw=%d disk=%d end=%d\n", r.highWatermark, r.written, r.logEnd)
			return sb.String()
		})
	})
}

func arg(t *testing.T, d *datadriven.TestData, name string) (v int64) {
	t.Helper()
	d.ScanArgs(t, name, &v)
	return v
}

// batch is a header that says count records; nothing else in it is looked at.
func batch(count int32) record.Batch {
	b := make(record.Batch, record.HeaderSize)
	b[26] = byte(count - 1) // last offset delta
	return b
}
