// Package job is the contract between the event loop and the disk: plain
// values in, plain values out. The loop builds a Job, a host runs it somewhere
// else, and the Result comes back as an event.
package job

import (
	"fmt"

	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// Lane is a queue of jobs. Jobs of one lane run in the order they were
// submitted and their results come back in that order; lanes run side by side.
type Lane uint8

const (
	// Logs runs everything that changes a log. What has queued up runs as one
	// commit group, with one sync.
	Logs Lane = iota
	// Quorum runs the metadata log's writes.
	Quorum
	// Background runs the slow half of checkpoints, and removals.
	Background
	// Reads runs lookups. Its results come in any order.
	Reads
)

// Lanes is how many lanes there are.
const Lanes = 4

// Job is one piece of blocking work.
type Job interface {
	Lane() Lane
	fmt.Stringer
}

// Ticket is an opaque number that stands for a promise. It comes back exactly
// once.
type Ticket uint64

// The kinds of job there are.
type (
	// Recover opens the store and reads what is there. It is the first job.
	Recover struct{}

	// Append writes batches to a log. They belong to the job until its result
	// is seen.
	Append struct {
		storage.Write
		Fetched bool // they come from the partition's leader
		Early   bool // an early result is of use
	}

	// Truncate drops every batch that reaches past End. If Replay is not 0, its
	// result says what producer state can be made of, with so many batches of each
	// producer; that may take a while.
	Truncate struct {
		Log    storage.LogID
		End    record.Offset
		Replay int
	}

	// Reset drops everything of a log, damage included, and lets it begin anew at
	// Start, empty.
	Reset struct {
		Log   storage.LogID
		Start record.Offset
	}

	// RaiseStart has a log begin at Start, and drops the files that are wholly
	// below it. Start is at most the log's end. Deleted is the snapshot of what was
	// before.
	RaiseStart struct {
		Log     storage.LogID
		Start   record.Offset
		Deleted []byte
	}

	// Delete drops a log and everything it holds. Its files go later.
	Delete struct{ Log storage.LogID }

	// BeginCheckpoint fixes what the next checkpoint holds: the logs as they
	// are, and a snapshot for each log that changed since the last one.
	BeginCheckpoint struct{ Snapshots []storage.Snapshot }

	// FinishCheckpoint makes the begun checkpoint durable and frees the journal
	// before it.
	FinishCheckpoint struct{}

	// Read finds the bytes to send for one partition of a fetch.
	Read struct {
		Ticket   Ticket
		View     storage.View
		From     record.Offset
		Limit    record.Offset // exclusive
		MaxBytes int64
	}

	// Lookup finds the first record, below Limit, whose timestamp is at least
	// Timestamp; or, if Latest, the first of those with the greatest.
	Lookup struct {
		Ticket    Ticket
		View      storage.View
		Timestamp record.Timestamp
		Latest    bool
		Limit     record.Offset // exclusive
	}

	// SaveQuorum appends records to the quorum's journal, durably. If Replace,
	// they take the place of everything in it.
	SaveQuorum struct {
		Records [][]byte
		Replace bool
	}

	// Close checkpoints everything and leaves the clean mark. It is the last
	// job.
	Close struct{ Snapshots []storage.Snapshot }
)

// Lane implements Job.
func (Recover) Lane() Lane          { return Logs }
func (Append) Lane() Lane           { return Logs }
func (Truncate) Lane() Lane         { return Logs }
func (Reset) Lane() Lane            { return Logs }
func (RaiseStart) Lane() Lane       { return Logs }
func (Delete) Lane() Lane           { return Logs }
func (BeginCheckpoint) Lane() Lane  { return Logs }
func (FinishCheckpoint) Lane() Lane { return Background }
func (Read) Lane() Lane             { return Reads }
func (Lookup) Lane() Lane           { return Reads }
func (SaveQuorum) Lane() Lane       { return Quorum }
func (Close) Lane() Lane            { return Logs }

func (Recover) String() string { return "recover" }
func (j Append) String() string {
	last := j.Batches[len(j.Batches)-1]
	return fmt.Sprintf("append log=%s offsets=[%d,%d)", j.Log, j.Batches[0].BaseOffset(), last.NextOffset())
}
func (j Truncate) String() string {
	return fmt.Sprintf("truncate log=%s end=%d replay=%d", j.Log, j.End, j.Replay)
}
func (j Reset) String() string { return fmt.Sprintf("reset log=%s start=%d", j.Log, j.Start) }

func (j RaiseStart) String() string { return fmt.Sprintf("raise log=%s start=%d", j.Log, j.Start) }

func (j Delete) String() string          { return fmt.Sprintf("delete log=%s", j.Log) }
func (j BeginCheckpoint) String() string { return fmt.Sprintf("checkpoint logs=%d", len(j.Snapshots)) }
func (FinishCheckpoint) String() string  { return "finish checkpoint" }
func (j Read) String() string {
	return fmt.Sprintf("read offsets=[%d,%d) max=%d", j.From, j.Limit, j.MaxBytes)
}
func (j Lookup) String() string {
	return fmt.Sprintf("lookup timestamp=%d latest=%t limit=%d", j.Timestamp, j.Latest, j.Limit)
}
func (j SaveQuorum) String() string {
	return fmt.Sprintf("save quorum records=%d replace=%t", len(j.Records), j.Replace)
}
func (j Close) String() string { return "close" }

// Result is what a job found or did. If Err is not nil the job did nothing,
// and unless Err matches storage.ErrNoSpace, storage.ErrNotNext or (for Reads)
// anything at all, the disk cannot be trusted and the node must stop.
//
// An early result may come before the one of an Append that asks for it: what was
// appended is in View and can be read, and is not durable. It will be, unless the
// node has to stop: the append is not refused any more. Early results come in the
// order of their jobs too, but may overtake the results of jobs before theirs.
type Result struct {
	Job       Job
	Err       error
	Early     bool                    // of an Append: another result follows
	Recovered *storage.Recovered      // Recover
	View      storage.View            // Append, Truncate, Reset, RaiseStart: the log afterwards
	Snapshot  []byte                  // Truncate with Replay: what a checkpoint was given for the log
	After     []storage.BatchInfo     // Truncate with Replay: batches behind what Snapshot covers
	Region    storage.Region          // Read
	Found     storage.TimestampOffset // Lookup; Offset is -1 if there is none
}
