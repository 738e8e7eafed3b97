// Package client is Kafka clients in virtual time. They speak real frames over
// the simulated network: what they send is encoded, and what they get decoded,
// by kmsg, in versions that change from connection to connection.
//
// Nothing here waits; whoever asks is called back.
package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simnet"
)

var (
	// ErrNotSent says the request never left: it has had and will have no
	// effect.
	ErrNotSent = errors.New("not sent")
	// ErrNoAnswer says the request was sent, and the connection ended or the
	// client's patience did.
	ErrNoAnswer = errors.New("no answer")
	// ErrProtocol says the node broke the protocol.
	ErrProtocol = errors.New("protocol violation")
)

// Answer is what a request's callback gets: a response, or one of the errors
// above. A request without a response (acks=0) gets neither once it is sent.
type Answer func(resp kmsg.Response, err error)

// Session is a connection to one node that is opened again when it is needed
// again. Several clients may share one: their requests are pipelined.
type Session struct {
	k        *kernel.Kernel
	net      *simnet.Net
	rng      *rand.Rand
	who      string
	from, to simnet.Host
	patience time.Duration
	format   *kmsg.RequestFormatter
	broken   func(what string) // told of ErrProtocol

	state       state
	conn        simnet.ConnID
	versions    map[int16]versions
	correlation int32
	waiting     []*pending // not sent yet
	flying      []*pending // sent, oldest first
	requests    map[uint64]*pending
	lastRequest uint64
	in          []byte
}

type state uint8

const (
	down    state = iota
	pausing       // before it dials again
	dialing
	greeting // waiting for ApiVersions
	ready
)

// maxFrame is the longest response that a client takes, in bytes.
const maxFrame = 64 << 20

type versions struct{ min, max int16 }

type pending struct {
	id          uint64
	req         kmsg.Request
	answer      Answer
	correlation int32
	silent      bool        // no response comes
	stale       func() bool // it is not to be sent any more; may be nil
}

const (
	whatTimeout kernel.What = iota
	whatRedial
)

// NewSession returns a session that has not dialled yet. patience is how long
// it waits for a connection or a response. broken is told when the node breaks
// the protocol.
func NewSession(k *kernel.Kernel, net *simnet.Net, client int, from, to simnet.Host, patience time.Duration, broken func(string)) *Session {
	return &Session{
		k: k, net: net, rng: k.Stream("session", uint64(client), uint64(to)), who: fmt.Sprintf("c%d", client),
		from: from, to: to, patience: patience, broken: broken,
		format:   kmsg.NewRequestFormatter(kmsg.FormatterClientID(fmt.Sprintf("sim-%d", client))),
		requests: map[uint64]*pending{},
	}
}

// Ask sends a request once it can, in a version that both ends know. The
// callback comes later, never from inside Ask.
func (s *Session) Ask(req kmsg.Request, answer Answer) { s.AskUnless(nil, req, answer) }

// AskUnless is Ask for a request that is not sent if it has become stale by the
// time it could be.
func (s *Session) AskUnless(stale func() bool, req kmsg.Request, answer Answer) {
	s.lastRequest++
	p := &pending{id: s.lastRequest, req: req, answer: answer, stale: stale}
	if r, ok := req.(*kmsg.ProduceRequest); ok {
		p.silent = r.Acks == 0
	}
	s.requests[p.id] = p
	s.waiting = append(s.waiting, p)
	s.k.After(s.patience, s, whatTimeout, p.id)
	switch s.state {
	case down:
		s.dial()
	case ready:
		s.k.After(0, s, whatRedial, 0)
	}
}

func (s *Session) dial() {
	s.state = dialing
	s.in = nil
	s.conn = s.net.Dial(s.from, s.to, simnet.ClientPort, s)
}

// Happen is for the kernel.
func (s *Session) Happen(what kernel.What, arg uint64) {
	switch what {
	case whatRedial:
		switch s.state {
		case pausing:
			s.state = down
			if len(s.waiting) > 0 {
				s.dial()
			}
		case ready:
			s.flush()
		}
	case whatTimeout:
		p := s.requests[arg]
		if p == nil {
			return
		}
		s.k.Trace.Event(s.who, "timeout", uint64(p.req.Key()), p.id, 0)
		for i, w := range s.waiting {
			if w == p {
				s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
				if s.state == dialing || s.state == greeting {
					s.net.Close(s.conn, simnet.Dialer)
					s.lost()
				}
				s.finish(p, nil, ErrNotSent)
				return
			}
		}
		s.net.Close(s.conn, simnet.Dialer)
		s.lost()
	}
}

func (s *Session) finish(p *pending, resp kmsg.Response, err error) {
	delete(s.requests, p.id)
	p.answer(resp, err)
}

// lost ends everything that was sent on the connection that is gone.
func (s *Session) lost() {
	flying := s.flying
	s.flying = nil
	s.state = pausing
	s.conn = 0
	s.k.After(kernel.Between(s.rng, 5*time.Millisecond, 100*time.Millisecond), s, whatRedial, 0)
	for _, p := range flying {
		if s.requests[p.id] == p {
			s.finish(p, nil, ErrNoAnswer)
		}
	}
}

// Opened implements simnet.Peer.
func (s *Session) Opened(c simnet.ConnID) {
	if c != s.conn {
		return
	}
	s.state = greeting
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = int16(s.rng.IntN(5))
	req.ClientSoftwareName, req.ClientSoftwareVersion = "sim", "1.0"
	s.lastRequest++
	p := &pending{id: s.lastRequest, req: req, answer: s.greeted}
	s.requests[p.id] = p
	s.k.After(s.patience, s, whatTimeout, p.id)
	s.send(p)
}

func (s *Session) greeted(resp kmsg.Response, err error) {
	if err != nil {
		return
	}
	r := resp.(*kmsg.ApiVersionsResponse)
	if r.ErrorCode != 0 || len(r.ApiKeys) == 0 {
		s.breach(fmt.Sprintf("ApiVersions %d: error %d and %d keys", r.Version, r.ErrorCode, len(r.ApiKeys)))
		return
	}
	s.versions = make(map[int16]versions, len(r.ApiKeys))
	for _, k := range r.ApiKeys {
		s.versions[k.ApiKey] = versions{k.MinVersion, k.MaxVersion}
	}
	s.state = ready
	s.flush()
}

func (s *Session) flush() {
	waiting := s.waiting
	s.waiting = nil
	for _, p := range waiting {
		if p.stale != nil && p.stale() {
			s.finish(p, nil, ErrNotSent)
			continue
		}
		s.pickVersion(p.req)
		s.send(p)
	}
}

// pickVersion draws one of the versions that both ends know, each connection
// and API anew, the newest more often than the others.
func (s *Session) pickVersion(req kmsg.Request) {
	v, ok := s.versions[req.Key()]
	if !ok {
		s.breach(fmt.Sprintf("api key %d is not served", req.Key()))
		v = versions{0, req.MaxVersion()}
	}
	lo, hi := max(v.min, oldest(req)), min(v.max, req.MaxVersion(), newest(req))
	if hi < lo {
		s.breach(fmt.Sprintf("api key %d: versions %d to %d", req.Key(), v.min, v.max))
		hi = lo
	}
	version := hi
	if s.rng.IntN(2) == 0 {
		version = lo + int16(s.rng.IntN(int(hi-lo)+1))
	}
	req.SetVersion(version)
}

// oldest is the first version of an API that this client can use: with record
// batches, with an error code where it looks for one, and with a word against
// the creation of topics where it wants none.
func oldest(req kmsg.Request) int16 {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		return 3
	case *kmsg.FetchRequest:
		return 4
	case *kmsg.ListOffsetsRequest:
		return 1
	case *kmsg.MetadataRequest:
		if !r.AllowAutoTopicCreation {
			return 4
		}
		return 1
	case *kmsg.ElectLeadersRequest:
		return int16(min(r.ElectionType, 1)) // that has types of elections
	}
	return 0
}

// topicIDs is the first version of Fetch and Produce that names topics by id.
const topicIDs = 13

// newest is the last version of an API that this client can use: one that names
// topics as it can name them.
func newest(req kmsg.Request) int16 {
	named := false
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		named = slices.ContainsFunc(r.Topics, func(t kmsg.FetchRequestTopic) bool { return t.TopicID == [16]byte{} })
	case *kmsg.ProduceRequest:
		named = slices.ContainsFunc(r.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.TopicID == [16]byte{} })
	}
	if named {
		return topicIDs - 1
	}
	return math.MaxInt16
}

func (s *Session) send(p *pending) {
	s.correlation++
	p.correlation = s.correlation
	frame := s.format.AppendRequest(nil, p.req, p.correlation)
	s.k.Trace.Event(s.who, "ask", uint64(p.req.Key()), uint64(p.req.GetVersion()), uint64(p.correlation))
	if p.silent {
		s.net.Send(s.conn, simnet.Dialer, frame)
		s.finish(p, nil, nil)
		return
	}
	s.flying = append(s.flying, p)
	s.net.Send(s.conn, simnet.Dialer, frame)
}

// Received implements simnet.Peer.
func (s *Session) Received(c simnet.ConnID, data []byte) {
	if c != s.conn {
		return
	}
	if len(s.in) > 0 {
		s.in = append(s.in, data...)
		if data = s.in; len(data) < 4 {
			return
		}
		if size := int(binary.BigEndian.Uint32(data)); size <= maxFrame && len(data) < 4+size {
			return
		}
		s.in = nil // responses point into it
	}
	for {
		size := 0
		if len(data) >= 4 {
			if size = int(binary.BigEndian.Uint32(data)); size < 4 || size > maxFrame {
				s.breach(fmt.Sprintf("frame of %d bytes", size))
				return
			}
		}
		if len(data) < 4+size || size == 0 {
			s.in = append(s.in, data...)
			return
		}
		frame := data[4 : 4+size : 4+size]
		data = data[4+size:]
		if !s.take(frame) {
			return
		}
	}
}

// take handles one response, and says whether the connection is still good.
func (s *Session) take(frame []byte) bool {
	if len(s.flying) == 0 {
		s.breach("a response to nothing")
		return false
	}
	p := s.flying[0]
	if got := int32(binary.BigEndian.Uint32(frame)); got != p.correlation {
		s.breach(fmt.Sprintf("response %d, want %d", got, p.correlation))
		return false
	}
	body := frame[4:]
	resp := p.req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		if len(body) == 0 || body[0] != 0 {
			s.breach("response header without tags")
			return false
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		s.breach(fmt.Sprintf("%s %d: %v", kmsg.Key(resp.Key()).Name(), resp.GetVersion(), err))
		return false
	}
	s.flying = s.flying[1:]
	s.k.Trace.Event(s.who, "answer", uint64(resp.Key()), uint64(p.correlation), uint64(len(frame)))
	conn := s.conn
	s.finish(p, resp, nil)
	return s.conn == conn
}

// breach reports that the node broke the protocol and gives the connection up.
func (s *Session) breach(what string) {
	s.broken(what)
	s.net.Close(s.conn, simnet.Dialer)
	s.lost()
}

// Closed implements simnet.Peer.
func (s *Session) Closed(c simnet.ConnID, why simnet.Reason) {
	if c != s.conn {
		return
	}
	s.k.Trace.Event(s.who, string(why), uint64(c), 0, 0)
	s.lost()
}
