package maelstrom

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jepsen "github.com/jepsen-io/maelstrom/demo/go"

	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

// talk runs node n0 in virtual time, and gives the test its input and its lines
// to clients.
func talk(t *testing.T, with func(in io.Writer, lines <-chan string)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		served := make(chan error)
		go func() {
			served <- Serve(Config{Dir: dir}, inR, outW, slog.New(slog.DiscardHandler))
		}()
		lines := make(chan string, 100)
		go func() {
			defer close(lines)
			for r := bufio.NewReader(outR); ; {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if !strings.Contains(line, `"dest":"n`) {
					lines <- line
				}
			}
		}()
		with(inW, lines)
		inW.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		outW.Close()
		for line := range lines {
			t.Errorf("unexpected: %s", line)
		}
	})
}

// begin tells n0 that it is one of so many nodes. It is the only one that runs.
func begin(t *testing.T, in io.Writer, lines <-chan string, nodes int) {
	t.Helper()
	names := []string{"n0", "n1", "n2", "n3", "n4"}[:nodes]
	list, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, `{"src":"c0","dest":"n0","body":{"type":"init","msg_id":1,"node_id":"n0","node_ids":%s}}`+"\n", list)
	var h protocol.Header
	expect(t, lines, "c0", &h)
	if h.Type != protocol.InitOK || h.InReplyTo != 1 {
		t.Fatalf("%+v, want init_ok", h)
	}
}

// expect waits for a line to dest and returns its body.
func expect(t *testing.T, lines <-chan string, dest string, body any) {
	t.Helper()
	line := <-lines
	var m protocol.Message
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Dest != dest || m.Src != "n0" {
		t.Fatalf("line %s, error %v, want one from n0 to %s", line, err, dest)
	}
	if err := protocol.Strict(m.Body, body); err != nil {
		t.Fatal(err)
	}
}

func TestRequestBeforeInitIsNotAnswered(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		fmt.Fprintln(in, `{"src":"c1","dest":"n0","body":{"type":"send","key":"7","msg":3,"msg_id":1}}`)
		begin(t, in, lines, 1)
	})
}

func TestRequestsThatCannotBeTakenAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       protocol.Code
	}{
		{"unknown type", `{"type":"txn","msg_id":5}`, protocol.NotSupported},
		{"another init", `{"type":"init","msg_id":5,"node_id":"n0","node_ids":["n0"]}`, protocol.Abort},
		{"fields of other types", `{"type":"send","key":7,"msg":3,"msg_id":5}`, protocol.MalformedRequest},
		{"too large", `{"type":"send","key":"7","msg":"` + strings.Repeat("x", 2<<20) + `","msg_id":5}`, protocol.Abort},
	} {
		talk(t, func(in io.Writer, lines <-chan string) {
			begin(t, in, lines, 1)
			fmt.Fprintf(in, `{"src":"c1","dest":"n0","body":%s}`+"\n", c.body)
			var e protocol.ErrorResponse
			expect(t, lines, "c1", &e)
			if e.Code != c.code || e.InReplyTo != 5 {
				t.Errorf("%s: %+v, want code %d in reply to 5", c.name, e, c.code)
			}
		})
	}
}

// A line may be longer than the 64 KiB that Maelstrom's own library reads.
func TestLongMessageIsWrittenAndRead(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		begin(t, in, lines, 1)
		long := `"` + strings.Repeat("x", 200<<10) + `"`
		fmt.Fprintf(in, `{"src":"c1","dest":"n0","body":{"type":"send","key":"7","msg":%s,"msg_id":1}}`+"\n", long)
		var sent protocol.SendResponse
		expect(t, lines, "c1", &sent)
		fmt.Fprintln(in, `{"src":"c1","dest":"n0","body":{"type":"poll","offsets":{"7":0,"8":0},"msg_id":2}}`)
		var polled protocol.PollResponse
		expect(t, lines, "c1", &polled)
		if got := polled.Msgs["7"]; sent.Offset != 0 || len(polled.Msgs) != 1 || len(got) != 1 || string(got[0].Msg) != long {
			t.Errorf("sent at %d, polled %d keys and %d messages of the first", sent.Offset, len(polled.Msgs), len(got))
		}
	})
}

// A node of three that hears nobody says who it is, and of what it is asked that
// it is not done, while the client still listens.
func TestNodeWithoutAQuorumRefusesInTime(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		began := time.Now()
		begin(t, in, lines, 3)
		if took := time.Since(began); took > time.Second {
			t.Errorf("init took %v", took)
		}
		for _, c := range []struct {
			body string
			code protocol.Code
		}{
			{`{"type":"send","key":"7","msg":3,"msg_id":5}`, protocol.TemporarilyUnavailable},
			{`{"type":"poll","offsets":{"7":0},"msg_id":5}`, protocol.TemporarilyUnavailable},
			{`{"type":"list_committed_offsets","keys":["7"],"msg_id":5}`, protocol.TemporarilyUnavailable},
			{`{"type":"commit_offsets","offsets":{"7":0},"msg_id":5}`, protocol.Crash}, // never a definite error
		} {
			asked := time.Now()
			fmt.Fprintf(in, `{"src":"c1","dest":"n0","body":%s}`+"\n", c.body)
			var e protocol.ErrorResponse
			expect(t, lines, "c1", &e)
			if took := time.Since(asked); e.Code != c.code || took > replyTime {
				t.Errorf("%s: %+v after %v, want code %d within %v", c.body, e, took, c.code, replyTime)
			}
		}
		fmt.Fprintln(in, `{"src":"c1","dest":"n0","body":{"type":"poll","offsets":{},"msg_id":6}}`)
		var polled protocol.PollResponse
		expect(t, lines, "c1", &polled)
	})
}

// What waits for a reader of standard output is dropped when nobody listens any
// more; what nodes say to each other is not.
func TestLateAnswersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := newOutbox(w, func(err error) { t.Error(err) })
		for i, until := range []time.Time{time.Now(), {}, time.Now().Add(time.Second), time.Now().Add(time.Minute)} {
			m := jepsen.Message{Src: "n0", Dest: "c1", Body: json.RawMessage(fmt.Sprint(i))}
			if err := o.put(m, until); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second) // virtual; the first is on its way, the others wait
		go func() {
			o.close()
			w.Close()
		}()
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, true, false, true} {
			if has := strings.Contains(string(got), fmt.Sprintf(`"body":%d`, i)); has != want {
				t.Errorf("message %d: written %t, want %t", i, has, want)
			}
		}
	})
}

// A node that cannot speak is of no use.
func TestNodeEndsWithItsOutput(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	broken := errors.New("broken pipe")
	outR.CloseWithError(broken)
	served := make(chan error)
	go func() { served <- Serve(Config{Dir: t.TempDir()}, inR, outW, slog.New(slog.DiscardHandler)) }()
	fmt.Fprintln(inW, `{"src":"c1","dest":"n0","body":{"type":"init","msg_id":1,"node_id":"n0","node_ids":["n0"]}}`)
	if err := <-served; !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	inW.Close()
}

func TestNamesOfNodes(t *testing.T) {
	for _, c := range []struct {
		self   string
		names  []string
		ok     bool
		voters int
	}{
		{"n0", []string{"n0"}, true, 1},
		{"n2", []string{"n1", "n2"}, true, 1},
		{"n2", []string{"n2", "n1", "n3"}, true, 3},
		{"n5", []string{"n1", "n2", "n3", "n4", "n5"}, true, 3},
		{"n1", []string{"n0"}, false, 0},
		{"n1", []string{"n1", "n1"}, false, 0},
		{"x", []string{"x"}, false, 0},
		{"n-1", []string{"n-1"}, false, 0},
	} {
		got, err := newCluster(c.self, c.names)
		if (err == nil) != c.ok {
			t.Errorf("%s of %q: %v", c.self, c.names, err)
			continue
		}
		if err != nil {
			continue
		}
		cfg, err := got.broker("id")
		if err != nil || len(got.voters()) != c.voters || (c.voters > 1) != (len(cfg.Controllers) > 1) {
			t.Errorf("%s of %q: voters %v, error %v, want %d voters", c.self, c.names, got.voters(), err, c.voters)
		}
	}
	one, _ := newCluster("n1", []string{"n1", "n2", "n3"})
	other, _ := newCluster("n2", []string{"n3", "n2", "n1"})
	if one.id() != other.id() || one.id() == "" {
		t.Errorf("cluster ids %q and %q, want the same", one.id(), other.id())
	}
}
