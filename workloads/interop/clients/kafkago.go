package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
)

func runKafkaGo(addr, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for name, codec := range map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	} {
		for _, acks := range []kafka.RequiredAcks{kafka.RequireNone, kafka.RequireOne, kafka.RequireAll} {
			topic := fmt.Sprintf("%s-%s-%d", prefix, name, acks)
			if err := kafkaGoCreate(ctx, addr, topic); err != nil {
				return fmt.Errorf("create %s: %w", topic, err)
			}
			w := &kafka.Writer{Addr: kafka.TCP(addr), Topic: topic, Compression: codec, RequiredAcks: acks, BatchTimeout: 10 * time.Millisecond}
			if err := w.WriteMessages(ctx, kafkaGoMessages()...); err != nil {
				return fmt.Errorf("%s: write: %w", topic, err)
			}
			if err := w.Close(); err != nil {
				return err
			}
			if acks == kafka.RequireNone {
				// It does not wait for its connection, and may take another one for the
				// next batch: then nobody has them in order.
				if err := kafkaGoCount(ctx, addr, topic); err != nil {
					return fmt.Errorf("%s: count: %w", topic, err)
				}
				continue
			}
			wrote(topic, records, name)
			if err := kafkaGoRead(ctx, addr, topic); err != nil {
				return fmt.Errorf("%s: read: %w", topic, err)
			}
		}
		ok("kafka-go Writer and Reader, %s", name)
	}
	if err := kafkaGoAuto(ctx, addr, prefix+"-auto"); err != nil {
		return fmt.Errorf("topic created by its writer: %w", err)
	}
	if err := kafkaGoConn(ctx, addr, prefix+"-conn"); err != nil {
		return fmt.Errorf("Conn: %w", err)
	}
	return kafkaGoClient(ctx, addr, prefix+"-client")
}

func kafkaGoMessages() []kafka.Message {
	ms := make([]kafka.Message, records)
	for i := range ms {
		ms[i] = kafka.Message{Key: key(i), Value: value(i), Headers: []kafka.Header{{Key: "h", Value: fmt.Append(nil, i)}}}
	}
	return ms
}

func kafkaGoCreate(ctx context.Context, addr, topic string) error {
	c := &kafka.Client{Addr: kafka.TCP(addr)}
	resp, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return resp.Errors[topic]
}

func kafkaGoRead(ctx context.Context, addr, topic string) error {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: 0, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	for i := range records {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if err := same(i, m.Offset, m.Key, m.Value); err != nil {
			return err
		}
	}
	// Again, from the middle.
	if err := r.SetOffset(records / 2); err != nil {
		return err
	}
	m, err := r.ReadMessage(ctx)
	if err != nil {
		return err
	}
	return same(records/2, m.Offset, m.Key, m.Value)
}

// kafkaGoCount reads every record that was written, in any order.
func kafkaGoCount(ctx context.Context, addr, topic string) error {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: 0, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	found := map[string]bool{}
	for i := range records {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		found[string(m.Key)] = true
	}
	for i := range records {
		if !found[string(key(i))] {
			return fmt.Errorf("no record %s", key(i))
		}
	}
	return nil
}

// kafkaGoAuto has the topic created by the writer's Metadata requests.
func kafkaGoAuto(ctx context.Context, addr, topic string) error {
	w := &kafka.Writer{Addr: kafka.TCP(addr), Topic: topic, AllowAutoTopicCreation: true, BatchTimeout: 10 * time.Millisecond}
	defer w.Close()
	for {
		err := w.WriteMessages(ctx, kafkaGoMessages()...)
		if errors.Is(err, kafka.UnknownTopicOrPartition) && ctx.Err() == nil {
			continue // as its documentation says: the first may come too early
		}
		if err != nil {
			return err
		}
		wrote(topic, records, "none")
		ok("kafka-go Writer creates its topic")
		return nil
	}
}

// kafkaGoConn uses the old, low interface.
func kafkaGoConn(ctx context.Context, addr, topic string) error {
	c, err := kafka.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	controller, err := c.Controller()
	if err != nil || net.JoinHostPort(controller.Host, fmt.Sprint(controller.Port)) != addr {
		return fmt.Errorf("controller %+v: %w", controller, err)
	}
	if err := c.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	leader, err := kafka.DialLeader(ctx, "tcp", addr, topic, 0)
	if err != nil {
		return fmt.Errorf("dial leader: %w", err)
	}
	defer leader.Close()
	if _, err := leader.WriteMessages(kafkaGoMessages()...); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if first, last, err := leader.ReadOffsets(); err != nil || first != 0 || last != records {
		return fmt.Errorf("offsets %d and %d: %w", first, last, err)
	}
	if offset, err := leader.ReadOffset(time.Now().Add(-time.Hour)); err != nil || offset != 0 {
		return fmt.Errorf("offset by time %d: %w", offset, err)
	}
	if _, err := leader.Seek(3, kafka.SeekAbsolute); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	m, err := leader.ReadMessage(1 << 20)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := same(3, m.Offset, m.Key, m.Value); err != nil {
		return err
	}
	wrote(topic, records, "none")
	if partitions, err := c.ReadPartitions(topic); err != nil || len(partitions) != 1 || partitions[0].Leader.ID != 1 {
		return fmt.Errorf("partitions %+v: %w", partitions, err)
	}
	if err := c.CreateTopics(kafka.TopicConfig{Topic: topic + "-2", NumPartitions: 1, ReplicationFactor: 1}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := c.DeleteTopics(topic + "-2"); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	ok("kafka-go Conn: controller, create, write, offsets, seek, read, partitions, delete")
	return nil
}

// kafkaGoClient uses kafka.Client, one request at a time.
func kafkaGoClient(ctx context.Context, addr, topic string) error {
	c := &kafka.Client{Addr: kafka.TCP(addr)}
	if err := kafkaGoCreate(ctx, addr, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if v, err := c.ApiVersions(ctx, &kafka.ApiVersionsRequest{}); err != nil || v.Error != nil || len(v.ApiKeys) < 10 {
		return fmt.Errorf("versions: %w", err)
	}
	p, err := c.Produce(ctx, &kafka.ProduceRequest{Topic: topic, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("x"))})})
	if err != nil || p.Error != nil || p.BaseOffset != 0 {
		return fmt.Errorf("produce: %+v: %w", p, err)
	}
	f, err := c.Fetch(ctx, &kafka.FetchRequest{Topic: topic, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second})
	if err != nil || f.Error != nil || f.HighWatermark != 1 {
		return fmt.Errorf("fetch: %+v: %w", f, err)
	}
	l, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}}})
	if err != nil || l.Topics[topic][0].LastOffset != 1 || l.Topics[topic][0].FirstOffset != 0 {
		return fmt.Errorf("offsets: %+v: %w", l, err)
	}
	m, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil || len(m.Topics) != 1 || m.Topics[0].Error != nil || m.Controller.ID != 1 {
		return fmt.Errorf("metadata: %+v: %w", m, err)
	}
	d, err := c.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}}})
	if err != nil || d.Resources[0].Error != nil || len(d.Resources[0].ConfigEntries) < 10 {
		return fmt.Errorf("configuration: %w", err)
	}
	x, err := c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil || x.Errors[topic] != nil {
		return fmt.Errorf("delete: %+v: %w", x, err)
	}
	ok("kafka-go Client: versions, produce, fetch, offsets, metadata, configuration, create, delete")
	return nil
}
