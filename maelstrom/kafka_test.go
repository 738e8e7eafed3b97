package maelstrom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/maelstrom/protocol"
	"github.com/pawlbroker/pawl/storage/record"
)

// script stands for the nodes: a log a topic, who leads, and what to do wrong
// first. Node 0 is the service's own.
type script struct {
	logs     map[string][][]byte // batches, offsets assigned
	stale    []metadata.NodeID   // whom the next answers to Metadata take for the leader, before leader
	leader   metadata.NodeID
	down     []metadata.NodeID // who cannot be asked
	refuse   []error           // what the next produces get instead of being appended; nil appends
	silent   int               // so many of the next produces are appended and not answered
	produces int
	batches  int // that a fetch gives for one topic; 0 gives all
	ids      int64
}

func newScript(topics ...string) *script {
	s := &script{logs: map[string][][]byte{}}
	for _, t := range topics {
		s.logs[t] = nil
	}
	return s
}

func (s *script) request(ctx context.Context, to metadata.NodeID, req kmsg.Request) (kmsg.Response, error) {
	if slices.Contains(s.down, to) {
		return nil, errNotSent
	}
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, asked := range req.Topics {
			t := kmsg.NewCreateTopicsResponseTopic()
			t.Topic = asked.Topic
			if _, ok := s.logs[asked.Topic]; ok {
				t.ErrorCode = kerr.TopicAlreadyExists.Code
			} else {
				s.logs[asked.Topic] = nil
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil
	case *kmsg.MetadataRequest:
		return s.metadata(req), nil
	case *kmsg.InitProducerIDRequest:
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		s.ids++
		resp.ProducerID = s.ids
		return resp, nil
	case *kmsg.ProduceRequest:
		return s.produce(ctx, to, req)
	case *kmsg.FetchRequest:
		return s.fetch(to, req), nil
	}
	return nil, fmt.Errorf("request %d", req.Key())
}

func (s *script) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	leader := s.leader
	if len(s.stale) > 0 {
		leader, s.stale = s.stale[0], s.stale[1:]
	}
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	for _, asked := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = asked.Topic
		if _, ok := s.logs[*asked.Topic]; ok {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Leader = int32(leader)
			t.Partitions = append(t.Partitions, p)
		} else {
			t.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (s *script) produce(ctx context.Context, to metadata.NodeID, req *kmsg.ProduceRequest) (kmsg.Response, error) {
	s.produces++
	name := req.Topics[0].Topic
	p := kmsg.NewProduceResponseTopicPartition()
	log, ok := s.logs[name]
	var refusal error
	if len(s.refuse) > 0 {
		refusal, s.refuse = s.refuse[0], s.refuse[1:]
	}
	switch {
	case !ok:
		refusal = kerr.UnknownTopicOrPartition
	case to != s.leader:
		refusal = kerr.NotLeaderForPartition
	}
	var code *kerr.Error
	if errors.As(refusal, &code) {
		p.ErrorCode = code.Code
	} else {
		batch := record.Batch(slices.Clone(req.Topics[0].Partitions[0].Records))
		p.BaseOffset = int64(slices.IndexFunc(log, func(b []byte) bool {
			return record.Batch(b).ProducerID() == batch.ProducerID() && record.Batch(b).BaseSequence() == batch.BaseSequence()
		}))
		if p.BaseOffset < 0 {
			p.BaseOffset = int64(len(log))
			batch.Assign(record.Offset(len(log)), 0)
			s.logs[name] = append(log, batch)
		}
	}
	if s.silent > 0 {
		s.silent--
		<-ctx.Done()
		return nil, errNoAnswer
	}
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	t := kmsg.NewProduceResponseTopic()
	t.Topic, t.Partitions = name, []kmsg.ProduceResponseTopicPartition{p}
	resp.Topics = append(resp.Topics, t)
	return resp, nil
}

func (s *script) fetch(to metadata.NodeID, req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, asked := range req.Topics {
		p := kmsg.NewFetchResponseTopicPartition()
		log, ok := s.logs[asked.Topic]
		if from := asked.Partitions[0].FetchOffset; !ok {
			p.ErrorCode = kerr.UnknownTopicOrPartition.Code
		} else if to != s.leader {
			p.ErrorCode = kerr.NotLeaderForPartition.Code
		} else if p.HighWatermark = int64(len(log)); from > p.HighWatermark {
			p.ErrorCode = kerr.OffsetOutOfRange.Code
		} else {
			log = log[from:]
			if s.batches > 0 {
				log = log[:min(s.batches, len(log))]
			}
			for _, b := range log {
				p.RecordBatches = append(p.RecordBatches, b...)
			}
		}
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.Partitions = asked.Topic, []kmsg.FetchResponseTopicPartition{p}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// within gives a service the time that a request has, in virtual time.
func within(t *testing.T, do func(ctx context.Context)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), workTime)
		defer cancel()
		do(ctx)
	})
}

// A definite code is given only for what has certainly not been appended; what
// is not there yet is made, or waited for. What may have been appended is sent
// again, as the same batch.
func TestSendSaysNoMoreThanItKnows(t *testing.T) {
	always := func(err error) []error { return slices.Repeat([]error{err}, 1000) }
	for _, c := range []struct {
		name     string
		with     script
		code     protocol.Code // of the error; -1 for none
		appended int
	}{
		{name: "appended", code: -1, appended: 1},
		{name: "leader not available at first", with: script{refuse: []error{kerr.LeaderNotAvailable, kerr.LeaderNotAvailable}}, code: -1, appended: 1},
		{name: "leader never available", with: script{refuse: always(kerr.LeaderNotAvailable)}, code: protocol.TemporarilyUnavailable},
		{name: "nobody leads", with: script{leader: -1}, code: protocol.TemporarilyUnavailable},
		{name: "the leader is out of reach", with: script{leader: 1, down: []metadata.NodeID{1}}, code: protocol.TemporarilyUnavailable},
		{name: "this node does not serve", with: script{down: []metadata.NodeID{0}}, code: protocol.TemporarilyUnavailable},
		{name: "another leads than it was thought", with: script{leader: 2, stale: []metadata.NodeID{0, 1}}, code: -1, appended: 1},
		{name: "too large", with: script{refuse: always(kerr.MessageTooLarge)}, code: protocol.Abort},
		{name: "always timed out", with: script{refuse: always(kerr.RequestTimedOut)}, code: protocol.Crash},
		{name: "timed out, then too large", with: script{refuse: append([]error{kerr.RequestTimedOut}, always(kerr.MessageTooLarge)...)}, code: protocol.Crash},
		{name: "timed out, then leader never available", with: script{refuse: append([]error{kerr.RequestTimedOut}, always(kerr.LeaderNotAvailable)...)}, code: protocol.Crash},
		{name: "timed out once", with: script{refuse: []error{kerr.RequestTimedOut}}, code: -1, appended: 1},
		{name: "the leader lost its office", with: script{refuse: always(kerr.NotLeaderForPartition)}, code: protocol.Crash},
		{name: "too few replicas after it was appended", with: script{refuse: always(kerr.NotEnoughReplicasAfterAppend)}, code: protocol.Crash},
		{name: "no answer once", with: script{silent: 1}, code: -1, appended: 1},
		{name: "never an answer", with: script{silent: 1000}, code: protocol.Crash, appended: 1},
		{name: "out of order", with: script{refuse: always(kerr.OutOfOrderSequenceNumber)}, code: protocol.Crash},
	} {
		within(t, func(ctx context.Context) {
			c.with.logs = map[string][][]byte{"key-7": nil}
			s := newService(&c.with, 0, acksAll)
			offset, err := s.send(ctx, "7", json.RawMessage("3"))
			switch {
			case c.code < 0 && (err != nil || offset != 0):
				t.Errorf("%s: offset %d, error %v, want 0 and none", c.name, offset, err)
			case c.code >= 0 && (err == nil || codeOf(err) != c.code):
				t.Errorf("%s: error %v, want code %d", c.name, err, c.code)
			}
			if got := len(c.with.logs["key-7"]); got != c.appended {
				t.Errorf("%s: %d appended, want %d", c.name, got, c.appended)
			}
			// Its sequence may have been used or not: the producer is of no use.
			if lost := c.code == protocol.Crash; c.with.ids > 0 && lost != (len(s.producers.idle) == 0) {
				t.Errorf("%s: %d producers are left", c.name, len(s.producers.idle))
			}
		})
	}
}

func TestProducerGoesOnWhereItWas(t *testing.T) {
	within(t, func(ctx context.Context) {
		node := newScript("key-7", "key-8")
		node.refuse = []error{nil, kerr.MessageTooLarge}
		s := newService(node, 0, acksAll)
		for _, key := range []string{"7", "7", "8", "7"} {
			s.send(ctx, key, json.RawMessage("3")) // the second is refused
		}
		for topic, want := range map[string][]record.Sequence{"key-7": {0, 1}, "key-8": {0}} {
			var got []record.Sequence
			for _, b := range node.logs[topic] {
				got = append(got, record.Batch(b).BaseSequence())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: sequences %d, want %d", topic, got, want)
			}
		}
		if node.ids != 1 {
			t.Errorf("%d producer ids, want 1", node.ids)
		}
	})
}

func TestPollReadsOnToTheEnd(t *testing.T) {
	within(t, func(ctx context.Context) {
		node := newScript()
		node.batches = 2
		s := newService(node, 0, acksAll)
		for i := range 7 {
			if _, err := s.send(ctx, "7", json.RawMessage(fmt.Sprint(10+i))); err != nil {
				t.Fatal(err)
			}
		}
		msgs, err := s.poll(ctx, map[string]int64{"7": 2, "8": 0, "a/b": 0})
		if err != nil {
			t.Fatal(err)
		}
		if len(msgs) != 1 || len(msgs["7"]) != 5 {
			t.Fatalf("messages %v, want 5 of key 7 and no other key", msgs)
		}
		for i, e := range msgs["7"] {
			if e.Offset != int64(2+i) || string(e.Msg) != fmt.Sprint(12+i) {
				t.Errorf("entry %d is %s at %d, want %d at %d", i, e.Msg, e.Offset, 12+i, 2+i)
			}
		}
		if msgs, err := s.poll(ctx, map[string]int64{"7": 7}); err != nil || len(msgs) != 0 {
			t.Errorf("messages %v and error %v at the end, want none", msgs, err)
		}
		if msgs, err := s.poll(ctx, nil); err != nil || msgs == nil {
			t.Errorf("messages %v and error %v when nothing is asked, want an empty map", msgs, err)
		}
	})
}

func TestCommittedOffsetsAreTheGreatestAndSurvive(t *testing.T) {
	within(t, func(ctx context.Context) {
		node := newScript()
		s := newService(node, 0, acksAll)
		for _, offsets := range []map[string]int64{{"7": 4, "9": 0}, {"7": 2}, {}, {"7": 6}} {
			if err := s.commit(ctx, offsets); err != nil {
				t.Fatal(err)
			}
		}
		if len(node.logs[offsetsTopic]) != 2 {
			t.Errorf("%d records, want 2: what raises nothing is not written", len(node.logs[offsetsTopic]))
		}
		again := newService(node, 0, acksAll)
		for _, s := range []*service{s, again} {
			if got, err := s.list(ctx, []string{"7", "9", "11"}); err != nil || len(got) != 2 || got["7"] != 6 || got["9"] != 0 {
				t.Errorf("committed %v, error %v, want 7:6 9:0", got, err)
			}
		}
	})
}

// A definite error would make the workload's client believe that its poll had
// not happened either.
func TestCommitNeverFailsDefinitely(t *testing.T) {
	for _, refusal := range []error{kerr.LeaderNotAvailable, kerr.MessageTooLarge, kerr.RequestTimedOut, kerr.NotController} {
		within(t, func(ctx context.Context) {
			node := newScript(offsetsTopic)
			node.refuse = slices.Repeat([]error{refusal}, 1000)
			s := newService(node, 0, acksAll)
			err := s.commit(ctx, map[string]int64{"7": 4})
			if err == nil || codeOf(err).Definite() {
				t.Errorf("%v: error %v, want one that is not definite", refusal, err)
			}
			if got := s.offsets.of([]string{"7"}); len(got) != 0 {
				t.Errorf("%v: committed %v before it was acknowledged", refusal, got)
			}
		})
	}
}

// A commit may be repeated whatever became of it.
func TestCommitIsRepeated(t *testing.T) {
	within(t, func(ctx context.Context) {
		node := newScript(offsetsTopic)
		node.refuse = []error{kerr.RequestTimedOut, kerr.LeaderNotAvailable, kerr.KafkaStorageError}
		if err := newService(node, 0, acksAll).commit(ctx, map[string]int64{"7": 4}); err != nil {
			t.Error(err)
		}
	})
}

// What another node has committed is listed here, and only what is new is read.
func TestListReadsOn(t *testing.T) {
	within(t, func(ctx context.Context) {
		nodes := newScript()
		here, there := newService(nodes, 0, acksAll), newService(nodes, 1, acksAll)
		for i := range int64(3) {
			if err := there.commit(ctx, map[string]int64{"7": i}); err != nil {
				t.Fatal(err)
			}
			if got, err := here.list(ctx, []string{"7"}); err != nil || got["7"] != i {
				t.Errorf("committed %v, error %v, want 7:%d", got, err, i)
			}
			if here.offsets.next != i+1 {
				t.Errorf("read up to %d, want %d", here.offsets.next, i+1)
			}
		}
	})
}

// A poll is whole or it is none: to leave a key out would say that there is
// nothing.
func TestPollIsWhole(t *testing.T) {
	within(t, func(ctx context.Context) {
		node := newScript("key-7")
		node.leader, node.down = 1, []metadata.NodeID{1}
		msgs, err := newService(node, 0, acksAll).poll(ctx, map[string]int64{"7": 0})
		if err == nil || codeOf(err) != protocol.TemporarilyUnavailable {
			t.Errorf("messages %v and error %v, want code %d", msgs, err, protocol.TemporarilyUnavailable)
		}
	})
}

func TestKeysHaveTopicsOfTheirOwn(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"7", "07", "a", "A", "a/b", "612f62", "hex-612f62", "", "-", "é", strings.Repeat("x", 300), strings.Repeat("x", 301), strings.Repeat("é", 100)} {
		topic := topicOf(key)
		if other, ok := seen[topic]; ok || topic == offsetsTopic || len(topic) > 249 {
			t.Errorf("keys %q and %q share topic %s", key, other, topic)
		}
		seen[topic] = key
	}
}

func TestMessageReadAfterAPauseMayBeOld(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var p pauses
	if got := p.arrival(at(0)); got != at(0) {
		t.Errorf("before the first tick: %v, want now", got)
	}
	for ms := 0; ms <= 1000; ms += 50 {
		p.tick(at(ms))
	}
	if got := p.arrival(at(1040)); got != at(1040) {
		t.Errorf("while it runs: %v, want now", got)
	}
	// Stopped at 1000, resumed at 8000; the message is read before the tick.
	if got := p.arrival(at(8000)); got != at(1000) {
		t.Errorf("first thing after the pause: %v, want when it began", got)
	}
	p.tick(at(8001))
	if got := p.arrival(at(8500)); got != at(1000) {
		t.Errorf("soon after the pause: %v, want when it began", got)
	}
	for ms := 8051; ms < 9100; ms += 50 {
		p.tick(at(ms))
	}
	if got := p.arrival(at(9100)); got != at(9100) {
		t.Errorf("long after the pause: %v, want now", got)
	}
}

func TestArgumentsSayWhereAndHow(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  string
		want Config
		err  error
	}{
		{nil, "", Config{Sync: true}, nil},
		{nil, "/data", Config{Dir: "/data", Sync: true}, nil},
		{[]string{"dir=/mine", "sync=false"}, "/data", Config{Dir: "/mine"}, nil},
		{[]string{"sync=maybe"}, "", Config{}, ErrUsage},
		{[]string{"--dir", "x"}, "", Config{}, ErrUsage},
	} {
		if got, err := ParseConfig(c.args, c.env); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %+v and %v, want %+v and %v", c.args, got, err, c.want, c.err)
		}
	}
}
