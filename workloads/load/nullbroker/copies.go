package nullbroker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// copier is the client id of requests from another broker. They are copied no
// further.
const copier = "null-broker-copy"

// createVersion is the version of CreateTopics that brokers ask each other.
const createVersion = 4

// follower is a connection's connection to another broker: what is produced
// there is produced here as well, in no order that others would agree on.
type follower struct {
	sock net.Conn
	in   *bufio.Reader
	owed []int16 // versions of the answers to come, oldest first
}

func follow(addr string) (*follower, error) {
	sock, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &follower{sock: sock, in: bufio.NewReader(sock)}, nil
}

// send sends a request of which there is only the body, without waiting for the
// answer.
func (f *follower) send(h header, body []byte) error {
	head := make([]byte, 4, 4+8+2+len(copier)+1)
	head = binary.BigEndian.AppendUint16(head, uint16(h.key))
	head = binary.BigEndian.AppendUint16(head, uint16(h.version))
	head = binary.BigEndian.AppendUint32(head, uint32(h.correlation))
	head = binary.BigEndian.AppendUint16(head, uint16(len(copier)))
	head = append(head, copier...)
	if limits := served[h.key]; limits.flexible >= 0 && h.version >= limits.flexible {
		head = append(head, 0)
	}
	binary.BigEndian.PutUint32(head, uint32(len(head)-4+len(body)))
	_, err := (&net.Buffers{head, body}).WriteTo(f.sock)
	return err
}

// receive reads the answer to the oldest request, correlation id and all.
func (f *follower) receive() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > maxFrame {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, size)
	}
	frame := make([]byte, size)
	_, err := io.ReadFull(f.in, frame)
	return frame, err
}

// produced reads the answers to everything that was copied.
func (f *follower) produced() error {
	for _, version := range f.owed {
		frame, err := f.receive()
		if err != nil {
			return err
		}
		response := kmsg.NewPtrProduceResponse()
		response.Version = version
		r := kbin.Reader{Src: frame[4:]}
		if response.IsFlexible() {
			kmsg.SkipTags(&r)
		}
		if err := response.ReadFrom(r.Src); err != nil {
			return err
		}
		for _, t := range response.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return fmt.Errorf("copy %s partition %d: %w", t.Topic, p.Partition, err)
				}
			}
		}
	}
	f.owed = f.owed[:0]
	return nil
}

// copy sends what is produced to every other broker. flush waits for them.
func (c *conn) copy(h header, body []byte, answered bool) error {
	if len(c.followers) == 0 {
		for _, addr := range c.broker.others() {
			f, err := follow(addr)
			if err != nil {
				return err
			}
			c.followers = append(c.followers, f)
		}
	}
	for _, f := range c.followers {
		if err := f.send(h, body); err != nil {
			return err
		}
		if answered {
			f.owed = append(f.owed, h.version)
		}
	}
	return nil
}

// others are the addresses of the cluster's other brokers.
func (b *Broker) others() (addrs []string) {
	for i, addr := range b.cfg.Cluster {
		if i != b.cfg.Self {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// spread makes a topic on the other brokers.
func (b *Broker) spread(name string, partitions int) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Version = createVersion
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), 1
	request.Topics = append(request.Topics, topic)
	for _, addr := range b.others() {
		f, err := follow(addr)
		if err != nil {
			return err
		}
		if err = f.send(header{key: request.Key(), version: createVersion}, request.AppendTo(nil)); err == nil {
			_, err = f.receive() // that it is there already is as good
		}
		f.sock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
