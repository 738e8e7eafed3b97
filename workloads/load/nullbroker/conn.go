package nullbroker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	readBuffer = 64 << 10
	maxFrame   = 100 << 20 // bytes; Kafka: socket.request.max.bytes
	// maxUnsent is how many bytes of responses wait for the next flush at most.
	maxUnsent = 1 << 20
)

var errFrame = errors.New("bad frame")

// conn serves one connection with one goroutine: it handles every request that
// has arrived, syncs what they wrote, and answers them all with one write.
type conn struct {
	broker *Broker
	sock   *net.TCPConn
	in     *bufio.Reader
	big    []byte // a frame that does not fit the reader's buffer
	out    []byte // responses not sent yet
	dirty  []written
	topics map[string]*topic // those looked up before

	produce  kmsg.ProduceRequest
	produced kmsg.ProduceResponse
	fetch    kmsg.FetchRequest
	regions  []region

	followers []*follower // none until something is copied
}

// written is a partition that must be synced up to a position before out may
// be sent.
type written struct {
	partition *partition
	position  int64
}

func newConn(b *Broker, sock *net.TCPConn) *conn {
	return &conn{
		broker: b, sock: sock, in: bufio.NewReaderSize(sock, readBuffer),
		topics: map[string]*topic{},
	}
}

// serve returns when the connection is closed by either side. A request that
// cannot be understood closes it.
func (c *conn) serve() {
	defer func() {
		for _, f := range c.followers {
			f.sock.Close()
		}
	}()
	for {
		err := c.one()
		for err == nil && c.whole() && len(c.out) < maxUnsent {
			err = c.one()
		}
		if err == nil {
			err = c.flush()
		}
		if err != nil {
			return
		}
	}
}

// one reads a request and appends its answer to out.
func (c *conn) one() error {
	head, err := c.in.Peek(4)
	if err != nil {
		return err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < 8 || size > maxFrame {
		return fmt.Errorf("%w: %d bytes", errFrame, size)
	}
	if size+4 <= readBuffer {
		frame, err := c.in.Peek(size + 4)
		if err != nil {
			return err
		}
		err = c.handle(frame[4:])
		c.in.Discard(size + 4)
		return err
	}
	c.in.Discard(4)
	if cap(c.big) < size {
		c.big = make([]byte, size)
	}
	frame := c.big[:size]
	if _, err := io.ReadFull(c.in, frame); err != nil {
		return err
	}
	return c.handle(frame)
}

// whole reports whether the next request can be read without waiting.
func (c *conn) whole() bool {
	if c.in.Buffered() < 4 {
		return false
	}
	head, _ := c.in.Peek(4)
	return c.in.Buffered()-4 >= int(int32(binary.BigEndian.Uint32(head)))
}

// flush syncs what the answers promise, and sends them.
func (c *conn) flush() error {
	for _, w := range c.dirty {
		if err := w.partition.commit(w.position); err != nil {
			return err
		}
	}
	c.dirty = c.dirty[:0]
	for _, f := range c.followers {
		if err := f.produced(); err != nil {
			return err
		}
	}
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.sock.Write(c.out)
	c.out = c.out[:0]
	return err
}

// header is a request's header.
type header struct {
	key, version int16
	correlation  int32
	copied       bool // by another broker, and to be copied no further
}

// handle answers one request.
func (c *conn) handle(frame []byte) error {
	r := kbin.Reader{Src: frame}
	h := header{key: r.Int16(), version: r.Int16(), correlation: r.Int32()}
	client := r.NullableString()
	h.copied = client != nil && *client == copier
	limits, ok := served[h.key]
	if !ok {
		return fmt.Errorf("%w: api key %d", errFrame, h.key)
	}
	if h.version < limits.min || h.version > limits.max {
		if h.key == int16(kmsg.ApiVersions) {
			return c.unsupported(h)
		}
		return fmt.Errorf("%w: %s version %d", errFrame, kmsg.NameForKey(h.key), h.version)
	}
	if limits.flexible >= 0 && h.version >= limits.flexible {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() {
		return fmt.Errorf("%w: header", errFrame)
	}
	switch kmsg.Key(h.key) {
	case kmsg.Produce:
		return c.handleProduce(h, r.Src)
	case kmsg.Fetch:
		return c.handleFetch(h, r.Src)
	}
	request := kmsg.RequestForKey(h.key)
	request.SetVersion(h.version)
	if err := request.ReadFrom(r.Src); err != nil {
		return err
	}
	c.respond(h, c.broker.answer(request, h.copied))
	return nil
}

// respond appends a response to out.
func (c *conn) respond(h header, response kmsg.Response) {
	at := len(c.out)
	c.out = append(c.out, 0, 0, 0, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(h.correlation))
	// ApiVersions has no tagged fields in its header, so that a client of any
	// version can read it. Source: KIP-511.
	if response.IsFlexible() && response.Key() != int16(kmsg.ApiVersions) {
		c.out = append(c.out, 0)
	}
	c.out = response.AppendTo(c.out)
	binary.BigEndian.PutUint32(c.out[at:], uint32(len(c.out)-at-4))
}

// lookup finds a topic without the broker's lock if it was found before.
func (c *conn) lookup(name string) *topic {
	if t := c.topics[name]; t != nil {
		return t
	}
	t, _ := c.broker.topic(name, 0, false)
	if t != nil {
		c.topics[strings.Clone(name)] = t
	}
	return t
}
