package config

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// setting is one value somebody gave.
type setting struct {
	key, value string
	from       string // where, for messages: file:line, a flag, a variable
}

// parseProperties reads Java's properties format: key=value, key:value or key
// value; # and ! begin a comment line; a backslash at its end continues a line,
// and elsewhere escapes (\t, \n, \r, \f, \uXXXX, or the next character).
func parseProperties(r io.Reader, name string) (settings []setting, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		first := number
		line := strings.TrimLeft(lines.Text(), " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) && lines.Scan() {
			number++
			line = line[:len(line)-1] + strings.TrimLeft(lines.Text(), " \t\f")
		}
		from := fmt.Sprintf("%s:%d", name, first)
		key, value := split(strings.TrimSuffix(line, "\r"))
		s := setting{from: from}
		if s.key, err = unescape(key); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		if s.value, err = unescape(value); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		s.value = strings.TrimRight(s.value, " \t")
		settings = append(settings, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return settings, nil
}

// continues reports whether a line ends with an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// split cuts a line at its first separator that is not escaped.
func split(line string) (key, value string) {
	at := 0
	for at < len(line) && !strings.ContainsRune("=: \t\f", rune(line[at])) {
		if line[at] == '\\' {
			at++
		}
		at++
	}
	at = min(at, len(line))
	key, value = line[:at], strings.TrimLeft(line[at:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return key, value
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch s[i] {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf("%q: want four hexadecimal digits after \\u", s)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf("%q: want four hexadecimal digits after \\u", s)
			}
			out.WriteRune(rune(n))
			i += 4
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String(), nil
}
