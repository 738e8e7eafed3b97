package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// behaviour is an environment variable that makes the test's program a node.
const behaviour = "TEST_DEV_NODE"

func TestMain(m *testing.M) {
	if how := os.Getenv(behaviour); how != "" {
		os.Exit(pretend(how, os.Args))
	}
	goleak.VerifyTestMain(m)
}

// pretend is a node: it says ready and waits to be stopped, unless its number is
// in how: then it dies before it is ready, or stops badly.
func pretend(how string, args []string) int {
	id := args[3]
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	fmt.Fprintf(os.Stderr, "begins\nwrites more")
	switch {
	case strings.Contains(how, "early "+id):
		return 3
	case strings.Contains(how, "quits "+id):
		return 0
	}
	fmt.Println("ready")
	<-stop
	if strings.Contains(how, "bad "+id) {
		return 4
	}
	return 0
}

// screen is what is printed, and a channel that is closed with the first of it.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	once sync.Once
	some chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.once.Do(func() { close(s.some) })
	return s.text.Write(p)
}

// run runs three nodes and stops them once they are said to be ready, or never if
// that is not to be expected. It returns what was printed.
func run(t *testing.T, how string, asJSON bool) (out, log string, err error) {
	t.Helper()
	t.Setenv(behaviour, how)
	nodes, err := plan(3, "127.0.0.1:9092", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := &screen{some: make(chan struct{})}, &screen{some: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	c := &cluster{program: self, nodes: nodes, log: &prefixed{w: stderr}, out: stdout, json: asJSON}
	go func() { done <- c.run(ctx) }()
	select {
	case <-stdout.some:
		stop()
		err = <-done
	case err = <-done:
	}
	return stdout.text.String(), stderr.text.String(), err
}

func TestNodesAreStartedToldAndStopped(t *testing.T) {
	out, log, err := run(t, "well", false)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out, "ready: connect to 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094\n") || strings.Count(out, "\n") != 5 {
		t.Errorf("%s", out)
	}
	for _, want := range []string{"node 1 | begins\n", "node 3 | writes more\n", "dev    | stopping 3 nodes\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	out, _, err = run(t, "well", true)
	var told struct {
		Brokers []string
		Nodes   []node
	}
	if bad := json.Unmarshal([]byte(out), &told); err != nil || bad != nil || len(told.Brokers) != 3 || told.Nodes[2].HTTP != "127.0.0.1:9294" || told.Nodes[0].PID == 0 {
		t.Errorf("%s: %v, %v", out, err, bad)
	}
}

func TestNodesThatDieAreReportedAndTheOthersServe(t *testing.T) {
	for _, how := range []string{"early 2", "early 1,early 2"} {
		out, log, err := run(t, how, false)
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(out, "127.0.0.1:9093") || !strings.Contains(out, "127.0.0.1:9094") {
			t.Errorf("%s: %s", how, out)
		}
		if want := "dev    | node 2 has died (node 2: exit status 3), and pawl dev leaves it dead; start it with: pawl serve --node-id 2 "; !strings.Contains(log, want) {
			t.Errorf("%s: the log lacks %q:\n%s", how, want, log)
		}
	}
	if out, log, err := run(t, "early 1,early 2,quits 3", false); err == nil || out != "" || !strings.Contains(log, "node 3 has died (it stopped in good order)") {
		t.Errorf("%v\n%s%s", err, out, log)
	}
}

func TestNodeThatStopsBadlyIsAnError(t *testing.T) {
	if _, _, err := run(t, "bad 2", false); err == nil || err.Error() != "node 2: exit status 4" {
		t.Errorf("%v", err)
	}
}

func TestProgramThatIsNotThereIsAnError(t *testing.T) {
	nodes, err := plan(2, "127.0.0.1:9092", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{program: "/nonexistent/pawl", nodes: nodes, log: &prefixed{w: io.Discard}, out: io.Discard}
	if err := c.run(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestArgumentsOfNodes(t *testing.T) {
	for n, want := range map[int]string{
		1: "serve --node-id 1 --data-dir d/1 --listen h:9092 --http h:9292 --set a=b",
		2: "serve --node-id 2 --data-dir d/2 --listen h:9093 --http h:9293 --peer-listen h:9193 --controllers 1@h:9192" +
			" --set default.replication.factor=2 --set min.insync.replicas=1 --set a=b",
		4: "serve --node-id 4 --data-dir d/4 --listen h:9095 --http h:9295 --peer-listen h:9195 --controllers 1@h:9192,2@h:9193,3@h:9194" +
			" --set default.replication.factor=3 --set min.insync.replicas=2 --set a=b",
	} {
		nodes, err := plan(n, "h:9092", "d")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(arguments(nodes, n-1, []string{"a=b"}), " "); got != want {
			t.Errorf("%d nodes:\n got %s\nwant %s", n, got, want)
		}
	}
	for n, want := range map[int]int{1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 6: 5, 9: 5} {
		if got := len(voters(make([]node, n))); got != want {
			t.Errorf("%d of %d nodes vote, want %d", got, n, want)
		}
	}
}

func TestCommandLineThatMakesNoSense(t *testing.T) {
	for args, want := range map[string]string{
		"--nodes 0":                "1 to 9",
		"--nodes 10":               "1 to 9",
		"--listen nowhere":         "host:port",
		"--listen 127.0.0.1:0":     "want a port",
		"--listen 127.0.0.1:65400": "want a port",
		"surplus":                  "surplus",
	} {
		var out, errs bytes.Buffer
		a := cli.New(strings.NewReader(""), &out, &errs, func(string) string { return "" })
		root := a.Root()
		root.AddCommand(Command(a))
		code := a.Execute(t.Context(), root, append([]string{"dev", "--data-dir", t.TempDir()}, strings.Fields(args)...))
		if code != cli.ExitUsage || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit %d, stderr %q, want a line with %q", args, code, &errs, want)
		}
	}
}

func TestLinesOfProcessesStayWhole(t *testing.T) {
	var out bytes.Buffer
	p := &prefixed{w: &out}
	one, two := p.of(1), p.of(2)
	fmt.Fprint(one, "a")
	fmt.Fprint(two, "x\ny\n")
	fmt.Fprint(one, "b\n\nc")
	two.flush()
	one.flush()
	fmt.Fprint(two, strings.Repeat("z", maxLine))
	want := "node 2 | x\nnode 2 | y\nnode 1 | ab\nnode 1 | \nnode 1 | c\nnode 2 | " + strings.Repeat("z", maxLine) + "\n"
	if out.String() != want {
		t.Errorf("%.200s", out.String())
	}
}
