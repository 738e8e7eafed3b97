package history

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func example() *History {
	p := Partition{"orders", 3}
	h := &History{}
	h.Add(Operation{Client: 1, Kind: Append, Partition: p, Call: 1, Return: 9, Values: []Value{1<<64 - 1, 2}, Base: 5, Idempotent: true})
	h.Add(Operation{Client: 2, Kind: Append, Outcome: Unknown, Partition: p, Call: 2, Return: Never, Values: []Value{7}, Base: NoOffset, Weak: true, Note: "timed out"})
	h.Add(Operation{Client: 3, Kind: Read, Partition: p, Call: 3, Return: 4, From: 5, Records: []Record{{5, 1<<64 - 1}, {6, 2}}, End: 7})
	h.Add(Operation{Client: 3, Kind: ListEnd, Partition: p, Call: 5, Return: 5, End: NoOffset})
	h.Add(Operation{Client: 4, Kind: Commit, Outcome: Failed, Partition: p, Call: 5, Return: 6, Group: "g", Committed: 6, Token: 99})
	h.Add(Operation{Client: 4, Kind: FetchCommitted, Partition: p, Call: 7, Return: 8, Group: "g", Committed: NoOffset})
	h.Add(Operation{Client: 5, Kind: DeleteRecords, Partition: p, Call: 8, Return: 9, From: NoOffset, Start: 5})
	h.Add(Operation{Client: 5, Kind: ListStart, Partition: p, Call: 9, Return: 10, Start: 5})
	h.Add(Operation{Client: 6, Kind: Read, Partition: p, Call: 9, Return: 10, From: 3, End: NoOffset, Start: 5, OutOfRange: true})
	h.Final = []Log{{Partition: p, Start: 5, End: 7, Records: []Record{{5, 1<<64 - 1}, {6, 2}}}}
	return h
}

func TestHistoryReadsBackAsWritten(t *testing.T) {
	h := example()
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFrom(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, h) {
		t.Fatalf("got %+v\nwant %+v", got, h)
	}
}

func TestReadFromNamesTheBadLine(t *testing.T) {
	good := `{"id":0,"client":1,"kind":"listEnd","outcome":"ok","topic":"t","partition":0,"call":1,"return":2}`
	for _, bad := range []string{
		`{`, `[]`, `{"kind":"append","outcome":"ok","surprise":1}`, `{"kind":"steal","outcome":"ok"}`,
		`{"kind":"read","outcome":"perhaps"}`, `{"kind":"read","outcome":"ok","records":[[1]]}`,
		`{"kind":"read","outcome":"ok","records":[[1,-2]]}`, `{"kind":"read","outcome":"ok","call":5,"return":4}`, good + good,
	} {
		_, err := ReadFrom(strings.NewReader(good + "\n\n" + bad + "\n"))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%s: got error %v, want ErrMalformed at line 3", bad, err)
		}
	}
}

func TestOperationsDescribeThemselves(t *testing.T) {
	want := []string{
		"#0 client 1 append orders-3 0xffffffffffffffff and 1 more at 5 [1, 9]",
		"#1 client 2 append orders-3 0x7 unknown [2, never]",
		"#2 client 3 read orders-3 from 5 got [2 records to 7) end 7 [3, 4]",
		"#3 client 3 listEnd orders-3 end -1 [5, 5]",
		"#4 client 4 commit orders-3 group g offset 6 token 0x63 failed [5, 6]",
		"#5 client 4 fetchCommitted orders-3 group g got -1 token 0x0 [7, 8]",
		"#6 client 5 deleteRecords orders-3 below -1 start 5 [8, 9]",
		"#7 client 5 listStart orders-3 start 5 [9, 10]",
		"#8 client 6 read orders-3 from 3 out of range, start 5 [9, 10]",
	}
	h := example()
	for i := range h.Operations {
		if got := h.Operations[i].String(); got != want[i] {
			t.Errorf("got  %s\nwant %s", got, want[i])
		}
	}
	if ok, failed, unknown := h.Count(); ok != 7 || failed != 1 || unknown != 1 {
		t.Errorf("got %d ok, %d failed, %d unknown, want 7, 1, 1", ok, failed, unknown)
	}
}

func FuzzReadFrom(f *testing.F) {
	var b bytes.Buffer
	if err := example().Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"final":true,"records":[[0,18446744073709551615]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadFrom(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := h.Write(&out); err != nil {
			t.Fatal(err)
		}
		again, err := ReadFrom(&out)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, h) {
			t.Fatalf("got %+v\nwant %+v", again, h)
		}
	})
}
