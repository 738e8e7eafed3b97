package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/host"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a broker.Node that does what the test says with each request.
type node struct {
	env broker.Env
	on  func(env broker.Env, ev broker.Event)
}

func (n *node) Step(ev broker.Event) {
	if _, ok := ev.(broker.Shutdown); ok {
		n.env.Stop(nil)
		return
	}
	n.on(n.env, ev)
}

func (n *node) NextWake() clock.Instant { return clock.Never }

// log is what the server logged.
type log struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *log) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.Bytes(), []byte(s))
}

// door is a running server with a node behind it.
type door struct {
	*Server
	t    testing.TB
	addr string
	host *host.Host
	log  log
}

func open(t testing.TB, cfg Config, on func(broker.Env, broker.Event)) *door {
	t.Helper()
	d := &door{t: t}
	logger := slog.New(slog.NewTextHandler(&d.log, nil))
	s, err := New(cfg, logger)
	if err != nil {
		t.Fatal(err)
	}
	d.Server = s
	run := func([]job.Job) []job.Result { panic("no disk") }
	d.host = host.Start(host.Config{Run: run, Network: s, Logger: logger}, func(env broker.Env) host.Node {
		return &node{env: env, on: on}
	})
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	d.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, d.host.Post) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, ErrClosed) {
			t.Errorf("serve: %v", err)
		}
		d.host.Shutdown()
		if err := d.host.Wait(); err != nil {
			t.Errorf("host: %v", err)
		}
		if taken := d.taken(); taken != 0 && !t.Failed() {
			t.Errorf("%d bytes of the budget were never given back", taken)
		}
	})
	return d
}

// taken is how much memory requests have.
func (d *door) taken() int64 { return d.small.taken() + d.frames.taken() + d.growth.taken() }

// client is one connection to a door.
type client struct {
	t testing.TB
	net.Conn
}

func (d *door) dial() *client {
	d.t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return &client{d.t, c}
}

func (c *client) send(p []byte) {
	c.t.Helper()
	if _, err := c.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads one response and returns its correlation id and body.
func (c *client) receive() (int32, []byte) {
	c.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		c.t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		c.t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(body)), body[4:]
}

// cut waits until the server has closed the connection.
func (c *client) cut() {
	c.t.Helper()
	if n, err := io.Copy(io.Discard, c); n != 0 {
		c.t.Errorf("%d bytes before the end (%v)", n, err)
	}
}

func framed(correlation int32, req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, correlation)
}

func metadataRequest() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 1
	return req
}

func fetchRequest() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 11
	return req
}

func produceRequest(value int) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 7, -1
	topic, partition := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	topic.Topic = "t"
	partition.Records = record.NewBuilder().Append(1, nil, make([]byte, value)).Build(record.Options{})
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	return req
}

// answer is an empty response of the request's kind.
func answer(r broker.Request) wire.Response { return wire.Response{Body: r.Body.ResponseKind()} }

func echo(env broker.Env, ev broker.Event) {
	if r, ok := ev.(broker.Request); ok {
		env.Network.Reply(r.Caller, answer(r))
	}
}

func TestRepliesComeInTheOrderOfRequestsWhateverTheNodeDoes(t *testing.T) {
	const requests = 301 // the last one reaches the node
	rng := rand.New(rand.NewPCG(1, 1))
	var held []broker.Request
	d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			held = append(held, r)
			if r.Caller.Seq%7 == 6 || r.Caller.Seq == requests-1 {
				rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				for _, r := range held {
					env.Network.Reply(r.Caller, answer(r))
				}
				held = held[:0]
			}
		}
	})
	c := d.dial()
	var stream []byte
	for i := range int32(requests) {
		switch i % 3 {
		case 0:
			stream = append(stream, framed(i, metadataRequest())...)
		case 1:
			stream = append(stream, framed(i, produceRequest(100))...)
		case 2:
			unknown := framed(i, kmsg.NewPtrApiVersionsRequest())
			unknown[7] = 99 // answered at the door
			stream = append(stream, unknown...)
		}
	}
	go c.Write(stream)
	for want := range int32(requests) {
		if got, _ := c.receive(); got != want {
			t.Fatalf("response to %d, want %d", got, want)
		}
	}
}

func TestNodeIsToldWhereItWasReachedAndThatAConnectionIsGone(t *testing.T) {
	type seen struct {
		host string
		port int32
		conn uint64
	}
	requests, gone := make(chan seen, 1), make(chan uint64, 1)
	d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			requests <- seen{ev.Host, ev.Port, ev.Caller.Conn}
		case broker.ConnClosed:
			gone <- ev.Conn
		}
	})
	c := d.dial()
	c.send(framed(1, metadataRequest()))
	got := <-requests
	if addr := c.RemoteAddr().(*net.TCPAddr); got.host != "127.0.0.1" || got.port != int32(addr.Port) {
		t.Errorf("%+v", got)
	}
	c.Close()
	if conn := <-gone; conn != got.conn {
		t.Errorf("connection %d is gone, want %d", conn, got.conn)
	}
}

func TestWhatIsNotARequestEndsTheConnectionWithALogLine(t *testing.T) {
	unknown := framed(1, metadataRequest())
	unknown[5] = 99
	cut := framed(1, fetchRequest())
	cut = cut[:len(cut)-3]
	binary.BigEndian.PutUint32(cut, uint32(len(cut)-4))
	for _, c := range []struct{ name, send, logged string }{
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS handshake on a plaintext listener"},
		{"HTTP", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP request"},
		{"oversize", "\x7f\xff\xff\xff\x00\x00\x00\x00", "frame size: 2147483647"},
		{"oversize metadata", "\x01\x00\x00\x00\x00\x03\x00\x00", "frame size: 16777216"},
		{"negative", "\xff\xff\xff\xff\x00\x00\x00\x00", "frame size: -1"},
		{"unknown api", string(unknown), "api key 99"},
		{"cut", string(cut), "malformed request: Fetch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, DefaultConfig(), echo)
			conn := d.dial()
			conn.send([]byte(c.send))
			conn.cut()
			d.Close() // and so the line is written
			if !d.log.has(c.logged) {
				t.Errorf("the log lacks %q: %s", c.logged, d.log.String())
			}
		})
	}
}

func TestHalfARequestIsNotWaitedForForEver(t *testing.T) {
	cfg := DefaultConfig()
	cfg.FrameTimeout = 20 * time.Millisecond
	cfg.MinBytesPerSecond = 1 << 40
	whole := framed(1, metadataRequest())
	for _, n := range []int{1, 4, 5, len(whole) - 1} {
		d := open(t, cfg, echo)
		c := d.dial()
		c.send(whole[:n])
		c.cut()
		d.Close()
		if !d.log.has("did not finish a request") {
			t.Errorf("%d bytes: %s", n, d.log.String())
		}
	}
}

func TestSilentConnectionIsClosedButNotOneThatWaits(t *testing.T) {
	cfg := DefaultConfig()
	cfg.IdleTimeout = 20 * time.Millisecond
	var waits broker.Request
	silent := make(chan struct{})
	d := open(t, cfg, func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			waits = ev
			close(silent)
		case broker.ConnClosed:
			if ev.Conn != waits.Caller.Conn {
				env.Network.Reply(waits.Caller, answer(waits))
			}
		}
	})
	waiting := d.dial()
	waiting.send(framed(8, metadataRequest()))
	<-silent
	d.dial().cut()
	if got, _ := waiting.receive(); got != 8 {
		t.Errorf("response to %d", got)
	}
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxConnections = 1
	d := open(t, cfg, echo)
	c := d.dial()
	c.send(framed(1, metadataRequest()))
	c.receive()
	d.dial().cut()
	c.send(framed(2, metadataRequest()))
	c.receive()
}

// segment is a file of random bytes.
func segment(t testing.TB, size int) (vfs.File, []byte) {
	t.Helper()
	data := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "segment"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS(dir).Open("segment")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, data
}

// fetched is a response with regions of f: one for each length, from pos on.
func fetched(f vfs.File, pos int64, lengths ...int64) wire.Response {
	topic := wire.FetchTopic{Topic: "t"}
	for i, n := range lengths {
		topic.Partitions = append(topic.Partitions, wire.FetchPartition{
			Partition: int32(i), Records: storage.Region{File: f, Pos: pos, Len: n},
		})
		pos += n
	}
	return wire.Response{Body: &wire.FetchResponse{Version: 11, Topics: []wire.FetchTopic{topic}}}
}

func TestRegionsOfOneFileReachManyConnections(t *testing.T) {
	const conns, rounds = 8, 4
	lengths := []int64{3 << 20, 100, 20 << 10, 0, sendfileFrom - 1, sendfileFrom, 5}
	var all int64
	for _, n := range lengths {
		all += n
	}
	file, data := segment(t, 12<<20)
	d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			pos := int64(r.Correlation)
			env.Network.Reply(r.Caller, fetched(file, pos, lengths...))
		}
	})
	var wg sync.WaitGroup
	for i := range conns {
		c := d.dial()
		wg.Go(func() {
			for round := range rounds {
				c.send(framed(int32(i*1000000+round*777), fetchRequest()))
			}
			for round := range rounds {
				pos, body := c.receive()
				if pos != int32(i*1000000+round*777) {
					t.Errorf("conn %d: response to %d", i, pos)
				}
				resp := kmsg.NewPtrFetchResponse()
				resp.Version = 11
				if err := resp.ReadFrom(body); err != nil {
					t.Error(err)
					return
				}
				at := int64(pos)
				for j, p := range resp.Topics[0].Partitions {
					if !bytes.Equal(p.RecordBatches, data[at:at+lengths[j]]) || p.RecordBatches == nil {
						t.Errorf("conn %d round %d: region %d differs", i, round, j)
					}
					at += lengths[j]
				}
			}
		})
	}
	wg.Wait()
}

func TestRegionThatIsGoneEndsTheConnection(t *testing.T) {
	short, _ := segment(t, 100<<10)
	closed, _ := segment(t, 100<<10)
	closed.Close()
	for _, c := range []struct {
		name string
		resp wire.Response
	}{
		{"sendfile past the end", fetched(short, 0, 101<<10)},
		{"copy past the end", fetched(short, 99<<10, 2<<10)},
		{"closed, sendfile", fetched(closed, 0, 50<<10)},
		{"closed, copy", fetched(closed, 0, 1<<10)},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
				if r, ok := ev.(broker.Request); ok {
					env.Network.Reply(r.Caller, c.resp)
				}
			})
			conn := d.dial()
			conn.send(framed(1, fetchRequest()))
			got, err := io.ReadAll(conn)
			if want := c.resp.Body.(*wire.FetchResponse).Topics[0].Partitions[0].Records.Len; int64(len(got)) >= want {
				t.Errorf("%d bytes, err %v", len(got), err)
			}
		})
	}
}

// sick is a file on a disk that has gone bad.
type sick struct{ vfs.File }

func (sick) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

// The node hears of a region that the disk does not give, and whose it was.
func TestRegionThatCannotBeReadIsTold(t *testing.T) {
	id := storage.LogID{Topic: [16]byte{7}, Partition: 3}
	resp := fetched(sick{}, 5, 1<<10)
	resp.Body.(*wire.FetchResponse).Topics[0].Partitions[0].Records.Log = id
	told := make(chan broker.ReadFailed, 1)
	d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			env.Network.Reply(ev.Caller, resp)
		case broker.ReadFailed:
			told <- ev
		}
	})
	conn := d.dial()
	conn.send(framed(1, fetchRequest()))
	if ev := <-told; ev.Region.Log != id || ev.Region.Pos != 5 || !errors.Is(ev.RegionError, syscall.EIO) {
		t.Errorf("%v", ev)
	}
	if got, err := io.ReadAll(conn); len(got) > 0 {
		t.Errorf("%d bytes, err %v", len(got), err)
	}
}

func TestClientThatDoesNotReadIsCut(t *testing.T) {
	cfg := DefaultConfig()
	cfg.WriteTimeout = 50 * time.Millisecond
	file, _ := segment(t, 8<<20)
	gone := make(chan struct{})
	d := open(t, cfg, func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			env.Network.Reply(ev.Caller, fetched(file, 0, 8<<20))
		case broker.ConnClosed:
			close(gone)
		}
	})
	c := d.dial()
	for i := range int32(32) {
		c.send(framed(i, fetchRequest()))
	}
	<-gone
}

func TestRequestsAreAdmittedByTheMemoryTheyTake(t *testing.T) {
	const conns, each = 6, 5
	cfg := DefaultConfig()
	cfg.RequestMemory = 4 << 20 // half of it for frames: two fit
	cfg.MaxRequestBytes = 2 << 20
	const fit = 2
	var held []broker.Request
	arrived := make(chan struct{}, conns*each)
	d := open(t, cfg, func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			held = append(held, ev)
			if len(held) > fit {
				t.Errorf("%d requests inside, %d fit", len(held), fit)
			}
			arrived <- struct{}{}
		case broker.Wake: // answer the oldest
			r := held[0]
			held = held[1:]
			env.Network.Reply(r.Caller, answer(r))
		}
	})
	var clients []*client
	for range conns {
		c := d.dial()
		clients = append(clients, c)
		go func() {
			for i := range int32(each) {
				if _, err := c.Write(framed(i, produceRequest(900<<10))); err != nil {
					return
				}
			}
		}()
	}
	<-arrived
	for range conns*each - 1 {
		if taken := d.taken(); taken > cfg.RequestMemory {
			t.Fatalf("%d of %d bytes taken", taken, cfg.RequestMemory)
		}
		d.host.Post(broker.Wake{})
		<-arrived
	}
	d.host.Post(broker.Wake{})
	for _, c := range clients {
		for want := range int32(each) {
			if got, _ := c.receive(); got != want {
				t.Fatalf("response to %d, want %d", got, want)
			}
		}
	}
}

func TestOpenRequestsOfOneConnectionAreBounded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.InFlight = 3
	var held []broker.Request
	open3 := make(chan struct{}, 100)
	d := open(t, cfg, func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			held = append(held, ev)
			if len(held) > cfg.InFlight {
				t.Errorf("%d requests open", len(held))
			}
			open3 <- struct{}{}
		case broker.Wake:
			r := held[0]
			held = held[1:]
			env.Network.Reply(r.Caller, answer(r))
		}
	})
	c := d.dial()
	const requests = 20
	for i := range int32(requests) {
		c.send(framed(i, metadataRequest()))
	}
	for i := range int32(requests) {
		<-open3
		if i >= 2 {
			d.host.Post(broker.Wake{})
			c.receive()
		}
	}
	d.host.Post(broker.Wake{}, broker.Wake{})
	c.receive()
	c.receive()
}

func TestProduceKeepsItsMemoryUntilTheNodeAnswersThoughTheClientIsGone(t *testing.T) {
	var held broker.Request
	gone := make(chan struct{})
	d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			if _, ok := ev.Body.(*kmsg.ProduceRequest); ok {
				held = ev
			}
		case broker.ConnClosed:
			close(gone)
		case broker.Wake:
			env.Network.Reply(held.Caller, answer(held))
		}
	})
	c := d.dial()
	c.send(framed(1, fetchRequest())) // parked, and dropped with the connection
	c.send(framed(2, produceRequest(10000)))
	c.Close()
	<-gone
	if taken := d.taken(); taken < 10000 {
		t.Errorf("%d bytes taken", taken)
	}
	d.host.Post(broker.Wake{})
	// Everything is given back in the end: see open.
}

func TestResponseMayCloseTheConnection(t *testing.T) {
	d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		if r, ok := ev.(broker.Request); ok {
			switch r.Correlation {
			case 2: // acks=0: no response
				env.Network.Reply(r.Caller, wire.Response{})
			case 3:
				env.Network.Reply(r.Caller, wire.Response{Close: true})
			default:
				env.Network.Reply(r.Caller, answer(r))
			}
		}
	})
	c := d.dial()
	var stream []byte
	for i := range int32(5) {
		stream = append(stream, framed(i, metadataRequest())...)
	}
	c.send(stream)
	c.receive()
	if got, _ := c.receive(); got != 1 {
		t.Errorf("response to %d", got)
	}
	io.Copy(io.Discard, c)
}

func TestShutdownLetsRequestsBeAnswered(t *testing.T) {
	var held []broker.Request
	arrived := make(chan struct{}, 1)
	d := open(t, DefaultConfig(), func(env broker.Env, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Request:
			held = append(held, ev)
			arrived <- struct{}{}
		case broker.Wake:
			for _, r := range held {
				env.Network.Reply(r.Caller, answer(r))
			}
		}
	})
	idle, c := d.dial(), d.dial()
	c.send(framed(5, metadataRequest()))
	<-arrived
	stopped := make(chan error)
	go func() { stopped <- d.Shutdown(context.Background()) }()
	idle.cut() // nothing to wait for
	d.host.Post(broker.Wake{})
	if got, _ := c.receive(); got != 5 {
		t.Errorf("response to %d", got)
	}
	c.cut()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", d.addr); err == nil {
		conn.Close()
		t.Error("a connection after shutdown")
	}
}

func TestShutdownDoesNotWaitLongerThanItsContext(t *testing.T) {
	arrived := make(chan struct{}, 1)
	d := open(t, DefaultConfig(), func(_ broker.Env, ev broker.Event) {
		if _, ok := ev.(broker.Request); ok {
			arrived <- struct{}{}
		}
	})
	c := d.dial()
	c.send(framed(5, metadataRequest()))
	<-arrived
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.cut()
}

func TestConfigThatCannotWorkIsRefused(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){ // any order
		"no requests":       func(c *Config) { c.InFlight = 0 },
		"no time":           func(c *Config) { c.IdleTimeout = 0 },
		"too little memory": func(c *Config) { c.RequestMemory = 2*int64(c.MaxRequestBytes) - 1 },
	} {
		cfg := DefaultConfig()
		spoil(&cfg)
		if _, err := New(cfg, slog.Default()); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
