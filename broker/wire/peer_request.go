package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// MaxHelloFrame is the longest frame with which a connection between nodes may
// begin, in bytes.
const MaxHelloFrame = 4 << 10

// AppendRequest adds a request, with its length before it. The request's version
// is set.
func AppendRequest(frame []byte, correlation int32, clientID string, req kmsg.Request) []byte {
	start := len(frame)
	frame = append(frame, 0, 0, 0, 0)
	frame = appendRequest(frame, correlation, clientID, req)
	binary.BigEndian.PutUint32(frame[start:], uint32(len(frame)-start-PrefixSize))
	return frame
}

// appendRequest adds the header and the body.
func appendRequest(p []byte, correlation int32, clientID string, req kmsg.Request) []byte {
	be := binary.BigEndian
	p = be.AppendUint16(p, uint16(req.Key()))
	p = be.AppendUint16(p, uint16(req.GetVersion()))
	p = be.AppendUint32(p, uint32(correlation))
	// Never compact, so that any broker can read it, whatever the version.
	p = kbin.AppendString(p, clientID[:min(len(clientID), math.MaxInt16)])
	if req.IsFlexible() {
		p = append(p, 0) // no tags
	}
	return req.AppendTo(p)
}

// DecodeHello reads the frame with which a connection between nodes begins. An
// error matches ErrMalformed.
func DecodeHello(frame []byte) (hello *PeerHello, correlation int32, err error) {
	h, r := readHeader(frame)
	if r.bad || kmsg.Key(h.key) != keyPeerHello || h.version != 0 {
		return nil, 0, fmt.Errorf("%w: api key %d version %d in place of a node's hello", ErrMalformed, h.key, h.version)
	}
	hello = &PeerHello{}
	var req Request
	served, _ := ServedToPeers(h.key)
	if err := readRequest(&r, hello, served, h.version, &req); err != nil {
		return nil, 0, err
	}
	return hello, h.correlation, nil
}

// DecodePeer is Decode for a frame that another node sent.
//
// A request that the other node forwards comes out of its Envelope: the request
// is what the client sent, and says Forwarded. Its response, and so the answer
// that is returned, goes out by Frame.AppendForwarded.
//
// An error also says that the sender is not the node it said it was in its
// hello.
func DecodePeer(frame []byte, peer metadata.NodeID, maxDecompressed int) (req Request, answer *Response, err error) {
	h, r := readHeader(frame)
	req = h.request(frame, peer)
	if r.bad {
		return req, nil, fmt.Errorf("%w: header of %d bytes", ErrMalformed, len(frame))
	}
	served, ok := ServedToPeers(h.key)
	if !ok {
		return req, nil, fmt.Errorf("%w: api key %d between nodes", ErrUnsupportedVersion, h.key)
	}
	if h.version < served.Min || h.version > served.Max {
		return req, nil, wrongVersion(served, h.version)
	}
	body := newPeerRequest(served.Key)
	if err := readRequest(&r, body, served, h.version, &req); err != nil {
		return req, nil, err
	}
	if from, said := sender(body); said && from != peer {
		return req, nil, fmt.Errorf("%w: %s of node %d from node %d", ErrMalformed, nameOf(served.Key), from, peer)
	}
	if e, ok := body.(*kmsg.EnvelopeRequest); ok {
		return unwrapRequest(req, e, maxDecompressed)
	}
	req.Body = body
	return req, nil, nil
}

// sender is who a request between nodes says it is from.
func sender(body kmsg.Request) (from metadata.NodeID, said bool) {
	switch b := body.(type) {
	case *kmsg.FetchRequest:
		return metadata.NodeID(b.ReplicaState.ID), true
	case *kmsg.AlterPartitionRequest:
		return metadata.NodeID(b.BrokerID), true
	case *kmsg.BrokerRegistrationRequest:
		return metadata.NodeID(b.BrokerID), true
	case *kmsg.BrokerHeartbeatRequest:
		return metadata.NodeID(b.BrokerID), true
	case *kmsg.AllocateProducerIDsRequest:
		return metadata.NodeID(b.BrokerID), true
	case *PeerHello:
		return b.Node, true
	case *QuorumMessages:
		return b.From, true
	case *Progress:
		return b.Node, true
	}
	return NoPeer, false
}

// tagOffset is the field of an Envelope's response with the position in the
// metadata log at which the answer is true.
const tagOffset = FirstTag

// Envelope wraps a client's request for the active controller.
//
// Source: KIP-590.
func Envelope(r *Request) *kmsg.EnvelopeRequest {
	e := kmsg.NewPtrEnvelopeRequest()
	e.RequestData = appendRequest(nil, r.Correlation, r.ClientID, r.Body)
	return e
}

// unwrapRequest makes req the request in an Envelope. What is wrong with that
// request is the forwarding node's to know, and no reason to close the
// connection.
func unwrapRequest(req Request, e *kmsg.EnvelopeRequest, maxDecompressed int) (Request, *Response, error) {
	req.Forwarded = true
	h, _ := readHeader(e.RequestData)
	if k := kmsg.Key(h.key); k == kmsg.Produce || k == kmsg.Fetch {
		return req, &Response{Err: fmt.Errorf("%w: %s in an envelope", metadata.ErrInvalidRequest, nameOf(k))}, nil
	}
	inner, answer, err := Decode(e.RequestData, maxDecompressed)
	if errors.Is(err, ErrMalformed) {
		err = fmt.Errorf("%w: %w", metadata.ErrInvalidRequest, err)
	}
	if err != nil {
		return req, &Response{Err: err}, nil
	}
	req.ClientID, req.Body = inner.ClientID, inner.Body
	return req, answer, nil
}

// AppendForwarded is Append for the response to a request that was forwarded: it
// goes out in an Envelope's response. The header in there has correlation id 0,
// since the Envelope's own counts.
func (f *Frame) AppendForwarded(correlation int32, resp Response) error {
	e := kmsg.NewPtrEnvelopeResponse()
	e.ErrorCode = Code(resp.Err)
	if resp.Err == nil {
		body, ok := resp.Body.(kmsg.Response)
		if !ok {
			e.ErrorCode = codeUnknown // nothing that is forwarded is answered with nothing, or with regions
		} else {
			e.ResponseData = appendResponse(nil, 0, body)
		}
	}
	SetTag(&e.UnknownTags, tagOffset, int64(resp.Offset))
	return f.Append(correlation, e)
}

// appendResponse adds the header and the body.
func appendResponse(p []byte, correlation int32, body kmsg.Response) []byte {
	p = binary.BigEndian.AppendUint32(p, uint32(correlation))
	if flexibleHeader(body) {
		p = append(p, 0) // no tags
	}
	return body.AppendTo(p)
}

// flexibleHeader reports whether a response's header has tags: ApiVersions'
// never has, so that a client can read it before it knows the version.
func flexibleHeader(body kmsg.Response) bool {
	return body.IsFlexible() && body.Key() != kmsg.ApiVersions.Int16()
}

// Unwrap takes the answer to inner out of an Envelope's response. offset is the
// position in the metadata log at which it is true. An error is why the other
// node did not answer, such as metadata.ErrNotController, or ErrMalformed.
func Unwrap(e *kmsg.EnvelopeResponse, inner kmsg.Request) (resp kmsg.Response, offset metadata.Offset, err error) {
	at, _ := GetTag(&e.UnknownTags, tagOffset)
	if err := ErrorOf(e.ErrorCode); err != nil {
		return nil, metadata.Offset(at), err
	}
	resp = inner.ResponseKind()
	if err := readResponse(resp, e.ResponseData); err != nil {
		return nil, metadata.Offset(at), err
	}
	return resp, metadata.Offset(at), nil
}
