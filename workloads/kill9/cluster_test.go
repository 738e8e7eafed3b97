package kill9

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestAClusterLosesNothingAcknowledged has franz-go produce with acks=all, and
// read, while each of three brokers in turn is killed, paused for longer than
// its lease, or cut off from the others.
func TestAClusterLosesNothingAcknowledged(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute+time.Duration(*kills)*30*time.Second)
	defer cancel()
	c := newCluster(ctx, t, 3)
	createTopic(ctx, t, 3, c.addrs()...)
	w, done := startLoad(ctx, t, c.addrs()...)
	rng := rand.New(rand.NewPCG(*seed, 10))
	for round := range *kills {
		w.appends(ctx, t, 20+rng.IntN(200))
		n := c.nodes[round%len(c.nodes)]
		switch rng.IntN(3) {
		case 0:
			n.kill()
			w.appends(ctx, t, 20)
			n.start(ctx)
		case 1:
			n.cmd.Process.Signal(syscall.SIGSTOP)
			w.appends(ctx, t, 50)
			n.cmd.Process.Signal(syscall.SIGCONT)
		case 2:
			n.proxy.cut()
			w.appends(ctx, t, 20)
			n.proxy.heal()
		}
	}
	w.rest()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		n.kill()
	}
	judge(t, w, *kills)
}

// node is one broker of a cluster. The others reach it through its proxy.
type node struct {
	*broker
	proxy *proxy
}

type cluster struct{ nodes []*node }

func newCluster(ctx context.Context, t *testing.T, size int) *cluster {
	c, binary := &cluster{}, build(t)
	var controllers []string
	for i := range size {
		p := newProxy(t, freeAddress(t))
		controllers = append(controllers, fmt.Sprintf("%d@%s", i+1, p.listener.Addr()))
		c.nodes = append(c.nodes, &node{proxy: p})
	}
	for i, n := range c.nodes {
		n.broker = newBroker(t, binary, "--node-id", fmt.Sprint(i+1), "--controllers", strings.Join(controllers, ","),
			"--peer-listen", n.proxy.target, "--peer-advertise", n.proxy.listener.Addr().String(),
			"--set", "min.insync.replicas=2", "--set", "default.replication.factor=3")
	}
	var ready []func()
	for _, n := range c.nodes {
		ready = append(ready, n.launch(ctx))
	}
	for _, wait := range ready {
		wait()
	}
	return c
}

func (c *cluster) addrs() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

// proxy carries connections to a target, or, when it is cut, breaks those there
// are and takes no more.
type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: make(map[net.Conn]bool)}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.carry(c) })
	}
}

func (p *proxy) carry(c net.Conn) {
	defer c.Close()
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer to.Close()
	if !p.join(c, to) {
		return
	}
	defer p.leave(c, to)
	var both sync.WaitGroup
	both.Go(func() { io.Copy(to, c); to.Close(); c.Close() })
	both.Go(func() { io.Copy(c, to); to.Close(); c.Close() })
	both.Wait()
}

func (p *proxy) join(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isCut {
		for _, c := range conns {
			p.conns[c] = true
		}
	}
	return !p.isCut
}

func (p *proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}
