// Package nullbroker is the yardstick: the least program that speaks enough
// Kafka for a load generator, in modes that add one cost at a time. It keeps no
// promise of a broker (no replication, no epochs, no recovery, no retention) and
// shows what the machine and the protocol allow.
//
// Several can form a cluster in which whoever takes a produce copies it to all
// others and waits for them.
//
// It speaks ApiVersions, Metadata, Produce, Fetch, ListOffsets, CreateTopics and
// InitProducerId, which is what package load and franz-go ask for.
package nullbroker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Mode is how much work the broker does for a request.
type Mode string

// The modes. Each does what the one before it does, and one thing more.
const (
	Null     Mode = "null"     // read the frame, count records, answer
	CRC      Mode = "crc"      // and check the CRC of every batch
	Write    Mode = "write"    // and write to a file per partition; fetches read it and copy
	Sendfile Mode = "sendfile" // as write, but fetches are sent by sendfile(2)
	Fsync    Mode = "fsync"    // as sendfile, and one fdatasync per file and commit group
)

// Modes lists every mode, cheapest first.
var Modes = []Mode{Null, CRC, Write, Sendfile, Fsync}

// ErrMode says that a mode has no such name.
var ErrMode = errors.New("unknown mode")

// ParseMode returns the mode of that name, or ErrMode.
func ParseMode(name string) (Mode, error) {
	for _, m := range Modes {
		if string(m) == name {
			return m, nil
		}
	}
	return "", fmt.Errorf("%w %q, want one of %v", ErrMode, name, Modes)
}

func (m Mode) checks() bool { return m != Null }
func (m Mode) keeps() bool  { return m != Null && m != CRC }
func (m Mode) syncs() bool  { return m == Fsync }
func (m Mode) copies() bool { return m == Write }

// Config says what a broker does.
type Config struct {
	Mode Mode
	// Dir is where partition files go. It must exist, and is not cleaned up. The
	// modes null and crc need none.
	Dir string
	// Partitions is how many a topic gets that is created by being asked for.
	Partitions int
	// Cluster is where all brokers of a cluster listen, host:port, and Self which
	// of them this one is. Without, it is alone.
	Cluster []string
	Self    int
}

// Broker serves one listener.
type Broker struct {
	cfg      Config
	listener net.Listener
	grown    bell
	syncs    atomic.Int64
	nextID   atomic.Int64 // producer ids
	work     sync.WaitGroup

	mu     sync.Mutex
	topics map[string]*topic
	conns  map[net.Conn]struct{}
	closed bool
}

// Start listens on addr (host:port, port 0 for a free one) and serves until
// Close.
func Start(addr string, cfg Config) (*Broker, error) {
	if _, err := ParseMode(string(cfg.Mode)); err != nil {
		return nil, err
	}
	if cfg.Mode.keeps() && cfg.Dir == "" {
		return nil, fmt.Errorf("mode %s needs a directory", cfg.Mode)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, listener: listener, topics: map[string]*topic{}, conns: map[net.Conn]struct{}{}}
	b.cfg.Partitions = max(cfg.Partitions, 1)
	b.work.Go(b.accept)
	return b, nil
}

// Addr is where the broker listens, host:port.
func (b *Broker) Addr() string { return b.listener.Addr().String() }

// cluster is where all brokers listen, by id from 1 on.
func (b *Broker) cluster() []string {
	if len(b.cfg.Cluster) > 0 {
		return b.cfg.Cluster
	}
	return []string{b.Addr()}
}

// Syncs is how many times the broker has called fdatasync.
func (b *Broker) Syncs() int64 { return b.syncs.Load() }

// Close ends every connection and waits until all is quiet.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	err := b.listener.Close()
	for c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	b.grown.ring() // fetches that wait look at their connection again
	b.work.Wait()
	for _, t := range b.topics {
		for i := range t.partitions {
			t.partitions[i].close()
		}
	}
	return err
}

func (b *Broker) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			c.Close()
			return
		}
		b.conns[c] = struct{}{}
		b.mu.Unlock()
		b.work.Go(func() {
			newConn(b, c.(*net.TCPConn)).serve()
			c.Close()
			b.mu.Lock()
			delete(b.conns, c)
			b.mu.Unlock()
		})
	}
}

func (b *Broker) closing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// topic returns the topic of that name, or creates it with that many
// partitions. With create false it may return nil.
func (b *Broker) topic(name string, partitions int, create bool) (t *topic, created bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t = b.topics[name]; t != nil || !create {
		return t, false
	}
	t = &topic{name: name, partitions: make([]partition, partitions)}
	for i := range t.partitions {
		t.partitions[i].init(b, name, i)
	}
	b.topics[name] = t
	return t, true
}

func (b *Broker) names() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.topics {
		names = append(names, name)
	}
	return names
}

type topic struct {
	name       string
	partitions []partition
}

// partition returns partition i, or nil if the topic has none. A nil topic has
// no partitions.
func (t *topic) partition(i int32) *partition {
	if t == nil || i < 0 || int(i) >= len(t.partitions) {
		return nil
	}
	return &t.partitions[i]
}

// bell wakes fetches that wait for data, whatever the partition.
type bell struct {
	waiting atomic.Int32
	mu      sync.Mutex
	rung    chan struct{}
}

// listen returns a channel that the next ring closes. Call done after it.
//
// Whoever listens must look for data again before waiting: a ring in between
// may have been for nobody.
func (b *bell) listen() <-chan struct{} {
	b.waiting.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) done() { b.waiting.Add(-1) }

func (b *bell) ring() {
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// ServeHTTP tells the number of syncs, under the name that pawl's metrics have
// for it.
func (b *Broker) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "pawl_storage_syncs_total %d\n", b.Syncs())
}
