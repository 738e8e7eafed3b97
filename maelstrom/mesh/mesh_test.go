package mesh

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is two nodes and the messages between them.
type world struct {
	now   time.Time
	nodes map[string]*node
	wire  []message
	lives int
}

type message struct {
	from, to string
	f        Frame
}

// node is one node; end is what its side of each connection was told.
type node struct {
	m        *Mesh
	accepted []*end
}

type end struct {
	c      *Conn
	opened bool
	got    []byte
	err    error
	closed int
}

func (e *end) Opened()           { e.opened = true }
func (e *end) Received(p []byte) { e.got = append(e.got, p...) }
func (e *end) Closed(err error)  { e.err = err; e.closed++ }

func newWorld() *world {
	w := &world{now: time.Unix(1000, 0), nodes: map[string]*node{}}
	w.start("a")
	w.start("b")
	return w
}

// start begins a life of a node.
func (w *world) start(name string) {
	w.lives++
	n := &node{}
	n.m = New(DefaultConfig(), fmt.Sprintf("life%d", w.lives),
		func(to string, f Frame) { w.wire = append(w.wire, message{name, to, f}) },
		func(c *Conn) Handler {
			e := &end{c: c}
			n.accepted = append(n.accepted, e)
			return e
		})
	w.nodes[name] = n
}

func (w *world) dial() *end {
	e := &end{}
	e.c = w.nodes["a"].m.Dial(w.now, "b", 1, e)
	return e
}

// deliver brings a message and takes it off the wire.
func (w *world) deliver(i int) {
	m := w.wire[i]
	w.wire = slices.Delete(w.wire, i, i+1)
	w.nodes[m.to].m.Receive(w.now, m.from, m.f)
}

func (w *world) settle() {
	for len(w.wire) > 0 {
		w.deliver(0)
	}
}

// pass lets time go by, with everything delivered, or nothing.
func (w *world) pass(d time.Duration, lost bool) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(100 * time.Millisecond)
		w.nodes["a"].m.Tick(w.now)
		w.nodes["b"].m.Tick(w.now)
		if lost {
			w.wire = nil
		}
		w.settle()
	}
}

// connected is both ends of a connection.
func (w *world) connected(t *testing.T) (dialed, accepted *end) {
	t.Helper()
	dialed = w.dial()
	w.settle()
	b := w.nodes["b"]
	if !dialed.opened || len(b.accepted) == 0 {
		t.Fatal("not connected")
	}
	return dialed, b.accepted[len(b.accepted)-1]
}

func TestBytesArriveWholeAndSplit(t *testing.T) {
	w := newWorld()
	d, a := w.connected(t)
	long := bytes.Repeat([]byte("0123456789"), 20_000)
	d.c.Send(long)
	a.c.Send([]byte("back"))
	for _, m := range w.wire {
		if len(m.f.Data) > DefaultConfig().MaxData {
			t.Errorf("a message of %d bytes", len(m.f.Data))
		}
	}
	slices.Reverse(w.wire) // all of them overtaken
	w.settle()
	if !bytes.Equal(a.got, long) || string(d.got) != "back" {
		t.Errorf("got %d bytes and %q, want %d and %q", len(a.got), d.got, len(long), "back")
	}
	w.pass(time.Minute, false)
	if d.closed+a.closed > 0 {
		t.Errorf("an idle connection broke: %v, %v", d.err, a.err)
	}
}

func TestLostMessageBreaksTheConnectionOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		lose int
	}{{"the first of two", 0}, {"the last", 1}} {
		w := newWorld()
		d, a := w.connected(t)
		d.c.Send([]byte("x"))
		d.c.Send([]byte("y"))
		w.wire = slices.Delete(w.wire, c.lose, c.lose+1)
		w.settle()
		w.pass(5*time.Second, false)
		if !errors.Is(a.err, ErrGap) || !errors.Is(d.err, ErrClosed) || a.closed != 1 || d.closed != 1 {
			t.Errorf("%s: %v and %v, %d and %d times, want %v and %v once", c.name, a.err, d.err, a.closed, d.closed, ErrGap, ErrClosed)
		}
		if string(a.got) != "x"[:c.lose] {
			t.Errorf("%s: got %q behind the gap", c.name, a.got)
		}
	}
}

func TestCutBreaksBothEndsAndIsNoReset(t *testing.T) {
	w := newWorld()
	d, a := w.connected(t)
	w.pass(5*time.Second, true)
	if !errors.Is(d.err, ErrSilent) || !errors.Is(a.err, ErrSilent) {
		t.Errorf("%v and %v, want %v", d.err, a.err, ErrSilent)
	}
	late := w.dial()
	w.pass(5*time.Second, true)
	if !errors.Is(late.err, ErrSilent) || late.opened {
		t.Errorf("%v, want %v", late.err, ErrSilent)
	}
	w.connected(t)
}

func TestRestartedProcessResets(t *testing.T) {
	w := newWorld()
	d, _ := w.connected(t)
	w.start("b")
	d.c.Send([]byte("x"))
	w.settle()
	if !errors.Is(d.err, ErrReset) || d.closed != 1 {
		t.Errorf("%v, want %v", d.err, ErrReset)
	}
	// The process that dialed ends: its connection goes when the next is made.
	_, a := w.connected(t)
	w.start("a")
	_, b := w.connected(t)
	if a.closed != 1 || b.closed != 0 || b.c.life == a.c.life {
		t.Errorf("closed %d and %d times", a.closed, b.closed)
	}
}

func TestOvertakenOpenDoesNotReplaceALaterOne(t *testing.T) {
	w := newWorld()
	old := w.dial()
	held := w.wire
	w.wire = nil
	old.c.Close()
	w.wire = nil
	d, a := w.connected(t)
	w.wire = held
	w.settle()
	d.c.Send([]byte("x"))
	w.settle()
	if string(a.got) != "x" || a.closed+d.closed > 0 {
		t.Errorf("got %q, closed with %v and %v", a.got, a.err, d.err)
	}
}

func TestTooManyEarlyMessagesBreakTheConnection(t *testing.T) {
	w := newWorld()
	d, a := w.connected(t)
	for range DefaultConfig().MaxEarly + 2 {
		d.c.Send([]byte("x"))
	}
	w.wire = w.wire[1:]
	w.settle()
	if !errors.Is(a.err, ErrGap) {
		t.Errorf("%v, want %v", a.err, ErrGap)
	}
}

// Whatever the network does, an end has a prefix of what the other sent over the
// same connection, and hears of its end at most once.
func TestWhatArrivesIsAPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		var dialed []*end
		sent := map[*Conn][]byte{}
		send := func(c *Conn, n int) {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(len(sent[c]) + i)
			}
			if !c.over {
				sent[c] = append(sent[c], p...)
			}
			c.Send(p)
		}
		var accepted []*end
		collect := func() {
			for _, e := range w.nodes["b"].accepted {
				if !slices.Contains(accepted, e) {
					accepted = append(accepted, e)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"dial": func(*rapid.T) {
				if len(dialed) > 0 {
					dialed[len(dialed)-1].c.Close()
				}
				dialed = append(dialed, w.dial())
			},
			"send": func(t *rapid.T) {
				collect()
				all := append(slices.Clone(dialed), accepted...)
				if len(all) > 0 {
					e := all[rapid.IntRange(0, len(all)-1).Draw(t, "end")]
					if e.opened || !e.c.dialed {
						send(e.c, rapid.IntRange(1, 60_000).Draw(t, "bytes"))
					}
				}
			},
			"deliver": func(t *rapid.T) {
				if len(w.wire) > 0 {
					w.deliver(rapid.IntRange(0, len(w.wire)-1).Draw(t, "message"))
				}
			},
			"settle": func(*rapid.T) { w.settle() },
			"lose": func(t *rapid.T) {
				if len(w.wire) > 0 {
					i := rapid.IntRange(0, len(w.wire)-1).Draw(t, "message")
					w.wire = slices.Delete(w.wire, i, i+1)
				}
			},
			"pass": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
				w.nodes["a"].m.Tick(w.now)
				w.nodes["b"].m.Tick(w.now)
			},
			"restart": func(*rapid.T) { collect(); w.start("b") },
			"": func(t *rapid.T) {
				collect()
				for _, e := range append(slices.Clone(dialed), accepted...) {
					if e.closed > 1 {
						t.Fatalf("closed %d times", e.closed)
					}
				}
				for _, a := range accepted {
					for _, d := range dialed {
						if a.c.number == d.c.number {
							if !bytes.HasPrefix(sent[d.c], a.got) {
								t.Fatal("accepted end got what was not sent")
							}
						}
					}
				}
				for _, d := range dialed {
					ok := len(d.got) == 0
					for _, a := range accepted {
						ok = ok || a.c.number == d.c.number && bytes.HasPrefix(sent[a.c], d.got)
					}
					if !ok {
						t.Fatal("dialed end got what was not sent")
					}
				}
			},
		})
	})
}
