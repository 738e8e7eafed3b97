package cli

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// formatHelp lists what a format may hold.
const formatHelp = `%t topic, %p partition, %o offset, %k key, %v or %s value, %T timestamp in ms,
%h headers, %K and %S length of key and value in bytes (-1: null), %% a percent sign;
\n, \t, \r, \0, \\ and \xHH as in C`

// format is what is printed for each record: literal text and fields in turn.
type format []func(out []byte, r *kgo.Record) []byte

// parseFormat reads a format in kcat's manner.
func parseFormat(layout string) (format, error) {
	var f format
	var text []byte
	flush := func() {
		if len(text) > 0 {
			literal := bytes.Clone(text)
			f = append(f, func(out []byte, _ *kgo.Record) []byte { return append(out, literal...) })
			text = text[:0]
		}
	}
	for i := 0; i < len(layout); i++ {
		c := layout[i]
		if c != '%' && c != '\\' {
			text = append(text, c)
			continue
		}
		if i++; i == len(layout) {
			return nil, Usage("--format ends with %q", c)
		}
		switch {
		case c == '\\':
			literal, used, err := unescape(layout[i:])
			if err != nil {
				return nil, err
			}
			text = append(text, literal)
			i += used - 1
		case layout[i] == '%':
			text = append(text, '%')
		default:
			field, ok := fields[layout[i]]
			if !ok {
				return nil, Usage("--format %%%c: unknown; there are %s", layout[i], strings.ReplaceAll(formatHelp, "\n", " "))
			}
			flush()
			f = append(f, field)
		}
	}
	flush()
	return f, nil
}

// unescape reads what follows a backslash.
func unescape(s string) (literal byte, used int, err error) {
	switch s[0] {
	case 'n':
		return '\n', 1, nil
	case 't':
		return '\t', 1, nil
	case 'r':
		return '\r', 1, nil
	case '0':
		return 0, 1, nil
	case '\\':
		return '\\', 1, nil
	case 'x':
		if len(s) >= 3 {
			if n, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
				return byte(n), 3, nil
			}
		}
	}
	return 0, 0, Usage(`--format \%c: want \n, \t, \r, \0, \\ or \xHH`, s[0])
}

var fields = map[byte]func([]byte, *kgo.Record) []byte{
	't': func(out []byte, r *kgo.Record) []byte { return append(out, r.Topic...) },
	'p': func(out []byte, r *kgo.Record) []byte { return strconv.AppendInt(out, int64(r.Partition), 10) },
	'o': func(out []byte, r *kgo.Record) []byte { return strconv.AppendInt(out, r.Offset, 10) },
	'k': func(out []byte, r *kgo.Record) []byte { return append(out, r.Key...) },
	'v': func(out []byte, r *kgo.Record) []byte { return append(out, r.Value...) },
	's': func(out []byte, r *kgo.Record) []byte { return append(out, r.Value...) },
	'T': func(out []byte, r *kgo.Record) []byte { return strconv.AppendInt(out, r.Timestamp.UnixMilli(), 10) },
	'K': func(out []byte, r *kgo.Record) []byte { return appendLength(out, r.Key) },
	'S': func(out []byte, r *kgo.Record) []byte { return appendLength(out, r.Value) },
	'h': appendHeaders,
}

func appendLength(out, field []byte) []byte {
	if field == nil {
		return append(out, "-1"...)
	}
	return strconv.AppendInt(out, int64(len(field)), 10)
}

func appendHeaders(out []byte, r *kgo.Record) []byte {
	for i, h := range r.Headers {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, h.Key...)
		out = append(out, '=')
		out = append(out, h.Value...)
	}
	return out
}

func (f format) append(out []byte, r *kgo.Record) []byte {
	for _, part := range f {
		out = part(out, r)
	}
	return out
}

// recordJSON is a record for programs. What is not UTF-8 is given in base64.
type recordJSON struct {
	Topic       string       `json:"topic"`
	Partition   int32        `json:"partition"`
	Offset      int64        `json:"offset"`
	Timestamp   int64        `json:"timestamp"` // ms since the Unix epoch
	Key         *string      `json:"key"`
	KeyBase64   string       `json:"key_base64,omitempty"`
	Value       *string      `json:"value"`
	ValueBase64 string       `json:"value_base64,omitempty"`
	Headers     []headerJSON `json:"headers,omitempty"`
}

type headerJSON struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 string  `json:"value_base64,omitempty"`
}

func toJSON(r *kgo.Record) recordJSON {
	j := recordJSON{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli()}
	j.Key, j.KeyBase64 = textOrBase64(r.Key)
	j.Value, j.ValueBase64 = textOrBase64(r.Value)
	for _, h := range r.Headers {
		value, encoded := textOrBase64(h.Value)
		j.Headers = append(j.Headers, headerJSON{h.Key, value, encoded})
	}
	return j
}

func textOrBase64(field []byte) (text *string, encoded string) {
	switch {
	case field == nil:
		return nil, ""
	case utf8.Valid(field):
		s := string(field)
		return &s, ""
	}
	return nil, base64.StdEncoding.EncodeToString(field)
}
