package wire

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/storage/record"
)

func FuzzDecode(f *testing.F) {
	for _, r := range APIs() {
		for v := r.Advertised; v <= r.Max; v++ {
			req := kmsg.RequestForKey(r.Key.Int16())
			req.SetVersion(v)
			f.Add(frameOf(req))
		}
	}
	f.Add(frameOf(produceRequest(9, batch(record.Options{}))))
	f.Add(frameOf(produceRequest(3, batch(record.Options{}))))
	f.Fuzz(func(t *testing.T, frame []byte) {
		req, answer, err := Decode(frame, decompressed)
		if (err != nil) != (answer == nil && req.Body == nil) {
			t.Fatalf("body %v answer %v err %v", req.Body, answer, err)
		}
		if answer != nil && answer.Body != nil {
			var out Frame
			if err := out.Append(req.Correlation, answer.Body); err != nil {
				t.Fatal(err)
			}
		}
		if req.Body == nil {
			return
		}
		checkHeld(t, frame, &req)
		again, answer, err := Decode(frameOf(req.Body), decompressed)
		if err != nil || answer != nil || again.Body.Key() != req.Body.Key() || len(again.Produce) != len(req.Produce) {
			t.Fatalf("decoded, encoded, decoded: answer %v err %v", answer, err)
		}
		for i, e := range req.Produce {
			if e.Err == nil {
				if _, rest, err := record.Cut(e.Batch); err != nil || len(rest) > 0 {
					t.Fatalf("a batch that passed: %v, %d bytes after it", err, len(rest))
				}
			}
			if Code(e.Err) != Code(again.Produce[i].Err) {
				t.Fatalf("judged twice: %v, then %v", e.Err, again.Produce[i].Err)
			}
		}
	})
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x08abcdefgh\x00\x00\x00\x09abcdefghi"), 3)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		whole, pieces := NewSplitter(1<<10), NewSplitter(1<<10)
		whole.Feed(stream)
		var want []string
		for {
			frame, err := whole.Next()
			if frame == nil || err != nil {
				break
			}
			want = append(want, string(frame))
		}
		piece = max(1, piece&0xff)
		for i := 0; i < len(stream); i += piece {
			pieces.Feed(stream[i:min(i+piece, len(stream))])
			for {
				frame, err := pieces.Next()
				if frame == nil || err != nil {
					break
				}
				if len(want) == 0 || want[0] != string(frame) {
					t.Fatalf("frame %q, want %q", frame, want)
				}
				want = want[1:]
			}
		}
		if len(want) > 0 {
			t.Fatalf("frames %q are missing", want)
		}
	})
}
