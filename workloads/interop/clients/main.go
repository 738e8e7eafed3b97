// Command clients shows what sarama and kafka-go can do with a broker. See
// package interop for what it is given and what it prints.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: clients sarama|kafka-go ADDRESS PREFIX")
		os.Exit(2)
	}
	run := map[string]func(addr, prefix string) error{"sarama": runSarama, "kafka-go": runKafkaGo}[os.Args[1]]
	if run == nil {
		fmt.Fprintf(os.Stderr, "no client %q\n", os.Args[1])
		os.Exit(2)
	}
	if err := run(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func key(i int) []byte   { return fmt.Appendf(nil, "k-%d", i) }
func value(i int) []byte { return fmt.Appendf(nil, "v-%d%s", i, strings.Repeat(".", 100)) }

// same says how a record differs from the i-th that was written.
func same(i int, offset int64, k, v []byte) error {
	if offset != int64(i) || string(k) != string(key(i)) || string(v) != string(value(i)) {
		return fmt.Errorf("record %d: offset %d, key %q, value %.20q", i, offset, k, v)
	}
	return nil
}

func ok(format string, args ...any) { fmt.Printf("ok "+format+"\n", args...) }

func wrote(topic string, n int, codec string) { fmt.Printf("wrote %s %d %s\n", topic, n, codec) }

// records is how many of them each case writes.
const records = 500
