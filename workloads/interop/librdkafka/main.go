// Command librdkafka shows what confluent-kafka-go, and with it librdkafka of
// the version that it carries, can do with a broker. See package interop for
// what it is given and what it prints. It needs cgo.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: librdkafka ADDRESS PREFIX")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "librdkafka: %v\n", err)
		os.Exit(1)
	}
}

// records is how many of them each case writes.
const records = 500

func key(i int) []byte   { return fmt.Appendf(nil, "k-%d", i) }
func value(i int) []byte { return fmt.Appendf(nil, "v-%d%s", i, strings.Repeat(".", 100)) }

func run(addr, prefix string) error {
	_, version := kafka.LibraryVersion()
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		for _, acks := range []string{"0", "1", "all"} {
			topic := fmt.Sprintf("%s-%s-%s", prefix, codec, acks)
			if err := produce(addr, topic, kafka.ConfigMap{"compression.type": codec, "acks": acks}); err != nil {
				return fmt.Errorf("%s, acks %s: %w", codec, acks, err)
			}
			fmt.Printf("wrote %s %d %s\n", topic, records, codec)
		}
		if err := consume(addr, prefix+"-"+codec+"-all"); err != nil { // the others may still be on their way
			return fmt.Errorf("%s: consume: %w", codec, err)
		}
		fmt.Printf("ok librdkafka %s: produce and consume, %s\n", version, codec)
	}
	topic := prefix + "-idempotent"
	if err := produce(addr, topic, kafka.ConfigMap{"enable.idempotence": true}); err != nil {
		return fmt.Errorf("idempotent: %w", err)
	}
	fmt.Printf("wrote %s %d none\n", topic, records)
	if err := administer(addr, prefix+"-admin", topic); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	fmt.Printf("ok librdkafka %s: idempotent producer; admin: create, metadata, describe, configuration, cluster, offsets, delete\n", version)
	return nil
}

func produce(addr, topic string, cfg kafka.ConfigMap) error {
	cfg["bootstrap.servers"], cfg["linger.ms"] = addr, 50
	p, err := kafka.NewProducer(&cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	delivered := make(chan kafka.Event, records)
	for i := range records {
		err := p.Produce(&kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: 0}, Key: key(i), Value: value(i),
			Headers: []kafka.Header{{Key: "h", Value: fmt.Append(nil, i)}},
		}, delivered)
		if err != nil {
			return err
		}
	}
	for i := range records {
		if m := (<-delivered).(*kafka.Message); m.TopicPartition.Error != nil {
			return fmt.Errorf("record %d: %w", i, m.TopicPartition.Error)
		}
	}
	return nil
}

func consume(addr, topic string) error {
	// The group is required and not used: partitions are assigned by hand.
	c, err := kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": addr, "group.id": "none", "enable.auto.commit": false, "enable.partition.eof": true, "check.crcs": true})
	if err != nil {
		return err
	}
	defer c.Close()
	if low, high, err := c.QueryWatermarkOffsets(topic, 0, 10_000); err != nil || low != 0 || high != records {
		return fmt.Errorf("watermarks %d and %d: %w", low, high, err)
	}
	past, err := c.OffsetsForTimes([]kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: kafka.Offset(time.Now().Add(-time.Hour).UnixMilli())}}, 10_000)
	if err != nil || past[0].Offset != 0 {
		return fmt.Errorf("offset an hour ago %v: %w", past, err)
	}
	if err := c.Assign([]kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: 0}}); err != nil {
		return err
	}
	for i := range records {
		m, err := c.ReadMessage(time.Minute)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if int(m.TopicPartition.Offset) != i || string(m.Key) != string(key(i)) || string(m.Value) != string(value(i)) || len(m.Headers) != 1 {
			return fmt.Errorf("record %d: %v, key %q, value %.20q, headers %v", i, m.TopicPartition, m.Key, m.Value, m.Headers)
		}
	}
	for {
		switch e := c.Poll(10_000).(type) {
		case kafka.PartitionEOF:
			if e.Offset != records {
				return fmt.Errorf("the end is at %v", e.Offset)
			}
			return nil
		case nil:
			return errors.New("no end of the partition")
		}
	}
}

func administer(addr, topic, full string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": addr})
	if err != nil {
		return err
	}
	defer a.Close()
	wanted := []kafka.TopicSpecification{{Topic: topic, NumPartitions: 2, ReplicationFactor: 1, Config: map[string]string{"max.message.bytes": "2000000"}}}
	for _, want := range []kafka.ErrorCode{kafka.ErrNoError, kafka.ErrTopicAlreadyExists} {
		if created, err := a.CreateTopics(ctx, wanted); err != nil || created[0].Error.Code() != want {
			return fmt.Errorf("create: %v: %w", created, err)
		}
	}
	if m, err := a.GetMetadata(&topic, false, 10_000); err != nil || len(m.Topics[topic].Partitions) != 2 {
		return fmt.Errorf("metadata: %+v: %w", m, err)
	}
	if d, err := a.DescribeTopics(ctx, kafka.NewTopicCollectionOfTopicNames([]string{topic})); err != nil || len(d.TopicDescriptions[0].Partitions) != 2 {
		return fmt.Errorf("describe: %+v: %w", d, err)
	}
	configs, err := a.DescribeConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: topic}, {Type: kafka.ResourceBroker, Name: "1"}})
	if err != nil || len(configs) != 2 || configs[0].Config["max.message.bytes"].Value != "2000000" || configs[1].Config["default.replication.factor"].Value != "1" {
		return fmt.Errorf("configuration: %+v: %w", configs, err)
	}
	if cluster, err := a.DescribeCluster(ctx); err != nil || len(cluster.Nodes) != 1 || cluster.Controller.ID != 1 {
		return fmt.Errorf("cluster: %+v: %w", cluster, err)
	}
	for want, spec := range map[kafka.Offset]kafka.OffsetSpec{0: kafka.EarliestOffsetSpec, records: kafka.LatestOffsetSpec} {
		at := kafka.TopicPartition{Topic: &full, Partition: 0}
		listed, err := a.ListOffsets(ctx, map[kafka.TopicPartition]kafka.OffsetSpec{at: spec})
		if err != nil {
			return fmt.Errorf("offsets: %w", err)
		}
		for _, info := range listed.ResultInfos {
			if info.Offset != want || info.Error.Code() != kafka.ErrNoError {
				return fmt.Errorf("offset %v (%v), want %v", info.Offset, info.Error, want)
			}
		}
	}
	if deleted, err := a.DeleteTopics(ctx, []string{topic}); err != nil || deleted[0].Error.Code() != kafka.ErrNoError {
		return fmt.Errorf("delete: %v: %w", deleted, err)
	}
	return nil
}
