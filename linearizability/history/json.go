package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrMalformed says a line is not an operation or a final log.
var ErrMalformed = errors.New("malformed history")

// maxLine bounds one line in bytes; a final log of a million records fits.
const maxLine = 64 << 20

// line is one line of a history file: an operation, or, when Final is true, a
// log. Absent means: return = never, offsets = NoOffset where the kind could
// have one, everything else zero.
type line struct {
	Final      bool    `json:"final,omitempty"`
	ID         int     `json:"id"`
	Client     Client  `json:"client"`
	Kind       string  `json:"kind,omitempty"`
	Outcome    string  `json:"outcome,omitempty"`
	Topic      string  `json:"topic"`
	Index      int32   `json:"partition"`
	Call       Time    `json:"call"`
	Return     *Time   `json:"return,omitempty"`
	Values     []Value `json:"values,omitempty"`
	Base       Offset  `json:"base,omitempty"`
	Idempotent bool    `json:"idempotent,omitempty"`
	Weak       bool    `json:"weak,omitempty"`
	From       Offset  `json:"from,omitempty"`
	Records    []pair  `json:"records,omitempty"`
	Start      Offset  `json:"start,omitempty"`
	OutOfRange bool    `json:"outOfRange,omitempty"`
	End        Offset  `json:"end,omitempty"`
	Group      string  `json:"group,omitempty"`
	Committed  Offset  `json:"committed,omitempty"`
	Token      Value   `json:"token,omitempty"`
	There      bool    `json:"there,omitempty"`
	Via        int32   `json:"via,omitempty"`
	Note       string  `json:"note,omitempty"`
}

// pair is a Record as [offset, value].
type pair Record

func (p pair) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d]", p.Offset, uint64(p.Value)), nil
}

func (p *pair) UnmarshalJSON(b []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if len(raw) != 2 {
		return fmt.Errorf("%w: record of %d parts, want offset and value", ErrMalformed, len(raw))
	}
	if err := json.Unmarshal(raw[0], &p.Offset); err != nil {
		return err
	}
	return json.Unmarshal(raw[1], &p.Value)
}

// Encoder writes a history, a line at a time. Its output is a function of what
// it is given: equal histories are equal files.
type Encoder struct{ w *json.Encoder }

// NewEncoder returns an encoder that writes to w, unbuffered.
func NewEncoder(w io.Writer) *Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return &Encoder{e}
}

// Operation writes one operation.
func (e *Encoder) Operation(o *Operation) error {
	l := line{
		ID: o.ID, Client: o.Client, Kind: o.Kind.String(), Outcome: o.Outcome.String(),
		Topic: o.Partition.Topic, Index: o.Partition.Index, Call: o.Call,
		Values: o.Values, Base: o.Base, Idempotent: o.Idempotent, Weak: o.Weak,
		From: o.From, Records: toPairs(o.Records), End: o.End, Start: o.Start, OutOfRange: o.OutOfRange,
		Group: o.Group, Committed: o.Committed, Token: o.Token, There: o.There, Via: o.Via, Note: o.Note,
	}
	if o.Return != Never {
		l.Return = &o.Return
	}
	return e.w.Encode(&l)
}

// Log writes one final log.
func (e *Encoder) Log(g *Log) error {
	return e.w.Encode(&line{
		Final: true, Topic: g.Partition.Topic, Index: g.Partition.Index,
		Start: g.Start, End: g.End, Records: toPairs(g.Records),
	})
}

// Write writes the whole history to w.
func (h *History) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	e := NewEncoder(b)
	for i := range h.Operations {
		if err := e.Operation(&h.Operations[i]); err != nil {
			return err
		}
	}
	for i := range h.Final {
		if err := e.Log(&h.Final[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

// ReadFrom reads a history that Write or an Encoder has written. The error
// names the line and is ErrMalformed unless reading itself failed. IDs are
// given anew, in the order of the lines.
func ReadFrom(r io.Reader) (*History, error) {
	h := &History{}
	names := make(map[string]string)
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	for n := 1; s.Scan(); n++ {
		b := bytes.TrimSpace(s.Bytes())
		if len(b) == 0 {
			continue
		}
		if err := h.addLine(b, names); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return h, s.Err()
}

// addLine parses b into h. Strings that repeat on every line are kept once, in
// names.
func (h *History) addLine(b []byte, names map[string]string) error {
	var l line
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if d.More() {
		return fmt.Errorf("%w: more than one value", ErrMalformed)
	}
	p := Partition{Topic: intern(names, l.Topic), Index: l.Index}
	if l.Final {
		h.Final = append(h.Final, Log{Partition: p, Start: l.Start, End: l.End, Records: fromPairs(l.Records)})
		return nil
	}
	kind, err := parseName(kindNames[:], l.Kind)
	if err != nil {
		return err
	}
	outcome, err := parseName(outcomeNames[:], l.Outcome)
	if err != nil {
		return err
	}
	o := Operation{
		Client: l.Client, Kind: Kind(kind), Outcome: Outcome(outcome), Partition: p,
		Call: l.Call, Return: Never,
		Values: l.Values, Base: l.Base, Idempotent: l.Idempotent, Weak: l.Weak,
		From: l.From, Records: fromPairs(l.Records), End: l.End, Start: l.Start, OutOfRange: l.OutOfRange,
		Group: intern(names, l.Group), Committed: l.Committed, Token: l.Token, There: l.There, Via: l.Via, Note: intern(names, l.Note),
	}
	if len(o.Values) == 0 {
		o.Values = nil
	}
	if l.Return != nil {
		o.Return = *l.Return
	}
	if o.Return < o.Call {
		return fmt.Errorf("%w: returned at %d, called at %d", ErrMalformed, o.Return, o.Call)
	}
	h.Add(o)
	return nil
}

func parseName(names []string, name string) (uint8, error) {
	for i, n := range names {
		if n == name {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%w: %q is none of %s", ErrMalformed, name, strings.Join(names, ", "))
}

func intern(names map[string]string, s string) string {
	if kept, ok := names[s]; ok {
		return kept
	}
	names[s] = s
	return s
}

func toPairs(rs []Record) []pair {
	if len(rs) == 0 {
		return nil
	}
	ps := make([]pair, len(rs))
	for i, r := range rs {
		ps[i] = pair(r)
	}
	return ps
}

func fromPairs(ps []pair) []Record {
	if len(ps) == 0 {
		return nil
	}
	rs := make([]Record, len(ps))
	for i, p := range ps {
		rs[i] = Record(p)
	}
	return rs
}
