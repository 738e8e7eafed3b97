package quorum

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlbroker/pawl/broker/clock"
)

// A conversation is a story of several nodes. What a node wants saved is saved at
// once; what it says is on its way until it is delivered. Incarnations are drawn
// with the node's id as the seed, and another for every disk.
type conversation struct {
	voters []NodeID
	nodes  map[NodeID]*speaker
	way    []Message
	now    clock.Instant
}

type speaker struct {
	q     *Quorum
	disk  [][]byte
	disks uint64
}

func TestConversations(t *testing.T) {
	datadriven.Walk(t, "testdata/several", func(t *testing.T, path string) {
		c := &conversation{nodes: map[NodeID]*speaker{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var text strings.Builder
			nodes := func() (ids []NodeID) {
				for _, a := range d.CmdArgs {
					var id int32
					if n, _ := fmt.Sscan(a.Key, &id); n == 1 {
						ids = append(ids, NodeID(id))
					}
				}
				return ids
			}
			switch d.Cmd {
			case "voters":
				c.voters = nodes()
			case "start":
				for _, id := range nodes() {
					c.start(t, id, &text)
				}
			case "wake":
				for _, id := range nodes() {
					c.do(id, &text, func(q *Quorum, out *Out) { q.Woken(c.now, out) })
				}
			case "pass": // until somebody says something else than that it is there, or asks to join
				c.pass(&text)
			case "live": // so many milliseconds, in which all is delivered
				var millis int
				d.ScanArgs(t, "millis", &millis)
				c.live(time.Duration(millis)*time.Millisecond, &text)
			case "deliver": // all that is on its way, or what is said in answer too
				for rounds := 1; rounds > 0 && len(c.way) > 0; {
					if !d.HasArg("all") {
						rounds--
					}
					c.deliver(&text, d.HasArg("quietly"))
				}
			case "drop":
				fmt.Fprintf(&text, "%d messages\n", len(c.way))
				c.way = nil
			case "stop":
				for _, id := range nodes() {
					c.nodes[id].q = nil
				}
			case "wipe":
				for _, id := range nodes() {
					c.nodes[id].disk, c.nodes[id].q = nil, nil
				}
			case "propose":
				c.do(nodes()[0], &text, func(q *Quorum, out *Out) {
					ticket, err := q.Propose([]byte(d.CmdArgs[1].Key), out)
					fmt.Fprintf(&text, "ticket=%d err=%v\n", ticket, err)
				})
			case "read":
				c.do(nodes()[0], &text, func(q *Quorum, out *Out) { check(q.ReadIndex(7, out)) })
			case "suspect":
				ids := nodes()
				c.do(ids[0], &text, func(q *Quorum, out *Out) { q.Suspect(ids[1], c.now, out) })
			case "disk":
				for _, r := range c.nodes[nodes()[0]].disk {
					fmt.Fprintln(&text, showRecord(r))
				}
			default:
				d.Fatalf(t, "unknown command")
			}
			return text.String()
		})
	})
}

func (c *conversation) start(t *testing.T, id NodeID, text *strings.Builder) {
	s := c.nodes[id]
	if s == nil {
		s = &speaker{}
		c.nodes[id] = s
	}
	s.disks++
	cfg := DefaultConfig(id)
	cfg.Voters = c.voters
	cfg.Address = fmt.Sprintf("host%d", id)
	var out Out
	q, err := New(cfg, rand.New(rand.NewPCG(uint64(id), s.disks)), s.disk, &out)
	if err != nil {
		t.Fatal(err)
	}
	s.q = q
	c.act(id, &out, text, false)
	c.do(id, text, func(q *Quorum, out *Out) { q.Woken(c.now, out) })
}

func (c *conversation) do(id NodeID, text *strings.Builder, f func(q *Quorum, out *Out)) {
	c.quietly(id, text, false, f)
}

func (c *conversation) quietly(id NodeID, text *strings.Builder, quiet bool, f func(q *Quorum, out *Out)) {
	if c.nodes[id] == nil || c.nodes[id].q == nil {
		return
	}
	var out Out
	f(c.nodes[id].q, &out)
	c.act(id, &out, text, quiet)
}

func (c *conversation) act(id NodeID, out *Out, text *strings.Builder, quiet bool) {
	s := c.nodes[id]
	c.way = append(c.way, out.Messages...)
	for _, line := range strings.Split(strings.TrimSpace(showOut(out)), "\n") {
		if line = strings.TrimSpace(line); line != "" && !(quiet && !news(line)) {
			fmt.Fprintf(text, "%d: %s\n", id, line)
		}
	}
	if out.Save != nil {
		if out.Save.Replace {
			s.disk = nil
		}
		s.disk = append(slices.Clip(s.disk), out.Save.Records...)
		c.quietly(id, text, quiet, func(q *Quorum, out *Out) { q.Saved(out) })
	}
}

// news reports whether a line says something that a caller acts on.
func news(line string) bool {
	for _, head := range []string{"restore", "committed", "lost", "read", "members", "leader", "warning"} {
		if strings.HasPrefix(line, head+" ") {
			return true
		}
	}
	return false
}

// deliver delivers what is on its way.
func (c *conversation) deliver(text *strings.Builder, quiet bool) {
	way := c.way
	c.way = nil
	for _, m := range way {
		c.quietly(m.To, text, quiet, func(q *Quorum, out *Out) { q.Received(m, c.now, out) })
	}
}

// pass lets time pass until a node says something that matters.
func (c *conversation) pass(text *strings.Builder) {
	for range 100 {
		var ids []NodeID
		next := clock.Never
		for id := range NodeID(10) {
			if s := c.nodes[id]; s != nil && s.q != nil {
				ids = append(ids, id)
				next = min(next, s.q.NextWake())
			}
		}
		c.now = max(c.now, next)
		var news strings.Builder
		before := len(c.way)
		for _, id := range ids {
			if c.nodes[id].q.NextWake() <= c.now {
				c.do(id, &news, func(q *Quorum, out *Out) { q.Woken(c.now, out) })
			}
		}
		matters := slices.ContainsFunc(c.way[before:], func(m Message) bool { return m.body != nil })
		if matters {
			fmt.Fprintf(text, "at %v\n%s", time.Duration(c.now), news.String())
			return
		}
		c.way = c.way[:before]
	}
	text.WriteString("nothing happens\n")
}

// live lets time pass, and delivers what is said at once.
func (c *conversation) live(d time.Duration, text *strings.Builder) {
	for end := c.now.Add(d); c.now < end; {
		next := end
		for id := range NodeID(10) {
			if s := c.nodes[id]; s != nil && s.q != nil {
				next = min(next, s.q.NextWake())
			}
		}
		c.now = max(c.now, next)
		var news strings.Builder
		for id := range NodeID(10) {
			if s := c.nodes[id]; s != nil && s.q != nil && s.q.NextWake() <= c.now {
				c.quietly(id, &news, true, func(q *Quorum, out *Out) { q.Woken(c.now, out) })
			}
		}
		for len(c.way) > 0 {
			c.deliver(&news, true)
		}
		if news.Len() > 0 {
			fmt.Fprintf(text, "at %v\n%s", time.Duration(c.now), news.String())
		}
	}
}
