// Package standalone puts the parts of a real broker together: a data
// directory, its store, a node, the host that runs it and the sockets in front.
// `pawl serve` is this and a command line; tests that want a real broker use it
// as it is.
package standalone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/peer"
	"github.com/pawlbroker/pawl/broker/tcp"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
)

// Config of a broker. Start from DefaultConfig; the zero value is not valid.
type Config struct {
	// DataDir is made if it is not there. Kafka: log.dirs.
	DataDir string
	// Listen is where clients connect. Port 0 takes a free one. Kafka: listeners.
	Listen string
	// ClusterID is taken from the data directory if it is empty. In a fresh
	// directory it is then made of the controllers, so that all nodes agree on it,
	// or drawn if the broker is alone.
	ClusterID string
	// Cluster is who else there is.
	Cluster Cluster
	// Version is what other nodes are told that this one runs.
	Version string
	// Readers is how many goroutines look for records that are not in memory.
	Readers int

	Node    broker.Config // what it has of the cluster is set by Start
	TCP     tcp.Config
	Peer    peer.Config
	Storage storage.Config
}

// DefaultConfig is a broker with Kafka's defaults that is its own cluster.
func DefaultConfig(id metadata.NodeID) Config {
	return Config{
		DataDir: "pawl-data",
		Listen:  "127.0.0.1:9092",
		Readers: 4,
		Node:    broker.DefaultConfig(id, ""),
		TCP:     tcp.DefaultConfig(),
		Peer:    peer.DefaultConfig(),
		Storage: storage.DefaultConfig(),
	}
}

// Broker is a running broker.
type Broker struct {
	dir      *host.Directory
	store    *job.Holder
	server   *tcp.Server
	host     *host.Host
	listener *net.TCPListener
	peers    peers
	node     *watched
	stopped  chan struct{} // closed once nothing runs any more
	err      error         // why it stopped; set before stopped is closed
}

// peers is what a broker of a cluster has for other nodes; of one that is alone
// it is empty.
type peers struct {
	carrier  *peer.Carrier
	listener *net.TCPListener
	self     wire.PeerHello
}

// Start makes a broker and returns once it accepts connections. They are
// answered once it is ready.
func Start(cfg Config, log *slog.Logger) (*Broker, error) {
	dir, err := host.OpenDirectory(cfg.DataDir, cfg.Node.ID, cfg.ClusterID, cfg.Cluster.clusterID())
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: dir, stopped: make(chan struct{})}
	if err := b.start(cfg, log); err != nil {
		for _, l := range []*net.TCPListener{b.listener, b.peers.listener} {
			if l != nil {
				l.Close()
			}
		}
		return nil, errors.Join(err, dir.Close())
	}
	return b, nil
}

func (b *Broker) start(cfg Config, log *slog.Logger) error {
	cfg.Node.ClusterID, cfg.Node.DataDir = b.dir.ClusterID, cfg.DataDir
	if err := errors.Join(cfg.Node.Validate(), cfg.Storage.Validate()); err != nil {
		return err
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	if b.server, err = tcp.New(cfg.TCP, log); err != nil {
		return err
	}
	if b.listener, err = net.ListenTCP("tcp", addr); err != nil {
		return fmt.Errorf("listen on %s: %w; is another broker running there?", cfg.Listen, err)
	}
	if !cfg.Cluster.alone(cfg.Node.ID) {
		if err := b.startPeers(&cfg, log); err != nil {
			return err
		}
	}
	attrs := []any{slog.Int("node", int(cfg.Node.ID)), slog.String("cluster", b.dir.ClusterID),
		slog.String("listener", b.listener.Addr().String()), slog.String("data_dir", cfg.DataDir), slog.Bool("first_start", b.dir.First)}
	if b.peers.carrier != nil {
		attrs = append(attrs, cfg.Cluster.attr(b.peers.listener))
	}
	log.Info("starting", attrs...)
	b.store = job.NewHolder(b.dir.FS, cfg.Storage)
	b.node = newWatched(cfg.Node.ID)
	hosted := host.Config{
		Run: func(jobs []job.Job) []job.Result { return job.Run(b.store, jobs) },
		Begin: func(jobs []job.Job) (host.Flight, []job.Job) {
			f, rest := job.Begin(b.store, jobs)
			if f == nil {
				return nil, rest // and not an interface that holds nil
			}
			return f, rest
		},
		Readers: cfg.Readers, Network: b.server, Logger: log,
	}
	if b.peers.carrier != nil {
		hosted.Peers = b.peers.carrier // and not an interface that holds nil
	}
	b.host = host.Start(hosted, func(env broker.Env) host.Node {
		b.node.Node = broker.New(cfg.Node, env)
		return b.node
	})
	go b.run(cfg, log)
	return nil
}

// startPeers makes what a broker of a cluster has for other nodes.
func (b *Broker) startPeers(cfg *Config, log *slog.Logger) (err error) {
	if cfg.Node.Port == 0 { // the other brokers' clients did not come here
		if cfg.Node.Host, cfg.Node.Port, err = reachable(cfg.Listen, b.listener.Addr()); err != nil {
			return fmt.Errorf("clients of other brokers cannot be told to connect to %s: %w; set --advertise", cfg.Listen, err)
		}
	}
	if b.peers.listener, err = cfg.Cluster.listen(cfg.Node.ID); err != nil {
		return err
	}
	cfg.Node.Controllers, cfg.Node.PeerHost, cfg.Node.PeerPort = cfg.Cluster.Controllers, cfg.Cluster.Host, cfg.Cluster.Port
	b.peers.self = wire.PeerHello{ClusterID: b.dir.ClusterID, Node: cfg.Node.ID, Version: cfg.Version,
		Address: net.JoinHostPort(cfg.Cluster.Host, strconv.Itoa(int(cfg.Cluster.Port)))}
	rand.Read(b.peers.self.Incarnation[:]) // never fails
	b.peers.carrier, err = peer.New(cfg.Peer, b.peers.self, log)
	return err
}

// run serves until the node stops.
func (b *Broker) run(cfg Config, log *slog.Logger) {
	defer close(b.stopped)
	var served sync.WaitGroup
	serve := func(what string, listen func() error) {
		served.Go(func() {
			if err := listen(); !errors.Is(err, tcp.ErrClosed) {
				log.Error("listener failed", slog.String("of", what), slog.Any("error", err))
			}
		})
	}
	serve("clients", func() error { return b.server.Serve(b.listener, b.host.Post) })
	ctx, cancel := context.WithCancel(context.Background())
	if b.peers.carrier != nil {
		serve("nodes", func() error { return b.server.ServePeers(b.peers.listener, b.peers.self, b.host.Post) })
	}
	if advertised := cfg.advertised(); len(advertised) > 0 {
		served.Go(func() { checkReach(ctx, log, advertised, cfg.Cluster.Controllers) })
	}
	b.err = b.host.Wait()
	cancel()
	b.server.Close()
	if b.peers.carrier != nil {
		b.peers.carrier.Close()
	}
	served.Wait()
	b.err = errors.Join(b.err, b.dir.Close())
}

// advertised is what clients and nodes are told to connect to.
func (c *Config) advertised() map[string]string {
	told := map[string]string{}
	if c.Node.Port != 0 {
		told["clients"] = net.JoinHostPort(c.Node.Host, strconv.Itoa(int(c.Node.Port)))
	}
	if c.Node.PeerPort != 0 {
		told["nodes"] = net.JoinHostPort(c.Node.PeerHost, strconv.Itoa(int(c.Node.PeerPort)))
	}
	return told
}

// Addr is where clients connect.
func (b *Broker) Addr() string { return b.listener.Addr().String() }

// PeerAddr is where other nodes connect; empty for a broker that is alone.
func (b *Broker) PeerAddr() string {
	if b.peers.listener == nil {
		return ""
	}
	return b.peers.listener.Addr().String()
}

// Ready is closed once the broker answers clients.
func (b *Broker) Ready() <-chan struct{} { return b.node.ready }

// Done is closed once the broker has stopped.
func (b *Broker) Done() <-chan struct{} { return b.stopped }

// drainTime is how long a broker that is shut down waits for what clients have
// under way.
const drainTime = 5 * time.Second

// Shutdown stops in good order: it has others lead in its place while it goes on
// serving, then reads no more requests, answers those it has read, checkpoints and
// leaves the clean mark. It returns why the broker stopped, nil if it was this.
func (b *Broker) Shutdown() error {
	b.host.Shutdown()
	select {
	case <-b.node.left:
	case <-b.stopped:
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	b.server.Shutdown(ctx) // an error means that some clients were cut off
	return b.Wait()
}

// Wait returns once the broker has stopped, and why.
func (b *Broker) Wait() error {
	<-b.stopped
	return b.err
}
