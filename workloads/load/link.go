package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions the raw drivers speak: the last before topic ids, so that a frame is
// good for every broker.
const (
	produceVersion  = 9
	fetchVersion    = 11
	metadataVersion = 9
	createVersion   = 5
)

const (
	readBuffer    = 64 << 10
	correlationAt = 8 // in a request frame, its length included
	setupPause    = 20 * time.Millisecond
)

// ErrAnswer says an answer is not one to the question.
var ErrAnswer = errors.New("unexpected answer")

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("pawl-load"))

// link is one connection to one broker.
type link struct {
	sock        net.Conn
	in          *bufio.Reader
	correlation int32
}

// dial connects. When ctx ends, whatever the link does fails.
func dial(ctx context.Context, addr string) (*link, error) {
	var d net.Dialer
	sock, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &link{sock: sock, in: bufio.NewReaderSize(sock, readBuffer)}, nil
}

// closeWith closes the link when ctx ends, until release is called.
func (l *link) closeWith(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() { l.sock.Close() })
}

// ask sends a request and waits for its response.
func (l *link) ask(request kmsg.Request) (kmsg.Response, error) {
	l.correlation++
	if _, err := l.sock.Write(formatter.AppendRequest(nil, request, l.correlation)); err != nil {
		return nil, err
	}
	frame, err := l.answer(l.correlation)
	if err != nil {
		return nil, err
	}
	response := request.ResponseKind()
	if response.IsFlexible() && response.Key() != int16(kmsg.ApiVersions) {
		r := kbin.Reader{Src: frame}
		kmsg.SkipTags(&r)
		frame = r.Src
	}
	return response, response.ReadFrom(frame)
}

// answer reads the response to a request, without its correlation id. The bytes
// are good until the next read.
func (l *link) answer(correlation int32) ([]byte, error) {
	head, err := l.in.Peek(8)
	if err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != correlation || size < 4 {
		return nil, fmt.Errorf("%w: correlation id %d of %d bytes, want %d", ErrAnswer, got, size, correlation)
	}
	if size+4 <= readBuffer {
		frame, err := l.in.Peek(size + 4)
		if err != nil {
			return nil, err
		}
		l.in.Discard(size + 4)
		return frame[8:], nil
	}
	frame := make([]byte, size+4)
	if _, err := io.ReadFull(l.in, frame); err != nil {
		return nil, err
	}
	return frame[8:], nil
}

// ready reports whether a whole response can be read without waiting.
func (l *link) ready() bool {
	if l.in.Buffered() < 4 {
		return false
	}
	head, _ := l.in.Peek(4)
	return l.in.Buffered()-4 >= int(int32(binary.BigEndian.Uint32(head)))
}

// askAny asks the first broker that can be reached.
func askAny(ctx context.Context, brokers []string, request kmsg.Request) (response kmsg.Response, err error) {
	for _, addr := range brokers {
		var l *link
		if l, err = dial(ctx, addr); err != nil {
			continue
		}
		release := l.closeWith(ctx)
		response, err = l.ask(request)
		release()
		l.sock.Close()
		if err == nil {
			return response, nil
		}
	}
	return nil, err
}

// CreateTopic creates the load's topic, and returns once every partition has a
// leader. A topic that exists already is left as it is.
func CreateTopic(ctx context.Context, cfg Config) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Version = createVersion
	request.TimeoutMillis = 30_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = cfg.Topic
	topic.NumPartitions = int32(max(cfg.Partitions, 1))
	topic.ReplicationFactor = int16(max(cfg.Replication, 1))
	request.Topics = append(request.Topics, topic)
	for {
		response, err := askAny(ctx, cfg.Brokers, request)
		if err != nil {
			return fmt.Errorf("create topic %s: %w", cfg.Topic, err)
		}
		err = kerr.ErrorForCode(response.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			break
		}
		if !kerr.IsRetriable(err) {
			return fmt.Errorf("create topic %s: %w", cfg.Topic, err)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	_, err := leaders(ctx, cfg)
	return err
}

// leaders returns the partitions by the address of their leader. It waits until
// every partition has one.
func leaders(ctx context.Context, cfg Config) (map[string][]int32, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Version = metadataVersion
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(cfg.Topic)
	request.Topics = append(request.Topics, topic)
	for {
		response, err := askAny(ctx, cfg.Brokers, request)
		if err != nil {
			return nil, fmt.Errorf("metadata of topic %s: %w", cfg.Topic, err)
		}
		led, err := ledBy(response.(*kmsg.MetadataResponse), cfg.Partitions)
		if err == nil {
			return led, nil
		}
		if !kerr.IsRetriable(err) {
			return nil, fmt.Errorf("metadata of topic %s: %w", cfg.Topic, err)
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

func ledBy(response *kmsg.MetadataResponse, partitions int) (map[string][]int32, error) {
	addr := addressesOf(response)
	if len(response.Topics) != 1 {
		return nil, fmt.Errorf("%w: %d topics, want 1", ErrAnswer, len(response.Topics))
	}
	topic := response.Topics[0]
	if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
		return nil, err
	}
	if len(topic.Partitions) < partitions {
		return nil, fmt.Errorf("%w: %d partitions, want %d", ErrConfig, len(topic.Partitions), partitions)
	}
	led := map[string][]int32{}
	for _, p := range topic.Partitions[:partitions] {
		leader, ok := addr[p.Leader]
		if !ok || p.ErrorCode != 0 {
			return nil, kerr.LeaderNotAvailable
		}
		led[leader] = append(led[leader], p.Partition)
	}
	return led, nil
}

// Leaders is who leads the partitions of a cluster.
type Leaders struct {
	Partitions int
	By         map[string]int // by the leader's host:port
	Nobody     int
}

// Led asks a broker who leads all partitions of all topics.
func Led(ctx context.Context, addr string) (Leaders, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Version = metadataVersion
	all, err := askAny(ctx, []string{addr}, request)
	if err != nil {
		return Leaders{}, fmt.Errorf("metadata of all topics: %w", err)
	}
	response := all.(*kmsg.MetadataResponse)
	addrs := addressesOf(response)
	led := Leaders{By: map[string]int{}}
	for _, t := range response.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return Leaders{}, fmt.Errorf("metadata of topic %s: %w", *t.Topic, err)
		}
		for _, p := range t.Partitions {
			led.Partitions++
			if leader, ok := addrs[p.Leader]; ok && p.ErrorCode == 0 {
				led.By[leader]++
			} else {
				led.Nobody++
			}
		}
	}
	return led, nil
}

// addressesOf is host:port of each broker.
func addressesOf(response *kmsg.MetadataResponse) map[int32]string {
	addrs := map[int32]string{}
	for _, b := range response.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
	}
	return addrs
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(setupPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
