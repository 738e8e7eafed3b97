package wire

import (
	"encoding/binary"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// DamagedLog names a log that has lost records which it acknowledged.
type DamagedLog struct {
	Topic metadata.TopicID
	Index int32
}

const damagedSize = 16 + 4

// EncodeDamaged returns logs as they are in the tag TagDamaged.
func EncodeDamaged(logs []DamagedLog) []byte {
	b := make([]byte, 0, len(logs)*damagedSize)
	for _, d := range logs {
		b = append(b, d.Topic[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(d.Index))
	}
	return b
}

// DecodeDamaged reads what EncodeDamaged made. It reports false if b is not
// that.
func DecodeDamaged(b []byte) ([]DamagedLog, bool) {
	if len(b)%damagedSize != 0 {
		return nil, false
	}
	logs := make([]DamagedLog, 0, len(b)/damagedSize)
	for ; len(b) > 0; b = b[damagedSize:] {
		logs = append(logs, DamagedLog{metadata.TopicID(b[:16]), int32(binary.BigEndian.Uint32(b[16:]))})
	}
	return logs, true
}
