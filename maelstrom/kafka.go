package maelstrom

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

var (
	// errUnavailable says nothing was done, and trying again later may help.
	errUnavailable = errors.New("temporarily unavailable")
	// errRefused says nothing was done, and trying again will not help.
	errRefused = errors.New("refused")
	// errUnknown says it may have been done, or may yet be.
	errUnknown = errors.New("outcome unknown")
)

// requester asks a node. An error matches errNotSent if the node was certainly
// not asked.
type requester interface {
	request(ctx context.Context, to metadata.NodeID, req kmsg.Request) (kmsg.Response, error)
}

// service does what Maelstrom's kafka workload asks, with Kafka requests: a key
// is a topic with one partition, a message a record. It works on any node: before
// it writes or reads it asks its own node who leads, and then whoever that is.
//
// Committed offsets are records of one more topic, offsetsTopic, each the
// offsets of one commit request; what counts is the greatest for each key. A
// commit is answered once its record is acknowledged, and listed from then on,
// since to list is to read that topic to its end.
type service struct {
	nodes     requester
	self      metadata.NodeID
	acks      int16
	producers producers
	offsets   offsets
}

func newService(nodes requester, self metadata.NodeID, acks int16) *service {
	return &service{nodes: nodes, self: self, acks: acks, offsets: offsets{committed: map[string]int64{}}}
}

// offsetsTopic keeps committed offsets. Keys' topics are named otherwise.
const offsetsTopic = "__maelstrom_offsets"

const (
	// pauseBetweenTries is how long the service waits before it asks again.
	pauseBetweenTries = 20 * time.Millisecond
	// tryTime is how long it waits for one answer. Another node may lead by then.
	tryTime = 1500 * time.Millisecond
)

// longKey is from how many bytes on a key is too long for a topic's name, which
// Kafka limits to 249.
const longKey = 120

// topicOf names a key's topic. Different keys have different ones.
func topicOf(key string) string {
	if len(key) >= longKey {
		sum := sha256.Sum256([]byte(key))
		return "sum-" + hex.EncodeToString(sum[:])
	}
	for _, c := range []byte(key) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' {
			return "hex-" + hex.EncodeToString([]byte(key))
		}
	}
	return "key-" + key
}

// verdict is what an error code says of a request that changes something.
func verdict(code int16) error {
	err := kerr.ErrorForCode(code)
	switch {
	case err == nil:
		return nil
	case slices.Contains(nothingYet, err):
		return fmt.Errorf("%w: %w", errUnavailable, err)
	case slices.Contains(nothingEver, err):
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

var (
	// nothingYet are the codes of a broker that has not appended anything, and
	// may if it is asked again. NOT_LEADER_OR_FOLLOWER is not one: a leader that
	// lost its office answers it to what it had appended already.
	nothingYet = []error{kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas,
		kerr.NotController, kerr.ThrottlingQuotaExceeded, kerr.InvalidReplicationFactor}
	// nothingEver are the codes of a request that can never succeed.
	nothingEver = []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage,
		kerr.InvalidTopicException, kerr.InvalidRequest, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat,
		kerr.InvalidTimestamp, kerr.PolicyViolation, kerr.TopicAuthorizationFailed}
)

// wait pauses before another try and reports whether there is time for one.
func wait(ctx context.Context) bool {
	timer := time.NewTimer(pauseBetweenTries)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// try asks a node once. The response is of the type that req has. An error matches
// errUnavailable if the node was not asked, or else errUnknown.
func try[R kmsg.Response](ctx context.Context, s *service, to metadata.NodeID, req kmsg.Request) (resp R, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	answer, err := s.nodes.request(ctx, to, req)
	switch {
	case errors.Is(err, errNotSent):
		return resp, fmt.Errorf("%w: %w", errUnavailable, err)
	case err != nil:
		return resp, fmt.Errorf("%w: %w", errUnknown, err)
	}
	resp, ok := answer.(R)
	if !ok {
		return resp, fmt.Errorf("%w: a response of another kind", errUnknown)
	}
	return resp, nil
}

// send appends a message to a key and returns its offset.
func (s *service) send(ctx context.Context, key string, msg json.RawMessage) (int64, error) {
	return s.produce(ctx, topicOf(key), []byte(key), msg)
}

// poll returns each key's messages from the asked offset to the end.
func (s *service) poll(ctx context.Context, offsets map[string]int64) (map[string][]protocol.Entry, error) {
	from := map[string]int64{}
	for key, offset := range offsets {
		from[topicOf(key)] = max(offset, 0)
	}
	found, err := s.read(ctx, from)
	if err != nil {
		return nil, err
	}
	msgs := map[string][]protocol.Entry{}
	for key := range offsets {
		if entries := found[topicOf(key)]; len(entries) > 0 {
			msgs[key] = entries
		}
	}
	return msgs, nil
}
