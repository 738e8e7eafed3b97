package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// state is what a cluster said of itself, piece by piece: it may have changed
// between them.
type state struct {
	id         string
	controller int32 // -1 if there is none
	brokers    []broker
	partitions []kadm.PartitionDetail // by topic and number
	topics     int
	moving     kadm.ListPartitionReassignmentsResponses
	quorum     *quorum // nil if nobody can say
}

// broker is a node as clients see it.
type broker struct {
	id     int32
	addr   string
	rack   string
	fenced bool // it serves nobody at the moment
}

// quorum is the nodes that keep the metadata log.
type quorum struct {
	leader    int32 // -1 if there is none
	epoch     int32
	committed int64
	voters    []member
	observers []member
}

// member is one of them.
type member struct {
	id           int32
	directory    [16]byte
	end          int64 // of its log; -1 if nobody can say
	fetched      int64 // when the leader last heard of it, Unix milliseconds; -1 for the leader itself, or never
	leader       bool
	addr         string // where it listens for nodes; empty if nobody can say
	host         string
	port         uint16
	listenerName string
}

// look asks a cluster about itself.
func look(ctx context.Context, client *kgo.Client) (*state, error) {
	s := &state{}
	if err := s.describe(ctx, client); err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	listed, err := admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	s.topics = len(listed)
	var all kadm.TopicsSet
	for _, t := range listed.Sorted() {
		if t.Err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Topic, t.Err)
		}
		for _, p := range t.Partitions.Sorted() {
			s.partitions = append(s.partitions, p)
			all.Add(p.Topic, p.Partition)
		}
	}
	if s.quorum, err = lookQuorum(ctx, client); err != nil {
		return nil, err
	}
	if s.leaderless() {
		s.controller = -1 // any broker may be named that takes what is for the controller
	}
	if s.moving, err = admin.ListPartitionReassignments(ctx, all); err != nil {
		return nil, err
	}
	return s, nil
}

// leaderless reports whether it is known that nobody decides.
func (s *state) leaderless() bool { return s.quorum != nil && s.quorum.leader < 0 }

// silence is what to say of a voter that was not heard of for long; empty of one
// that was.
func (q *quorum) silence(m member, now time.Time) string {
	where := "it"
	if m.addr != "" {
		where = "it, at " + m.addr + ","
	}
	by := "the leader of the metadata quorum"
	if q.leader < 0 {
		by = "the node that was asked"
	}
	ago := now.Sub(time.UnixMilli(m.fetched))
	switch {
	case m.leader:
		return ""
	case m.fetched < 0:
		return fmt.Sprintf("%s has not been heard of by %s", where, by)
	case ago > silentAfter:
		return fmt.Sprintf("%s was last heard of %v ago by %s", where, ago.Round(time.Second), by)
	}
	return ""
}

func (s *state) describe(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeFencedBrokers = true
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	s.id, s.controller = resp.ClusterID, resp.ControllerID
	for _, b := range resp.Brokers {
		one := broker{id: b.NodeID, addr: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), fenced: b.IsFenced}
		if b.Rack != nil {
			one.rack = *b.Rack
		}
		s.brokers = append(s.brokers, one)
	}
	slices.SortFunc(s.brokers, func(a, b broker) int { return cmp.Compare(a.id, b.id) })
	return nil
}

// metadataTopic is the name by which clients ask for the metadata log.
const metadataTopic = "__cluster_metadata"

// lookQuorum asks who keeps the metadata log. It returns nil, and no error, if the
// broker cannot say.
func lookQuorum(ctx context.Context, client *kgo.Client) (*quorum, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic, partition := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	topic.Topic, topic.Partitions = metadataTopic, append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	switch {
	case cli.Unserved(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the broker does not say who keeps the metadata log")
	}
	p := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return nil, err
	}
	q := &quorum{leader: p.LeaderID, epoch: p.LeaderEpoch, committed: p.HighWatermark}
	q.voters, q.observers = q.members(resp, p.CurrentVoters), q.members(resp, p.Observers)
	return q, nil
}

func (q *quorum) members(resp *kmsg.DescribeQuorumResponse, replicas []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) []member {
	list := make([]member, 0, len(replicas))
	for _, r := range replicas {
		m := member{id: r.ReplicaID, directory: r.ReplicaDirectoryID, end: r.LogEndOffset, fetched: r.LastFetchTimestamp, leader: r.ReplicaID == q.leader}
		for _, n := range resp.Nodes {
			if n.NodeID == m.id && len(n.Listeners) > 0 {
				l := n.Listeners[0]
				m.addr = net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
				m.host, m.port, m.listenerName = l.Host, l.Port, l.Name
			}
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	return list
}

// find returns the broker of that id.
func (s *state) find(id int32) (broker, bool) {
	i := slices.IndexFunc(s.brokers, func(b broker) bool { return b.id == id })
	if i < 0 {
		return broker{}, false
	}
	return s.brokers[i], true
}

// role is what a node is to the metadata log.
func (s *state) role(id int32) string {
	is := func(m member) bool { return m.id == id }
	switch {
	case id == s.controller:
		return "controller"
	case s.quorum == nil:
		return "-"
	case slices.ContainsFunc(s.quorum.voters, is):
		return "voter"
	}
	return "follower"
}

// want is how many replicas of a partition ought to be in sync: those that a
// reassignment is bringing in need not be yet.
func (s *state) want(p *kadm.PartitionDetail) int {
	return len(p.Replicas) - len(s.moving[p.Topic][p.Partition].AddingReplicas)
}

// lagging reports whether replicas of a partition are not in sync that ought to
// be.
func (s *state) lagging(p *kadm.PartitionDetail) bool { return len(p.ISR) < s.want(p) }

// name is a partition as people write it.
func name(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

// list writes numbers with commas between them.
func list(ids []int32) string {
	text := ""
	for i, id := range ids {
		if i > 0 {
			text += ","
		}
		text += strconv.Itoa(int(id))
	}
	return text
}
