// Package broker is one node's mind: it takes one event at a time, decides,
// and asks its Env for what must be done. It has no goroutines, no locks and
// no loop; whoever hosts it owns the loop.
//
// It is a switchboard: it routes events to deciders and what they decide to the
// Env, or to each other. It knows no Kafka rules. The disk's side is in this
// file, the cluster's in cluster.go, and which request goes where
// in route.go.
package broker

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/partition"
	"github.com/pawlbroker/pawl/broker/quorum"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
)

// phase is how far a node has come.
type phase uint8

const (
	recovering phase = iota // reading what is on disk
	joining                 // until it is registered and its image says so
	serving
	leaving  // has others lead in its place
	stopping // answers nothing that is new
	closing  // waits for the jobs that are under way, and asks for no more
	stopped
)

func (p phase) String() string {
	return [...]string{"recovering", "joining", "serving", "leaving", "stopping", "closing", "stopped"}[p]
}

// Node is one broker. Only Step, NextWake and the queries below may be called,
// and never concurrently.
type Node struct {
	cfg   Config
	env   Env
	phase phase
	out   partition.Out // used again by every Step
	spare []partition.Reply

	table     *partition.Table
	recovered map[storage.LogID]*storage.RecoveredLog // not opened yet
	early     []Request                               // came before the node served

	cluster cluster

	checkpoint checkpoint
	full       bool // the disk has no space: one line was written about it
}

// checkpoint is when the journal is cut short.
type checkpoint struct {
	bytes   int64 // appended since the last one began
	running bool
	retryAt clock.Instant // after one that found no space
	covers  []storage.LogID
}

// checkpointRetry is how long the node waits before it tries a checkpoint
// again that found no space, in nanoseconds.
const checkpointRetry = 1_000_000_000

// New returns a node that has begun to recover. Its first job is submitted
// before New returns.
func New(cfg Config, env Env) *Node {
	n := &Node{
		cfg: cfg, env: env,
		table:     partition.New(cfg.Partition, env.Rand),
		recovered: make(map[storage.LogID]*storage.RecoveredLog),
	}
	n.cluster.init(cfg, env)
	n.checkpoint.retryAt = clock.Never
	env.Disk.Submit(job.Recover{})
	return n
}

// Step handles one event. It returns without blocking.
func (n *Node) Step(ev Event) {
	assert.That(n.phase != stopped, "broker: an event after the end")
	switch ev := ev.(type) {
	case Request:
		n.request(ev)
	case JobDone:
		n.jobDone(ev.Result)
	case Wake:
		n.wake()
	case ConnClosed:
		n.table.ConnClosed(ev.Conn, &n.out)
	case PeerReply:
		n.peerReply(ev)
	case PeerDown:
		n.peerDown(ev.Peer)
	case ReadFailed:
		n.table.ReadFailed(ev.Region.Log, ev.RegionError, n.moment(), &n.out)
	case Shutdown:
		n.shutdown()
	}
	n.act()
}

// NextWake is when the node wants a Wake, or clock.Never.
func (n *Node) NextWake() clock.Instant {
	if n.phase == closing {
		return clock.Never
	}
	return min(n.table.NextWake(), n.cluster.nextWake(), n.checkpoint.retryAt)
}

func (n *Node) wake() {
	if n.phase == closing {
		return
	}
	n.table.Wake(n.moment(), &n.out)
	n.cluster.wake(n.env.Clock.Now())
	if n.env.Clock.Now() >= n.checkpoint.retryAt {
		n.checkpoint.retryAt = clock.Never
		n.checkpoint.bytes = n.cfg.CheckpointBytes
	}
}

func (n *Node) moment() partition.Moment {
	return partition.Moment{Now: n.env.Clock.Now(), Wall: n.env.Clock.Wall()}
}

// act does what was decided. It is the only place where decisions become
// effects. What one decider decided may have others decide more.
func (n *Node) act() {
	for n.phase != stopped && (n.phase != closing && n.actCluster() || n.actPartitions()) {
	}
	switch {
	case n.phase == stopping:
		n.finish()
	case n.checkpoint.bytes >= n.cfg.CheckpointBytes && n.phase == serving:
		n.beginCheckpoint()
	}
}

// actPartitions does what the table decided, and reports whether it decided
// anything.
func (n *Node) actPartitions() bool {
	out := &n.out
	busy := len(out.Jobs)+len(out.Replies)+len(out.Lines) > 0
	for _, j := range out.Jobs {
		if a, ok := j.(job.Append); ok {
			for _, b := range a.Batches {
				n.checkpoint.bytes += int64(len(b))
			}
		}
		n.env.Disk.Submit(j)
	}
	for _, l := range out.Lines {
		n.env.Log.Log(l.Level, l.Text, l.Attrs...)
	}
	replies := out.Replies
	clear(out.Jobs)
	clear(out.Lines)
	out.Jobs, out.Replies, out.Lines = out.Jobs[:0], n.spare, out.Lines[:0]
	for _, r := range replies {
		if r.Caller.Conn == ownConn {
			n.ownReply(r)
			continue
		}
		n.env.Network.Reply(r.Caller, r.Response)
	}
	clear(replies)
	n.spare = replies[:0]
	return n.phase != closing && n.actReplication() || busy
}

// jobDone takes the result of a job. An error that leaves the disk in doubt
// stops the node: a failed sync is never tried again.
func (n *Node) jobDone(res job.Result) {
	if res.Err != nil && !survivable(res) {
		n.stop(fmt.Errorf("disk: %v: %w", res.Job, res.Err))
		return
	}
	switch res.Job.(type) {
	case job.Recover:
		n.recover(res.Recovered)
	case job.Append:
		n.noteSpace(res.Err)
		n.table.Done(res, n.moment(), &n.out)
	case job.Read, job.Lookup, job.Truncate, job.Reset, job.RaiseStart:
		n.table.Done(res, n.moment(), &n.out)
	case job.SaveQuorum:
		n.noteSpace(res.Err)
		n.saved(res.Err)
	case job.BeginCheckpoint:
		if res.Err != nil {
			n.checkpointFailed()
			return
		}
		n.env.Disk.Submit(job.FinishCheckpoint{})
	case job.FinishCheckpoint:
		if res.Err != nil {
			n.checkpointFailed()
			return
		}
		n.checkpoint.running = false
	case job.Close:
		if res.Err != nil {
			n.line(slog.LevelWarn, "no space for the clean mark; the next start replays the journal")
		}
		n.stop(nil)
	}
}

// survivable reports whether the disk can be used further after a result's
// error.
func survivable(res job.Result) bool {
	switch res.Job.(type) {
	case job.Read, job.Lookup:
		return true
	case job.Append, job.Truncate, job.Reset, job.RaiseStart:
		var damage *storage.DamageError
		return errors.Is(res.Err, storage.ErrNoSpace) || errors.Is(res.Err, storage.ErrNotNext) || errors.As(res.Err, &damage)
	case job.Delete:
		return errors.Is(res.Err, storage.ErrUnknownLog)
	case job.SaveQuorum, job.BeginCheckpoint, job.FinishCheckpoint, job.Close:
		return errors.Is(res.Err, storage.ErrNoSpace)
	}
	return false
}

// noteSpace writes one line when the disk fills up and one when it has space
// again.
func (n *Node) noteSpace(err error) {
	if full := errors.Is(err, storage.ErrNoSpace); full != n.full && (full || err == nil) {
		n.full = full
		if full {
			n.line(slog.LevelError, "disk full: what is produced is refused until there is space")
		} else {
			n.line(slog.LevelInfo, "disk has space again")
		}
	}
}

// recover takes over what was found on disk.
func (n *Node) recover(rec *storage.Recovered) {
	for i := range rec.Logs {
		n.recovered[rec.Logs[i].ID] = &rec.Logs[i]
	}
	n.line(slog.LevelInfo, "recovered", slog.Int("logs", len(rec.Logs)), slog.Bool("clean", rec.Clean),
		slog.Int64("replayed_bytes", rec.Bytes), slog.Int64("replayed_groups", rec.Groups))
	n.phase = joining
	n.restore(rec)
}

// beginCheckpoint starts a checkpoint, unless one is running.
func (n *Node) beginCheckpoint() {
	if n.checkpoint.running || n.checkpoint.retryAt != clock.Never {
		return
	}
	n.checkpoint.running, n.checkpoint.bytes = true, 0
	n.env.Disk.Submit(job.BeginCheckpoint{Snapshots: n.snapshots()})
}

// snapshots takes the producer states for a checkpoint, and remembers of which
// logs.
func (n *Node) snapshots() []storage.Snapshot {
	snaps := n.table.Snapshots()
	n.checkpoint.covers = n.checkpoint.covers[:0]
	for _, s := range snaps {
		n.checkpoint.covers = append(n.checkpoint.covers, s.Log)
	}
	return snaps
}

// checkpointFailed tries again later. The journal only grows meanwhile.
func (n *Node) checkpointFailed() {
	assert.Reached("broker: no space for a checkpoint")
	n.noteSpace(storage.ErrNoSpace)
	n.checkpoint.running = false
	n.checkpoint.retryAt = n.env.Clock.Now() + checkpointRetry
	n.table.Touch(n.checkpoint.covers)
}

// shutdown begins a clean stop.
func (n *Node) shutdown() {
	switch n.phase {
	case leaving, stopping:
		return
	case recovering, joining:
		n.stop(nil) // nothing was acknowledged by this process
		return
	}
	n.phase = leaving
	n.cluster.member.Shutdown(n.env.Clock.Now(), &n.cluster.memberOut)
}

// finish ends a clean stop once nothing is in flight.
func (n *Node) finish() {
	if n.checkpoint.running || n.cluster.office.Log().Quorum().Saving() {
		return
	}
	n.phase = closing
	n.env.Disk.Submit(job.Close{Snapshots: n.snapshots()})
}

// stop ends the node.
func (n *Node) stop(reason error) {
	n.phase = stopped
	n.env.Stop(reason)
}

func (n *Node) line(level slog.Level, text string, attrs ...slog.Attr) {
	n.out.Lines = append(n.out.Lines, partition.Line{Level: level, Text: text, Attrs: attrs})
}

// Ready reports whether the node serves clients, and if not, what is missing.
func (n *Node) Ready() (missing string, ok bool) { return n.phase.String(), n.phase == serving }

// Leased reports whether the node may answer consumers: nobody can have taken its
// place.
func (n *Node) Leased() bool { return n.cluster.member.Leased(n.env.Clock.Now()) }

// Leader is the active controller as far as the node knows, or metadata.NoNode.
func (n *Node) Leader() metadata.NodeID {
	if n.cluster.office == nil {
		return metadata.NoNode
	}
	return n.cluster.office.Log().Leader()
}

// Stats counts what the node did with records.
func (n *Node) Stats() partition.Stats { return n.table.Stats }

// Image is what the node knows of the cluster.
func (n *Node) Image() metadata.Image { return n.cluster.image() }

// Quorum is the node's seat in the quorum, or nil while it recovers. It is for
// looking at, by checkers.
func (n *Node) Quorum() *quorum.Quorum {
	if n.cluster.office == nil {
		return nil
	}
	return n.cluster.office.Log().Quorum()
}

// Table is the node's partitions. It is for looking at, by checkers.
func (n *Node) Table() *partition.Table { return n.table }
