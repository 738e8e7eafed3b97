// Package protocol is what a Maelstrom node and its clients say to each other
// in the kafka workload: one JSON object a line, {"src","dest","body"}.
//
// Answers are closed: a field that the workload does not know makes an
// operation's outcome unknown, so these types have none.
package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Types of bodies.
const (
	Init      = "init"
	InitOK    = "init_ok"
	Send      = "send"
	SendOK    = "send_ok"
	Poll      = "poll"
	PollOK    = "poll_ok"
	Commit    = "commit_offsets"
	CommitOK  = "commit_offsets_ok"
	List      = "list_committed_offsets"
	ListOK    = "list_committed_offsets_ok"
	ErrorType = "error"
)

// Code is Maelstrom's error code.
type Code int

// The codes that a kafka node has a use for. With a definite one the client
// may be sure that nothing happened.
const (
	Timeout                Code = 0  // gave up waiting; not definite
	NotSupported           Code = 10 // unknown request type
	TemporarilyUnavailable Code = 11 // nothing was appended or proposed
	MalformedRequest       Code = 12 // cannot be parsed
	Crash                  Code = 13 // may have happened; not definite
	Abort                  Code = 14 // definite, for everything else
)

// Definite reports whether the code says that nothing happened.
func (c Code) Definite() bool {
	switch c {
	case 1, 10, 11, 12, 14, 20, 21, 22, 30:
		return true
	}
	return false
}

// Header is what every body has.
type Header struct {
	Type      string `json:"type"`
	MsgID     int    `json:"msg_id,omitempty"`
	InReplyTo int    `json:"in_reply_to,omitempty"`
}

// InitRequest tells a node who it is.
type InitRequest struct {
	Header
	NodeID  string   `json:"node_id"`
	NodeIDs []string `json:"node_ids"`
}

// SendRequest appends Msg to Key's log.
type SendRequest struct {
	Header
	Key string          `json:"key"`
	Msg json.RawMessage `json:"msg"`
}

// SendResponse says where.
type SendResponse struct {
	Header
	Offset int64 `json:"offset"`
}

// PollRequest asks for what is at or after an offset of each key.
type PollRequest struct {
	Header
	Offsets map[string]int64 `json:"offsets"`
}

// Entry is one message of a log: [offset, message].
type Entry struct {
	Offset int64
	Msg    json.RawMessage
}

// MarshalJSON writes the pair.
func (e Entry) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%s]", e.Offset, e.Msg), nil
}

// UnmarshalJSON reads the pair.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("entry %s: %d elements, want an offset and a message", data, len(pair))
	}
	e.Msg = pair[1]
	return json.Unmarshal(pair[0], &e.Offset)
}

// PollResponse has a run of each key's log, without the keys that have none.
type PollResponse struct {
	Header
	Msgs map[string][]Entry `json:"msgs"`
}

// CommitRequest says up to where, inclusive, each key has been processed.
type CommitRequest struct {
	Header
	Offsets map[string]int64 `json:"offsets"`
}

// ListRequest asks for the committed offsets of keys.
type ListRequest struct {
	Header
	Keys []string `json:"keys"`
}

// ListResponse has them, without the keys that were never committed.
type ListResponse struct {
	Header
	Offsets map[string]int64 `json:"offsets"`
}

// ErrorResponse says that a request was not carried out, or may not have been.
type ErrorResponse struct {
	Header
	Code Code   `json:"code"`
	Text string `json:"text"`
}

// Message is the envelope.
type Message struct {
	Src  string          `json:"src"`
	Dest string          `json:"dest"`
	Body json.RawMessage `json:"body"`
}

// Strict decodes a body and refuses fields that it should not have.
func Strict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}
