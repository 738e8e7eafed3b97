package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

// ErrNodeExited says that a node ended that nobody had killed: the run has no
// verdict.
var ErrNodeExited = errors.New("node exited by itself")

// network carries messages between clients and nodes, as Maelstrom's does.
// Messages between nodes take time and can be cut off; those to and from a
// client take none and always arrive, if the receiver is there. None is lost
// otherwise, and none comes twice.
//
// A node that writes something that is not a message, or to somebody who is
// not there, is not listened to for the rest of its life. So it must not answer
// a client that has given up, nor write to a node before that was started.
type network struct {
	launch  Launcher
	latency time.Duration // mean; exponential, so that messages overtake each other

	mu      sync.Mutex
	rand    *rand.Rand
	nodes   map[string]*node
	names   []string
	clients map[string]chan protocol.Message
	left    map[string]time.Time // clients that are gone: until when an answer may still come
	cut     map[[2]string]bool   // what goes from one to the other is lost
	muted   []string             // what was wrong, a line for each muted life
	exited  error
	closed  bool
	carried int // messages
	between int // of them, from node to node
	running sync.WaitGroup
}

// node is a place in the network, and the process that holds it now.
type node struct {
	name  string
	known bool  // it has been started
	life  *life // nil while it is down
}

// life is one process. Its inbox has no bound: a paused process holds nobody
// else up.
type life struct {
	proc   Process
	mu     sync.Mutex
	more   *sync.Cond
	inbox  [][]byte
	over   bool
	killed bool // by us
	mute   bool
	done   chan struct{} // closed when the process has been reaped
}

func newNetwork(launch Launcher, names []string, latency time.Duration, seed uint64) *network {
	n := &network{
		launch: launch, latency: latency, names: names,
		rand:    rand.New(rand.NewPCG(seed, 1)),
		nodes:   map[string]*node{},
		clients: map[string]chan protocol.Message{},
		left:    map[string]time.Time{},
		cut:     map[[2]string]bool{},
	}
	for _, name := range names {
		n.nodes[name] = &node{name: name}
	}
	return n
}

// start begins a life of a node and tells it who it is.
func (n *network) start(name string) error {
	proc, err := n.launch(name)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	l := &life{proc: proc, done: make(chan struct{})}
	l.more = sync.NewCond(&l.mu)
	n.mu.Lock()
	n.nodes[name].known, n.nodes[name].life = true, l
	n.mu.Unlock()
	n.running.Go(func() { l.write() })
	n.running.Go(func() { n.listen(name, l) })
	return nil
}

// kill ends a node's life and returns when it is over. The node keeps its
// place; what is sent to it is lost.
func (n *network) kill(name string) {
	n.mu.Lock()
	l := n.nodes[name].life
	n.nodes[name].life = nil
	n.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	l.killed = true
	l.mu.Unlock()
	l.proc.Kill()
	<-l.done
}

// signal pauses or resumes a node that is up.
func (n *network) signal(name string, how func(Process) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.nodes[name].life; l != nil {
		how(l.proc)
	}
}

// close ends every node, and returns when nothing of the network runs.
func (n *network) close() {
	for _, name := range n.names {
		n.kill(name)
	}
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.running.Wait()
}

// write feeds the process its inbox.
func (l *life) write() {
	for {
		l.mu.Lock()
		for len(l.inbox) == 0 && !l.over {
			l.more.Wait()
		}
		if l.over {
			l.mu.Unlock()
			return
		}
		lines := l.inbox
		l.inbox = nil
		l.mu.Unlock()
		for _, line := range lines {
			if _, err := l.proc.Stdin().Write(line); err != nil {
				return // it is dying; listen sees its end
			}
		}
	}
}

func (l *life) push(line []byte) {
	l.mu.Lock()
	l.inbox = append(l.inbox, line)
	l.mu.Unlock()
	l.more.Signal()
}

// listen routes what a process writes until it ends.
func (n *network) listen(name string, l *life) {
	defer close(l.done)
	r := bufio.NewReader(l.proc.Stdout())
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		if !l.mute {
			if err := n.route(name, line); err != nil {
				l.mute = true
				n.mu.Lock()
				n.muted = append(n.muted, fmt.Sprintf("%s: %v", name, err))
				n.mu.Unlock()
			}
		}
	}
	io.Copy(io.Discard, r)
	err := l.proc.Wait()
	l.mu.Lock()
	l.over = true
	killed := l.killed
	l.mu.Unlock()
	l.more.Signal()
	if !killed {
		n.mu.Lock()
		n.nodes[name].life = nil
		if n.exited == nil {
			n.exited = fmt.Errorf("%w: %s: %v", ErrNodeExited, name, err)
		}
		n.mu.Unlock()
	}
}

// route takes a line that a node has written.
func (n *network) route(from string, line []byte) error {
	var m protocol.Message
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("not a message: %q: %w", line, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carried++
	if inbox, ok := n.clients[m.Dest]; ok {
		select {
		case inbox <- m:
		default: // a client that does not listen; it has one request in flight
		}
		return nil
	}
	if until, ok := n.left[m.Dest]; ok && time.Now().Before(until) {
		return nil
	}
	if to := n.nodes[m.Dest]; to == nil || !to.known {
		return fmt.Errorf("invalid dest %q: %s", m.Dest, line)
	}
	n.between++
	delay := time.Duration(0)
	if n.latency > 0 {
		delay = time.Duration(n.rand.ExpFloat64() * float64(n.latency))
	}
	cutNow := n.isCut(from, m.Dest)
	time.AfterFunc(delay, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.closed && !cutNow && !n.isCut(from, m.Dest) {
			n.deliver(m)
		}
	})
	return nil
}

// deliver gives a message to the life that its receiver has, if any.
func (n *network) deliver(m protocol.Message) {
	if l := n.nodes[m.Dest].life; l != nil {
		line, err := json.Marshal(m)
		if err != nil {
			panic(err) // it was JSON when it came
		}
		l.push(append(line, '\n'))
	}
}

// send carries a client's request.
func (n *network) send(m protocol.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carried++
	n.deliver(m)
}

// join opens a client's place; leave closes it.
func (n *network) join(name string) <-chan protocol.Message {
	inbox := make(chan protocol.Message, 16)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clients[name] = inbox
	return inbox
}

// patience is how long after a request an answer may still come though nobody
// waits for it. Maelstrom's clients wait for 5 seconds; a second more is for what
// a busy machine takes to carry an answer that was written in time.
const patience = 6 * time.Second

func (n *network) leave(name string, asked time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.clients, name)
	n.left[name] = asked.Add(patience)
}

// isCut is called with mu held.
func (n *network) isCut(from, to string) bool { return n.cut[[2]string{from, to}] }

// part cuts two nodes off from each other. It is called with mu held.
func (n *network) part(a, b string) { n.cut[[2]string{a, b}], n.cut[[2]string{b, a}] = true, true }

// deafen keeps a node from hearing the others, or them from hearing it.
func (n *network) deafen(victim string, hears bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range n.names {
		if hears {
			n.cut[[2]string{victim, name}] = true
		} else {
			n.cut[[2]string{name, victim}] = true
		}
	}
}

// partition draws who cannot hear whom.
func (n *network) partition(r *rand.Rand) string {
	names := append([]string(nil), n.names...)
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	size := 1 // one node alone
	what := "one alone"
	if r.IntN(2) == 0 {
		size, what = (len(names)-1)/2, "minority and majority"
	}
	ring := len(names) > 2 && r.IntN(3) == 0
	n.mu.Lock()
	defer n.mu.Unlock()
	if ring {
		// Each hears itself and its nearest: majorities that overlap. Of three
		// nodes, two no longer hear each other.
		what = "ring"
		reach := (len(names) - 1) / 4
		for i := range names {
			for k := range i {
				apart := min(i-k, len(names)-i+k)
				if len(names) == 3 && i-k == 2 || len(names) > 3 && apart > max(1, reach) {
					n.part(names[i], names[k])
				}
			}
		}
	} else {
		for _, a := range names[:size] {
			for _, b := range names[size:] {
				n.part(a, b)
			}
		}
	}
	return fmt.Sprintf("%s %v", what, names)
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// broken is what makes a run meaningless, if anything did.
func (n *network) broken() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.exited
}
