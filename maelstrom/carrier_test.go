package maelstrom

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/maelstrom/mesh"
)

// pair is two nodes: the first calls, the second answers, now and then as another
// process. Messages between them take time, overtake each other and get lost.
type pair struct {
	rand *rand.Rand
	logs *slog.Logger

	mu       sync.Mutex
	lossless bool
	nodes    [2]*carrier
	asked    map[broker.CallID]int64 // what each call says
	answered map[broker.CallID]int   // how often each was
	replied  int                     // with a response
	down     int
	wrong    []any // events that nobody expected
}

func newPair(seed uint64) *pair {
	return &pair{rand: rand.New(rand.NewPCG(seed, 1)), logs: slog.New(slog.DiscardHandler),
		asked: map[broker.CallID]int64{}, answered: map[broker.CallID]int{}}
}

// start begins a life of node i.
func (p *pair) start(t *testing.T, i int) {
	names := []string{"n0", "n1"}
	c, err := newCluster(names[i], names)
	if err != nil {
		t.Fatal(err)
	}
	send := func(_ string, f mesh.Frame) { p.send(names[i], 1-i, f) }
	r := newCarrier(c, "cluster", newLink(names[i]), send, p.logs)
	r.Open(map[int]func(...broker.Event){0: p.replies, 1: func(events ...broker.Event) { p.requests(r, events) }}[i])
	p.mu.Lock()
	old := p.nodes[i]
	p.nodes[i] = r
	p.mu.Unlock()
	if old != nil {
		old.close()
	}
}

func (p *pair) send(from string, to int, f mesh.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lossless && p.rand.IntN(500) == 0 {
		return
	}
	time.AfterFunc(time.Duration(p.rand.ExpFloat64()*float64(5*time.Millisecond)), func() {
		p.mu.Lock()
		r := p.nodes[to]
		p.mu.Unlock()
		r.receive(from, f)
	})
}

// replies takes what the caller's broker is told.
func (p *pair) replies(events ...broker.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ev := range events {
		switch ev := ev.(type) {
		case broker.ConnClosed: // the other node's clients'
		case broker.PeerDown:
			p.down++
		case broker.PeerReply:
			p.answered[ev.Call]++
			if ev.Err != nil {
				continue
			}
			p.replied++
			if resp := ev.Response.(*kmsg.AllocateProducerIDsResponse); resp.ProducerIDStart != p.asked[ev.Call] {
				p.wrong = append(p.wrong, ev)
			}
		default:
			p.wrong = append(p.wrong, ev)
		}
	}
}

// requests answers what the other node's broker is asked, after a while.
func (p *pair) requests(r *carrier, events []broker.Event) {
	for _, ev := range events {
		req, ok := ev.(broker.Request)
		if !ok {
			continue // a connection was closed
		}
		body, ok := req.Body.(*kmsg.AllocateProducerIDsRequest)
		if !ok || req.Peer != 0 {
			if _, progress := req.Body.(*wire.Progress); !progress || req.Caller.Seq != math.MaxUint64 {
				p.mu.Lock()
				p.wrong = append(p.wrong, ev)
				p.mu.Unlock()
			}
			continue
		}
		resp := body.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
		resp.ProducerIDStart = body.BrokerEpoch
		p.mu.Lock()
		late := time.Duration(p.rand.ExpFloat64() * float64(10*time.Millisecond))
		p.mu.Unlock()
		time.AfterFunc(late, func() { r.Reply(req.Caller, wire.Response{Body: resp}) })
	}
}

func (p *pair) call(id broker.CallID) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	p.mu.Lock()
	req.BrokerEpoch = p.rand.Int64()
	p.asked[id] = req.BrokerEpoch
	p.mu.Unlock()
	p.nodes[0].Call(1, id, req)
}

// TestEveryCallIsAnsweredOnce whatever becomes of the connection, and with the
// answer to itself.
func TestEveryCallIsAnsweredOnce(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(seed)
			p.start(t, 0)
			p.start(t, 1)
			known := []wire.Peer{{ID: 1, Host: "n1", Port: peerPort}}
			p.nodes[0].SetPeers(known)
			chance := rand.New(rand.NewPCG(seed, 2))
			for id := broker.CallID(1); id < 2000; id++ {
				switch chance.IntN(400) {
				case 0:
					p.nodes[0].Hangup(1, wire.LinkForward)
				case 1:
					p.nodes[0].SetPeers(nil)
				case 2:
					p.start(t, 1)
				case 3:
					time.Sleep(5 * time.Second) // virtual
				case 4, 5, 6, 7:
					p.nodes[0].SetPeers(known)
				default:
					p.nodes[0].Call(1, 0, &wire.Progress{})
				}
				p.call(id)
				time.Sleep(time.Duration(chance.ExpFloat64() * float64(3*time.Millisecond)))
			}
			p.mu.Lock()
			p.lossless = true
			p.mu.Unlock()
			time.Sleep(time.Minute)
			p.nodes[0].close()
			p.nodes[1].close()
			time.Sleep(time.Minute)
			for id := range p.asked {
				if n := p.answered[id]; n != 1 {
					t.Fatalf("seed %d: call %d was answered %d times", seed, id, n)
				}
			}
			if p.answered[0] > 0 || len(p.wrong) > 0 {
				t.Errorf("seed %d: one-way requests were answered %d times; unexpected: %v", seed, p.answered[0], p.wrong)
			}
			if p.replied < len(p.asked)/4 {
				t.Errorf("seed %d: %d of %d calls had a response", seed, p.replied, len(p.asked))
			}
			t.Logf("seed %d: %d of %d calls had a response, told %d times of another process", seed, p.replied, len(p.asked), p.down)
		})
	}
}
