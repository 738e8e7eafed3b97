package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func saramaConfig(v sarama.KafkaVersion, codec string) *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = v
	cfg.Producer.Compression = saramaCodecs[codec]
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Consumer.Return.Errors = true
	return cfg
}

func saramaMessage(topic string, i int, headers bool) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: topic, Key: sarama.ByteEncoder(key(i)), Value: sarama.ByteEncoder(value(i))}
	if headers {
		m.Headers = []sarama.RecordHeader{{Key: []byte("h"), Value: fmt.Append(nil, i)}}
	}
	return m
}

func runSarama(addr, prefix string) error {
	for _, v := range []sarama.KafkaVersion{
		sarama.V0_11_0_0, sarama.V1_0_0_0, sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.V3_6_0_0, sarama.V4_1_0_0,
	} {
		for codec := range saramaCodecs {
			if codec == "zstd" && !v.IsAtLeast(sarama.V2_1_0_0) {
				continue
			}
			topic := fmt.Sprintf("%s-%s-%s", prefix, v, codec)
			cfg := saramaConfig(v, codec)
			if err := saramaSync(addr, topic+"-sync", cfg); err != nil {
				return fmt.Errorf("version %s, %s, sync: %w", v, codec, err)
			}
			if err := saramaAsync(addr, topic+"-async", cfg); err != nil {
				return fmt.Errorf("version %s, %s, async: %w", v, codec, err)
			}
			idempotent := saramaConfig(v, codec)
			idempotent.Producer.Idempotent, idempotent.Net.MaxOpenRequests = true, 1
			if err := saramaAsync(addr, topic+"-idempotent", idempotent); err != nil {
				return fmt.Errorf("version %s, %s, idempotent: %w", v, codec, err)
			}
			wrote(topic+"-async", records, codec)
			wrote(topic+"-idempotent", records, codec)
			for topic, n := range map[string]int{topic + "-sync": syncRecords, topic + "-async": records} {
				if err := saramaConsume(addr, topic, n, cfg); err != nil {
					return fmt.Errorf("version %s, %s, consume: %w", v, codec, err)
				}
			}
		}
		for _, acks := range []sarama.RequiredAcks{sarama.NoResponse, sarama.WaitForLocal} {
			cfg := saramaConfig(v, "none")
			cfg.Producer.RequiredAcks = acks
			topic := fmt.Sprintf("%s-%s-acks%d", prefix, v, acks)
			if err := saramaAsync(addr, topic, cfg); err != nil {
				return fmt.Errorf("version %s, acks %d: %w", v, acks, err)
			}
			wrote(topic, records, "none")
		}
		if err := saramaAdmin(addr, fmt.Sprintf("%s-%s-admin", prefix, v), saramaConfig(v, "none")); err != nil {
			return fmt.Errorf("version %s, admin: %w", v, err)
		}
		ok("sarama as of Kafka %s: sync, async, idempotent, acks, partition consumer, admin", v)
	}
	return nil
}

// syncRecords is how many records are sent one by one.
const syncRecords = 20

func saramaSync(addr, topic string, cfg *sarama.Config) error {
	p, err := sarama.NewSyncProducer([]string{addr}, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range syncRecords {
		if _, offset, err := p.SendMessage(saramaMessage(topic, i, true)); err != nil || offset != int64(i) {
			return fmt.Errorf("record %d at %d: %w", i, offset, err)
		}
	}
	return nil
}

func saramaAsync(addr, topic string, cfg *sarama.Config) error {
	p, err := sarama.NewAsyncProducer([]string{addr}, cfg)
	if err != nil {
		return err
	}
	go func() {
		for i := range records {
			p.Input() <- saramaMessage(topic, i, true)
		}
		p.AsyncClose()
	}()
	done := make(chan int)
	go func() {
		n := 0
		for range p.Successes() {
			n++
		}
		done <- n
	}()
	var failed error
	for e := range p.Errors() {
		failed = errors.Join(failed, e.Err)
	}
	if n := <-done; n != records || failed != nil {
		return fmt.Errorf("%d of %d records: %w", n, records, failed)
	}
	return nil
}

func saramaConsume(addr, topic string, n int, cfg *sarama.Config) error {
	c, err := sarama.NewConsumer([]string{addr}, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer p.Close()
	deadline := time.After(time.Minute)
	for i := range n {
		select {
		case m := <-p.Messages():
			if err := same(i, m.Offset, m.Key, m.Value); err != nil {
				return err
			}
			if len(m.Headers) != 1 || m.Timestamp.IsZero() {
				return fmt.Errorf("record %d: headers %v, time %v", i, m.Headers, m.Timestamp)
			}
		case err := <-p.Errors():
			return err
		case <-deadline:
			return fmt.Errorf("nothing after record %d", i)
		}
	}
	return nil
}

func saramaAdmin(addr, topic string, cfg *sarama.Config) error {
	c, err := sarama.NewClient([]string{addr}, cfg)
	if err != nil {
		return err
	}
	a, err := sarama.NewClusterAdminFromClient(c) // closes c
	if err != nil {
		return err
	}
	defer a.Close()
	size := "2000000"
	if err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"max.message.bytes": &size}}, false); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("create again: %w", err)
	}
	if described, err := a.DescribeTopics([]string{topic}); err != nil || len(described) != 1 || len(described[0].Partitions) != 2 {
		return fmt.Errorf("describe: %w", err)
	}
	if cfg.Version.IsAtLeast(sarama.V1_1_0_0) { // before, it asks in DescribeConfigs 0, which no Kafka since 4.0 has
		topics, err := a.ListTopics()
		if err != nil || topics[topic].NumPartitions != 2 {
			return fmt.Errorf("list: %+v: %w", topics[topic], err)
		}
		entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"max.message.bytes"}})
		if err != nil || len(entries) != 1 || entries[0].Value != size {
			return fmt.Errorf("configuration: %v: %w", entries, err)
		}
	}
	if brokers, controller, err := a.DescribeCluster(); err != nil || len(brokers) != 1 || controller != 1 {
		return fmt.Errorf("cluster: controller %d: %w", controller, err)
	}
	for _, at := range []int64{sarama.OffsetNewest, sarama.OffsetOldest} {
		if offset, err := c.GetOffset(topic, 1, at); err != nil || offset != 0 {
			return fmt.Errorf("offset at %d: %d: %w", at, offset, err)
		}
	}
	return a.DeleteTopic(topic)
}
