package maelstrom

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlbroker/pawl/maelstrom/protocol"
)

// talk runs a node without a broker of its own, in virtual time, and gives the
// test its input and its lines.
func talk(t *testing.T, with func(in io.Writer, lines <-chan string)) {
	log.SetOutput(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		served := make(chan error)
		go func() {
			served <- Serve(Config{}, inR, outW, slog.New(slog.DiscardHandler))
		}()
		lines := make(chan string, 100)
		go func() {
			defer close(lines)
			for r := bufio.NewScanner(outR); r.Scan(); {
				lines <- r.Text()
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

const initN1 = `{"src":"c0","dest":"n1","body":{"type":"init","msg_id":1,"node_id":"n1","node_ids":["n0","n1"]}}` + "\n"

// expect waits for a line to dest and returns its body.
func expect(t *testing.T, lines <-chan string, dest string, body any) {
	t.Helper()
	line := <-lines
	var m protocol.Message
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Dest != dest {
		t.Fatalf("line %s, error %v, want one to %s", line, err, dest)
	}
	if err := json.Unmarshal(m.Body, body); err != nil {
		t.Fatal(err)
	}
}

func TestRequestBeforeInitIsNotAnswered(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		fmt.Fprintln(in, `{"src":"c1","dest":"n1","body":{"type":"send","key":"7","msg":3,"msg_id":1}}`)
		fmt.Fprint(in, initN1)
		var h protocol.Header
		expect(t, lines, "c0", &h)
		if h.Type != protocol.InitOK {
			t.Errorf("%+v, want init_ok", h)
		}
	})
}

func TestRequestsThatCannotBeTakenAreRefused(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		fmt.Fprint(in, initN1)
		var e protocol.ErrorResponse
		expect(t, lines, "c0", &e)
		fmt.Fprintln(in, `{"src":"c1","dest":"n1","body":{"type":"txn","msg_id":5}}`)
		expect(t, lines, "c1", &e)
		if e.Code != protocol.NotSupported || e.InReplyTo != 5 {
			t.Errorf("%+v, want code %d in reply to 5", e, protocol.NotSupported)
		}
		fmt.Fprintf(in, `{"src":"c1","dest":"n1","body":{"type":"send","key":"7","msg":"%s","msg_id":6}}`+"\n", strings.Repeat("x", maxLine))
		expect(t, lines, "c1", &e)
		if e.Code != protocol.Abort || e.InReplyTo != 6 {
			t.Errorf("%+v, want code %d in reply to 6", e, protocol.Abort)
		}
	})
}

// forwarded sends a request to n1 and returns what n0 is asked.
func forwarded(t *testing.T, in io.Writer, lines <-chan string) protocol.SendRequest {
	t.Helper()
	fmt.Fprint(in, initN1)
	expect(t, lines, "c0", &protocol.Header{})
	fmt.Fprintln(in, `{"src":"c1","dest":"n1","body":{"type":"send","key":"7","msg":3,"msg_id":5}}`)
	var asked protocol.SendRequest
	expect(t, lines, "n0", &asked)
	if asked.Type != protocol.Send || asked.Key != "7" || string(asked.Msg) != "3" {
		t.Fatalf("n0 was asked %+v", asked)
	}
	return asked
}

func TestForwardedAnswerGoesToTheClient(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		asked := forwarded(t, in, lines)
		fmt.Fprintf(in, `{"src":"n0","dest":"n1","body":{"type":"send_ok","offset":12,"in_reply_to":%d}}`+"\n", asked.MsgID)
		var answer protocol.SendResponse
		expect(t, lines, "c1", &answer)
		if answer.Type != protocol.SendOK || answer.Offset != 12 || answer.InReplyTo != 5 || answer.MsgID != 0 {
			t.Errorf("%+v, want offset 12 in reply to 5", answer)
		}
	})
}

func TestForwardedRefusalStaysDefinite(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		asked := forwarded(t, in, lines)
		fmt.Fprintf(in, `{"src":"n0","dest":"n1","body":{"type":"error","code":11,"text":"no","in_reply_to":%d}}`+"\n", asked.MsgID)
		var e protocol.ErrorResponse
		expect(t, lines, "c1", &e)
		if e.Code != protocol.TemporarilyUnavailable || e.InReplyTo != 5 {
			t.Errorf("%+v, want code %d in reply to 5", e, protocol.TemporarilyUnavailable)
		}
	})
}

// The client hears that the outcome is unknown while it still listens, and
// nothing after that.
func TestSilentLeaderIsGivenUpInTime(t *testing.T) {
	talk(t, func(in io.Writer, lines <-chan string) {
		began := time.Now()
		asked := forwarded(t, in, lines)
		var e protocol.ErrorResponse
		expect(t, lines, "c1", &e)
		if e.Code != protocol.Crash || time.Since(began) > replyTime {
			t.Errorf("%+v after %v, want code %d within %v", e, time.Since(began), protocol.Crash, replyTime)
		}
		fmt.Fprintf(in, `{"src":"n0","dest":"n1","body":{"type":"send_ok","offset":12,"in_reply_to":%d}}`+"\n", asked.MsgID)
	})
}
