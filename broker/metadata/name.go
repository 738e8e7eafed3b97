package metadata

import (
	"fmt"
	"strings"
)

// MaxTopicName is the length of the longest topic name, in bytes. With a
// partition number behind it, it still is a file name.
const MaxTopicName = 249

// Internal topics are written by brokers.
const (
	ConsumerOffsets  = "__consumer_offsets"
	TransactionState = "__transaction_state"
)

// IsInternal reports whether a topic of that name is one that brokers write.
// Clients are told so, and consumers that subscribe to a pattern leave it out.
func IsInternal(name string) bool { return name == ConsumerOffsets || name == TransactionState }

// ValidateTopicName returns an ErrInvalidTopic that says what is wrong with a
// name. It cannot tell whether the name is taken.
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidTopic)
	case name == "." || name == "..":
		return fmt.Errorf("%w: it is %q", ErrInvalidTopic, name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("%w: it has %d characters, at most %d are allowed", ErrInvalidTopic, len(name), MaxTopicName)
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return fmt.Errorf("%w: %q has other characters than letters, digits, '.', '_' and '-'", ErrInvalidTopic, name)
		}
	}
	return nil
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// folded is what a name looks like where '.' and '_' cannot be told apart, as
// in the names of metrics. No two topics of a cluster have the same.
func folded(name string) string { return strings.ReplaceAll(name, ".", "_") }
