package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What pawl's nodes add to Kafka's requests travels as tagged fields, whose
// numbers begin at FirstTag so that Kafka's own never meet them. A number that
// is the same in a request and its response has nothing to do with it there.
//
// Source: KIP-482.
const FirstTag uint32 = 10000

// The tagged fields that deciders read and write.
const (
	// TagReadIndex of a heartbeat's answer is how far the metadata log was
	// committed when it was given.
	TagReadIndex = FirstTag + 1
	// TagDamaged of a registration or a heartbeat is the logs that have lost records
	// which they acknowledged, as EncodeDamaged has them.
	TagDamaged = FirstTag + 2
)

// SetTag makes v the value of a tagged field.
func SetTag(t *kmsg.Tags, key uint32, v int64) {
	t.Set(key, binary.BigEndian.AppendUint64(nil, uint64(v)))
}

// GetTag reads what SetTag wrote, and reports whether it is there.
func GetTag(t *kmsg.Tags, key uint32) (int64, bool) {
	p, ok := GetTagBytes(t, key)
	if !ok || len(p) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(p)), true
}

// SetTagBytes makes v, which belongs to the field from then on, the value of a
// tagged field.
func SetTagBytes(t *kmsg.Tags, key uint32, v []byte) { t.Set(key, v) }

// GetTagBytes reads what SetTagBytes wrote, and reports whether it is there.
func GetTagBytes(t *kmsg.Tags, key uint32) (v []byte, ok bool) {
	t.Each(func(k uint32, p []byte) {
		if k == key {
			v, ok = p, true
		}
	})
	return v, ok
}
