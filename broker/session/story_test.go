package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/broker/wire"
)

// story is a server whose sessions are called a, b and so on, in the order in
// which they began.
type story struct {
	*server
	names map[string]int32 // ids of sessions
	next  byte
	sb    strings.Builder
}

// TestStories runs the stories in testdata. To accept new output, run go test
// -rewrite and read the diff.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{server: newServer(DefaultConfig()), names: map[string]int32{"none": 0, "unknown": 77}, next: 'a'}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.sb.Reset()
			switch d.Cmd {
			case "cache":
				cfg := DefaultConfig()
				d.MaybeScanArgs(t, "slots", &cfg.Slots)
				d.MaybeScanArgs(t, "weight", &cfg.Weight)
				s.server = newServer(cfg)
			case "fetch":
				s.fetch(t, d)
			case "produce":
				s.wake(s.change(d.CmdArgs[0].Key, true, func(p *part) { p.end++ }))
			case "commit":
				s.wake(s.change(d.CmdArgs[0].Key, false, func(p *part) { p.highWatermark = p.end }))
			case "delete-records":
				s.wake(s.change(d.CmdArgs[0].Key, false, func(p *part) { p.start = p.highWatermark }))
			case "fail":
				s.wake(s.change(d.CmdArgs[0].Key, false, func(p *part) { p.failed = true }))
			case "heal":
				s.wake(s.change(d.CmdArgs[0].Key, false, func(p *part) { p.failed = false }))
			case "drop":
				s.wake(s.change(d.CmdArgs[0].Key, false, func(*part) { s.drop(d.CmdArgs[0].Key) }))
			case "budget":
				d.ScanArgs(t, "records", &s.budget)
			case "expire":
				for _, w := range s.waiting {
					s.tell(w, true)
				}
				s.waiting = nil
			case "pass":
				var seconds int
				d.ScanArgs(t, "s", &seconds)
				s.now = s.now.Add(time.Duration(seconds) * time.Second)
			case "stats":
				st := s.cache.Stats()
				fmt.Fprintf(&s.sb, "sessions=%d partitions=%d evictions=%d weight=%d\n", st.Sessions, st.Partitions, st.Evictions, s.cache.weight)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return s.sb.String()
		})
	})
}

// fetch is fetch [session=a] [epoch=0] [v=17] [peer=3] [topics=(t-0@5 ...)]
// [forget=(t-1 ...)]. Without an epoch there is to be no session.
func (s *story) fetch(t *testing.T, d *datadriven.TestData) {
	session, epoch, version, peer := "none", int32(finalEpoch), int16(17), wire.NoPeer
	var topics, forget []string
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "session":
			session = a.Vals[0]
		case "epoch":
			a.Scan(t, 0, &epoch)
		case "v":
			a.Scan(t, 0, &version)
		case "peer":
			a.Scan(t, 0, (*int32)(&peer))
		case "topics":
			topics = a.Vals
		case "forget":
			forget = a.Vals
		}
	}
	id, ok := s.names[session]
	if !ok {
		t.Fatalf("no session %s", session)
	}
	s.begin(request(version, id, epoch, strings.Join(topics, " "), strings.Join(forget, " ")), peer)
}

// begin prints what comes of a request at once.
func (s *story) begin(req *kmsg.FetchRequest, peer metadata.NodeID) {
	got, answers, done, err := s.server.begin(req, peer)
	if err != nil {
		fmt.Fprintf(&s.sb, "error %d: %v\n", wire.Code(err), err)
		return
	}
	if !done {
		fmt.Fprintf(&s.sb, "%s waits\n", s.called(got))
		return
	}
	s.print(got, answers)
}

func (s *story) wake(woken []*Session) {
	for _, w := range woken {
		s.tell(w, false)
	}
}

// tell answers the fetch of a session that waits, if that is possible.
func (s *story) tell(w *Session, must bool) {
	if !w.waits {
		return
	}
	if answers, ok := s.answer(w, must); ok {
		w.Wait(false)
		s.print(w, answers)
	}
}

func (s *story) print(w *Session, answers []answer) {
	fmt.Fprintf(&s.sb, "%s:", s.called(w))
	for _, a := range answers {
		fmt.Fprintf(&s.sb, " [%v]", a)
	}
	s.sb.WriteString("\n")
	if w.ID() == 0 {
		var out Out
		s.cache.Close(w, &out)
	}
}

// called is the name of a session.
func (s *story) called(w *Session) string {
	if w.ID() == 0 {
		return "no session"
	}
	for c := byte('a'); c < s.next; c++ {
		if s.names[string(c)] == w.ID() {
			return "session " + string(c)
		}
	}
	s.names[string(s.next)] = w.ID()
	s.next++
	return "session " + string(s.next-1)
}
