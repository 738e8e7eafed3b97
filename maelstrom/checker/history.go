// Package checker judges what clients of the kafka workload saw: by Jepsen's
// definitions, which are linearizability/anomaly's, as Maelstrom sets them up
// (one operation a transaction, assign rather than subscribe, crashing clients),
// and by two demands that it does not make: committed offsets and recency.
//
// It knows nothing of brokers.
package checker

import "time"

// Kind is what an operation does.
type Kind string

// The kinds of operation.
const (
	Send   Kind = "send"
	Poll   Kind = "poll"   // polls, and commits what came
	Assign Kind = "assign" // takes a new set of keys
	Crash  Kind = "crash"  // the client is gone; another takes its place
)

// Outcome is what the client knows of an operation at its end.
type Outcome string

// The outcomes. Only of an operation that is OK is its result known.
const (
	OK   Outcome = "ok"
	Fail Outcome = "fail" // it certainly did not happen
	Info Outcome = "info" // it may have happened, or may yet
)

// Op is one operation of one client.
type Op struct {
	Process int // a client's life; a client that crashed comes back as another
	Kind    Kind
	Outcome Outcome
	Invoked time.Duration // since the start of the run
	Ended   time.Duration // when the client knew the outcome
	Error   string

	Key    string // Send
	Value  int64  // Send; within a key no two are the same
	Offset int64  // Send that is OK

	Asked map[string]int64  // Poll: the offset from which each key was asked
	Reads map[string][]Read // Poll that is OK: what came, in the order it came

	Keys []string // Assign: the keys the client has after it
}

// Read is one message as polled.
type Read struct {
	Offset int64
	Value  int64
}

// Commit is one commit_offsets request. Offsets are the last that was
// processed, inclusive.
type Commit struct {
	Offsets map[string]int64
	Invoked time.Duration
	Ended   time.Duration
	OK      bool // answered; otherwise it may have happened, or may yet
}

// List is one answered list_committed_offsets request.
type List struct {
	Keys    []string // asked
	Offsets map[string]int64
	Invoked time.Duration
	Ended   time.Duration
}

// History is one run.
type History struct {
	Ops     []Op // in order of Ended, so that one process's are in its order
	Commits []Commit
	Lists   []List
}
