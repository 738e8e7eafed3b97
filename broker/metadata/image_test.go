package metadata

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawlbroker/pawl/storage/record"
)

// dump is everything in an image, as text: the model that images are compared
// by.
func dump(m Image) string {
	var b strings.Builder
	for _, r := range m.Records() {
		fmt.Fprintln(&b, r)
	}
	for t := range m.Topics() {
		byID, ok := m.TopicByID(t.ID)
		fmt.Fprintln(&b, t.Name, t.Partitions, ok && byID == t)
	}
	for n := range NodeID(5) {
		for p := range m.PartitionsOf(n) {
			fmt.Fprintln(&b, "of", n, p.Topic, p.Index)
		}
	}
	return b.String()
}

// An imageMachine applies records that fit, one batch at a time, and remembers
// every image with what it was.
type imageMachine struct {
	m      Image
	before []Image
	dumps  []string
	made   int
	nodes  map[NodeID]BrokerEpoch
	topics []TopicID
	names  map[TopicID]string
	parts  map[TopicID][]*Partition
	gone   []TopicID
	ids    int64
	set    map[string]string // by broker and name
}

func (s *imageMachine) apply(t *rapid.T, records ...Record) Delta {
	b := Encode(records)
	decoded, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	s.before, s.dumps = append(s.before, s.m), append(s.dumps, dump(s.m))
	next, delta, err := Apply(s.m, s.m.Offset()+1, decoded)
	if err != nil {
		t.Fatal(err)
	}
	s.m = next
	return delta
}

func (s *imageMachine) Register(t *rapid.T) {
	n := NodeID(rapid.IntRange(0, 3).Draw(t, "node"))
	e := s.m.NextBrokerEpoch()
	d := s.apply(t, &RegisterBroker{Node: n, Epoch: e, Host: "h", Port: 1})
	s.nodes[n] = e
	if !slices.Equal(d.Brokers, []NodeID{n}) {
		t.Fatalf("delta %+v", d)
	}
}

func (s *imageMachine) Unregister(t *rapid.T) {
	n := NodeID(rapid.IntRange(0, 3).Draw(t, "node"))
	if _, ok := s.nodes[n]; !ok {
		t.Skip()
	}
	s.apply(t, &UnregisterBroker{n})
	delete(s.nodes, n)
}

func (s *imageMachine) ChangeBroker(t *rapid.T) {
	n := NodeID(rapid.IntRange(0, 3).Draw(t, "node"))
	before, ok := s.m.Broker(n)
	if !ok {
		t.Skip()
	}
	c := &BrokerChange{n, s.nodes[n], rapid.Bool().Draw(t, "fenced"), rapid.Bool().Draw(t, "in shutdown")}
	d := s.apply(t, c)
	after, _ := s.m.Broker(n)
	if !slices.Equal(d.Brokers, []NodeID{n}) || after.Fenced != c.Fenced || after.InShutdown != c.InShutdown ||
		after.Epoch != c.Epoch || after.Host != "h" || after.ChangedAt() != s.m.Offset() || before.ChangedAt() == s.m.Offset() {
		t.Fatalf("delta %+v, broker %v", d, after)
	}
}

func (s *imageMachine) ConfigureBroker(t *rapid.T) {
	n := NodeID(rapid.IntRange(-2, 3).Draw(t, "node"))
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	c := &ConfigureBroker{n, name, rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"), rapid.Bool().Draw(t, "unset")}
	key := fmt.Sprint(n, name)
	if s.set[key] = c.Value; c.Unset {
		delete(s.set, key)
	}
	if d := s.apply(t, c); !slices.Equal(d.BrokerConfigs, []NodeID{n}) {
		t.Fatalf("delta %+v", d)
	}
}

func (s *imageMachine) Create(t *rapid.T) {
	s.made++
	id, name := TopicID{byte(s.made >> 8), byte(s.made)}, fmt.Sprintf("t%d", s.made)
	records := []Record{&AddTopic{ID: id, Name: name, Configs: []Config{{"retention.ms", "1"}}}}
	for i := range rapid.IntRange(0, 40).Draw(t, "partitions") {
		p := &Partition{Topic: id, Index: int32(i), Replicas: []NodeID{1, 2}, ISR: []NodeID{1}, Leader: 1}
		s.parts[id] = append(s.parts[id], p)
		records = append(records, p)
	}
	s.topics, s.names[id] = append(s.topics, id), name
	d := s.apply(t, records...)
	if len(d.Created) != 1 || d.Created[0].ID != id || len(d.Partitions) != len(s.parts[id]) || len(d.Deleted) != 0 {
		t.Fatalf("delta %+v", d)
	}
}

func (s *imageMachine) drawTopic(t *rapid.T) TopicID {
	if len(s.topics) == 0 {
		t.Skip()
	}
	return rapid.SampledFrom(s.topics).Draw(t, "topic")
}

func (s *imageMachine) Remove(t *rapid.T) {
	id := s.drawTopic(t)
	d := s.apply(t, &RemoveTopic{id})
	if len(d.Deleted) != 1 || d.Deleted[0].Name != s.names[id] || int(d.Deleted[0].Partitions) != len(s.parts[id]) {
		t.Fatalf("delta %+v", d)
	}
	s.topics = slices.DeleteFunc(s.topics, func(other TopicID) bool { return other == id })
	s.gone = append(s.gone, id)
}

func (s *imageMachine) ComeAndGo(t *rapid.T) {
	s.made++
	id := TopicID{byte(s.made >> 8), byte(s.made)}
	p := &Partition{Topic: id, Replicas: []NodeID{1}, Leader: NoNode}
	d := s.apply(t, &AddTopic{ID: id, Name: "x"}, p, &RemoveTopic{id})
	if !reflect.DeepEqual(d, Delta{}) {
		t.Fatalf("delta of what came and went: %+v", d)
	}
	s.gone = append(s.gone, id)
}

func (s *imageMachine) Change(t *rapid.T) {
	id := s.drawTopic(t)
	if len(s.parts[id]) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(s.parts[id])-1).Draw(t, "index")
	p := *s.parts[id][i]
	p.Epoch++
	p.LeaderEpoch += record.LeaderEpoch(rapid.IntRange(0, 1).Draw(t, "leader epoch"))
	p.Replicas = rapid.Permutation([]NodeID{0, 1, 2, 3, 4}).Draw(t, "replicas")[:rapid.IntRange(1, 5).Draw(t, "replication")]
	p.ISR, p.ELR, p.Leader, p.Recovering = p.Replicas[:1], nil, p.Replicas[0], rapid.Bool().Draw(t, "recovering")
	if rapid.Bool().Draw(t, "without a leader") {
		p.Leader = NoNode
	}
	if len(p.Replicas) > 2 {
		p.ELR, p.Adding, p.Removing = p.Replicas[1:], p.Replicas[:2], p.Replicas[2:]
	} else {
		p.ELR, p.Adding, p.Removing = nil, nil, nil
	}
	s.parts[id][i] = &p
	if d := s.apply(t, &p); len(d.Partitions) != 1 || !reflect.DeepEqual(d.Partitions[0], &p) {
		t.Fatalf("delta %+v", d)
	}
}

func (s *imageMachine) Configure(t *rapid.T) {
	id := s.drawTopic(t)
	name := rapid.SampledFrom([]string{"cleanup.policy", "retention.ms", "segment.bytes"}).Draw(t, "name")
	s.apply(t, &ConfigureTopic{id, name, "7", rapid.Bool().Draw(t, "unset")})
}

func (s *imageMachine) Allocate(t *rapid.T) {
	s.ids += 1000
	s.apply(t, &ProducerIDs{record.ProducerID(s.ids)})
}

// Restored is what a node that was away for a while learns from a snapshot.
func (s *imageMachine) Restored(t *rapid.T) {
	if len(s.before) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(max(0, len(s.before)-6), len(s.before)-1).Draw(t, "since")
	old := s.before[i]
	next, d, err := Restore(old, s.m.Offset(), s.m.Records())
	if err != nil || dump(next) != dump(s.m) || next.Hash() != s.m.Hash() || dump(old) != s.dumps[i] {
		t.Fatalf("%v: %s", err, dump(next))
	}
	// What the delta does not name is the same before and after.
	told := map[any]bool{}
	for _, topic := range slices.Concat(d.Created, d.Deleted, d.Configured) {
		told[topic.ID] = true
	}
	for _, p := range d.Partitions {
		told[replica{topic: p.Topic, index: p.Index}] = true
	}
	for _, n := range d.Brokers {
		told[n] = true
	}
	for _, n := range d.BrokerConfigs {
		told[fmt.Sprint("configs", n)] = true
	}
	for id, name := range s.names {
		was, ok := old.Topic(name)
		is, still := next.Topic(name)
		if told[id] != (ok != still || ok && !slices.Equal(was.Configs, is.Configs)) {
			t.Fatalf("delta %+v: topic %s", d, name)
		}
		for index := range int32(41) {
			was, ok := old.Partition(id, index)
			is, still := next.Partition(id, index)
			if told[replica{topic: id, index: index}] != (still && (!ok || !reflect.DeepEqual(was, is))) {
				t.Fatalf("delta %+v: partition %d of %s", d, index, name)
			}
		}
	}
	for n := OwnFile; n < 4; n++ {
		was, ok := old.Broker(n)
		is, still := next.Broker(n)
		if told[n] != (ok != still || ok && was.String() != is.String()) {
			t.Fatalf("delta %+v: broker %d", d, n)
		}
		if told[fmt.Sprint("configs", n)] == slices.Equal(old.BrokerConfigs(n), next.BrokerConfigs(n)) {
			t.Fatalf("delta %+v: configurations of broker %d", d, n)
		}
	}
}

func (s *imageMachine) Check(t *rapid.T) {
	for i, m := range s.before {
		if len(s.before)-i < 5 && dump(m) != s.dumps[i] {
			t.Fatalf("an earlier image changed:\n%s\nwas\n%s", dump(m), s.dumps[i])
		}
	}
	if s.m.TopicCount() != len(s.topics) || s.m.BrokerCount() != len(s.nodes) || int64(s.m.NextProducerID()) != s.ids {
		t.Fatalf("%s", dump(s.m))
	}
	for n := OwnFile; n < 4; n++ {
		configs := s.m.BrokerConfigs(n)
		for _, name := range []string{"a", "b", "c"} {
			value, ok := s.m.BrokerConfig(n, name)
			want, set := s.set[fmt.Sprint(n, name)]
			if ok != set || value != want || slices.Contains(configs, Config{name, want}) != set {
				t.Fatalf("%s of broker %d is %q, want %q", name, n, value, want)
			}
		}
		var hosts, want []*Partition
		for p := range s.m.PartitionsOf(n) {
			hosts = append(hosts, p)
		}
		for _, id := range s.topics {
			for _, p := range s.parts[id] {
				if slices.Contains(p.Replicas, n) {
					want = append(want, p)
				}
			}
		}
		slices.SortFunc(want, comparePartition)
		if !reflect.DeepEqual(hosts, want) {
			t.Fatalf("node %d hosts %v, want %v", n, hosts, want)
		}
	}
	partitions := 0
	for _, id := range s.topics {
		topic, ok := s.m.Topic(s.names[id])
		if !ok || topic.ID != id || s.m.Deleted(id) {
			t.Fatalf("topic %s: %v %t", s.names[id], topic, ok)
		}
		var got []*Partition
		for p := range s.m.Partitions(id) {
			got = append(got, p)
		}
		if !reflect.DeepEqual(got, s.parts[id]) {
			t.Fatalf("partitions %v, want %v", got, s.parts[id])
		}
		partitions += len(got)
	}
	for what, got := range map[string]iter.Seq[*Partition]{"leaderless": s.m.Leaderless(), "reassigning": s.m.Reassigning()} {
		want := map[*Partition]bool{}
		for _, id := range s.topics {
			for p := range s.m.Partitions(id) {
				if what == "leaderless" && p.Leader == NoNode || what == "reassigning" && p.Reassigning() {
					want[p] = true
				}
			}
		}
		for p := range got {
			if !want[p] {
				t.Fatalf("%s: %v", what, p)
			}
			delete(want, p)
		}
		if len(want) > 0 {
			t.Fatalf("not %s: %v", what, want)
		}
	}
	if s.m.PartitionCount() != partitions {
		t.Fatalf("%d partitions, want %d", s.m.PartitionCount(), partitions)
	}
	for _, id := range s.gone {
		if _, ok := s.m.TopicByID(id); ok || !s.m.Deleted(id) {
			t.Fatalf("topic %s is not gone", id)
		}
	}
	again, _, err := Apply(Image{}, s.m.Offset(), s.m.Records())
	if err != nil || again.Hash() != s.m.Hash() || dump(again) != dump(s.m) {
		t.Fatalf("made again from its records it is\n%s\nnot\n%s\n%v", dump(again), dump(s.m), err)
	}
}

func TestImagesMatchTheirRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &imageMachine{nodes: map[NodeID]BrokerEpoch{}, names: map[TopicID]string{}, parts: map[TopicID][]*Partition{}, set: map[string]string{}}
		t.Repeat(rapid.StateMachineActions(s))
	})
}

func TestHashTellsContentsApart(t *testing.T) {
	seen := map[uint64]string{}
	see := func(what string, records ...Record) {
		m, _, err := Apply(Image{}, 1, records)
		if err != nil {
			t.Fatal(what, err)
		}
		if other, ok := seen[m.Hash()]; ok {
			t.Fatalf("%s and %s have one hash", what, other)
		}
		seen[m.Hash()] = what
	}
	topic := &AddTopic{ID: TopicID{1}, Name: "t"}
	see("nothing")
	see("a topic", topic)
	see("another id", &AddTopic{ID: TopicID{2}, Name: "t"})
	see("another name", &AddTopic{ID: TopicID{1}, Name: "u"})
	see("a configuration", &AddTopic{TopicID{1}, "t", []Config{{"a", "b"}}})
	see("a partition", topic, &Partition{Topic: TopicID{1}, Replicas: []NodeID{1}, Leader: NoNode})
	see("a leader", topic, &Partition{Topic: TopicID{1}, Replicas: []NodeID{1}, ISR: []NodeID{1}, Leader: 1})
	see("a deleted topic", topic, &RemoveTopic{TopicID{1}})
	see("producer ids", &ProducerIDs{1})
	see("broker epochs", &BrokerEpochs{1})
	see("a broker", &RegisterBroker{Node: 1})
	see("a fenced broker", &RegisterBroker{Node: 1, Fenced: true})
	see("a broker that stops", &RegisterBroker{Node: 1, InShutdown: true})
	see("a broker with peers", &RegisterBroker{Node: 1, PeerHost: "h"})
	see("a broker with a directory", &RegisterBroker{Node: 1, Directory: [16]byte{1}})
	see("a configuration of a broker", &ConfigureBroker{Node: 1, Name: "a"})
	see("a configuration of every broker", &ConfigureBroker{Node: EveryBroker, Name: "a"})
	see("a value", &ConfigureBroker{Node: 1, Name: "a", Value: "b"})
	replicated := Partition{Topic: TopicID{1}, Replicas: []NodeID{1}, Leader: NoNode}
	elr, last, adding, removing := replicated, replicated, replicated, replicated
	elr.ELR, last.LastKnownELR, adding.Adding, removing.Removing = []NodeID{1}, []NodeID{1}, []NodeID{1}, []NodeID{1}
	see("an eligible leader", topic, &elr)
	see("a last known leader", topic, &last)
	see("a replica that comes", topic, &adding)
	see("a replica that goes", topic, &removing)
}

func TestHashIsTheSameEverywhere(t *testing.T) {
	m, _, err := Apply(Image{}, 1, []Record{
		&RegisterBroker{Node: 1, Host: "h", Port: 9092}, &AddTopic{ID: TopicID{1}, Name: "t"},
		&Partition{Topic: TopicID{1}, Replicas: []NodeID{1}, ISR: []NodeID{1}, Leader: 1}, &ProducerIDs{1000},
	})
	if err != nil || m.Hash() != 0x6c9e5a16316f0e5e {
		t.Fatalf("%#x, %v", m.Hash(), err)
	}
}

func TestContradictionsAreRefusedAndNamed(t *testing.T) {
	id := TopicID{1}
	base, _, err := Apply(Image{}, 1, []Record{
		&RegisterBroker{Node: 1, Epoch: 3}, &AddTopic{ID: id, Name: "a.b"},
		&Partition{Topic: id, Replicas: []NodeID{1}, ISR: []NodeID{1}, Leader: 1, LeaderEpoch: 2, Epoch: 2},
		&AddTopic{ID: TopicID{2}, Name: "old"}, &RemoveTopic{TopicID{2}}, &ProducerIDs{1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Record{
		&RegisterBroker{Node: 1, Epoch: 3, Incarnation: IncarnationID{1}},
		&RegisterBroker{Node: 1, Epoch: 2},
		&BrokerChange{Node: 1, Epoch: 2},
		&BrokerChange{Node: 2, Epoch: 3},
		&ConfigureBroker{Node: -3, Name: "a"},
		&ConfigureBroker{Node: 1},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}, ELR: []NodeID{1}, Leader: 1},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 2}, ELR: []NodeID{3}, Leader: NoNode},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 2}, LastKnownELR: []NodeID{3}, Leader: NoNode},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 2}, Adding: []NodeID{1, 1}, Leader: NoNode},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 2}, Removing: []NodeID{2, 2}, Leader: NoNode},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}, Leader: 1, Recovering: true},
		&RegisterBroker{Node: -1, Epoch: 4},
		&UnregisterBroker{2},
		&AddTopic{ID: TopicID{3}, Name: "a.b"},
		&AddTopic{ID: TopicID{3}, Name: "a_b"},
		&AddTopic{ID: TopicID{3}, Name: "/"},
		&AddTopic{ID: id, Name: "new"},
		&AddTopic{ID: TopicID{2}, Name: "new"}, // was used, and deleted
		&AddTopic{ID: TopicID{}, Name: "new"},
		&AddTopic{TopicID{3}, "new", []Config{{"b", ""}, {"a", ""}}},
		&AddTopic{TopicID{3}, "new", []Config{{"a", ""}, {"a", ""}}},
		&RemoveTopic{TopicID{3}},
		&Partition{Topic: TopicID{3}, Replicas: []NodeID{1}, Leader: NoNode},
		&Partition{Topic: id, Index: 2, Replicas: []NodeID{1}, Leader: NoNode},
		&Partition{Topic: id, Replicas: []NodeID{1}, Leader: NoNode, LeaderEpoch: 1, Epoch: 3},
		&Partition{Topic: id, Replicas: []NodeID{1}, Leader: NoNode, LeaderEpoch: 2, Epoch: 2},
		&Partition{Topic: id, Index: 1, Leader: NoNode},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 1}, Leader: NoNode},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1}, ISR: []NodeID{2}, Leader: NoNode},
		&Partition{Topic: id, Index: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{2}, Leader: 1},
		&ConfigureTopic{Topic: TopicID{3}, Name: "a"},
		&ProducerIDs{999},
		&DeletedTopic{id},
		&BrokerEpochs{3},
	} {
		hash := base.Hash()
		_, _, err := Apply(base, 2, []Record{&ProducerIDs{2000}, r})
		if !errors.Is(err, ErrInapplicable) || !strings.Contains(err.Error(), "record 2 of 2 ("+r.String()) {
			t.Errorf("%v: %v", r, err)
		}
		if base.Hash() != hash || base.NextProducerID() != 1000 {
			t.Fatalf("%v changed the image", r)
		}
	}
}

func TestOnlyTheLatestDeletedTopicsAreRemembered(t *testing.T) {
	m := Image{}
	var records []Record
	id := func(i int) TopicID { return TopicID{1, byte(i >> 16), byte(i >> 8), byte(i)} }
	for i := range MaxDeleted + 10 {
		records = append(records, &AddTopic{ID: id(i), Name: "t"}, &RemoveTopic{id(i)})
	}
	m, _, err := Apply(m, 1, records)
	if err != nil {
		t.Fatal(err)
	}
	if m.Deleted(id(9)) || !m.Deleted(id(10)) || !m.Deleted(id(MaxDeleted+9)) {
		t.Fatal("the wrong ones are forgotten")
	}
	again, _, err := Apply(Image{}, 1, m.Records())
	if err != nil || again.Hash() != m.Hash() {
		t.Fatalf("%v", err)
	}
}

func TestMinISRComesFromTheTopicThenTheClusterThenTheFile(t *testing.T) {
	const name = "min.insync.replicas"
	id := TopicID{1}
	var m Image
	steps := []struct {
		r    Record
		want int
	}{
		{&AddTopic{ID: id, Name: "t"}, 1},
		{&ConfigureBroker{Node: OwnFile, Name: name, Value: "2"}, 2},
		{&ConfigureBroker{Node: 1, Name: name, Value: "9"}, 2}, // one broker has no say
		{&ConfigureBroker{Node: EveryBroker, Name: name, Value: " 3 "}, 3},
		{&ConfigureTopic{Topic: id, Name: name, Value: "4"}, 4},
		{&ConfigureTopic{Topic: id, Name: name, Value: "nonsense"}, 1},
		{&ConfigureTopic{Topic: id, Name: name, Unset: true}, 3},
		{&ConfigureBroker{Node: EveryBroker, Name: name, Unset: true}, 2},
	}
	for i, s := range steps {
		var err error
		if m, _, err = Apply(m, Offset(i), []Record{s.r}); err != nil {
			t.Fatal(err)
		}
		topic, _ := m.TopicByID(id)
		if got := m.MinISR(topic); got != s.want {
			t.Fatalf("after %v: %d, want %d", s.r, got, s.want)
		}
	}
	// It is no more than the replicas that are not only coming: KIP-966 bounds it
	// so that a topic of one replica can be written to.
	for _, c := range []struct {
		replicas, adding []NodeID
		want             int
	}{
		{[]NodeID{1}, nil, 1}, {[]NodeID{1, 2}, nil, 2}, {[]NodeID{1, 2, 3}, nil, 2}, {[]NodeID{2, 1}, []NodeID{2}, 1},
	} {
		if got := m.EffectiveMinISR(&Partition{Topic: id, Replicas: c.replicas, Adding: c.adding}); got != c.want {
			t.Fatalf("replicas %v, %v of them added: %d, want %d", c.replicas, c.adding, got, c.want)
		}
	}
}

func TestABrokerKnowsWhereItWasChanged(t *testing.T) {
	m, _, err := Apply(Image{}, 7, []Record{&RegisterBroker{Node: 1, Epoch: 3, Fenced: true}})
	if err != nil {
		t.Fatal(err)
	}
	m, d, err := Apply(m, 9, []Record{&RegisterBroker{Node: 1, Epoch: 3, Fenced: true, Host: "h"}, &BrokerChange{Node: 1, Epoch: 3}})
	b, _ := m.Broker(1)
	if err != nil || b.ChangedAt() != 9 || b.Host != "h" || b.Fenced || !slices.Equal(d.Brokers, []NodeID{1}) {
		t.Fatalf("%v at %d, %v", b, b.ChangedAt(), err)
	}
	again, _, err := Apply(Image{}, 10, m.Records())
	b, _ = again.Broker(1)
	if err != nil || b.ChangedAt() != 10 || again.Hash() != m.Hash() {
		t.Fatalf("%v at %d, %v", b, b.ChangedAt(), err)
	}
}

func largeImage(b *testing.B, topics, partitions int) Image {
	var records []Record
	for i := range topics {
		id := TopicID{1, byte(i >> 8), byte(i)}
		records = append(records, &AddTopic{ID: id, Name: fmt.Sprintf("topic-%d", i)})
		for p := range partitions {
			records = append(records, &Partition{Topic: id, Index: int32(p), Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2, 3}, Leader: 1})
		}
	}
	m, _, err := Apply(Image{}, 1, records)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// One partition changes; the cost must not depend on how many there are.
func BenchmarkApplyOnePartition(b *testing.B) {
	for _, topics := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("of=%d", topics*100), func(b *testing.B) {
			m := largeImage(b, topics, 100)
			b.ReportAllocs()
			for i := int32(1); b.Loop(); i++ {
				p := &Partition{Topic: TopicID{1, 0, byte(i % 10)}, Index: i % 100, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2}, Leader: 1, LeaderEpoch: 0, Epoch: PartitionEpoch(i)}
				var err error
				if m, _, err = Apply(m, Offset(i), []Record{p}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCreate100kPartitions(b *testing.B) {
	for b.Loop() {
		largeImage(b, 1000, 100)
	}
}
