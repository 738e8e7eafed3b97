package quorum

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlbroker/pawl/broker/clock"
)

// A story is told to one node, whose disk is a list of records.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/one", func(t *testing.T, path string) {
		var (
			q    *Quorum
			disk [][]byte
			save *Save
		)
		self, voters := NodeID(1), []NodeID{1}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out Out
			var text strings.Builder
			switch d.Cmd {
			case "voters":
				voters = nil
				for _, a := range d.CmdArgs {
					var id int32
					fmt.Sscan(a.Key, &id)
					voters = append(voters, NodeID(id))
				}
			case "node":
				var id int32
				fmt.Sscan(d.CmdArgs[0].Key, &id)
				self = NodeID(id)
				return ""
			case "start":
				cfg := DefaultConfig(self)
				cfg.Voters = voters
				save = nil
				var err error
				if q, err = New(cfg, rand.New(rand.NewPCG(1, 1)), disk, &out); err != nil {
					return err.Error()
				}
			case "wake":
				var at int
				d.ScanArgs(t, "at", &at)
				q.Woken(clock.Instant(0).Add(time.Duration(at)*time.Millisecond), &out)
			case "propose":
				ticket, err := q.Propose([]byte(d.CmdArgs[0].Key), &out)
				fmt.Fprintf(&text, "ticket=%d err=%v\n", ticket, err)
			case "saved":
				if save.Replace {
					disk = nil
				}
				disk, save = append(disk, save.Records...), nil
				q.Saved(&out)
			case "no-space":
				var at int
				d.ScanArgs(t, "at", &at)
				q.SaveFailed(clock.Instant(0).Add(time.Duration(at) * time.Millisecond))
			case "torn": // the power fails, and so many records are left of the save
				var keep int
				d.ScanArgs(t, "keep", &keep)
				disk = append(disk, save.Records[:keep]...)
				return ""
			case "compact":
				var at int
				d.ScanArgs(t, "at", &at)
				q.Compact(Index(at), []byte(d.CmdArgs[1].Key), &out)
			case "disk":
				for _, r := range disk {
					fmt.Fprintln(&text, showRecord(r))
				}
				return text.String()
			case "damage": // one record of the disk gets another kind
				var at int
				d.ScanArgs(t, "record", &at)
				disk[at-1][0] = 9
				return ""
			default:
				d.Fatalf(t, "unknown command")
			}
			if out.Save != nil {
				save = out.Save
			}
			if q == nil {
				return ""
			}
			text.WriteString(showOut(&out))
			wake := "never"
			if w := q.NextWake(); w != clock.Never {
				wake = fmt.Sprintf("%dms", time.Duration(w)/time.Millisecond)
			}
			fmt.Fprintf(&text, "applied=%d leading=%t wake=%s\n", q.Applied(), q.Leading(), wake)
			return text.String()
		})
	})
}

func showOut(out *Out) string {
	var b strings.Builder
	if out.Save != nil {
		fmt.Fprintf(&b, "save replace=%t\n", out.Save.Replace)
		for _, r := range out.Save.Records {
			fmt.Fprintf(&b, "  %s\n", showRecord(r))
		}
	}
	if out.Restore != nil {
		fmt.Fprintf(&b, "restore index=%d %q\n", out.Restore.Index, out.Restore.Data)
	}
	for _, e := range out.Committed {
		fmt.Fprintf(&b, "committed index=%d term=%d ticket=%d %q\n", e.Index, e.Term, e.Ticket, e.Data)
	}
	if len(out.Lost)+len(out.Unknown) > 0 {
		fmt.Fprintf(&b, "lost=%v unknown=%v\n", out.Lost, out.Unknown)
	}
	for _, r := range out.Reads {
		fmt.Fprintf(&b, "read ticket=%d index=%d\n", r.Ticket, r.Index)
	}
	if len(out.LostReads) > 0 {
		fmt.Fprintf(&b, "lost reads=%v\n", out.LostReads)
	}
	for _, m := range out.Messages {
		fmt.Fprintf(&b, "message %v\n", m)
	}
	if out.Members != nil {
		b.WriteString("members")
		for _, m := range out.Members {
			fmt.Fprintf(&b, " %d/%x", m.Node, m.Incarnation)
			if !m.Voter {
				b.WriteString(" (learner)")
			}
		}
		b.WriteString("\n")
	}
	for _, j := range out.Joining {
		fmt.Fprintf(&b, "joining node=%d address=%q\n", j.Node, j.Address)
	}
	for _, w := range out.Warnings {
		fmt.Fprintf(&b, "warning node=%d %s\n", w.Node, w.Text)
	}
	if out.Leader != nil {
		fmt.Fprintf(&b, "leader node=%d term=%d\n", out.Leader.Node, out.Leader.Term)
	}
	return b.String()
}

func showRecord(r []byte) string {
	return Describe(r, func(b []byte) string { return fmt.Sprintf("%q", b) })
}
