package wire

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/storage/assert"
)

func TestOrderGivesOutAnswersInTheOrderOfRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Order[int64]
		var asked, popped uint64
		open := map[uint64]bool{} // asked and not answered
		answered := map[uint64]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"expect": func(t *rapid.T) {
				seq := o.Expect(int32(asked)+100, int64(asked))
				if seq != asked {
					t.Fatalf("sequence %d want %d", seq, asked)
				}
				open[seq] = true
				asked++
			},
			"answer": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing to answer")
				}
				seqs := make([]uint64, 0, len(open))
				for seq := popped; seq < asked; seq++ {
					if open[seq] {
						seqs = append(seqs, seq)
					}
				}
				seq := rapid.SampledFrom(seqs).Draw(t, "seq")
				o.Answer(seq, Response{Close: seq%2 == 1})
				delete(open, seq)
				answered[seq] = true
			},
			"pop": func(t *rapid.T) {
				r, ok := o.Pop()
				if ok != answered[popped] {
					t.Fatalf("popped %t, answered %t", ok, answered[popped])
				}
				if !ok {
					return
				}
				if r.Correlation != int32(popped)+100 || r.Tag != int64(popped) || r.Response.Close != (popped%2 == 1) {
					t.Fatalf("%d: %+v", popped, r)
				}
				popped++
			},
			"": func(t *rapid.T) {
				at := popped
				o.All(func(seq uint64, tag int64, done bool) {
					if seq != at || tag != int64(at) || done != answered[at] {
						t.Fatalf("slot %d is %d, tag %d, answered %t", at, seq, tag, done)
					}
					at++
				})
				if at != asked || o.Len() != int(asked-popped) || o.Ready() != answered[popped] {
					t.Fatalf("len %d ready %t", o.Len(), o.Ready())
				}
			},
		})
	})
}

func TestSecondAnswerIsABug(t *testing.T) {
	for name, answer := range map[string]func(*Order[int64]){ // any order
		"twice":     func(o *Order[int64]) { o.Answer(0, Response{}); o.Answer(0, Response{}) },
		"never put": func(o *Order[int64]) { o.Answer(1, Response{}) },
		"after pop": func(o *Order[int64]) { o.Answer(0, Response{}); o.Pop(); o.Answer(0, Response{}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				err, _ := recover().(error)
				var failure *assert.Failure
				if !errors.As(err, &failure) {
					t.Errorf("recovered %v", err)
				}
			}()
			var o Order[int64]
			o.Expect(1, 0)
			answer(&o)
		})
	}
}
