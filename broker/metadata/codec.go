package metadata

import (
	"encoding/binary"
	"fmt"

	"github.com/pawlbroker/pawl/storage/record"
)

// The encoding of a batch of records, which is what one entry of the metadata
// log holds, and a snapshot:
//
//	version  1 byte, 1
//	records  each: kind (1 byte), size of the body (uvarint), body
//
// Within a body an integer that may be negative is a zig-zag varint, a count or
// length a uvarint, an id 16 bytes. Every batch has one encoding: varints are
// as short as they can be, nothing follows a body's last field, and a record is
// of the oldest kind that has all it says. There is no checksum; the log that
// carries batches has one.
const codecVersion = 1

// Encode returns the encoding of records.
func Encode(records []Record) []byte {
	b := []byte{codecVersion}
	var body []byte
	for _, r := range records {
		body = r.encode(body[:0])
		b = append(b, byte(r.kind()))
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	}
	return b
}

// Decode returns the records that b encodes, or an ErrMalformed. The records do
// not share b.
func Decode(b []byte) ([]Record, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrMalformed)
	}
	if b[0] != codecVersion {
		return nil, fmt.Errorf("%w: version %d, this is written for version %d", ErrMalformed, b[0], codecVersion)
	}
	d := decoder{b: b[1:]}
	var records []Record
	for len(d.b) > 0 {
		at := len(b) - len(d.b)
		k := kind(d.byte())
		body := decoder{b: d.bytes(d.length(1))}
		r := body.record(k)
		switch {
		case d.bad:
			return nil, fmt.Errorf("%w: record at byte %d is cut short", ErrMalformed, at)
		case r == nil:
			return nil, fmt.Errorf("%w: record at byte %d is of unknown kind %d", ErrMalformed, at, k)
		case body.bad || len(body.b) > 0:
			return nil, fmt.Errorf("%w: record at byte %d, of kind %d, does not fit its %d bytes", ErrMalformed, at, k, len(body.all))
		}
		records = append(records, r)
	}
	return records, nil
}

func (d *decoder) record(k kind) Record {
	d.all = d.b
	switch k {
	case kindRegisterBroker:
		return d.registerBroker()
	case kindRegisterPeer:
		r := d.registerBroker()
		r.PeerHost, r.PeerPort, r.Directory = d.string(), d.int32(), d.id()
		r.Fenced, r.InShutdown = d.bool(), d.bool()
		d.want(k, r)
		return r
	case kindBrokerChange:
		return &BrokerChange{NodeID(d.int32()), BrokerEpoch(d.int64()), d.bool(), d.bool()}
	case kindUnregisterBroker:
		return &UnregisterBroker{NodeID(d.int32())}
	case kindAddTopic:
		return &AddTopic{d.id(), d.string(), d.configs()}
	case kindRemoveTopic:
		return &RemoveTopic{d.id()}
	case kindPartition:
		return d.partition()
	case kindReplicated:
		p := d.partition()
		p.ELR, p.LastKnownELR, p.Adding, p.Removing = d.nodes(), d.nodes(), d.nodes(), d.nodes()
		p.Recovering = d.bool()
		d.want(k, p)
		return p
	case kindConfigureTopic:
		return &ConfigureTopic{d.id(), d.string(), d.string(), d.bool()}
	case kindConfigureBroker:
		return &ConfigureBroker{NodeID(d.int32()), d.string(), d.string(), d.bool()}
	case kindProducerIDs:
		return &ProducerIDs{record.ProducerID(d.int64())}
	case kindDeletedTopic:
		return &DeletedTopic{d.id()}
	case kindBrokerEpochs:
		return &BrokerEpochs{BrokerEpoch(d.int64())}
	}
	return nil
}

func (d *decoder) registerBroker() *RegisterBroker {
	return &RegisterBroker{Node: NodeID(d.int32()), Incarnation: d.id(), Epoch: BrokerEpoch(d.int64()),
		Host: d.string(), Port: d.int32(), Rack: d.string()}
}

func (d *decoder) partition() *Partition {
	return &Partition{Topic: d.id(), Index: d.int32(), Replicas: d.nodes(), ISR: d.nodes(), Leader: NodeID(d.int32()),
		LeaderEpoch: record.LeaderEpoch(d.int32()), Epoch: PartitionEpoch(d.int32())}
}

// want refuses a record that is written as another kind: so that every record
// has one encoding.
func (d *decoder) want(k kind, r Record) {
	if r.kind() != k {
		d.fail()
	}
}

func (r *RegisterBroker) encode(b []byte) []byte {
	b = binary.AppendVarint(b, int64(r.Node))
	b = append(b, r.Incarnation[:]...)
	b = binary.AppendVarint(b, int64(r.Epoch))
	b = appendString(b, r.Host)
	b = binary.AppendVarint(b, int64(r.Port))
	b = appendString(b, r.Rack)
	if r.kind() == kindRegisterBroker {
		return b
	}
	b = binary.AppendVarint(appendString(b, r.PeerHost), int64(r.PeerPort))
	b = append(b, r.Directory[:]...)
	return appendBool(appendBool(b, r.Fenced), r.InShutdown)
}

func (r *BrokerChange) encode(b []byte) []byte {
	b = binary.AppendVarint(b, int64(r.Node))
	b = binary.AppendVarint(b, int64(r.Epoch))
	return appendBool(appendBool(b, r.Fenced), r.InShutdown)
}

func (r *UnregisterBroker) encode(b []byte) []byte { return binary.AppendVarint(b, int64(r.Node)) }

func (r *AddTopic) encode(b []byte) []byte {
	b = append(b, r.ID[:]...)
	b = appendString(b, r.Name)
	b = binary.AppendUvarint(b, uint64(len(r.Configs)))
	for _, c := range r.Configs {
		b = appendString(appendString(b, c.Name), c.Value)
	}
	return b
}

func (r *RemoveTopic) encode(b []byte) []byte { return append(b, r.ID[:]...) }

func (r *Partition) encode(b []byte) []byte {
	b = append(b, r.Topic[:]...)
	b = binary.AppendVarint(b, int64(r.Index))
	b = appendNodes(b, r.Replicas)
	b = appendNodes(b, r.ISR)
	b = binary.AppendVarint(b, int64(r.Leader))
	b = binary.AppendVarint(b, int64(r.LeaderEpoch))
	b = binary.AppendVarint(b, int64(r.Epoch))
	if r.kind() == kindPartition {
		return b
	}
	b = appendNodes(appendNodes(b, r.ELR), r.LastKnownELR)
	b = appendNodes(appendNodes(b, r.Adding), r.Removing)
	return appendBool(b, r.Recovering)
}

func (r *ConfigureTopic) encode(b []byte) []byte {
	b = append(b, r.Topic[:]...)
	return appendBool(appendString(appendString(b, r.Name), r.Value), r.Unset)
}

func (r *ConfigureBroker) encode(b []byte) []byte {
	b = binary.AppendVarint(b, int64(r.Node))
	return appendBool(appendString(appendString(b, r.Name), r.Value), r.Unset)
}

func (r *ProducerIDs) encode(b []byte) []byte  { return binary.AppendVarint(b, int64(r.Next)) }
func (r *DeletedTopic) encode(b []byte) []byte { return append(b, r.ID[:]...) }
func (r *BrokerEpochs) encode(b []byte) []byte { return binary.AppendVarint(b, int64(r.Next)) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendNodes(b []byte, nodes []NodeID) []byte {
	b = binary.AppendUvarint(b, uint64(len(nodes)))
	for _, n := range nodes {
		b = binary.AppendVarint(b, int64(n))
	}
	return b
}

// decoder reads fields off the front of b. Once something is bad all it reads
// is zero.
type decoder struct {
	all []byte // what b was at first
	b   []byte
	bad bool
}

func (d *decoder) fail() {
	d.b, d.bad = nil, true
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

// bytes returns the next n bytes, which are b's.
func (d *decoder) bytes(n int) []byte {
	if n > len(d.b) {
		d.fail()
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length returns a count of things that take at least size bytes each.
func (d *decoder) length(size int) int {
	v := d.uvarint()
	if v > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(v)
}

func (d *decoder) int64() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) int32() int32 {
	v := d.int64()
	if v != int64(int32(v)) {
		d.fail()
		return 0
	}
	return int32(v)
}

func (d *decoder) bool() bool {
	c := d.byte()
	if c > 1 {
		d.fail()
	}
	return c == 1
}

func (d *decoder) id() (id [16]byte) {
	copy(id[:], d.bytes(len(id)))
	return id
}

func (d *decoder) string() string { return string(d.bytes(d.length(1))) }

func (d *decoder) nodes() []NodeID {
	n := d.length(1)
	if n == 0 {
		return nil
	}
	nodes := make([]NodeID, n)
	for i := range nodes {
		nodes[i] = NodeID(d.int32())
	}
	return nodes
}

func (d *decoder) configs() []Config {
	n := d.length(2)
	if n == 0 {
		return nil
	}
	configs := make([]Config, n)
	for i := range configs {
		configs[i] = Config{d.string(), d.string()}
	}
	return configs
}
