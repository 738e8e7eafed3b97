package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchWaitMillis is how long the broker may wait for data. There always is
// some, unless the topic is empty.
const fetchWaitMillis = 500

// Fetch reads the topic round and round, one partition a request. The topic
// must hold records already.
func Fetch(ctx context.Context, cfg Config) (Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Result{}, err
	}
	return run(ctx, cfg, func(l *link, conn int, partitions []int32) driver {
		return newFetcher(l, cfg, partitions, conn)
	})
}

// fetcher is a driver of fetch requests. Each of the requests under way has a
// cursor of its own, since where a read goes on is only known from its answer.
type fetcher struct {
	link                  *link
	topic                 string
	verify                bool
	frame                 []byte
	partitionAt, offsetAt int
	cursors               []cursor
	sent, answered        int
	records               []byte // of one answer
}

type cursor struct {
	partition int32
	offset    int64
}

func fetchRequest(cfg Config, partition int32, offset int64) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.Version = fetchVersion
	request.ReplicaID = -1
	request.MaxWaitMillis = fetchWaitMillis
	request.MinBytes = 1
	request.MaxBytes = max(cfg.FetchBytes, 50<<20)
	request.SessionEpoch = -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = cfg.Topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, cfg.FetchBytes
	p.CurrentLeaderEpoch, p.LogStartOffset = -1, -1
	topic.Partitions = append(topic.Partitions, p)
	request.Topics = append(request.Topics, topic)
	return request
}

func newFetcher(l *link, cfg Config, partitions []int32, conn int) *fetcher {
	frame := formatter.AppendRequest(nil, fetchRequest(cfg, 0, 0), 0)
	f := &fetcher{
		link: l, topic: cfg.Topic, verify: cfg.Verify, frame: frame,
		partitionAt: firstDifference(frame, formatter.AppendRequest(nil, fetchRequest(cfg, -1, 0), 0)),
		offsetAt:    firstDifference(frame, formatter.AppendRequest(nil, fetchRequest(cfg, 0, -1), 0)),
	}
	for i := range cfg.Depth {
		f.cursors = append(f.cursors, cursor{partition: partitions[(conn*cfg.Depth+i)%len(partitions)]})
	}
	return f
}

func (f *fetcher) send(buf []byte) ([]byte, error) {
	c := f.cursors[f.sent%len(f.cursors)]
	f.sent++
	binary.BigEndian.PutUint32(f.frame[correlationAt:], uint32(f.sent))
	binary.BigEndian.PutUint32(f.frame[f.partitionAt:], uint32(c.partition))
	binary.BigEndian.PutUint64(f.frame[f.offsetAt:], uint64(c.offset))
	return append(buf, f.frame...), nil
}

func (f *fetcher) receive() (records, bytes int64, err error) {
	c := &f.cursors[f.answered%len(f.cursors)]
	f.answered++
	highWatermark, err := f.read(int32(f.answered), c)
	if err != nil {
		return 0, 0, err
	}
	for rest := f.records; len(rest) >= batchHeader; {
		size := int64(int32(binary.BigEndian.Uint32(rest[batchLengthAt:]))) + batchLengthAt + 4
		if size < batchHeader {
			return 0, 0, fmt.Errorf("%w: batch of %d bytes", ErrAnswer, size)
		}
		if size > int64(len(rest)) {
			break // a last batch may be cut short
		}
		batch := rest[:size]
		rest = rest[size:]
		base := int64(binary.BigEndian.Uint64(batch))
		next := base + int64(int32(binary.BigEndian.Uint32(batch[lastOffsetDeltaAt:]))) + 1
		if f.verify {
			if err := verify(batch, base, next, *c); err != nil {
				return 0, 0, err
			}
		}
		records += next - max(base, c.offset)
		bytes += size
		c.offset = next
	}
	if c.offset >= highWatermark {
		c.offset = 0
	}
	return records, bytes, nil
}

// read reads one answer and leaves its record batches in f.records.
func (f *fetcher) read(correlation int32, c *cursor) (highWatermark int64, err error) {
	// size, correlation id, throttle time, error, session id, topics, topic,
	// partitions, partition, error, high watermark, last stable offset, log start
	// offset, aborted transactions
	const before = 4 + 4 + 4 + 2 + 4 + 4
	fixed := before + 2 + len(f.topic) + 4 + 4 + 2 + 8 + 8 + 8 + 4
	head, err := f.link.in.Peek(before)
	if err != nil {
		return 0, err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != correlation {
		return 0, fmt.Errorf("%w: correlation id %d, want %d", ErrAnswer, got, correlation)
	}
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(head[12:]))); err != nil {
		return 0, fmt.Errorf("fetch: %w", err)
	}
	if size+4 < fixed+8 {
		return 0, fmt.Errorf("%w: frame of %d bytes, want %d or more", ErrAnswer, size+4, fixed+8)
	}
	if head, err = f.link.in.Peek(fixed); err != nil {
		return 0, err
	}
	at := before + 2 + len(f.topic) + 4
	if partition := int32(binary.BigEndian.Uint32(head[at:])); partition != c.partition {
		return 0, fmt.Errorf("%w: partition %d, want %d", ErrAnswer, partition, c.partition)
	}
	if err := kerr.ErrorForCode(int16(binary.BigEndian.Uint16(head[at+4:]))); err != nil {
		return 0, fmt.Errorf("fetch %s partition %d at offset %d: %w", f.topic, c.partition, c.offset, err)
	}
	highWatermark = int64(binary.BigEndian.Uint64(head[at+6:]))
	aborted := int(max(int32(binary.BigEndian.Uint32(head[fixed-4:])), 0))
	f.link.in.Discard(fixed + 16*aborted)
	tail, err := f.link.in.Peek(8) // preferred read replica, length of records
	if err != nil {
		return 0, err
	}
	length := max(int(int32(binary.BigEndian.Uint32(tail[4:]))), 0)
	f.link.in.Discard(8)
	if want := fixed + 16*aborted + 8 + length; size+4 != want {
		return 0, fmt.Errorf("%w: frame of %d bytes, want %d", ErrAnswer, size+4, want)
	}
	if cap(f.records) < length {
		f.records = make([]byte, length)
	}
	f.records = f.records[:length]
	_, err = io.ReadFull(f.link.in, f.records)
	return highWatermark, err
}

func verify(batch []byte, base, next int64, c cursor) error {
	if got, want := crc32.Checksum(batch[attributesAt:], castagnoli), binary.BigEndian.Uint32(batch[crcAt:]); got != want {
		return fmt.Errorf("%w: partition %d offset %d: crc %#08x, header says %#08x", ErrAnswer, c.partition, base, got, want)
	}
	if c.offset < base || c.offset >= next {
		return fmt.Errorf("%w: partition %d: batch [%d,%d) at offset %d", ErrAnswer, c.partition, base, next, c.offset)
	}
	return nil
}
