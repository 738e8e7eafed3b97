package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tagged fields of pawl's own in Kafka's messages between nodes. Kafka numbers
// its own from 0 and skips what it does not know (KIP-482).
const (
	TagOffset    uint32 = 10_000 // of a forwarded answer: the metadata offset it is true at
	TagReadIndex uint32 = 10_001 // of a heartbeat's answer: how far the metadata log was committed when it was given
	TagDamaged   uint32 = 10_002 // of a registration: the logs that lost what they had acknowledged
)

// SetTag sets a tagged field.
func SetTag(t *kmsg.Tags, key uint32, v []byte) { t.Set(key, v) }

// Tag returns a tagged field.
func Tag(t *kmsg.Tags, key uint32) (v []byte, ok bool) {
	t.Each(func(k uint32, b []byte) {
		if k == key {
			v, ok = b, true
		}
	})
	return v, ok
}

// SetTagInt64 sets a tagged field to a number.
func SetTagInt64(t *kmsg.Tags, key uint32, v int64) {
	t.Set(key, binary.BigEndian.AppendUint64(nil, uint64(v)))
}

// TagInt64 returns a tagged field that is a number.
func TagInt64(t *kmsg.Tags, key uint32) (v int64, ok bool) {
	b, ok := Tag(t, key)
	if !ok || len(b) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b)), true
}
