package maelstrom

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/maelstrom/protocol"
	"github.com/pawlbroker/pawl/storage/record"
)

var (
	// errUnavailable says nothing was done, and trying again later may help.
	errUnavailable = errors.New("temporarily unavailable")
	// errRefused says nothing was done, and trying again will not help.
	errRefused = errors.New("refused")
	// errUnknown says it may have been done, or may yet be.
	errUnknown = errors.New("outcome unknown")
)

// requester is the link, or in tests what stands for a node.
type requester interface {
	request(context.Context, kmsg.Request) (kmsg.Response, error)
}

// service does what Maelstrom's kafka workload asks, with Kafka requests: a key
// is a topic with one partition, a message a record.
//
// Committed offsets are records of one more topic, offsetsTopic, each the
// offsets of one commit request; what counts is the greatest for each key. A
// commit is answered, and listed, once its record is acknowledged.
type service struct {
	node requester

	mu        sync.Mutex
	committed map[string]int64 // acknowledged
}

func newService(node requester) *service {
	return &service{node: node, committed: map[string]int64{}}
}

// offsetsTopic keeps committed offsets. Keys' topics are named otherwise.
const offsetsTopic = "__maelstrom_offsets"

// pauseBetweenTries is how long the service waits before it asks again.
const pauseBetweenTries = 20 * time.Millisecond

// topicOf names a key's topic. Different keys have different ones.
func topicOf(key string) string {
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
		kerr.NotController, kerr.ThrottlingQuotaExceeded}
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

// send appends a message to a key and returns its offset. It tries again as
// long as it is sure that nothing was appended.
func (s *service) send(ctx context.Context, key string, msg json.RawMessage) (int64, error) {
	return s.produce(ctx, topicOf(key), []byte(key), msg)
}

func (s *service) produce(ctx context.Context, topic string, key, value []byte) (int64, error) {
	for {
		offset, err := s.produceOnce(ctx, topic, key, value)
		if !errors.Is(err, errUnavailable) {
			return offset, err
		}
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			// An error shows in the next try.
			_ = s.create(ctx, topic)
			if ctx.Err() == nil {
				if offset, err = s.produceOnce(ctx, topic, key, value); !errors.Is(err, errUnavailable) {
					return offset, err
				}
			}
		}
		if !wait(ctx) {
			return 0, err
		}
	}
}

// acksAll is Kafka's -1: answered once every in-sync replica has the record.
const acksAll = -1

// produceOnce appends one record. An error matches errUnavailable or errRefused
// only if it is sure that nothing was appended.
func (s *service) produceOnce(ctx context.Context, topic string, key, value []byte) (int64, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = acksAll
	req.TimeoutMillis = int32(workTime.Milliseconds())
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = record.NewBuilder().Append(record.Timestamp(time.Now().UnixMilli()), key, value).Build(record.Options{})
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{partition}
	req.Topics = []kmsg.ProduceRequestTopic{t}

	answer, err := s.node.request(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("%w: produce: %w", errUnknown, err)
	}
	resp, ok := answer.(*kmsg.ProduceResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%w: a produce response of another shape", errUnknown)
	}
	p := resp.Topics[0].Partitions[0]
	if err := verdict(p.ErrorCode); err != nil {
		return 0, fmt.Errorf("produce to %s: %w", topic, err)
	}
	return p.BaseOffset, nil
}

// create makes a topic with one partition, unless it is there.
func (s *service) create(ctx context.Context, topic string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(workTime.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, 1, 1
	req.Topics = []kmsg.CreateTopicsRequestTopic{t}
	answer, err := s.node.request(ctx, req)
	if err != nil {
		return fmt.Errorf("create %s: %w", topic, err)
	}
	resp, ok := answer.(*kmsg.CreateTopicsResponse)
	if !ok || len(resp.Topics) != 1 {
		return fmt.Errorf("%w: a response to create of another shape", errUnknown)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil && err != kerr.TopicAlreadyExists {
		return fmt.Errorf("create %s: %w", topic, err)
	}
	return nil
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

// commit makes offsets durable. It is never sure that a commit was refused, and
// may be tried again whatever became of it, since only the greatest counts.
func (s *service) commit(ctx context.Context, offsets map[string]int64) error {
	if !s.raises(offsets) {
		return nil
	}
	value, err := json.Marshal(offsets)
	if err != nil {
		return err
	}
	for {
		_, err := s.produce(ctx, offsetsTopic, nil, value)
		if err == nil {
			s.raise(offsets)
			return nil
		}
		if errors.Is(err, errRefused) || !wait(ctx) {
			return fmt.Errorf("%w: commit: %v", errUnknown, err)
		}
	}
}

// raises reports whether offsets has anything that is not acknowledged yet.
func (s *service) raises(offsets map[string]int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, offset := range offsets {
		if have, ok := s.committed[key]; !ok || have < offset {
			return true
		}
	}
	return false
}

func (s *service) raise(offsets map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, offset := range offsets {
		if have, ok := s.committed[key]; !ok || have < offset {
			s.committed[key] = offset
		}
	}
}

// list returns the committed offsets of those keys that have one.
func (s *service) list(keys []string) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := maps.Clone(s.committed)
	maps.DeleteFunc(wanted, func(key string, _ int64) bool { return !slices.Contains(keys, key) })
	return wanted
}

// load reads the committed offsets back. It waits for the node to serve.
func (s *service) load(ctx context.Context) error {
	for {
		err := s.create(ctx, offsetsTopic)
		if err == nil {
			break
		}
		if !wait(ctx) {
			return err
		}
	}
	for {
		found, err := s.read(ctx, map[string]int64{offsetsTopic: 0})
		if err == nil {
			for _, e := range found[offsetsTopic] {
				var offsets map[string]int64
				if err := json.Unmarshal(e.Msg, &offsets); err != nil {
					return fmt.Errorf("%s at %d: %w", offsetsTopic, e.Offset, err)
				}
				s.raise(offsets)
			}
			return nil
		}
		if !wait(ctx) {
			return err
		}
	}
}
