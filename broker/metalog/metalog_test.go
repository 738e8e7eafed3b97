package metalog

import (
	"math/rand/v2"
	"testing"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/quorum"
)

// lone is the log of a node that is the whole quorum, and its disk.
type lone struct {
	t     *testing.T
	log   *Log
	out   Out
	saved [][]byte
}

func open(t *testing.T, saved [][]byte, snapshotEvery uint64) *lone {
	l := &lone{t: t, saved: saved}
	log, err := New(quorum.DefaultConfig(1), rand.New(rand.NewPCG(1, 2)), saved, snapshotEvery, &l.out)
	if err != nil {
		t.Fatal(err)
	}
	l.log = log
	l.log.Wake(0, &l.out)
	l.sync()
	if !l.log.Leading() {
		t.Fatal("a lone voter does not lead")
	}
	l.out = Out{}
	return l
}

// sync makes everything durable that is to be.
func (l *lone) sync() {
	for l.out.Save != nil {
		if l.out.Save.Replace {
			l.saved = nil
		}
		l.saved = append(l.saved, l.out.Save.Records...)
		l.out.Save = nil
		l.log.Saved(&l.out)
	}
}

func topic(b byte) []metadata.Record {
	id := metadata.TopicID{15: b}
	return []metadata.Record{
		&metadata.AddTopic{ID: id, Name: string('a' + rune(b))},
		&metadata.Partition{Topic: id, Replicas: []metadata.NodeID{1}, ISR: []metadata.NodeID{1}, Leader: 1},
	}
}

func TestAPromiseIsKeptOnceItIsDurable(t *testing.T) {
	l := open(t, nil, 1000)
	l.log.Propose([][]metadata.Record{topic(1)}, 7, &l.out)
	if len(l.out.Kept) != 0 || l.log.Image().TopicCount() != 0 || l.log.Scratch().TopicCount() != 1 {
		t.Fatalf("before it is durable: kept %v, %d topics, %d to decide on", l.out.Kept, l.log.Image().TopicCount(), l.log.Scratch().TopicCount())
	}
	// An answer without records waits for what it may have been decided on.
	l.log.Propose(nil, 8, &l.out)
	if len(l.out.Kept) != 0 {
		t.Fatalf("kept %v before what came first", l.out.Kept)
	}
	l.sync()
	if len(l.out.Kept) != 2 || l.out.Kept[0].Promise != 7 || l.out.Kept[1].Promise != 8 || l.out.Kept[0].Offset != l.log.Applied() {
		t.Errorf("kept %+v at %d", l.out.Kept, l.log.Applied())
	}
	if len(l.out.Deltas) != 1 || len(l.out.Deltas[0].Created) != 1 || l.log.Image().TopicCount() != 1 {
		t.Errorf("deltas %+v", l.out.Deltas)
	}
	l.out = Out{}
	l.log.Propose(nil, 9, &l.out)
	l.log.Read(10, &l.out)
	if len(l.out.Kept) != 2 {
		t.Errorf("with nothing to wait for: kept %+v", l.out.Kept)
	}
}

func TestSeveralBatchesAreOnePromise(t *testing.T) {
	l := open(t, nil, 1000)
	l.log.Propose([][]metadata.Record{topic(1), nil, topic(2)}, 7, &l.out)
	l.sync()
	if len(l.out.Kept) != 1 || l.log.Image().TopicCount() != 2 || !l.log.Settled() {
		t.Errorf("kept %+v, %d topics", l.out.Kept, l.log.Image().TopicCount())
	}
}

func TestALongLogBecomesASnapshot(t *testing.T) {
	l := open(t, nil, 5)
	for b := range byte(20) {
		l.log.Propose([][]metadata.Record{topic(b + 1)}, Promise(b)+1, &l.out)
		l.sync()
	}
	if l.log.Quorum().Compacted() == 0 {
		t.Fatal("there is no snapshot")
	}
	again := open(t, l.saved, 5)
	if again.log.Image().Hash() != l.log.Image().Hash() || again.log.Image().TopicCount() != 20 {
		t.Errorf("after a restart %d topics, hash %x, want %x", again.log.Image().TopicCount(), again.log.Image().Hash(), l.log.Image().Hash())
	}
}

func TestWhatCannotBeReadStopsTheNode(t *testing.T) {
	l := open(t, nil, 1000)
	ticket, err := l.log.quorum.Propose([]byte("no records"), &l.log.out)
	if err != nil {
		t.Fatal(err)
	}
	l.log.pending = append(l.log.pending, pending{ticket: ticket})
	l.log.settle(&l.out)
	l.sync()
	if l.out.Err == nil {
		t.Error("no error")
	}
}
