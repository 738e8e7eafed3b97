package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/workloads"
)

// errAnswer says that an answer does not fit its request.
var errAnswer = errors.New("answer does not fit the request")

// requester sends single requests to whoever leads a partition.
type requester struct {
	client  *kgo.Client
	maxWait time.Duration

	mu     sync.Mutex // guards routes
	routes map[history.Partition]route
}

// route is where a partition's leader is.
type route struct {
	leader  int32
	epoch   int32
	topicID [16]byte
}

// do carries out everything but appends. A read that fails has no effect, so it
// is Failed; a commit is Unknown.
func (q *requester) do(ctx context.Context, op workloads.Op) workloads.Result {
	var r workloads.Result
	var err error
	switch op := op.(type) {
	case workloads.Read:
		r, err = q.read(ctx, op)
		q.forget(op.Partition, err)
	case workloads.ListEnd:
		r.End, err = q.list(ctx, op.Partition, latest)
		q.forget(op.Partition, err)
	case workloads.ListStart:
		r.Start, err = q.list(ctx, op.Partition, earliest)
		q.forget(op.Partition, err)
	case workloads.FetchCommitted:
		r, err = q.fetchCommitted(ctx, op)
		q.forget(op.Partition, err)
	case workloads.Commit:
		if err = q.commit(ctx, op); err != nil {
			q.forget(op.Partition, err)
			return unknown(err)
		}
	default:
		err = fmt.Errorf("%w: no request for %s", errAnswer, op)
	}
	if err != nil {
		return failed(err)
	}
	return r
}

// route finds the partition's leader, by asking the cluster if need be.
func (q *requester) route(ctx context.Context, p history.Partition) (route, error) {
	q.mu.Lock()
	r, ok := q.routes[p]
	q.mu.Unlock()
	if ok {
		return r, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(p.Topic)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, q.client)
	if err != nil {
		return route{}, fmt.Errorf("metadata of %s: %w", p, err)
	}
	for _, t := range resp.Topics {
		for _, part := range t.Partitions {
			if t.Topic == nil || *t.Topic != p.Topic || part.Partition != p.Index {
				continue
			}
			if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
				return route{}, fmt.Errorf("metadata of %s: %w", p, err)
			}
			r := route{part.Leader, part.LeaderEpoch, t.TopicID}
			q.mu.Lock()
			q.routes[p] = r
			q.mu.Unlock()
			return r, nil
		}
	}
	return route{}, fmt.Errorf("metadata of %s: %w", p, kerr.UnknownTopicOrPartition)
}

// forget makes the next request look for the leader again.
func (q *requester) forget(p history.Partition, err error) {
	if err == nil {
		return
	}
	q.mu.Lock()
	delete(q.routes, p)
	q.mu.Unlock()
}

func (q *requester) read(ctx context.Context, op workloads.Read) (workloads.Result, error) {
	where, err := q.route(ctx, op.Partition)
	if err != nil {
		return workloads.Result{}, err
	}
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.CurrentLeaderEpoch = op.Partition.Index, where.epoch
	part.FetchOffset, part.PartitionMaxBytes = int64(op.From), op.MaxBytes
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = op.Partition.Topic, where.topicID
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(q.maxWait.Milliseconds()), 1, op.MaxBytes
	req.Topics = append(req.Topics, topic)
	resp, err := q.client.Broker(int(where.leader)).Request(ctx, req)
	if err != nil {
		return workloads.Result{}, fmt.Errorf("fetch %s: %w", op.Partition, err)
	}
	fetched := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(fetched.ErrorCode); err != nil {
		return workloads.Result{}, fmt.Errorf("fetch %s: %w", op.Partition, err)
	}
	if len(fetched.Topics) != 1 || len(fetched.Topics[0].Partitions) != 1 {
		return workloads.Result{}, fmt.Errorf("fetch %s: %w: not one partition", op.Partition, errAnswer)
	}
	return parseFetch(op, &fetched.Topics[0].Partitions[0])
}

// parseFetch turns an answer's batches into values. A record whose bytes no
// client has sent has value 0, which the judge will not know.
func parseFetch(op workloads.Read, answer *kmsg.FetchResponseTopicPartition) (workloads.Result, error) {
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: int64(op.From), Topic: op.Partition.Topic, Partition: op.Partition.Index,
	}, answer, kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil {
		return workloads.Result{}, fmt.Errorf("fetch %s: %w", op.Partition, fetched.Err)
	}
	r := workloads.Result{Next: max(op.From, history.Offset(next)), End: history.Offset(fetched.HighWatermark), Start: history.Offset(fetched.LogStartOffset)}
	for _, rec := range fetched.Records {
		v, err := workloads.ParsePayload(rec.Value)
		if err == nil && string(rec.Key) != string(workloads.RecordKey(v)) {
			v, err = 0, fmt.Errorf("%w: key %q of %#x", workloads.ErrPayload, rec.Key, uint64(v))
		}
		if err != nil {
			r.Note = fmt.Sprintf("offset %d: %v", rec.Offset, err)
		}
		r.Records = append(r.Records, history.Record{Offset: history.Offset(rec.Offset), Value: v})
	}
	return r, nil
}

// latest and earliest are ListOffsets' timestamps for the end of the log, and for
// its start.
const (
	latest   = -1
	earliest = -2
)

func (q *requester) list(ctx context.Context, p history.Partition, timestamp int64) (history.Offset, error) {
	where, err := q.route(ctx, p)
	if err != nil {
		return 0, err
	}
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.CurrentLeaderEpoch, part.Timestamp = p.Index, where.epoch, timestamp
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = p.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, topic)
	resp, err := q.client.Broker(int(where.leader)).Request(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("list offsets of %s: %w", p, err)
	}
	listed := resp.(*kmsg.ListOffsetsResponse)
	if len(listed.Topics) != 1 || len(listed.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("list offsets of %s: %w: not one partition", p, errAnswer)
	}
	answer := listed.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return 0, fmt.Errorf("list offsets of %s: %w", p, err)
	}
	return history.Offset(answer.Offset), nil
}

func (q *requester) commit(ctx context.Context, op workloads.Commit) error {
	where, err := q.route(ctx, op.Partition)
	if err != nil {
		return err
	}
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = op.Partition.Index, int64(op.Offset)
	part.Metadata = kmsg.StringPtr(workloads.FormatToken(op.Token))
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = op.Partition.Topic, where.topicID
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = op.Group, -1
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, q.client)
	if err != nil {
		return fmt.Errorf("commit %s: %w", op.Partition, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("commit %s: %w: not one partition", op.Partition, errAnswer)
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func (q *requester) fetchCommitted(ctx context.Context, op workloads.FetchCommitted) (workloads.Result, error) {
	where, err := q.route(ctx, op.Partition)
	if err != nil {
		return workloads.Result{}, err
	}
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.TopicID = op.Partition.Topic, where.topicID
	topic.Partitions = append(topic.Partitions, op.Partition.Index)
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = op.Group
	group.Topics = append(group.Topics, topic)
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, q.client)
	if err != nil {
		return workloads.Result{}, fmt.Errorf("fetch committed %s: %w", op.Partition, err)
	}
	if len(resp.Groups) != 1 {
		return workloads.Result{}, fmt.Errorf("fetch committed %s: %w: not one group", op.Partition, errAnswer)
	}
	if resp.ErrorCode != 0 { // where versions below 8 have the group's
		resp.Groups[0].ErrorCode = resp.ErrorCode
	}
	return parseCommitted(op, &resp.Groups[0])
}

// parseCommitted turns an answer into a position. To say that there is no such
// group is to say that it has committed nothing.
func parseCommitted(op workloads.FetchCommitted, g *kmsg.OffsetFetchResponseGroup) (workloads.Result, error) {
	switch err := kerr.ErrorForCode(g.ErrorCode); {
	case errors.Is(err, kerr.GroupIDNotFound):
		return workloads.Result{Committed: history.NoOffset}, nil
	case err != nil:
		return workloads.Result{}, fmt.Errorf("fetch committed %s: %w", op.Partition, err)
	case len(g.Topics) != 1 || len(g.Topics[0].Partitions) != 1:
		return workloads.Result{}, fmt.Errorf("fetch committed %s: %w: not one partition", op.Partition, errAnswer)
	}
	answer := g.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return workloads.Result{}, fmt.Errorf("fetch committed %s: %w", op.Partition, err)
	}
	r := workloads.Result{Committed: history.Offset(answer.Offset)}
	if answer.Metadata != nil {
		var err error
		if r.Token, err = workloads.ParseToken(*answer.Metadata); err != nil {
			// Not a failure: the judge must see that it is nobody's.
			r.Token, r.Note = ^history.Value(0), err.Error()
		}
	}
	return r, nil
}
