package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asPawl is an environment variable that makes the test's program pawl itself, so
// that the tests run real processes.
const asPawl = "TEST_AS_PAWL"

func TestMain(m *testing.M) {
	if os.Getenv(asPawl) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// limit is how long a test may take before it has failed.
const limit = 3 * time.Minute

// program is a command line of pawl.
func program(ctx context.Context, t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asPawl+"=1")
	return cmd
}

// freeBase finds a port such that those of a cluster of pawl dev are free.
func freeBase(t testing.TB, nodes int) int {
	t.Helper()
	for range 100 {
		base := 20000 + rand.IntN(10000) // below those that the kernel hands out
		free := true
		for i := range nodes {
			for _, offset := range []int{0, 100, 200} {
				l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset+i))
				if free = free && err == nil; err == nil {
					l.Close()
				}
			}
		}
		if free {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

// developed is a cluster of pawl dev.
type developed struct {
	t       testing.TB
	ctx     context.Context
	cmd     *exec.Cmd
	log     output
	Brokers []string
	Nodes   []struct {
		Node, PID int
		DataDir   string
	}
}

// output is what a process writes while it runs.
type output struct {
	mu      sync.Mutex
	written bytes.Buffer // not embedded: its ReadFrom, which io.Copy prefers, takes no lock
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.written.Write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.written.String()
}

// develop runs pawl dev and waits until it is ready.
func develop(t testing.TB, nodes int) *developed {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	d := &developed{t: t, ctx: ctx}
	d.cmd = program(ctx, t, "dev", "--json", "--nodes", strconv.Itoa(nodes), "--data-dir", t.TempDir(), "--listen", fmt.Sprintf("127.0.0.1:%d", freeBase(t, nodes)))
	d.cmd.Stderr = &d.log
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.log.text())
		}
		d.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is over
		d.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, d)
	}
	if err != nil || len(d.Nodes) != nodes {
		t.Fatalf("pawl dev says %q: %v", line, err)
	}
	return d
}

// run runs a client's command line and returns what it prints, or its error.
func (d *developed) run(in string, args ...string) (out, errs string, err error) {
	cmd := program(d.ctx, d.t, args...)
	cmd.Env = append(cmd.Env, "PAWL_BROKERS="+strings.Join(d.Brokers, ","))
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// ok is run for what must succeed.
func (d *developed) ok(in string, args ...string) string {
	d.t.Helper()
	out, errs, err := d.run(in, args...)
	if err != nil {
		d.t.Fatalf("pawl %s: %v: %s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

// until runs a command line until its output has a text.
func (d *developed) until(text string, args ...string) {
	d.t.Helper()
	for last := ""; ; {
		if d.ctx.Err() != nil {
			d.t.Fatalf("pawl %s never says %q, but: %s", strings.Join(args, " "), text, last)
		}
		out, errs, _ := d.run("", args...)
		if last = out + errs; strings.Contains(out, text) {
			return
		}
	}
}

// died waits until pawl dev says that a node has.
func (d *developed) died(node int) {
	d.t.Helper()
	for !strings.Contains(d.log.text(), fmt.Sprintf("node %d has died (node %d: signal: killed)", node, node)) {
		if d.ctx.Err() != nil {
			d.t.Fatal("pawl dev does not say that a node has died")
		}
	}
}

// again starts a node with the command line that pawl dev gave for it.
func (d *developed) again(node int) *exec.Cmd {
	d.t.Helper()
	return d.start(node, func(args []string) []string { return args })
}

// start is again with a command line that is changed.
func (d *developed) start(node int, change func(args []string) []string) *exec.Cmd {
	d.t.Helper()
	_, line, ok := strings.Cut(d.log.text(), fmt.Sprintf("node %d has died", node))
	if ok {
		_, line, ok = strings.Cut(line, "start it with: pawl ")
	}
	if !ok {
		d.t.Fatal("pawl dev does not say how to start the node")
	}
	line, _, _ = strings.Cut(line, "\n")
	cmd := program(d.ctx, d.t, change(strings.Fields(line))...)
	cmd.Stderr = &d.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	if text, err := bufio.NewReader(out).ReadString('\n'); text != "ready\n" {
		d.t.Fatalf("node %d says %q: %v", node, text, err)
	}
	return cmd
}

// numbered is lines with the numbers from first on, n of them.
func numbered(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, first+i)
	}
	return b.String()
}

// TestClusterOutlivesItsController: records that were acknowledged are there, and
// more are taken, while the node that led everything is dead and after it is back.
func TestClusterOutlivesItsController(t *testing.T) {
	d := develop(t, 3)
	d.ok("", "topic", "create", "orders", "--partitions", "1", "--replication", "3")
	d.ok(numbered(0, 500), "produce", "orders")
	var leader int
	for _, n := range d.Nodes {
		if strings.Contains(d.ok("", "cluster", "info"), fmt.Sprintf("controller  node %d,", n.Node)) {
			leader = n.Node
		}
	}
	if leader == 0 {
		t.Fatalf("nobody is the controller: %s", d.ok("", "cluster", "info"))
	}
	d.ok("", "cluster", "move", "orders", "0", "--to", strings.Join(from(leader), ","))
	d.ok("", "cluster", "leaders", "--rebalance")
	if err := syscall.Kill(d.Nodes[leader-1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.died(leader) // before that its kernel would still take connections
	d.ok(numbered(500, 500), "produce", "orders")
	d.until("node-fenced", "cluster", "health")
	if got := d.ok("", "consume", "orders", "--from", "start", "--count", "1000"); got != numbered(0, 1000) {
		t.Errorf("consumed %d bytes, which are not what was produced", len(got))
	}
	back := d.again(leader)
	d.until("healthy: 3 nodes, 1 partitions", "cluster", "health")
	d.ok(numbered(1000, 100), "produce", "orders")
	d.ok("", "cluster", "leaders", "--rebalance")
	if got := d.ok("", "consume", "orders", "--from", "start", "--count", "1100"); got != numbered(0, 1100) {
		t.Errorf("consumed %d bytes, which are not what was produced", len(got))
	}
	back.Process.Signal(syscall.SIGTERM)
	if err := back.Wait(); err != nil {
		t.Errorf("the node that was started again: %v", err)
	}
	d.cmd.Process.Signal(os.Interrupt)
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("pawl dev: %v", err)
	}
	for _, n := range d.Nodes {
		if err := syscall.Kill(n.PID, 0); err == nil {
			t.Errorf("node %d runs on", n.Node)
		}
	}
}

// from is the nodes 1 to 3, this one first.
func from(node int) []string {
	return []string{strconv.Itoa(node), strconv.Itoa(node%3 + 1), strconv.Itoa((node+1)%3 + 1)}
}

// TestNodeIsEmptiedAndLeaves: a node that does not vote is made to, another is
// emptied, votes no more and is forgotten, and nothing is lost.
func TestNodeIsEmptiedAndLeaves(t *testing.T) {
	d := develop(t, 4)
	d.ok("", "topic", "create", "orders", "--partitions", "8", "--replication", "3")
	d.ok(numbered(0, 1000), "produce", "orders", "--key", "k")
	d.ok("", "cluster", "voters", "add", "4")
	d.until(`"node":4,"role":"voter"`, "cluster", "voters", "--json")
	d.ok("", "cluster", "drain", "3")
	d.ok("", "cluster", "voters", "remove", "3")
	d.until(`"node":3,"role":"observer"`, "cluster", "voters", "--json")
	var nodes []struct {
		Node, Leads, Replicas int
		Role                  string
	}
	if err := json.Unmarshal([]byte(d.ok("", "cluster", "nodes", "--json")), &nodes); err != nil || len(nodes) != 4 {
		t.Fatal(nodes, err)
	}
	if n := nodes[2]; n.Leads != 0 || n.Replicas != 0 || n.Role != "follower" {
		t.Errorf("the emptied node: %+v", n)
	}
	if err := syscall.Kill(d.Nodes[2].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.died(3)
	d.until("node-fenced", "cluster", "health")
	d.ok("", "cluster", "unregister", "3")
	d.until("healthy: 3 nodes, 8 partitions", "cluster", "health")
	if got := d.ok("", "consume", "orders", "--from", "start", "--count", "1000"); got != numbered(0, 1000) {
		t.Errorf("consumed %d bytes, which are not what was produced", len(got))
	}
}

// TestNodeWithANewDiskIsFilledFromTheOthers: a voter that lost everything it had
// comes back under its id, and has everything again.
func TestNodeWithANewDiskIsFilledFromTheOthers(t *testing.T) {
	d := develop(t, 3)
	d.ok("", "topic", "create", "orders", "--partitions", "2", "--replication", "3")
	d.ok(numbered(0, 1000), "produce", "orders", "--key", "k")
	const lost = 2
	if err := syscall.Kill(d.Nodes[lost-1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.died(lost)
	if err := os.RemoveAll(d.Nodes[lost-1].DataDir); err != nil {
		t.Fatal(err)
	}
	back := d.again(lost)
	d.until("healthy: 3 nodes, 2 partitions", "cluster", "health")
	for partition := range 2 { // and what is nowhere else is read from the new disk
		d.ok("", "cluster", "move", "orders", strconv.Itoa(partition), "--to", strconv.Itoa(lost))
	}
	if got := d.ok("", "consume", "orders", "--from", "start", "--count", "1000"); got != numbered(0, 1000) {
		t.Errorf("consumed %d bytes, which are not what was produced", len(got))
	}
	back.Process.Signal(syscall.SIGTERM)
	if err := back.Wait(); err != nil {
		t.Errorf("the node that was started again: %v", err)
	}
}

// TestNodeThatMovesIsFoundAgain: a voter comes back under its id and somewhere else,
// with its disk or with an empty one.
func TestNodeThatMovesIsFoundAgain(t *testing.T) {
	for _, empty := range []bool{false, true} {
		d := develop(t, 3)
		d.ok("", "topic", "create", "orders", "--partitions", "1", "--replication", "3")
		d.ok(numbered(0, 100), "produce", "orders")
		const moves = 3
		var info struct {
			ClusterID string `json:"clusterId"`
		}
		if err := json.Unmarshal([]byte(d.ok("", "cluster", "info", "--json")), &info); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(d.Nodes[moves-1].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.died(moves)
		if empty {
			if err := os.RemoveAll(d.Nodes[moves-1].DataDir); err != nil {
				t.Fatal(err)
			}
		}
		to := fmt.Sprintf("127.0.0.1:%d", freeBase(t, 1))
		back := d.start(moves, func(args []string) []string {
			at := slices.Index(args, "--peer-listen")
			if at < 0 {
				t.Fatalf("no --peer-listen in %q", args)
			}
			was := args[at+1]
			for i, arg := range args { // its place in --controllers, too
				args[i] = strings.ReplaceAll(arg, was, to)
			}
			return append(args, "--cluster-id", info.ClusterID) // which is made of --controllers, and not known to an empty disk
		})
		d.until("healthy: 3 nodes, 1 partitions", "cluster", "health")
		d.ok("", "cluster", "move", "orders", "0", "--to", strconv.Itoa(moves))
		if got := d.ok("", "consume", "orders", "--from", "start", "--count", "100"); got != numbered(0, 100) {
			t.Errorf("consumed %d bytes, which are not what was produced", len(got))
		}
		back.Process.Signal(syscall.SIGTERM)
		if err := back.Wait(); err != nil {
			t.Errorf("the node that was started again: %v", err)
		}
	}
}

// TestNodesOfOtherClustersAreTurnedAway: a node that was told another cluster's id
// is refused, and both sides say why.
func TestNodesOfOtherClustersAreTurnedAway(t *testing.T) {
	base := freeBase(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	logs := [2]output{}
	var running []*exec.Cmd
	for i := range logs {
		cmd := program(ctx, t, "serve", "--node-id", strconv.Itoa(i+1), "--data-dir", t.TempDir(), "--http", "",
			"--listen", fmt.Sprintf("127.0.0.1:%d", base+i), "--cluster-id", []string{"MkU3OEVBNTcwNTJENDM2Qg", "4L6g3nShT-eMCtK--X86sw"}[i],
			"--controllers", fmt.Sprintf("1@127.0.0.1:%d,2@127.0.0.1:%d,3@127.0.0.1:1", base+100, base+101))
		cmd.Stdout, cmd.Stderr = io.Discard, &logs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for i := range logs {
		for _, want := range []string{"node refused", "is of cluster"} {
			for !strings.Contains(logs[i].text(), want) {
				if ctx.Err() != nil {
					t.Fatalf("node %d never says %q: %s", i+1, want, logs[i].text())
				}
			}
		}
	}
	for i, cmd := range running {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("node %d: %v: %s", i+1, err, logs[i].text())
		}
	}
}
