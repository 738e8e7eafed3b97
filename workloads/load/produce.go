package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinBelow is the size in bytes up to which frames are copied together and
// written at once; larger ones are written as they are.
const joinBelow = 64 << 10

// Produce sends batches that were encoded once, one batch a request, round the
// partitions.
func Produce(ctx context.Context, cfg Config) (Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Result{}, err
	}
	if cfg.Acks == 0 {
		return Result{}, fmt.Errorf("%w: acks=0 has no answers to measure", ErrConfig)
	}
	batch := encodeBatch(cfg.Records, cfg.RecordSize, time.Now().UnixMilli())
	return run(ctx, cfg, func(l *link, conn int, partitions []int32) driver {
		return newProducer(l, cfg, batch, newTurn(partitions, conn, cfg.Connections))
	})
}

// producer is a driver of produce requests.
type producer struct {
	link        *link
	turn        turn
	frame       []byte // one request; only correlation id and partition change
	partitionAt int
	errorAt     int // of the error code in an answer
	answered    int32
	records     int64
	bytes       int64
}

func produceRequest(cfg Config, batch []byte, partition int32) *kmsg.ProduceRequest {
	request := kmsg.NewPtrProduceRequest()
	request.Version = produceVersion
	request.Acks = cfg.Acks
	request.TimeoutMillis = 30_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = cfg.Topic
	data := kmsg.NewProduceRequestTopicPartition()
	data.Partition, data.Records = partition, batch
	topic.Partitions = append(topic.Partitions, data)
	request.Topics = append(request.Topics, topic)
	return request
}

func newProducer(l *link, cfg Config, batch []byte, turn turn) *producer {
	frame := formatter.AppendRequest(nil, produceRequest(cfg, batch, 0), 0)
	other := formatter.AppendRequest(nil, produceRequest(cfg, batch, -1), 0)
	return &producer{
		link: l, turn: turn, frame: frame, partitionAt: firstDifference(frame, other),
		// tags, topics, name, partitions, partition
		errorAt: 1 + 1 + 1 + len(cfg.Topic) + 1 + 4,
		records: int64(cfg.Records), bytes: int64(cfg.Records) * int64(cfg.RecordSize),
	}
}

// firstDifference is where a number that differs in all its bytes begins.
func firstDifference(a, b []byte) int {
	at := 0
	for at < len(a) && a[at] == b[at] {
		at++
	}
	return at
}

func (p *producer) send(buf []byte) ([]byte, error) {
	p.link.correlation++
	binary.BigEndian.PutUint32(p.frame[correlationAt:], uint32(p.link.correlation))
	binary.BigEndian.PutUint32(p.frame[p.partitionAt:], uint32(p.turn.next()))
	if len(p.frame) <= joinBelow {
		return append(buf, p.frame...), nil
	}
	_, err := p.link.sock.Write(p.frame)
	return buf, err
}

func (p *producer) receive() (records, bytes int64, err error) {
	p.answered++
	frame, err := p.link.answer(p.answered)
	if err != nil {
		return 0, 0, err
	}
	if len(frame) < p.errorAt+2 || frame[p.errorAt] != 0 || frame[p.errorAt+1] != 0 {
		return 0, 0, p.refused(frame)
	}
	return p.records, p.bytes, nil
}

// refused says what an answer other than success means.
func (p *producer) refused(frame []byte) error {
	response := kmsg.NewPtrProduceResponse()
	response.Version = produceVersion
	r := kbin.Reader{Src: frame}
	kmsg.SkipTags(&r)
	if err := response.ReadFrom(r.Src); err != nil {
		return fmt.Errorf("%w to produce: %w", ErrAnswer, err)
	}
	for _, t := range response.Topics {
		for _, data := range t.Partitions {
			if err := kerr.ErrorForCode(data.ErrorCode); err != nil {
				return fmt.Errorf("produce to %s partition %d: %w", t.Topic, data.Partition, err)
			}
		}
	}
	return fmt.Errorf("%w to produce: %d bytes", ErrAnswer, len(frame))
}
