package office

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/controller"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/broker/wire"
)

// government is several seats whose disks and networks take no time: 1 to 3 are
// configured controllers, and the others follow.
type government struct {
	seats []*Office // seats[i] is node i+1's
	now   clock.Instant
	apart []quorum.NodeID // who hears only each other
	text  strings.Builder
	told  string // who leads, and who votes
}

func govern(t *testing.T, nodes int) *government {
	g := &government{}
	for id := quorum.NodeID(1); int(id) <= nodes; id++ {
		c := testConfig(1, 2, 3)
		c.Node, c.Quorum.ID, c.Controller.Node, c.VoterTimeout = metadata.NodeID(id), id, metadata.NodeID(id), 5*time.Second
		o, err := New(c, rand.New(rand.NewPCG(uint64(id), 2)), nil, &Out{})
		if err != nil {
			t.Fatal(err)
		}
		g.seats = append(g.seats, o)
	}
	return g
}

// deliver has everything saved, and every message arrive that can.
func (g *government) deliver(from quorum.NodeID, got *Out) {
	sync(g.seats[from-1], got)
	messages := got.Messages
	for _, r := range got.Replies {
		code := int16(0)
		var message *string
		switch resp := r.Response.Body.(type) {
		case *kmsg.AddRaftVoterResponse:
			code, message = resp.ErrorCode, resp.ErrorMessage
		case *kmsg.RemoveRaftVoterResponse:
			code, message = resp.ErrorCode, resp.ErrorMessage
		}
		fmt.Fprintf(&g.text, "%v: node %d answers %d: error=%d", time.Duration(g.now).Round(time.Millisecond), from, r.Caller.Conn, code)
		if message != nil {
			fmt.Fprintf(&g.text, " %q", *message)
		}
		g.text.WriteByte('\n')
	}
	*got = Out{}
	for _, m := range messages {
		if slices.Contains(g.apart, from) != slices.Contains(g.apart, m.To) {
			continue
		}
		var next Out
		g.seats[m.To-1].Received(&wire.QuorumMessages{From: metadata.NodeID(from), Messages: [][]byte{m.Marshal()}}, g.now, &next)
		g.deliver(m.To, &next)
	}
}

// tell says who leads, and who votes as far as those know.
func (g *government) tell() {
	now := ""
	for i, o := range g.seats {
		if o.log.Leading() {
			now += fmt.Sprintf("  node %d leads;", i+1)
			for _, m := range o.members() {
				if m.Voter {
					now += fmt.Sprintf(" %d", m.Node)
				}
			}
			now += " vote\n"
		}
	}
	if now != g.told {
		g.told = now
		g.text.WriteString(now)
	}
}

// pass has time pass, until done, which may be nil, says so.
func (g *government) pass(d time.Duration, done func() bool) {
	for end := g.now.Add(d); done == nil || !done(); {
		next := clock.Never
		for _, o := range g.seats {
			next = min(next, o.NextWake())
		}
		if next > end {
			g.now = end
			return
		}
		g.now = max(g.now, next)
		for i, o := range g.seats {
			if o.NextWake() <= g.now {
				var out Out
				o.Wake(g.now, &out)
				g.deliver(quorum.NodeID(i+1), &out)
				g.tell()
			}
		}
	}
}

func (g *government) leader() quorum.NodeID {
	for i, o := range g.seats {
		if o.log.Leading() && !slices.Contains(g.apart, quorum.NodeID(i+1)) {
			return quorum.NodeID(i + 1)
		}
	}
	return 0
}

func (g *government) ask(at quorum.NodeID, conn uint64, body kmsg.Request) {
	var out Out
	g.seats[at-1].Request(wire.Caller{Conn: conn}, &wire.Request{Body: body, Peer: wire.NoPeer}, controller.View{}, g.now, 0, &out)
	g.deliver(at, &out)
	g.tell()
}

func (g *government) directory(n quorum.NodeID) [16]byte { return g.seats[n-1].Directory() }

func TestVoterStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var g *government
		conn := uint64(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			node := func(s string) quorum.NodeID {
				var n int32
				fmt.Sscan(s, &n)
				return quorum.NodeID(n)
			}
			switch d.Cmd {
			case "nodes": // so many, which have time to find each other
				g = govern(t, int(node(d.CmdArgs[0].Key)))
				g.pass(20*time.Second, func() bool {
					l := g.leader()
					return l != 0 && len(g.seats[l-1].members()) == len(g.seats)
				})
				g.pass(2*time.Second, nil)
				g.text.Reset()
				g.text.WriteString(g.told)
			case "cut": // these from all others
				g.apart = nil
				for _, a := range d.CmdArgs {
					g.apart = append(g.apart, node(a.Key))
				}
			case "heal":
				g.apart = nil
			case "pass": // so many milliseconds
				g.pass(time.Duration(node(d.CmdArgs[0].Key))*time.Millisecond, nil)
			case "add", "remove": // at=node who [timeout=ms] [begun]
				at, who, timeout := node(d.CmdArgs[0].Vals[0]), node(d.CmdArgs[1].Key), int32(60_000)
				d.MaybeScanArgs(t, "timeout", &timeout)
				conn++
				if d.Cmd == "remove" {
					req := kmsg.NewPtrRemoveRaftVoterRequest()
					req.VoterID, req.VoterDirectoryID = int32(who), g.directory(who)
					g.ask(at, conn, req)
					break
				}
				req := kmsg.NewPtrAddRaftVoterRequest()
				req.VoterID, req.VoterDirectoryID, req.TimeoutMillis = int32(who), g.directory(who), timeout
				if d.HasArg("begun") {
					req.Version, req.AckWhenCommitted = 1, false
				}
				g.ask(at, conn, req)
			default:
				d.Fatalf(t, "unknown command")
			}
			text := g.text.String()
			g.text.Reset()
			return text
		})
	})
}
