package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/replica"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
)

// said is every request between nodes, from node 2, filled as far as that matters.
func said() []kmsg.Request {
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.ReplicaState.ID, fetch.ReplicaState.Epoch, fetch.MaxWaitMillis = 17, 2, 9, 500
	alter := kmsg.NewPtrAlterPartitionRequest()
	alter.Version, alter.BrokerID = 3, 2
	registration := kmsg.NewPtrBrokerRegistrationRequest()
	registration.Version, registration.BrokerID = 4, 2
	SetTagBytes(&registration.UnknownTags, FirstTag+3, []byte("damaged"))
	heartbeat := kmsg.NewPtrBrokerHeartbeatRequest()
	heartbeat.Version, heartbeat.BrokerID = 1, 2
	SetTag(&heartbeat.UnknownTags, FirstTag+1, -5)
	ids := kmsg.NewPtrAllocateProducerIDsRequest()
	ids.BrokerID = 2
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 7, 5
	return []kmsg.Request{
		fetch, alter, registration, heartbeat, ids, create,
		&PeerHello{ClusterID: "c", Node: 2, Incarnation: metadata.IncarnationID{1}, Version: "v", Address: "a:1", Refused: "r", Twin: "t:2"},
		&QuorumMessages{From: 2, Messages: [][]byte{{1}, {}, {2, 3}}},
		&Progress{Node: 2, BrokerEpoch: 4, Partitions: []ProgressPartition{{metadata.TopicID{7}, 1, 2, 3, 1}, {}}},
	}
}

// peerFrame is the request as a node frames it, without the length.
func peerFrame(req kmsg.Request) []byte { return AppendRequest(nil, 7, "node", req)[PrefixSize:] }

func TestWhatNodesSayToEachOtherIsReadAsItWasMeant(t *testing.T) {
	for _, sent := range said() {
		got, answer, err := DecodePeer(peerFrame(sent), 2, decompressed)
		if err != nil || answer != nil {
			t.Fatalf("%T: answer %v, err %v", sent, answer, err)
		}
		if got.Peer != 2 || got.Forwarded || got.Correlation != 7 || got.ClientID != "node" || !bytes.Equal(peerFrame(got.Body), peerFrame(sent)) {
			t.Errorf("%T: got %+v", sent, got)
		}
		_, named := sender(sent)
		if _, clients := sent.(*kmsg.CreateTopicsRequest); clients == named {
			t.Errorf("%T says who sent it: %t", sent, named)
		}
		// A client that says it is a node is a client.
		switch got, _, err := Decode(peerFrame(sent), decompressed); {
		case sent.Key() == kmsg.Fetch.Int16():
			if err != nil || got.Peer != NoPeer {
				t.Errorf("%T from a client: of node %d, %v", sent, got.Peer, err)
			}
		case named && !errors.Is(err, ErrUnsupportedVersion):
			t.Errorf("%T from a client: %v", sent, err)
		}
		if _, _, err := DecodePeer(peerFrame(sent), 3, decompressed); named && !errors.Is(err, ErrMalformed) {
			t.Errorf("%T of node 2 from node 3: %v", sent, err)
		}
		for cut := range peerFrame(sent) {
			if _, _, err := DecodePeer(peerFrame(sent)[:cut], 2, decompressed); err == nil {
				t.Errorf("%T cut to %d bytes is read", sent, cut)
			}
		}
	}
}

func TestOneTableSaysWhatNodesSpeak(t *testing.T) {
	served := map[int16]bool{kmsg.Envelope.Int16(): true}
	for _, sent := range said() {
		served[sent.Key()] = true
		if r, ok := ServedToPeers(sent.Key()); !ok || sent.GetVersion() != r.Max {
			t.Errorf("%T is not served", sent)
		}
		if OneWay(sent) != (sent.ResponseKind() == nil) {
			t.Errorf("%T: one-way %t, response %v", sent, OneWay(sent), sent.ResponseKind())
		}
		if want := strings.TrimSuffix(nameOf(kmsg.Key(sent.Key())), " "); want == "Unknown" || want == "" {
			t.Errorf("%T has the name %q", sent, want)
		}
	}
	for _, r := range peerAPIs {
		if !served[r.Key.Int16()] {
			t.Errorf("%s is served and not tested", nameOf(r.Key))
		}
	}
	metadataRequest := kmsg.NewPtrMetadataRequest()
	if _, _, err := DecodePeer(peerFrame(metadataRequest), 2, decompressed); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("a client's request without an envelope: %v", err)
	}
	old := kmsg.NewPtrFetchRequest()
	old.Version = 12
	if _, _, err := DecodePeer(peerFrame(old), 2, decompressed); !errors.Is(err, ErrUnsupportedVersion) {
		t.Errorf("an old Fetch: %v", err)
	}
}

func TestLinksKeepBulkAwayFromControl(t *testing.T) {
	for _, sent := range said() {
		want := LinkControl
		switch sent.(type) {
		case *kmsg.FetchRequest:
			want = LinkFetch
		case *kmsg.AllocateProducerIDsRequest, *kmsg.CreateTopicsRequest:
			want = LinkForward
		}
		if got := LinkOf(sent); got != want {
			t.Errorf("%T goes over link %v, want %v", sent, got, want)
		}
	}
	if got := LinkOf(kmsg.NewPtrEnvelopeRequest()); got != LinkForward || got.String() != "forward" {
		t.Errorf("an envelope goes over link %v", got)
	}
}

func TestHelloIsTheOnlyWayToBegin(t *testing.T) {
	sent := &PeerHello{ClusterID: "c", Node: 2, Version: "v"}
	hello, correlation, err := DecodeHello(peerFrame(sent))
	if err != nil || correlation != 7 || *hello != *sent {
		t.Errorf("%+v, %d, %v", hello, correlation, err)
	}
	for _, frame := range [][]byte{nil, {1, 2, 3}, peerFrame(kmsg.NewPtrApiVersionsRequest()), peerFrame(&QuorumMessages{}), peerFrame(sent)[:20]} {
		if _, _, err := DecodeHello(frame); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v", frame, err)
		}
	}
}

// A length that is claimed is not a length that is allocated.
func TestListsThatCannotBeAreRefusedBeforeMemoryIsMade(t *testing.T) {
	for _, sent := range []kmsg.Request{&QuorumMessages{From: 2}, &Progress{Node: 2}} {
		for _, claim := range []string{"\x7f\xff\xff\xff", "\xff\xff\xff\xff", "\x00\x00\x00\x01"} {
			frame := peerFrame(sent)
			copy(frame[len(frame)-4:], claim)
			allocated := testing.AllocsPerRun(1, func() {
				if _, _, err := DecodePeer(frame, 2, decompressed); !errors.Is(err, ErrMalformed) {
					t.Errorf("%T with %x elements: %v", sent, claim, err)
				}
			})
			if allocated > 20 {
				t.Errorf("%T with %x elements: %v allocations", sent, claim, allocated)
			}
		}
	}
}

// forward sends a client's request through an envelope and returns what the
// controller sees.
func forward(t *testing.T, client kmsg.Request) (Request, *Response) {
	t.Helper()
	there, answer, err := DecodePeer(peerFrame(Envelope(&Request{Correlation: 3, ClientID: "app", Body: client})), 2, decompressed)
	if err != nil || !there.Forwarded || there.Peer != 2 || there.Correlation != 7 {
		t.Fatalf("%+v, %v", there, err)
	}
	return there, answer
}

// answered sends a response back and returns what the forwarding node sees.
func answered(t *testing.T, client kmsg.Request, resp Response) (kmsg.Response, metadata.Offset, error) {
	t.Helper()
	var f Frame
	if err := f.AppendForwarded(7, resp); err != nil {
		t.Fatal(err)
	}
	frame := f.Bytes[PrefixSize:]
	if size, err := ResponseSize(f.Bytes, 1<<20); err != nil || size != len(frame) || Correlation(frame) != 7 {
		t.Fatalf("size %d, %v, correlation %d", size, err, Correlation(frame))
	}
	back, err := DecodeResponse(kmsg.NewPtrEnvelopeRequest(), frame)
	if err != nil {
		t.Fatal(err)
	}
	return Unwrap(back.(*kmsg.EnvelopeResponse), client)
}

func TestClientsRequestsAreForwardedAndAnswered(t *testing.T) {
	for _, version := range []int16{2, 7} {
		client := kmsg.NewPtrCreateTopicsRequest()
		client.Version, client.TimeoutMillis = version, 77
		there, answer := forward(t, client)
		if got, ok := there.Body.(*kmsg.CreateTopicsRequest); !ok || answer != nil || got.TimeoutMillis != 77 || got.Version != version || there.ClientID != "app" {
			t.Fatalf("v%d: %+v, answer %v", version, there, answer)
		}
		resp := client.ResponseKind().(*kmsg.CreateTopicsResponse)
		resp.ThrottleMillis = 5
		back, offset, err := answered(t, client, Response{Body: resp, Offset: 41})
		if err != nil || offset != 41 || back.(*kmsg.CreateTopicsResponse).ThrottleMillis != 5 || back.GetVersion() != version {
			t.Errorf("v%d: %+v at %d, %v", version, back, offset, err)
		}
		_, _, err = answered(t, client, Response{Err: metadata.ErrNotController, Offset: 2})
		if !errors.Is(err, metadata.ErrNotController) {
			t.Errorf("v%d refused: %v", version, err)
		}
		if _, _, err := answered(t, client, Response{}); !errors.Is(err, ErrUnknown) {
			t.Errorf("v%d without an answer: %v", version, err)
		}
	}
}

func TestBadRequestInAnEnvelopeIsAnsweredInOne(t *testing.T) {
	future := kmsg.NewPtrCreateTopicsRequest()
	future.Version = 99
	for name, c := range map[string]struct {
		client kmsg.Request
		want   error
	}{
		"unknown version": {future, ErrUnsupportedVersion},
		"bulk":            {produceRequest(9, batch(record.Options{})), metadata.ErrInvalidRequest},
		"between nodes":   {&Progress{}, ErrUnsupportedVersion},
	} {
		_, answer := forward(t, c.client)
		if answer == nil {
			t.Fatalf("%s is let through", name)
		}
		if _, _, err := answered(t, c.client, *answer); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	cut := Envelope(&Request{Body: kmsg.NewPtrCreateTopicsRequest()})
	cut.RequestData = cut.RequestData[:5]
	if _, answer, err := DecodePeer(peerFrame(cut), 2, decompressed); err != nil || answer == nil || !errors.Is(answer.Err, metadata.ErrInvalidRequest) {
		t.Errorf("cut: %v, %v", answer, err)
	}
}

// followed is the answer to a follower's Fetch as the follower reads it.
func followed(t *testing.T, resp *FetchResponse) *Fetched {
	t.Helper()
	var f Frame
	if err := f.Append(7, resp); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version = resp.Version
	got, err := DecodeResponse(req, filled(t, &f)[PrefixSize:])
	if err != nil {
		t.Fatal(err)
	}
	return got.(*Fetched)
}

func TestFollowerReadsWhatALeaderSends(t *testing.T) {
	first := record.NewBuilder().Append(1, nil, []byte("a")).Build(record.Options{})
	first.Assign(10, 3)
	second := record.NewBuilder().Append(1, nil, []byte("b")).Append(1, nil, []byte("c")).Build(record.Options{})
	second.Assign(11, 4)
	damaged := bytes.Clone(second)
	damaged[len(damaged)-1] ^= 1
	region := func(parts ...[]byte) storage.Region {
		all := bytes.Join(parts, nil)
		return storage.Region{File: memory{Reader: bytes.NewReader(all)}, Len: int64(len(all))}
	}
	none := Divergence{record.NoEpoch, -1}
	got := followed(t, &FetchResponse{Version: 17, SessionID: 6, Topics: []FetchTopic{
		{TopicID: [16]byte{1}, Partitions: []FetchPartition{
			{Partition: 0, HighWatermark: 9, LogStartOffset: 2, Records: region(first, second)},
			{Partition: 1, Records: region(first, damaged, first)},
			{Partition: 2, Records: region(first, second[:70])},
			{Partition: 3, ErrorCode: 74, More: &FetchMore{Diverging: none, Leader: 5, LeaderEpoch: 8, ReadReplica: metadata.NoNode}},
		}},
		{TopicID: [16]byte{2}, Partitions: []FetchPartition{
			{Partition: 0, More: &FetchMore{Diverging: Divergence{3, 55}, Leader: metadata.NoNode, ReadReplica: metadata.NoNode}},
		}},
	}})
	if got.ErrorCode != 0 || got.SessionID != 6 || len(got.Partitions) != 5 || got.Size == 0 {
		t.Fatalf("%+v", got)
	}
	whole, bad, cut, fenced, diverged := &got.Partitions[0], &got.Partitions[1], &got.Partitions[2], &got.Partitions[3], &got.Partitions[4]
	if whole.HighWatermark != 9 || whole.LogStart != 2 || whole.Bad != nil || whole.Err != nil || whole.Diverging != none ||
		whole.Leader != metadata.NoNode || len(whole.Batches) != 2 || whole.Batches[1].BaseOffset() != 11 || whole.Batches[1].LeaderEpoch() != 4 {
		t.Errorf("whole: %+v", whole)
	}
	if len(bad.Batches) != 1 || !errors.Is(bad.Bad, record.ErrCorrupt) {
		t.Errorf("damaged: %d batches, %v", len(bad.Batches), bad.Bad)
	}
	if len(cut.Batches) != 1 || !errors.Is(cut.Bad, record.ErrShort) {
		t.Errorf("cut short: %d batches, %v", len(cut.Batches), cut.Bad)
	}
	if !errors.Is(fenced.Err, replica.ErrFencedEpoch) || fenced.Leader != 5 || fenced.LeaderEpoch != 8 || fenced.Index != 3 {
		t.Errorf("fenced: %+v", fenced)
	}
	if diverged.Diverging != (Divergence{3, 55}) || diverged.Topic != (metadata.TopicID{2}) {
		t.Errorf("diverged: %+v", diverged)
	}
}

func TestEveryCodeIsReadAsAnErrorOfThatCode(t *testing.T) {
	for i := range codes {
		if got := Code(ErrorOf(codes[i].code)); got != codes[i].code {
			t.Errorf("%v: code %d is read as one of code %d", codes[i].err, codes[i].code, got)
		}
	}
	if ErrorOf(0) != nil {
		t.Error("success is an error")
	}
	if err := ErrorOf(999); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "999") {
		t.Errorf("a code of the future: %v", err)
	}
}

func TestTagsAreReadAsTheyWereSet(t *testing.T) {
	var tags kmsg.Tags
	SetTag(&tags, FirstTag, -3)
	SetTagBytes(&tags, FirstTag+1, []byte("x"))
	if v, ok := GetTag(&tags, FirstTag); !ok || v != -3 {
		t.Errorf("%d %t", v, ok)
	}
	if v, ok := GetTagBytes(&tags, FirstTag+1); !ok || string(v) != "x" {
		t.Errorf("%q %t", v, ok)
	}
	for _, key := range []uint32{FirstTag + 1, FirstTag + 2} { // not 8 bytes, and not there
		if v, ok := GetTag(&tags, key); ok {
			t.Errorf("tag %d: %d", key, v)
		}
	}
}

func FuzzDecodePeer(f *testing.F) {
	for _, sent := range said() {
		f.Add(peerFrame(sent))
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	f.Add(peerFrame(Envelope(&Request{Body: create})))
	f.Fuzz(func(t *testing.T, frame []byte) {
		DecodeHello(frame)
		req, answer, err := DecodePeer(frame, 2, decompressed)
		if (err != nil) != (answer == nil && req.Body == nil) {
			t.Fatalf("body %v answer %v err %v", req.Body, answer, err)
		}
		if answer != nil {
			var out Frame
			if err := out.AppendForwarded(req.Correlation, *answer); err != nil {
				t.Fatal(err)
			}
		}
		if req.Body == nil {
			return
		}
		again := peerFrame(req.Body)
		if req.Forwarded {
			again = peerFrame(Envelope(&req))
		}
		same, answer, err := DecodePeer(again, 2, decompressed)
		if err != nil || answer != nil || same.Body.Key() != req.Body.Key() || same.Forwarded != req.Forwarded {
			t.Fatalf("decoded, encoded, decoded: answer %v err %v", answer, err)
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	ours, _ := fetchPair(rng, random(rng), 17)
	var frame Frame
	if err := frame.Append(7, ours); err != nil {
		f.Fatal(err)
	}
	f.Add(frame.Bytes[PrefixSize:], uint8(0))
	f.Fuzz(func(t *testing.T, p []byte, which uint8) {
		requests := said()
		requests = append(requests, kmsg.NewPtrEnvelopeRequest())
		req := requests[int(which)%len(requests)]
		if OneWay(req) {
			return
		}
		resp, err := DecodeResponse(req, p)
		switch r := resp.(type) {
		case *Fetched:
			for i := range r.Partitions {
				for _, b := range r.Partitions[i].Batches {
					if _, rest, err := record.Cut(b); err != nil || len(rest) > 0 {
						t.Fatalf("a batch that passed: %v, %d bytes after it", err, len(rest))
					}
				}
			}
		case *kmsg.EnvelopeResponse:
			Unwrap(r, kmsg.NewPtrCreateTopicsRequest())
		case nil:
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
		}
	})
}
