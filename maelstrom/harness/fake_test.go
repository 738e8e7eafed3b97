package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

// faults are what a fake node does wrong. Numbers say "every so many-th".
type faults struct {
	loseWrite      int  // acknowledged, its offset used, and not kept
	lowOffset      int  // written over the record two offsets back
	lowAnswer      int  // written where it should be, answered with two less
	reuseOffset    int  // given the offset of the record before it
	writeTwice     int  // written at two offsets
	leaveOut       int  // a poll's answer lacks a message
	swap           int  // a poll's answer has two the wrong way round
	refuseWritten  int  // error 11 although it was written
	crashWritten   int  // error 13 although it was written
	silentWritten  int  // no answer although it was written
	hideKeys       bool // odd keys are never polled
	apart          bool // nodes do not replicate
	refuseCommit   int  // error 11 to a commit
	crashCommit    int  // error 13 to a commit
	committedHigh  int  // committed offsets are reported that much too high
	forgetCommit   int  // a commit is answered and not kept
	lateSend       int  // the so many-th send is answered 7 seconds later
	garbageAt      int  // node n1, after so many messages, writes a line that is not JSON
	extraField     int  // a send's answer has a field too many
	exitAt         int  // the node ends after so many sends
	stalePoll      int  // a poll shows of one key what was there before the last write
	forgetOnReboot bool // state is in memory only
}

type record struct{ offset, value int64 }

// fakeState is what a cluster of fake nodes keeps.
type fakeState struct {
	mu        sync.Mutex
	logs      map[string][]record
	ends      map[string]int64
	committed map[string]int64
	sends     int
	polls     int
	asked     int
	commits   int
}

func newFakeState() *fakeState {
	return &fakeState{logs: map[string][]record{}, ends: map[string]int64{}, committed: map[string]int64{}}
}

// fakeCluster makes nodes that all forward to n0.
type fakeCluster struct {
	faults faults
	mu     sync.Mutex
	states map[string]*fakeState // by the name of the node that holds it
}

func (f *fakeCluster) state(name string) *fakeState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.states[name] == nil {
		f.states[name] = newFakeState()
	}
	return f.states[name]
}

// fakeNode is one life.
type fakeNode struct {
	cluster *fakeCluster
	name    string
	state   *fakeState
	mu      sync.Mutex
	out     io.Writer
	calls   int
	pending map[int]forwarded // requests forwarded to n0
}

type forwarded struct {
	client string
	msgID  int
	at     time.Time
}

func (f *fakeCluster) serve(name string, in io.Reader, out io.Writer) {
	if f.faults.forgetOnReboot {
		f.mu.Lock()
		delete(f.states, name)
		f.mu.Unlock()
	}
	n := &fakeNode{cluster: f, name: name, state: f.state(name), out: out, pending: map[int]forwarded{}}
	handled := 0
	for r := bufio.NewScanner(in); r.Scan(); {
		var m protocol.Message
		var h protocol.Header
		if json.Unmarshal(r.Bytes(), &m) != nil || json.Unmarshal(m.Body, &h) != nil {
			return
		}
		if at := f.faults.garbageAt; at > 0 && name == "n1" && handled == at {
			fmt.Fprintln(out, "fatal error: all goroutines are asleep")
		}
		if handled++; f.faults.exitAt > 0 && handled > f.faults.exitAt {
			return
		}
		switch {
		case h.InReplyTo > 0:
			n.forwardBack(m, h)
		case h.Type == protocol.Init:
			n.reply(m.Src, protocol.Header{Type: protocol.InitOK, InReplyTo: h.MsgID})
		case name != "n0" && !f.faults.apart:
			n.forward(m, h)
		default:
			n.handle(m, h)
		}
	}
}

func (n *fakeNode) write(dest string, body json.RawMessage) {
	line, err := json.Marshal(protocol.Message{Src: n.name, Dest: dest, Body: body})
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out.Write(append(line, '\n'))
}

func (n *fakeNode) reply(dest string, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	n.write(dest, encoded)
}

// patched is a body with one of its numbers changed.
func patched(body json.RawMessage, field string, value int) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		panic(err)
	}
	fields[field] = strconv.AppendInt(nil, int64(value), 10)
	encoded, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return encoded
}

func (n *fakeNode) forward(m protocol.Message, h protocol.Header) {
	n.calls++
	n.pending[n.calls] = forwarded{m.Src, h.MsgID, time.Now()}
	n.write("n0", patched(m.Body, "msg_id", n.calls))
}

// forwardBack answers the client, unless it has given up by now.
func (n *fakeNode) forwardBack(m protocol.Message, h protocol.Header) {
	if f, ok := n.pending[h.InReplyTo]; ok && time.Since(f.at) < 4500*time.Millisecond {
		n.write(f.client, patched(m.Body, "in_reply_to", f.msgID))
	}
	delete(n.pending, h.InReplyTo)
}

func (n *fakeNode) handle(m protocol.Message, h protocol.Header) {
	n.state.mu.Lock()
	defer n.state.mu.Unlock()
	answer := protocol.Header{Type: h.Type + "_ok", InReplyTo: h.MsgID}
	refuse := func(code protocol.Code) {
		n.reply(m.Src, protocol.ErrorResponse{Header: protocol.Header{Type: protocol.ErrorType, InReplyTo: h.MsgID}, Code: code})
	}
	switch h.Type {
	case protocol.Send:
		var request protocol.SendRequest
		json.Unmarshal(m.Body, &request)
		n.send(m.Src, request, answer, refuse)
	case protocol.Poll:
		var request protocol.PollRequest
		json.Unmarshal(m.Body, &request)
		n.reply(m.Src, protocol.PollResponse{Header: answer, Msgs: n.poll(request)})
	case protocol.Commit:
		var request protocol.CommitRequest
		json.Unmarshal(m.Body, &request)
		n.state.commits++
		switch f := n.cluster.faults; {
		case every(f.refuseCommit, n.state.commits):
			refuse(protocol.TemporarilyUnavailable)
			return
		case every(f.crashCommit, n.state.commits):
			refuse(protocol.Crash)
			return
		case every(f.forgetCommit, n.state.commits):
		default:
			for key, offset := range request.Offsets {
				n.state.committed[key] = max(n.state.committed[key], offset)
			}
		}
		n.reply(m.Src, answer)
	case protocol.List:
		var request protocol.ListRequest
		json.Unmarshal(m.Body, &request)
		offsets := map[string]int64{}
		for _, key := range request.Keys {
			if offset, ok := n.state.committed[key]; ok {
				offsets[key] = offset + int64(n.cluster.faults.committedHigh)
			}
		}
		n.reply(m.Src, protocol.ListResponse{Header: answer, Offsets: offsets})
	}
}

func every(n, count int) bool { return n > 0 && count%n == 0 }

func (n *fakeNode) send(client string, request protocol.SendRequest, answer protocol.Header, refuse func(protocol.Code)) {
	s, f, key := n.state, n.cluster.faults, request.Key
	s.sends++
	value, err := strconv.ParseInt(string(request.Msg), 10, 64)
	if err != nil {
		panic(err)
	}
	offset := s.ends[key]
	s.ends[key]++
	told := offset
	switch back := len(s.logs[key]); {
	case every(f.loseWrite, s.sends):
	case every(f.lowOffset, s.sends) && back > 2:
		s.ends[key]--
		told = offset - 2
		s.logs[key][back-2].value = value
	case every(f.reuseOffset, s.sends) && back > 0:
		s.ends[key]--
		told = offset - 1
		s.logs[key] = append(s.logs[key], record{told, value})
	default:
		s.logs[key] = append(s.logs[key], record{offset, value})
	}
	if every(f.lowAnswer, s.sends) && offset >= 2 {
		told = offset - 2
	}
	if every(f.writeTwice, s.sends) {
		s.logs[key] = append(s.logs[key], record{s.ends[key], value})
		s.ends[key]++
	}
	switch {
	case every(f.refuseWritten, s.sends):
		refuse(protocol.TemporarilyUnavailable)
	case every(f.crashWritten, s.sends):
		refuse(protocol.Crash)
	case every(f.silentWritten, s.sends):
	case every(f.extraField, s.sends):
		n.reply(client, struct {
			protocol.SendResponse
			Term int `json:"term"`
		}{protocol.SendResponse{Header: answer, Offset: told}, 3})
	case f.lateSend == s.sends:
		time.AfterFunc(7*time.Second, func() {
			n.reply(client, protocol.SendResponse{Header: answer, Offset: told})
		})
	default:
		n.reply(client, protocol.SendResponse{Header: answer, Offset: told})
	}
}

func (n *fakeNode) poll(request protocol.PollRequest) map[string][]protocol.Entry {
	s, f := n.state, n.cluster.faults
	msgs := map[string][]protocol.Entry{}
	for key, from := range request.Offsets {
		number, err := strconv.Atoi(key)
		if err != nil || f.hideKeys && number%2 == 1 {
			continue
		}
		var run []protocol.Entry
		log := s.logs[key]
		if s.asked++; every(f.stalePoll, s.asked) && len(log) > 0 {
			log = log[:len(log)-1]
		}
		for _, r := range log {
			if r.offset >= from {
				run = append(run, protocol.Entry{Offset: r.offset, Msg: strconv.AppendInt(nil, r.value, 10)})
			}
		}
		if len(run) > 1 {
			s.polls++
			if every(f.leaveOut, s.polls) {
				run = slices.Delete(run, 0, 1)
			}
			if last := len(run) - 1; every(f.swap, s.polls) && last > 0 {
				run[last], run[last-1] = run[last-1], run[last]
			}
		}
		if len(run) > 0 {
			msgs[key] = run
		}
	}
	return msgs
}
