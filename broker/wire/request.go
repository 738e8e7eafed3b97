package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
)

// ErrMalformed says a frame is not a request that pawl can read. As Kafka does,
// the host closes the connection, since there is nothing to answer in.
var ErrMalformed = errors.New("malformed request")

// Decode reads one request from a frame, which is without its length and
// belongs to the request from then on: the request's slices, and the strings of
// a Produce, share its bytes. A Produce's batches are checked; each may
// decompress to at most maxDecompressed bytes.
//
// If answer is not nil then that is the response and no node needs to see the
// request, of which only Correlation and Size are set. An error matches
// ErrMalformed or ErrUnsupportedVersion and means the connection is to be
// closed.
func Decode(frame []byte, maxDecompressed int) (req Request, answer *Response, err error) {
	h, r := readHeader(frame)
	req = h.request(frame, NoPeer)
	if r.bad {
		return req, nil, fmt.Errorf("%w: header of %d bytes", ErrMalformed, len(frame))
	}
	served, ok := Served(h.key)
	if !ok {
		return req, nil, fmt.Errorf("%w: api key %d", ErrUnsupportedVersion, h.key)
	}
	if h.version < served.Advertised || h.version > served.Max {
		if served.Key == kmsg.ApiVersions {
			return req, &Response{Body: unknownAPIVersions()}, nil
		}
		return req, nil, wrongVersion(served, h.version)
	}
	body := newRequest(served.Key)
	if err := readRequest(&r, body, served, h.version, &req); err != nil {
		return req, nil, err
	}
	if answer := refuse(body, served); answer != nil {
		return Request{Correlation: req.Correlation, Size: req.Size, Peer: NoPeer}, answer, nil
	}
	req.Body = body
	if p, ok := body.(*kmsg.ProduceRequest); ok {
		req.Produce = checkProduce(p, maxDecompressed)
	}
	return req, nil, nil
}

// header is the part of a request's header that all versions of it have.
type header struct {
	key, version int16
	correlation  int32
}

func readHeader(frame []byte) (header, reader) {
	r := reader{p: frame}
	return header{r.int16(), r.int16(), r.int32()}, r
}

// request is what is known of the request once its header is.
func (h header) request(frame []byte, peer metadata.NodeID) Request {
	return Request{Correlation: h.correlation, Size: int64(len(frame)), Peer: peer}
}

func wrongVersion(served Range, version int16) error {
	return fmt.Errorf("%w: %s version %d, served are %d to %d",
		ErrUnsupportedVersion, nameOf(served.Key), version, served.Min, served.Max)
}

// readRequest reads what follows the header: the client id, which goes into
// req, and the body.
func readRequest(r *reader, body kmsg.Request, served Range, version int16, req *Request) error {
	body.SetVersion(version)
	req.ClientID = r.nullableString()
	if body.IsFlexible() {
		r.skipTags()
	}
	if r.bad {
		return fmt.Errorf("%w: %s version %d: header", ErrMalformed, nameOf(served.Key), version)
	}
	if err := read(body, r.p); err != nil {
		return fmt.Errorf("%w: %s version %d: %w", ErrMalformed, nameOf(served.Key), version, err)
	}
	return nil
}

func newRequest(key kmsg.Key) kmsg.Request {
	if key == kmsg.Produce { // the hot one
		return kmsg.NewPtrProduceRequest()
	}
	return kmsg.RequestForKey(key.Int16())
}

// read decodes a body whose version is set. Bytes after it are tolerated, as
// Kafka does.
func read(body kmsg.Request, p []byte) error {
	switch b := body.(type) {
	case *kmsg.ProduceRequest:
		if _, err := countProduce(p, b.Version); err != nil {
			return err
		}
		// Its topic names are looked up and not kept, so they need no copies.
		return b.UnsafeReadFrom(p)
	case *kmsg.MetadataRequest:
		err := b.ReadFrom(p)
		// Before version 4 the field is not sent and means true; kmsg says false.
		b.AllowAutoTopicCreation = b.AllowAutoTopicCreation || b.Version < 4
		return err
	}
	return body.ReadFrom(p)
}

// refuse returns the answer to a request that no node can help.
func refuse(body kmsg.Request, served Range) *Response {
	switch b := body.(type) {
	case *kmsg.ProduceRequest:
		if b.Version < served.Min {
			return refuseProduce(b)
		}
	case *kmsg.FindCoordinatorRequest:
		return &Response{Body: noCoordinator(b)}
	case *kmsg.ApiVersionsRequest:
		if b.Version >= 3 && !(isSoftwareName(b.ClientSoftwareName) && isSoftwareName(b.ClientSoftwareVersion)) {
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.Version = b.Version
			resp.ErrorCode = Code(metadata.ErrInvalidRequest)
			return &Response{Body: resp}
		}
	}
	return nil
}

// refuseProduce answers a Produce of a version with message formats that pawl
// does not store. With acks=0 nobody listens, so the connection is closed.
func refuseProduce(b *kmsg.ProduceRequest) *Response {
	if b.Acks == 0 {
		return &Response{Close: true}
	}
	resp := b.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range b.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition = p.Partition
			partition.ErrorCode = codeUnsupportedVersion
			partition.BaseOffset, partition.LogAppendTime = -1, -1
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return &Response{Body: resp}
}

// noCoordinator answers a FindCoordinator. For a group that is an error that
// passes, so that a consumer which is given its partitions, and names a group
// only because its library wants one, is not disturbed by it; for a transaction
// it is one that does not.
func noCoordinator(b *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	const transaction = 1
	resp := b.ResponseKind().(*kmsg.FindCoordinatorResponse)
	resp.NodeID, resp.Port = -1, -1
	resp.ErrorCode, resp.ErrorMessage = codeCoordinatorNotAvailable, kmsg.StringPtr("this broker has no groups")
	if b.CoordinatorType == transaction {
		resp.ErrorCode, resp.ErrorMessage = codeUnsupportedVersion, kmsg.StringPtr("this broker has no transactions")
	}
	return resp
}

// isSoftwareName reports whether s has only letters, digits, '-' and '.', and
// begins and ends with a letter or digit.
//
// Source: KIP-511.
func isSoftwareName(s string) bool {
	if s == "" || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// reader takes values from the front of p. Once it has run past the end it is
// bad and gives zeros.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.p) {
		r.p, r.bad = nil, true
		return nil
	}
	v := r.p[:n]
	r.p = r.p[n:]
	return v
}

func (r *reader) int16() int16 {
	if v := r.take(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (r *reader) int32() int32 {
	if v := r.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.p)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.p, r.bad = nil, true
		return 0
	}
	r.p = r.p[n:]
	return int(v)
}

func (r *reader) nullableString() string {
	n := int(r.int16())
	if n < 0 {
		return ""
	}
	return string(r.take(n))
}

func (r *reader) skipTags() {
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		r.uvarint()
		r.take(r.uvarint())
	}
}

// size reads the length of an array, string or byte string, whose length field
// has width bytes when it is not flexible. Null is 0.
func (r *reader) size(flexible bool, width int) int {
	n := 0
	switch {
	case flexible:
		n = r.uvarint() - 1
	case width == 2:
		n = int(r.int16())
	default:
		n = int(r.int32())
	}
	return max(n, 0)
}
