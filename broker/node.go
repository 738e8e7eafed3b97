// Package broker is one node's mind: it takes one event at a time, decides,
// and asks its Env for what must be done. It has no goroutines, no locks and
// no loop; whoever hosts it owns the loop.
//
// It is a switchboard: it routes events to deciders and what they decide to the
// Env. It knows no Kafka rules.
package broker

import "github.com/pawlbroker/pawl/broker/clock"

// Node is one broker. Only Step, NextWake and Stats may be called, and never
// concurrently.
type Node struct{}

// Config of a node.
type Config struct{}

// New returns a node that has begun to recover. Its first job is submitted
// before New returns.
func New(cfg Config, env Env) *Node { return &Node{} }

// Step handles one event. It returns without blocking.
func (n *Node) Step(ev Event) {}

// NextWake is when the node wants a Wake, or clock.Never.
func (n *Node) NextWake() clock.Instant { return clock.Never }
