package client

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/linearizability/history"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/workloads"
)

// Config of every client of a run.
type Config struct {
	Think          time.Duration // longest pause between two operations
	MaxWait        time.Duration // longest a fetch may wait at the node
	RestartPercent int           // of retries: how often an idempotent producer begins again with a new id
	CompressedIn10 int           // how many of 10 batches are compressed
	Topic          NewTopic      // what topics are like that are created, but for their names
	Wall           func() record.Timestamp
}

// A Watcher is told what clients see beyond their operations' results.
type Watcher interface {
	// Served is a batch that a client got whole.
	Served(p history.Partition, b record.Batch)
	// Acked says a produce was acknowledged.
	Acked(p history.Partition, base record.Offset, b record.Batch)
	// Spoiled says a client got bytes from around an offset that are no batch, or
	// not the one it asked for.
	Spoiled(p history.Partition, at record.Offset, what string)
	// Deleting says that a client is about to ask for the end of everything below an
	// offset, or, if that is -1, below the high watermark; Deleted that it was told
	// that this is done, and that the log begins there or later.
	Deleting(p history.Partition, below record.Offset)
	Deleted(p history.Partition, start record.Offset)
	// Begins is where a log begins at least, as far as clients were told.
	Begins(p history.Partition) record.Offset
	// OutOfRange says a client was told that there is no such offset.
	OutOfRange(p history.Partition, at record.Offset)
	// Issued says a producer got an id.
	Issued(id record.ProducerID, epoch record.ProducerEpoch)
	// Refused says an idempotent producer, whose sequences are in order, was told
	// they are not.
	Refused(p history.Partition, what string)
}

// Actor is one client: it does what the workload says, one operation at a
// time.
type Actor struct {
	k       *kernel.Kernel
	cluster *Cluster
	id      history.Client // as the workload knows it
	load    workloads.Workload
	watch   Watcher
	cfg     Config
	rng     *rand.Rand // what the workload draws
	own     *rand.Rand // pauses and restarts

	op      workloads.Op
	call    history.Time
	retired bool
	resting bool
	done    int64

	producer  record.Producer
	issued    bool
	sequences map[history.Partition]record.Sequence // next
	batch     record.Batch                          // of the append in progress
}

const (
	whatTurn kernel.What = iota
	whatRetry
	whatGone
)

// NewActor returns a client of a number of its own, which a workload knows as id,
// and whose first turn comes within its think time.
func NewActor(k *kernel.Kernel, c *Cluster, number int, id history.Client, load workloads.Workload, watch Watcher, cfg Config) *Actor {
	a := &Actor{
		k: k, cluster: c, id: id, load: load, watch: watch, cfg: cfg,
		rng: k.Stream("client", uint64(number)), own: k.Stream("client", uint64(number), 1),
		sequences: map[history.Partition]record.Sequence{},
	}
	a.rest()
	return a
}

// Busy says whether an operation is in progress, and which.
func (a *Actor) Busy() (workloads.Op, bool) { return a.op, a.op != nil }

// Retire makes the actor take no further turn.
func (a *Actor) Retire() { a.retired = true }

// Rest makes the actor begin no operation until it is told otherwise.
func (a *Actor) Rest(resting bool) { a.resting = resting }

// GiveUp ends the operation in progress as unknown.
func (a *Actor) GiveUp() {
	if op := a.op; op != nil {
		a.op = nil
		a.load.Done(a.id, op, a.call, history.Never, workloads.Result{Outcome: history.Unknown, Note: "given up"})
	}
}

// rest schedules the next turn.
func (a *Actor) rest() {
	a.k.After(kernel.Between(a.own, 0, a.cfg.Think), a, whatTurn, 0)
}

// Happen is for the kernel.
func (a *Actor) Happen(what kernel.What, _ uint64) {
	switch what {
	case whatTurn:
		switch {
		case a.resting:
			a.k.After(50*time.Millisecond, a, whatTurn, 0)
		case !a.retired:
			a.turn()
		}
	case whatRetry:
		a.try()
	case whatGone: // an append that nobody answers
		a.finish(workloads.Result{Outcome: history.Unknown, Note: "acks=0"})
	}
}

func (a *Actor) turn() {
	a.call = history.Time(a.k.Now())
	op, ok := a.load.Next(a.id, a.call, a.rng)
	if !ok {
		a.k.After(10*time.Millisecond, a, whatTurn, 0)
		return
	}
	a.op = op
	if a.k.Trace.Wanted() {
		a.k.Trace.Text(a.cluster.who, op)
	}
	if p, ok := op.(workloads.Append); ok {
		a.batch = nil
		if !p.Idempotent {
			a.batch = a.build(p)
		}
	}
	a.try()
}

// try makes one attempt at the operation.
func (a *Actor) try() {
	if a.op == nil {
		return
	}
	switch op := a.op.(type) {
	case workloads.Append:
		a.append(op)
	case workloads.Read:
		a.read(op)
	case workloads.ListEnd:
		a.list(op.Partition, latest, func(at history.Offset) workloads.Result { return workloads.Result{End: at} })
	case workloads.ListStart:
		a.list(op.Partition, earliest, func(at history.Offset) workloads.Result { return workloads.Result{Start: at} })
	case workloads.DeleteRecords:
		a.deleteRecords(op)
	case workloads.CreateTopic, workloads.DeleteTopic, workloads.SetConfig, workloads.GetConfig:
		a.onTopic(op)
	default:
		a.finish(workloads.Result{Outcome: history.Failed, Note: "this client cannot"})
	}
}

func (a *Actor) again() {
	a.k.After(kernel.Between(a.own, time.Millisecond, 50*time.Millisecond), a, whatRetry, 0)
}

func (a *Actor) finish(r workloads.Result) {
	op := a.op
	if op == nil {
		return
	}
	a.op = nil
	a.done++
	ret := history.Time(a.k.Now())
	if r.Outcome == history.Unknown {
		ret = history.Never
	}
	a.k.Trace.Event(a.cluster.who, outcomeNames[r.Outcome], uint64(r.Base), uint64(r.End), uint64(len(r.Records)))
	if r.Note != "" && a.k.Trace.Wanted() {
		a.k.Trace.Say(a.cluster.who, r.Note)
	}
	a.load.Done(a.id, op, a.call, ret, r)
	if r.Outcome == history.Failed { // what failed now is likely to fail at once again
		a.k.After(kernel.Between(a.own, 5*time.Millisecond, 100*time.Millisecond), a, whatTurn, 0)
		return
	}
	a.rest()
}

var outcomeNames = [...]string{"ok", "failed", "unknown"}

// failed ends a read, which has no effect whatever became of it.
func (a *Actor) failed(note string) {
	a.finish(workloads.Result{Outcome: history.Failed, Note: note})
}

// latest and earliest are ListOffsets' timestamps for the end of a log, and for its
// start.
const (
	latest   = -1
	earliest = -2
)

func (a *Actor) list(p history.Partition, timestamp int64, result func(history.Offset) workloads.Result) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition = p.Index
	part.Timestamp = timestamp
	part.CurrentLeaderEpoch = a.epoch(p)
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = p.Topic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	a.askSomebody(p, req, func(resp kmsg.Response, err error) {
		if err != nil {
			a.failed(err.Error())
			return
		}
		r := resp.(*kmsg.ListOffsetsResponse)
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
			a.cluster.broken("ListOffsets answers for other partitions than asked")
			a.failed("wrong partitions")
			return
		}
		if got := r.Topics[0].Partitions[0]; got.ErrorCode != 0 {
			a.refused(p, got.ErrorCode)
			a.failed(codeNote(got.ErrorCode))
		} else {
			a.finish(result(history.Offset(got.Offset)))
		}
	})
}

// epoch is the leader epoch that a question comes with: mostly none, now and
// then the one that is known (KIP-320).
func (a *Actor) epoch(p history.Partition) int32 {
	if a.cluster.Nodes() == 1 || a.own.IntN(3) > 0 {
		return -1
	}
	return a.cluster.Epoch(p)
}

// askSomebody asks the leader, or now and then another node, which must not
// answer as if it were.
func (a *Actor) askSomebody(p history.Partition, req kmsg.Request, answer Answer) {
	if n := a.cluster.Nodes(); n > 1 && a.own.IntN(30) == 0 {
		a.cluster.AskNode(a.own.IntN(n), req, answer)
		return
	}
	a.cluster.AskLeader(p, nil, req, answer)
}

// refused takes note of an error of a partition's leader.
func (a *Actor) refused(p history.Partition, code int16) {
	if _, moved := passes(code); moved {
		a.cluster.Moved(p)
	}
}
