package client

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/kernel"
)

// Operator moves replicas and leaders, and has other nodes vote, while everything
// else goes on. It never waits for what it has begun.
type Operator struct {
	k       *kernel.Kernel
	cluster *Cluster
	cfg     OperatorConfig
	rng     *rand.Rand
	retired bool
	busy    bool

	// Done is how often each kind of change was accepted.
	Done map[string]int64
}

// OperatorConfig is what an Operator may do.
type OperatorConfig struct {
	Every       time.Duration // longest pause between two changes
	Topic       string
	Partitions  int
	Replication int // replicas of a partition
	Voters      int // that there are to be, but for a while; 0 leaves them alone
}

// NewOperator returns an operator that begins within its pause.
func NewOperator(k *kernel.Kernel, c *Cluster, id history.Client, cfg OperatorConfig) *Operator {
	o := &Operator{k: k, cluster: c, cfg: cfg, rng: k.Stream("client", uint64(id), 4), Done: map[string]int64{}}
	o.rest()
	return o
}

// Retire makes the operator begin nothing more.
func (o *Operator) Retire() { o.retired = true }

// Idle says whether nothing that it asked for is without an answer.
func (o *Operator) Idle() bool { return !o.busy }

func (o *Operator) rest() { o.k.After(kernel.Between(o.rng, 0, o.cfg.Every), o, 0, 0) }

// Happen is for the kernel.
func (o *Operator) Happen(kernel.What, uint64) {
	if o.retired {
		return
	}
	switch dice := o.rng.IntN(10); {
	case dice < 5:
		o.move(dice == 0)
	case dice < 7 || o.cfg.Voters == 0:
		o.elect()
	default:
		o.lookAtQuorum()
	}
}

// ask asks for a change; taken says whether an answer means that it was accepted.
func (o *Operator) ask(what string, req kmsg.Request, taken func(kmsg.Response) int16) {
	o.busy = true
	o.k.Trace.Event(o.cluster.who, what, 0, 0, 0)
	o.cluster.Ask(req, func(resp kmsg.Response, err error) {
		o.busy = false
		o.rest()
		if err != nil {
			return
		}
		code := taken(resp)
		if code == 0 {
			o.Done[what]++
		}
		if o.k.Trace.Wanted() {
			o.k.Trace.Say(o.cluster.who, fmt.Sprintf("%s: %s", what, codeNote(code)))
		}
	})
}

// move gives a partition other replicas, or stops a move that is under way.
func (o *Operator) move(cancel bool) {
	part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	part.Partition = int32(o.rng.IntN(o.cfg.Partitions))
	what := "move cancelled"
	if !cancel {
		what = "partition moved"
		for _, i := range o.rng.Perm(o.cluster.Nodes())[:o.cfg.Replication] {
			part.Replicas = append(part.Replicas, int32(i+1))
		}
	}
	topic := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	topic.Topic = o.cfg.Topic
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, topic)
	o.ask(what, req, func(resp kmsg.Response) int16 {
		r := resp.(*kmsg.AlterPartitionAssignmentsResponse)
		if r.ErrorCode != 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			return r.ErrorCode
		}
		return r.Topics[0].Partitions[0].ErrorCode
	})
}

// elect has the preferred replica of a partition lead it.
func (o *Operator) elect() {
	topic := kmsg.NewElectLeadersRequestTopic()
	topic.Topic = o.cfg.Topic
	topic.Partitions = []int32{int32(o.rng.IntN(o.cfg.Partitions))}
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis = 5000
	req.Topics = append(req.Topics, topic)
	o.ask("leader elected", req, func(resp kmsg.Response) int16 {
		r := resp.(*kmsg.ElectLeadersResponse)
		if r.ErrorCode != 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			return r.ErrorCode
		}
		return r.Topics[0].Partitions[0].ErrorCode
	})
}

// lookAtQuorum asks who votes, and then has one more vote, or one less.
func (o *Operator) lookAtQuorum() {
	part := kmsg.NewDescribeQuorumRequestTopicPartition()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = append(req.Topics, topic)
	o.busy = true
	o.cluster.Ask(req, func(resp kmsg.Response, err error) {
		o.busy = false
		r, ok := resp.(*kmsg.DescribeQuorumResponse)
		if !ok || r.Version < 2 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].ErrorCode != 0 || o.retired {
			o.rest()
			return
		}
		p := &r.Topics[0].Partitions[0]
		o.changeQuorum(p.CurrentVoters, p.Observers)
	})
}

func (o *Operator) changeQuorum(voters, observers []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) {
	code := func(resp kmsg.Response) int16 {
		switch r := resp.(type) {
		case *kmsg.AddRaftVoterResponse:
			return r.ErrorCode
		case *kmsg.RemoveRaftVoterResponse:
			return r.ErrorCode
		}
		return codeUnknownServer
	}
	nodes := map[int32]bool{}
	for _, v := range voters {
		nodes[v.ReplicaID] = true
	}
	observers = slices.DeleteFunc(observers, func(r kmsg.DescribeQuorumResponseTopicPartitionReplicaState) bool { return nodes[r.ReplicaID] })
	switch {
	case len(nodes) > o.cfg.Voters:
		v := voters[o.rng.IntN(len(voters))]
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID = v.ReplicaID, v.ReplicaDirectoryID
		o.ask("voter removed", req, code)
	case len(observers) > 0:
		v := observers[o.rng.IntN(len(observers))]
		req := kmsg.NewPtrAddRaftVoterRequest()
		req.TimeoutMillis = 5000
		req.VoterID, req.VoterDirectoryID = v.ReplicaID, v.ReplicaDirectoryID
		o.ask("voter added", req, code)
	default:
		o.rest()
	}
}
