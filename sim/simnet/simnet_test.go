package simnet_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simnet"
)

// end remembers what it was told.
type end struct {
	got  []byte
	told []string
	n    int // pieces
}

func (e *end) Opened(c simnet.ConnID) { e.told = append(e.told, "opened") }
func (e *end) Received(c simnet.ConnID, p []byte) {
	e.got = append(e.got, p...)
	e.n++
}
func (e *end) Closed(c simnet.ConnID, why simnet.Reason) { e.told = append(e.told, string(why)) }
func (e *end) String() string                            { return strings.Join(e.told, " ") }

type world struct {
	k            *kernel.Kernel
	net          *simnet.Net
	client, node *end
	conn         simnet.ConnID
}

func connected(seed uint64) *world {
	w := &world{k: kernel.New(seed), client: &end{}, node: &end{}}
	w.net = simnet.New(w.k, simnet.Config{MinDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, SplitPercent: 50})
	w.net.Listen(0, simnet.ClientPort, w.node)
	w.conn = w.net.Dial(3, 0, simnet.ClientPort, w.client)
	w.run(time.Second)
	return w
}

func (w *world) run(d time.Duration) { w.k.Run(w.k.Now().Add(d)) }

func want(t *testing.T, e *end, told string) {
	t.Helper()
	if e.String() != told {
		t.Fatalf("was told %q, want %q", e, told)
	}
}

func TestBytesArriveInOrderWhateverThePieces(t *testing.T) {
	pieces := 0
	for seed := range uint64(20) {
		w := connected(seed)
		var sent []byte
		for i := range 100 {
			p := []byte(fmt.Sprintf("message %d,", i))
			sent = append(sent, p...)
			w.net.Send(w.conn, simnet.Dialer, p)
		}
		w.run(time.Second)
		if !bytes.Equal(w.node.got, sent) {
			t.Fatalf("got %q", w.node.got)
		}
		pieces += w.node.n
	}
	if pieces < 20*130 {
		t.Fatalf("only %d pieces of 2000 sends", pieces)
	}
}

func TestNobodyListeningRefuses(t *testing.T) {
	w := connected(1)
	e := &end{}
	w.net.Dial(3, 1, simnet.ClientPort, e)
	w.run(time.Second)
	want(t, e, "refused")
}

func TestCloseComesAfterWhatWasSent(t *testing.T) {
	w := connected(2)
	w.net.Send(w.conn, simnet.Acceptor, []byte("last words"))
	w.net.Close(w.conn, simnet.Acceptor)
	w.run(time.Second)
	want(t, w.client, "opened closed")
	if string(w.client.got) != "last words" {
		t.Fatalf("%q", w.client.got)
	}
	w.net.Send(w.conn, simnet.Dialer, []byte("too late"))
	w.run(time.Second)
	if len(w.node.got) != 0 {
		t.Fatal("a closed end received")
	}
}

func TestASilentDirectionHoldsBytesBackUntilItIsHeard(t *testing.T) {
	w := connected(3)
	w.net.Mute(0, 3)
	w.net.Send(w.conn, simnet.Dialer, []byte("ask"))
	w.net.Send(w.conn, simnet.Acceptor, []byte("answer"))
	w.run(time.Second)
	if string(w.node.got) != "ask" || len(w.client.got) != 0 {
		t.Fatalf("%q %q", w.node.got, w.client.got)
	}
	w.net.Unmute(0, 3)
	w.run(time.Second)
	if string(w.client.got) != "answer" {
		t.Fatalf("%q", w.client.got)
	}
}

func TestAResetLosesWhatIsOnItsWayAndBothHear(t *testing.T) {
	w := connected(4)
	w.net.Send(w.conn, simnet.Dialer, []byte("lost"))
	w.net.Reset(w.conn)
	w.run(time.Second)
	want(t, w.client, "opened reset")
	want(t, w.node, "opened reset")
	if len(w.node.got) != 0 {
		t.Fatal("it arrived")
	}
}

func TestALostResponseTakesItsConnectionAlong(t *testing.T) {
	w := connected(5)
	w.net.LoseNextResponse(w.conn)
	w.net.Send(w.conn, simnet.Dialer, []byte("ask"))
	w.run(time.Second)
	w.net.Send(w.conn, simnet.Acceptor, []byte("answer"))
	w.run(time.Second)
	want(t, w.client, "opened reset")
	if string(w.node.got) != "ask" || len(w.client.got) != 0 || w.net.Hits(simnet.LostResponse) != 1 {
		t.Fatal("the request must arrive and the response must not")
	}
}

func TestADeadProcessResetsAndADeadMachineSaysNothing(t *testing.T) {
	w := connected(6)
	w.net.Exit(0)
	w.run(time.Second)
	want(t, w.client, "opened reset")

	w = connected(6)
	w.net.PowerOff(0)
	w.net.Send(w.conn, simnet.Dialer, []byte("ask"))
	w.run(time.Second)
	want(t, w.client, "opened")
	w.net.PowerOn(0)
	w.run(time.Second)
	want(t, w.client, "opened dangling")
	want(t, w.node, "opened")
}

func TestASlowLinkIsLate(t *testing.T) {
	w := connected(7)
	w.net.Slow(3, 0, time.Second)
	w.net.Slow(3, 0, time.Second)
	w.net.Slow(3, 0, -time.Second)
	w.net.Send(w.conn, simnet.Dialer, []byte("x"))
	w.run(900 * time.Millisecond)
	if len(w.node.got) != 0 {
		t.Fatal("in time")
	}
	w.net.Heal()
	w.run(time.Second)
	if w.k.Next() != clock.Never || string(w.node.got) != "x" {
		t.Fatal("not delivered")
	}
}

func TestAHostThatDiesEndsWhatItHasDialledToo(t *testing.T) {
	w := connected(8)
	w.net.Exit(3)
	w.run(time.Second)
	want(t, w.node, "opened reset")
	want(t, w.client, "opened")

	w = connected(8)
	w.net.PowerOff(3)
	w.net.Send(w.conn, simnet.Acceptor, []byte("still there?"))
	w.run(time.Second)
	want(t, w.node, "opened")
	w.net.PowerOn(3)
	w.run(time.Second)
	want(t, w.node, "opened dangling")
	if len(w.client.got) != 0 {
		t.Fatal("a dead process received")
	}
}

func TestAWayIsSilentUntilTheLastWhoMutedItLetsGo(t *testing.T) {
	w := connected(9)
	w.net.Mute(3, 0)
	w.net.Mute(3, 0)
	w.net.Send(w.conn, simnet.Dialer, []byte("x"))
	w.net.Unmute(3, 0)
	w.run(time.Second)
	if len(w.node.got) != 0 {
		t.Fatal("it was heard")
	}
	w.net.Unmute(3, 0)
	w.run(time.Second)
	if string(w.node.got) != "x" {
		t.Fatalf("%q", w.node.got)
	}
}

func TestPortsAreApart(t *testing.T) {
	w := connected(10)
	e := &end{}
	w.net.Dial(3, 0, simnet.PeerPort, e)
	w.run(time.Second)
	want(t, e, "refused")
	if open := w.net.Open(0, simnet.ClientPort); len(open) != 1 || len(w.net.Open(0, simnet.PeerPort)) != 0 {
		t.Fatalf("%v", open)
	}
}
