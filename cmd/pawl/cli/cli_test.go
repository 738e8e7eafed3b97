package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pawl runs command lines against one fake cluster.
type pawl struct {
	t       *testing.T
	brokers string
}

func cluster(t *testing.T) pawl {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return pawl{t, strings.Join(c.ListenAddrs(), ",")}
}

// run returns the exit code and what was printed.
func (p pawl) run(in string, args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	app := New(strings.NewReader(in), &stdout, &stderr, func(key string) string {
		return map[string]string{"PAWL_BROKERS": p.brokers}[key]
	})
	code = app.Execute(p.t.Context(), app.Root(), args)
	return code, stdout.String(), stderr.String()
}

// ok returns what a command printed that must succeed, and say nothing else.
func (p pawl) ok(in string, args ...string) string {
	p.t.Helper()
	code, out, err := p.run(in, args...)
	if code != ExitOK || err != "" {
		p.t.Fatalf("pawl %s: exit %d, %s", strings.Join(args, " "), code, err)
	}
	return out
}

// refused checks the exit code and that the error is one line with a text in it.
func (p pawl) refused(code int, text string, args ...string) {
	p.t.Helper()
	got, out, err := p.run("", args...)
	if got != code || out != "" || strings.Count(err, "\n") != 1 || !strings.Contains(err, text) {
		p.t.Errorf("pawl %s: exit %d, want %d; stdout %q; stderr %q, want one line with %q",
			strings.Join(args, " "), got, code, out, err, text)
	}
}

func TestLinesComeBackAsRecords(t *testing.T) {
	p := cluster(t)
	p.ok("", "topic", "create", "orders", "--partitions", "1")
	if got, want := p.ok("one\ntwo\n\nfour", "produce", "orders", "--key", "k"),
		"produced 4 records, 14 bytes, to topic orders\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := p.ok("", "consume", "orders", "--until-end", "--format", `%t %p %o %k=%v\n`),
		"orders 0 0 k=one\norders 0 1 k=two\norders 0 2 k=\norders 0 3 k=four\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := p.ok("", "consume", "orders", "--from", "1", "--count", "1"), "two\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEveryCompressionAndAcksIsAccepted(t *testing.T) {
	p := cluster(t)
	p.ok("", "topic", "create", "orders", "--partitions", "1")
	for codec := range codecs {
		p.ok("a line\n", "produce", "orders", "--compression", codec)
	}
	for _, acks := range []string{"0", "1", "all"} {
		p.ok("a line\n", "produce", "orders", "--acks", acks)
	}
	got := p.ok("", "consume", "orders", "--count", "8")
	if want := strings.Repeat("a line\n", 8); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProduceReadsFilesKeysAndHeaders(t *testing.T) {
	p := cluster(t)
	p.ok("", "topic", "create", "orders", "--partitions", "2")
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte("a:1\nb:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := p.ok("", "produce", "orders", "--file", file, "--key-separator", ":", "--header", "h=x", "--partition", "1", "--json")
	var result produced
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.Records != 2 || *result.Partitions[1] != (span{0, 1}) {
		t.Errorf("%s: %v", out, err)
	}
	if got, want := p.ok("", "consume", "orders", "--partition", "1", "--until-end", "--format", `%k %s %h %K %S;`),
		"a 1 h=x 1 1;b 2 h=x 1 1;"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	code, out, text := p.run("a:1\nno separator\n", "produce", "orders", "--key-separator", ":")
	if code != ExitFailure || !strings.Contains(text, "line 2") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, text)
	}
}

func TestConsumePrintsJSON(t *testing.T) {
	p := cluster(t)
	p.ok("", "topic", "create", "orders", "--partitions", "1")
	p.ok("text\n\xff\xfe\n", "produce", "orders")
	lines := strings.Split(strings.TrimSpace(p.ok("", "consume", "orders", "--until-end", "--json")), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	var first, second recordJSON
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.Key != nil || *first.Value != "text" {
		t.Errorf("%s: %v", lines[0], err)
	}
	if err := json.Unmarshal([]byte(lines[1]), &second); err != nil || second.Value != nil || second.ValueBase64 != "//4=" {
		t.Errorf("%s: %v", lines[1], err)
	}
}

func TestConsumeEndsByItself(t *testing.T) {
	p := cluster(t)
	p.ok("", "topic", "create", "orders", "--partitions", "3")
	if got := p.ok("", "consume", "orders", "--until-end"); got != "" {
		t.Errorf("an empty topic printed %q", got)
	}
	p.ok("x\n", "produce", "orders", "--partition", "2")
	if got := p.ok("", "consume", "orders", "--until-end", "--from", "1h"); got != "x\n" {
		t.Errorf("from an hour ago: %q", got)
	}
	if got := p.ok("", "consume", "orders", "--until-end", "--from", "end"); got != "" {
		t.Errorf("from the end: %q", got)
	}
	code, out, err := p.run("", "consume", "orders", "--count", "2", "--timeout", "300ms")
	if code != ExitFailure || out != "x\n" || !strings.Contains(err, "1 of 2 records") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out, err)
	}
}

func TestGroupsRememberWhatWasConsumed(t *testing.T) {
	p := cluster(t)
	p.ok("", "topic", "create", "orders", "--partitions", "1")
	p.ok("a\nb\nc\n", "produce", "orders")
	if got := p.ok("", "consume", "orders", "--group", "billing", "--count", "2"); got != "a\nb\n" {
		t.Fatalf("first: %q", got)
	}
	var d describedGroup
	if out := p.ok("", "group", "describe", "billing", "--json"); json.Unmarshal([]byte(out), &d) != nil || d.Lag != 1 || d.Partitions[0].Committed != 2 {
		t.Errorf("%s", out)
	}
	if got := p.ok("", "group", "list"); !strings.Contains(got, "billing") {
		t.Errorf("list: %q", got)
	}
	p.ok("", "group", "seek", "billing", "--topic", "orders", "--to", "1")
	if got := p.ok("", "consume", "orders", "--group", "billing", "--count", "2"); got != "b\nc\n" {
		t.Errorf("after seek: %q", got)
	}
	p.ok("", "group", "delete", "billing")
}

func TestTopicsAreCreatedChangedAndDeleted(t *testing.T) {
	p := cluster(t)
	p.ok("", "topic", "create", "orders", "--partitions", "2", "--config", "retention.ms=1000")
	if got := p.ok("", "topic", "list"); !strings.Contains(got, "orders  2           1") {
		t.Errorf("list: %q", got)
	}
	p.ok("", "topic", "config", "orders", "--set", "retention.ms=2000")
	if got := p.ok("", "topic", "config", "orders"); !strings.Contains(got, "2000") {
		t.Errorf("config: %q", got)
	}
	p.ok("", "topic", "add-partitions", "orders", "3")
	p.ok("a\nb\n", "produce", "orders", "--partition", "4")
	p.ok("", "topic", "trim", "orders", "--partition", "4", "--before", "1")
	var d described
	out := p.ok("", "topic", "describe", "orders", "--json")
	if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Partitions) != 5 {
		t.Fatalf("%s: %v", out, err)
	}
	if last := d.Partitions[4]; last.Start != 1 || last.End != 2 || d.Config["retention.ms"] != "2000" {
		t.Errorf("describe: %s", out)
	}
	p.refused(ExitFailure, "exists already", "topic", "create", "orders")
	p.ok("", "topic", "delete", "orders")
	p.refused(ExitFailure, "pawl topic create orders", "topic", "describe", "orders")
	p.refused(ExitFailure, "pawl topic create orders", "consume", "orders")
}

func TestRequestsThatABrokerLacksAreSaidToBe(t *testing.T) {
	p := pawl{t, nullBrokerOf(t)}
	for _, line := range []string{"topic delete a", "topic config a --set k=v", "group list"} {
		p.refused(ExitFailure, "not served by the broker", strings.Fields(line)...)
	}
}

func TestWrongUsageExitsWithTwo(t *testing.T) {
	p := pawl{t, "127.0.0.1:1"}
	for text, line := range map[string]string{
		"which command":         "",
		"did you mean topic":    "topik",
		"did you mean create":   "topic creat",
		"NAME is missing":       "topic create",
		"unexpected argument":   "topic delete a b",
		"--config x":            "topic create a --config x",
		"unknown flag: --bogus": "produce t --bogus",
		"--acks 2":              "produce t --acks 2",
		"--compression rar":     "produce t --compression rar",
		"exclude each other":    "produce t --key a --key-separator b",
		"--from nowhere":        "consume t --from nowhere",
		"--format %q":           "consume t --format %q",
		"--group excludes":      "consume t --group g --partition 1",
		"-X nonsense":           "topic list -X nonsense=1",
		"--timeout -1s":         "topic list --timeout -1s",
		"--driver car":          "bench produce --driver car",
		"--topic and --to":      "group seek g",
		"--partition and":       "topic trim t",
		"unknown mode":          "null-broker --mode fast",
	} {
		p.refused(ExitUsage, text, strings.Fields(line)...)
	}
}

func TestUnreachableBrokersAreNamed(t *testing.T) {
	p := pawl{t, "127.0.0.1:1"}
	p.refused(ExitFailure, "no broker at 127.0.0.1:1", "topic", "list")
	p.refused(ExitFailure, "no broker at 127.0.0.1:2", "topic", "list", "--brokers", "127.0.0.1:2")
	p.refused(ExitFailure, "no broker at 127.0.0.1:1", "bench", "produce", "--driver", "raw")
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	app := New(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}, os.Getenv)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example or no summary", cmd.CommandPath())
		}
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(app.Root())
	p := pawl{t, ""}
	if code, out, err := p.run("", "topic", "create", "--help"); code != ExitOK || err != "" || !strings.Contains(out, "Examples:") {
		t.Errorf("exit %d, %q, %q", code, out, err)
	}
}

func TestVersionTellsTheToolchain(t *testing.T) {
	p := pawl{t, ""}
	var v Version
	if out := p.ok("", "version", "--json"); json.Unmarshal([]byte(out), &v) != nil || !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("%s", out)
	}
}

func TestFormatsAreReadAsKcatReadsThem(t *testing.T) {
	r := &kgo.Record{Topic: "t", Partition: 3, Offset: 7, Key: nil, Value: []byte("v"), Timestamp: time.UnixMilli(5)}
	for layout, want := range map[string]string{
		`%t/%p/%o %T`: "t/3/7 5",
		`[%k] %K %S`:  "[] -1 1",
		`%v%s\t\x41`:  "vv\tA",
		`100%%\\\n`:   "100%\\\n",
	} {
		f, err := parseFormat(layout)
		if err != nil {
			t.Errorf("%s: %v", layout, err)
		} else if got := string(f.append(nil, r)); got != want {
			t.Errorf("%s: got %q, want %q", layout, got, want)
		}
	}
	for _, layout := range []string{`%`, `\`, `\x4`, `\q`, `%z`} {
		if _, err := parseFormat(layout); err == nil {
			t.Errorf("%s is accepted", layout)
		}
	}
}

func TestBenchMeasuresBothDrivers(t *testing.T) {
	p := pawl{t, nullBrokerOf(t)}
	for _, driver := range []string{"raw", "franz"} {
		out := p.ok("", "bench", "both", "--driver", driver, "--topic", driver, "--records", "300", "--batch", "10", "--json")
		var results []benched
		if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 2 {
			t.Fatalf("%s: %v", out, err)
		}
		for _, r := range results {
			if r.Result.Records < 300 || r.MBPerSecond <= 0 {
				t.Errorf("%s %s: %+v", driver, r.What, r)
			}
		}
	}
}

// nullBrokerOf serves a null broker through its command, as pawl bench does.
func nullBrokerOf(t *testing.T) (addr string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stderr := make(lines, 1)
	app := New(strings.NewReader(""), &bytes.Buffer{}, stderr, os.Getenv)
	ended := make(chan int, 1)
	go func() {
		ended <- app.Execute(ctx, app.Root(), []string{
			"null-broker", "--mode", "write", "--dir", t.TempDir(), "--listen", "127.0.0.1:0"})
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != ExitOK {
			t.Errorf("null-broker: exit %d", code)
		}
	})
	return strings.Fields(<-stderr)[1]
}

// lines hands over what is written to it.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
