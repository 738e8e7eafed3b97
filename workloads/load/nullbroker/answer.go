package nullbroker

import (
	"encoding/binary"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// limits are the versions of a request that are served, and the first that is
// flexible (KIP-482), or -1.
type limits struct{ min, max, flexible int16 }

var served = map[int16]limits{
	int16(kmsg.Produce):        {3, 9, 9},
	int16(kmsg.Fetch):          {11, 11, -1},
	int16(kmsg.ListOffsets):    {1, 5, -1},
	int16(kmsg.Metadata):       {0, 9, 9},
	int16(kmsg.ApiVersions):    {0, 3, 3},
	int16(kmsg.CreateTopics):   {2, 6, 5},
	int16(kmsg.InitProducerID): {0, 4, 2},
}

// unsupported answers an ApiVersions request of a version from the future.
//
// Source: KIP-511.
func (c *conn) unsupported(h header) error {
	response := kmsg.NewPtrApiVersionsResponse()
	response.ErrorCode = kerr.UnsupportedVersion.Code
	response.ApiKeys = apiKeys()
	c.respond(h, response)
	return nil
}

func apiKeys() (keys []kmsg.ApiVersionsResponseApiKey) {
	for key := int16(0); key <= int16(kmsg.InitProducerID); key++ {
		if l, ok := served[key]; ok {
			keys = append(keys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MinVersion: l.min, MaxVersion: l.max})
		}
	}
	return keys
}

// answer answers everything but Produce and Fetch. What other brokers ask for is
// made here alone.
func (b *Broker) answer(request kmsg.Request, copied bool) kmsg.Response {
	response := request.ResponseKind()
	switch request := request.(type) {
	case *kmsg.ApiVersionsRequest:
		response.(*kmsg.ApiVersionsResponse).ApiKeys = apiKeys()
	case *kmsg.MetadataRequest:
		b.metadata(request, response.(*kmsg.MetadataResponse))
	case *kmsg.CreateTopicsRequest:
		b.createTopics(request, response.(*kmsg.CreateTopicsResponse), copied)
	case *kmsg.ListOffsetsRequest:
		b.listOffsets(request, response.(*kmsg.ListOffsetsResponse))
	case *kmsg.InitProducerIDRequest:
		response.(*kmsg.InitProducerIDResponse).ProducerID = b.nextID.Add(1)
	}
	return response
}

func (b *Broker) metadata(request *kmsg.MetadataRequest, response *kmsg.MetadataResponse) {
	var ids []int32
	for i, addr := range b.cluster() {
		host, port, _ := net.SplitHostPort(addr)
		number, _ := strconv.Atoi(port)
		id := int32(i + 1)
		response.Brokers = append(response.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Host: host, Port: int32(number)})
		ids = append(ids, id)
	}
	response.ControllerID = 1
	response.ClusterID = kmsg.StringPtr("null-broker")
	create := request.Version < 4 || request.AllowAutoTopicCreation
	var names []string
	for _, t := range request.Topics {
		names = append(names, *t.Topic)
	}
	if request.Topics == nil || request.Version == 0 && len(names) == 0 {
		names = b.names()
	}
	for _, name := range names {
		described := kmsg.NewMetadataResponseTopic()
		described.Topic = kmsg.StringPtr(name)
		var t *topic
		if create {
			t, _, _ = b.create(name, b.cfg.Partitions, false)
		} else {
			t, _ = b.topic(name, 0, false)
		}
		if t == nil {
			described.ErrorCode = kerr.UnknownTopicOrPartition.Code
			response.Topics = append(response.Topics, described)
			continue
		}
		for i := range t.partitions {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.LeaderEpoch = int32(i), ids[i%len(ids)], 0
			p.Replicas, p.ISR = ids, ids
			described.Partitions = append(described.Partitions, p)
		}
		response.Topics = append(response.Topics, described)
	}
}

// create makes a topic, on the other brokers too unless one of them asks.
func (b *Broker) create(name string, partitions int, copied bool) (t *topic, created bool, err error) {
	if t, created = b.topic(name, partitions, true); created && !copied {
		err = b.spread(name, partitions)
	}
	return t, created, err
}

func (b *Broker) createTopics(request *kmsg.CreateTopicsRequest, response *kmsg.CreateTopicsResponse, copied bool) {
	for _, wanted := range request.Topics {
		partitions := int(wanted.NumPartitions)
		if partitions < 1 {
			partitions = b.cfg.Partitions
		}
		made := kmsg.NewCreateTopicsResponseTopic()
		made.Topic, made.NumPartitions, made.ReplicationFactor = wanted.Topic, int32(partitions), int16(len(b.cluster()))
		_, created, err := b.create(wanted.Topic, partitions, copied)
		if err != nil {
			made.ErrorCode = kerr.BrokerNotAvailable.Code
		} else if !created {
			made.ErrorCode = kerr.TopicAlreadyExists.Code
		}
		response.Topics = append(response.Topics, made)
	}
}

func (b *Broker) listOffsets(request *kmsg.ListOffsetsRequest, response *kmsg.ListOffsetsResponse) {
	for _, asked := range request.Topics {
		listed := kmsg.NewListOffsetsResponseTopic()
		listed.Topic = asked.Topic
		t, _ := b.topic(asked.Topic, 0, false)
		for _, q := range asked.Partitions {
			a := kmsg.NewListOffsetsResponseTopicPartition()
			a.Partition = q.Partition
			switch p := t.partition(q.Partition); {
			case p == nil:
				a.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case q.Timestamp == -2:
				a.Offset, _ = p.offsets()
			case q.Timestamp == -1:
				_, a.Offset = p.offsets()
			default: // by time, which nothing here keeps: none is that late
				a.Offset = -1
			}
			listed.Partitions = append(listed.Partitions, a)
		}
		response.Topics = append(response.Topics, listed)
	}
}

func (c *conn) handleProduce(h header, body []byte) error {
	request, response := &c.produce, &c.produced
	request.Version, response.Version = h.version, h.version
	if err := request.UnsafeReadFrom(body); err != nil {
		return err
	}
	if len(c.broker.cfg.Cluster) > 0 && !h.copied {
		if err := c.copy(h, body, request.Acks != 0); err != nil {
			return err
		}
	}
	response.Topics = response.Topics[:0]
	for _, asked := range request.Topics {
		answered := kmsg.NewProduceResponseTopic()
		answered.Topic = asked.Topic
		t := c.lookup(asked.Topic)
		for _, data := range asked.Partitions {
			a := kmsg.NewProduceResponseTopicPartition()
			a.Partition, a.LogStartOffset = data.Partition, 0
			p := t.partition(data.Partition)
			if p == nil {
				a.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else if base, position, err := p.produce(data.Records); err == errCorrupt {
				a.ErrorCode = kerr.CorruptMessage.Code
			} else if err != nil {
				a.ErrorCode = kerr.KafkaStorageError.Code
			} else {
				a.BaseOffset = base
				c.mark(p, position)
			}
			answered.Partitions = append(answered.Partitions, a)
		}
		response.Topics = append(response.Topics, answered)
	}
	if request.Acks != 0 {
		c.respond(h, response)
	}
	return nil
}

// mark remembers what flush must sync.
func (c *conn) mark(p *partition, position int64) {
	if !c.broker.cfg.Mode.syncs() {
		return
	}
	for i := range c.dirty {
		if c.dirty[i].partition == p {
			c.dirty[i].position = position
			return
		}
	}
	c.dirty = append(c.dirty, written{p, position})
}

func (c *conn) handleFetch(h header, body []byte) error {
	request := &c.fetch
	request.Version = h.version
	if err := request.UnsafeReadFrom(body); err != nil {
		return err
	}
	var deadline <-chan time.Time
	for {
		grown := c.broker.grown.listen()
		enough := c.find(request)
		if enough || c.broker.closing() {
			c.broker.grown.done()
			break
		}
		if deadline == nil {
			if err := c.flush(); err != nil {
				c.broker.grown.done()
				return err
			}
			timer := time.NewTimer(time.Duration(request.MaxWaitMillis) * time.Millisecond)
			defer timer.Stop()
			deadline = timer.C
		}
		select {
		case <-grown:
			c.broker.grown.done()
			continue
		case <-deadline:
		}
		c.broker.grown.done()
		break
	}
	return c.sendFetched(h, request)
}

// find fills regions with what there is, and reports whether it is enough to
// answer.
func (c *conn) find(request *kmsg.FetchRequest) (enough bool) {
	c.regions = c.regions[:0]
	left := int64(request.MaxBytes)
	var total int64
	for _, asked := range request.Topics {
		t := c.lookup(asked.Topic)
		for _, q := range asked.Partitions {
			var r region
			p := t.partition(q.Partition)
			switch {
			case p == nil:
				r.outOfRange = true
			case left > 0:
				r = p.fetch(q.FetchOffset, min(left, int64(q.PartitionMaxBytes)))
			default: // no room: tell the high watermark alone
				r = p.fetch(q.FetchOffset, 0)
				r.size = 0
			}
			left -= r.size
			total += r.size
			enough = enough || r.outOfRange
			c.regions = append(c.regions, r)
		}
	}
	return enough || total >= int64(request.MinBytes)
}

// sendFetched writes a Fetch response of version 11 with the regions in it.
func (c *conn) sendFetched(h header, request *kmsg.FetchRequest) error {
	frame := len(c.out)
	c.out = append(c.out, 0, 0, 0, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(h.correlation))
	c.out = append(c.out, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // throttle, error, session id
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(request.Topics)))
	sent, regions := len(c.out), c.regions
	size := sent - frame - 4
	// The length comes first, so it is computed before anything is sent.
	for _, asked := range request.Topics {
		size += 2 + len(asked.Topic) + 4 + len(asked.Partitions)*fetchedPartition
	}
	for _, r := range regions {
		size += int(r.size)
	}
	binary.BigEndian.PutUint32(c.out[frame:], uint32(size))
	for _, asked := range request.Topics {
		c.out = binary.BigEndian.AppendUint16(c.out, uint16(len(asked.Topic)))
		c.out = append(c.out, asked.Topic...)
		c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(asked.Partitions)))
		for _, q := range asked.Partitions {
			r := regions[0]
			regions = regions[1:]
			c.appendPartition(q.Partition, r)
			if r.size == 0 {
				continue
			}
			if err := c.sendRegion(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchedPartition is how many bytes a partition takes in a Fetch response of
// version 11, without its records.
const fetchedPartition = 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4

func (c *conn) appendPartition(partition int32, r region) {
	var code int16
	if r.outOfRange {
		code = kerr.OffsetOutOfRange.Code
	}
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(partition))
	c.out = binary.BigEndian.AppendUint16(c.out, uint16(code))
	c.out = binary.BigEndian.AppendUint64(c.out, uint64(r.highWatermark))
	c.out = binary.BigEndian.AppendUint64(c.out, uint64(r.highWatermark)) // last stable offset
	c.out = binary.BigEndian.AppendUint64(c.out, 0)                       // log start offset
	c.out = binary.BigEndian.AppendUint32(c.out, 0)                       // aborted transactions
	c.out = append(c.out, 0xff, 0xff, 0xff, 0xff)                         // preferred read replica
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(r.size))          // records follow
}

// sendRegion sends out, and then a run of a file.
func (c *conn) sendRegion(r region) error {
	if c.broker.cfg.Mode.copies() {
		at := len(c.out)
		if need := at + int(r.size); need > cap(c.out) {
			c.out = append(make([]byte, 0, need), c.out...)
		}
		c.out = c.out[:at+int(r.size)]
		if _, err := r.file.ReadAt(c.out[at:], r.from); err != nil {
			return err
		}
		return c.flush()
	}
	if err := c.flush(); err != nil {
		return err
	}
	return sendFile(c.sock, r.file, r.from, r.size)
}
