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
// as short as they can be, and nothing follows a body's last field. There is no
// checksum; the log that carries batches has one.
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
		return &RegisterBroker{NodeID(d.int32()), d.id(), BrokerEpoch(d.int64()), d.string(), d.int32(), d.string()}
	case kindUnregisterBroker:
		return &UnregisterBroker{NodeID(d.int32())}
	case kindAddTopic:
		return &AddTopic{d.id(), d.string(), d.configs()}
	case kindRemoveTopic:
		return &RemoveTopic{d.id()}
	case kindPartition:
		return &Partition{d.id(), d.int32(), d.nodes(), d.nodes(), NodeID(d.int32()),
			record.LeaderEpoch(d.int32()), PartitionEpoch(d.int32())}
	case kindConfigureTopic:
		return &ConfigureTopic{d.id(), d.string(), d.string(), d.bool()}
	case kindProducerIDs:
		return &ProducerIDs{record.ProducerID(d.int64())}
	case kindDeletedTopic:
		return &DeletedTopic{d.id()}
	case kindBrokerEpochs:
		return &BrokerEpochs{BrokerEpoch(d.int64())}
	}
	return nil
}

func (r *RegisterBroker) encode(b []byte) []byte {
	b = binary.AppendVarint(b, int64(r.Node))
	b = append(b, r.Incarnation[:]...)
	b = binary.AppendVarint(b, int64(r.Epoch))
	b = appendString(b, r.Host)
	b = binary.AppendVarint(b, int64(r.Port))
	return appendString(b, r.Rack)
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
	return binary.AppendVarint(b, int64(r.Epoch))
}

func (r *ConfigureTopic) encode(b []byte) []byte {
	b = append(b, r.Topic[:]...)
	b = appendString(appendString(b, r.Name), r.Value)
	if r.Unset {
		return append(b, 1)
	}
	return append(b, 0)
}

func (r *ProducerIDs) encode(b []byte) []byte  { return binary.AppendVarint(b, int64(r.Next)) }
func (r *DeletedTopic) encode(b []byte) []byte { return append(b, r.ID[:]...) }
func (r *BrokerEpochs) encode(b []byte) []byte { return binary.AppendVarint(b, int64(r.Next)) }

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
