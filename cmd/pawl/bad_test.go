package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// says checks that all of texts are in what was said.
func says(t *testing.T, what, said string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("%s does not say %q, but: %s", what, text, said)
		}
	}
}

// fails runs a client's command line that must fail, and returns all it says.
func (d *developed) fails(args ...string) string {
	d.t.Helper()
	out, errs, err := d.run("", args...)
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
		d.t.Errorf("pawl %s: %v, want exit status 1: %s%s", strings.Join(args, " "), err, out, errs)
	}
	return out + errs
}

// logged waits until the nodes' log has a text.
func (d *developed) logged(text string) {
	d.t.Helper()
	for tick := time.NewTicker(20 * time.Millisecond); !strings.Contains(d.log.text(), text); <-tick.C {
		if d.ctx.Err() != nil {
			d.t.Fatalf("no node ever says %q", text)
		}
	}
}

// peerPort is where a node listens for nodes.
func (d *developed) peerPort(node int) string {
	d.t.Helper()
	_, rest, ok := strings.Cut(d.log.text(), fmt.Sprintf(",%d@127.0.0.1:", node)) // in --controllers
	if !ok || len(rest) < 5 {
		d.t.Fatalf("no node says where node %d listens", node)
	}
	return rest[:5]
}

// TestQuorumLostIsToldByName: with one of three voters left everything that can be
// asked is answered in time, and says who is missing; so does the log, also when
// it is over.
func TestQuorumLostIsToldByName(t *testing.T) { quorumLost(t, 3) }

// TestQuorumOfFiveLostIsToldByName: two of five are as good as none.
func TestQuorumOfFiveLostIsToldByName(t *testing.T) { quorumLost(t, 5) }

func quorumLost(t *testing.T, nodes int) {
	d := develop(t, nodes)
	d.ok("", "topic", "create", "orders", "--partitions", "1", "--replication", "1")
	left := nodes / 2
	var dead []string
	for n := left + 1; n <= nodes; n++ {
		if err := syscall.Kill(d.Nodes[n-1].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.died(n)
		dead = append(dead, fmt.Sprint("node ", n))
	}
	d.Brokers = d.Brokers[:left]
	d.logged("no active controller: nothing is decided until more than half of the voters reach each other")
	for n := left + 1; n <= nodes; n++ {
		d.logged(fmt.Sprintf("%d@127.0.0.1:%s for ", n, d.peerPort(n)))
	}
	d.until(fmt.Sprintf("%d of %d are silent and %d are needed", nodes-left, nodes, nodes/2+1), "cluster", "health")
	says(t, "health", d.fails("cluster", "health"), append(dead, "no-controller", "at 127.0.0.1:", "heard of", "by the node that was asked")...)
	says(t, "info", d.ok("", "cluster", "info"), "controller  none", fmt.Sprintf("(%d silent)", nodes-left), fmt.Sprintf("voter %d", nodes))
	says(t, "nodes", d.ok("", "cluster", "nodes"), "unknown")
	says(t, "voters", d.ok("", "cluster", "voters"), "voter", "ago")
	said := d.fails("topic", "create", "more", "--timeout", "12s")
	says(t, "topic create", said, "REQUEST_TIMED_OUT", "no active controller, so nothing was done", fmt.Sprintf("%d@127.0.0.1:", nodes))
	back := d.again(left + 1)
	d.logged("there is an active controller again")
	d.until(`"epoch":`, "cluster", "info", "--json")
	back.Process.Signal(syscall.SIGTERM)
	if err := back.Wait(); err != nil {
		t.Errorf("the node that was started again: %v", err)
	}
}

// TestDirectoryOfAnotherVersionIsRefused: what wrote it is unknown to this pawl, so
// that it changes nothing, and names the file, its version and its own.
func TestDirectoryOfAnotherVersionIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	serve := func(dir string) (*exec.Cmd, *output) {
		said := &output{}
		cmd := program(ctx, t, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--http", "")
		cmd.Stdout, cmd.Stderr = said, said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, said
	}
	dir := t.TempDir()
	first, said := serve(dir)
	for tick := time.NewTicker(20 * time.Millisecond); !strings.Contains(said.text(), "ready\n"); <-tick.C {
		if ctx.Err() != nil {
			t.Fatalf("never ready: %s", said.text())
		}
	}
	first.Process.Signal(syscall.SIGTERM)
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	for file, change := range map[string][2]string{
		"meta.properties":                     {"version=1", "version=2"},
		"checkpoint":                          {"PAWLCKP1", "PAWLCKP2"},
		"quorum/00000000000000000001.journal": {"PAWLJRN1", "PAWLJRN2"},
	} {
		name := filepath.Join(dir, file)
		was, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(was, []byte(change[0])) {
			t.Fatalf("%s: %v", file, err)
		}
		newer := bytes.Replace(was, []byte(change[0]), []byte(change[1]), 1)
		if err := os.WriteFile(name, newer, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd, said := serve(dir)
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: exit status %d", file, cmd.ProcessState.ExitCode())
		}
		says(t, file, said.text(), file, `version "2"`, "this pawl reads", "start the one that wrote it")
		if is, err := os.ReadFile(name); err != nil || !bytes.Equal(is, newer) {
			t.Errorf("%s was changed, or: %v", file, err)
		}
		if err := os.WriteFile(name, was, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// served is a `pawl serve` of a cluster that a test starts by hand.
type served struct {
	cmd  *exec.Cmd
	said *output
	http string
}

// serveOne starts one and does not wait for it.
func serveOne(ctx context.Context, t *testing.T, http string, args ...string) *served {
	t.Helper()
	s := &served{said: &output{}, http: http}
	s.cmd = program(ctx, t, append([]string{"serve", "--data-dir", t.TempDir(), "--http", http}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.said.text())
		}
	})
	return s
}

// get asks the HTTP side, once it is there.
func (s *served) get(ctx context.Context, t *testing.T, path string) (status int, body string) {
	t.Helper()
	for ctx.Err() == nil {
		resp, err := http.Get("http://" + s.http + path)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil {
			return resp.StatusCode, string(text)
		}
	}
	t.Fatalf("nobody answers %s", path)
	return 0, ""
}

// becomes waits until a path answers so.
func (s *served) becomes(ctx context.Context, t *testing.T, path string, status int, want string) {
	t.Helper()
	var got int
	var body string
	for ctx.Err() == nil {
		if got, body = s.get(ctx, t, path); got == status && strings.Contains(body, want) {
			return
		}
	}
	t.Fatalf("%s never answers %d %q, but %d %q", path, status, want, got, body)
}

// says waits until it has said a text.
func (s *served) says(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	for tick := time.NewTicker(20 * time.Millisecond); !strings.Contains(s.said.text(), text); <-tick.C {
		if ctx.Err() != nil {
			t.Fatalf("it never says %q, but: %s", text, s.said.text())
		}
	}
}

// TestTheSecondOfTwoNodesWithOneIDIsToldSo: by its log, once, and by /ready. It
// lives and does not serve, and the first goes on. Without a quorum nobody is ready,
// and who is left is alive.
func TestTheSecondOfTwoNodesWithOneIDIsToldSo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	base := freeBase(t, 5)
	at := func(offset, i int) string { return fmt.Sprintf("127.0.0.1:%d", base+offset+i) }
	controllers := fmt.Sprintf("1@%s,2@%s,3@%s", at(100, 0), at(100, 1), at(100, 2))
	var nodes []*served
	for i := range 3 {
		nodes = append(nodes, serveOne(ctx, t, at(200, i), "--node-id", fmt.Sprint(i+1), "--listen", at(0, i), "--controllers", controllers))
	}
	for _, n := range nodes {
		n.becomes(ctx, t, "/ready", 200, "ready")
	}
	second := serveOne(ctx, t, at(200, 3), "--node-id", "2", "--listen", at(0, 3), "--peer-listen", at(100, 3), "--controllers", controllers)
	second.becomes(ctx, t, "/ready", 503, "another process is in the cluster under this node's id, at "+at(100, 1))
	second.becomes(ctx, t, "/live", 200, "alive")
	const line = `msg="another process is in the cluster under this node's id: stop it, or give this one a --node-id of its own"`
	second.says(ctx, t, line+" node=2 held_by="+at(100, 1))
	says(t, "the second", second.said.text(), "DUPLICATE_BROKER_REGISTRATION")
	second.says(ctx, t, "no quorum yet") // and meanwhile every controller has told it
	if n := strings.Count(second.said.text(), line); n != 1 {
		t.Errorf("it says so %d times", n)
	}
	if strings.Contains(second.said.text(), "ready\n") {
		t.Error("it is ready")
	}
	nodes[1].becomes(ctx, t, "/ready", 200, "ready")
	for _, n := range []*served{second, nodes[0], nodes[1]} { // the third alone decides nothing
		n.cmd.Process.Kill()
		n.cmd.Wait()
	}
	nodes[2].becomes(ctx, t, "/ready", 503, "no active controller is known")
	nodes[2].becomes(ctx, t, "/live", 200, "alive")
	nodes[2].says(ctx, t, "the lease is over")
	nodes[2].cmd.Process.Kill()
	nodes[2].cmd.Wait()
}

// TestTwoNodesWithOneIDBeforeThereIsAQuorumDoNotFloodTheLog: whoever has nobody else
// to hear follows one of them, and says once that there are two.
func TestTwoNodesWithOneIDBeforeThereIsAQuorumDoNotFloodTheLog(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	base := freeBase(t, 5)
	at := func(offset, i int) string { return fmt.Sprintf("127.0.0.1:%d", base+offset+i) }
	controllers := fmt.Sprintf("1@%s,2@%s,3@%s", at(100, 0), at(100, 1), at(100, 2))
	first := serveOne(ctx, t, "", "--node-id", "1", "--listen", at(0, 0), "--controllers", controllers)
	var twins []*served
	for i := 3; i < 5; i++ {
		twins = append(twins, serveOne(ctx, t, at(200, i), "--node-id", "5", "--listen", at(0, i), "--peer-listen", at(100, i), "--controllers", controllers))
	}
	first.says(ctx, t, `msg="two nodes have this id, and ask to join in turn: stop one, or give it a --node-id of its own" node=5`)
	first.says(ctx, t, "no quorum yet")
	if n := strings.Count(first.said.text(), `msg="node is connected" peer=5`); n > 4 {
		t.Errorf("in seconds it made %d connections", n)
	}
	told := func() bool {
		return slices.ContainsFunc(twins, func(n *served) bool { return strings.Contains(n.said.text(), "DUPLICATE_BROKER_REGISTRATION") })
	}
	for tick := time.NewTicker(20 * time.Millisecond); !told(); <-tick.C {
		if ctx.Err() != nil {
			t.Fatal("neither of them is told")
		}
	}
	for _, n := range append(twins, first) {
		n.cmd.Process.Signal(syscall.SIGTERM)
		if err := n.cmd.Wait(); err != nil {
			t.Errorf("it does not stop as it should: %v", err)
		}
	}
}

// TestADataDirectoryThatCannotBeUsedIsOneLine: which names it and the cure, with
// exit status 1; and nothing else is said of it.
func TestADataDirectoryThatCannotBeUsedIsOneLine(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"file", "meta/meta.properties/x", "lock/.lock/x"} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	holder := serveOne(ctx, t, "", "--listen", "127.0.0.1:0")
	holder.says(ctx, t, "ready\n")
	held := holder.cmd.Args[3]
	for _, x := range []struct{ dir, why, cure string }{
		{at("file"), "not a directory", "move it away, or name another with --data-dir"},
		{at("file/below"), "not a directory", "move it away, or name another with --data-dir"},
		{at("meta"), "is a directory", "move it away, or name another with --data-dir"},
		{at("lock"), "is a directory", "move it away, or name another with --data-dir"},
		{held, fmt.Sprintf("is held by process %d", holder.cmd.Process.Pid), "stop that, or name another directory with --data-dir"},
	} {
		cmd := program(ctx, t, "serve", "--data-dir", x.dir, "--listen", "127.0.0.1:0", "--http", "")
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("%s: exit status %d", x.dir, code)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		says(t, x.dir, lines[len(lines)-1], "pawl serve: ", x.dir, x.why, x.cure)
		if len(lines) != 2 { // the first says that it starts
			t.Errorf("%s: %d lines: %s", x.dir, len(lines), out)
		}
	}
	holder.cmd.Process.Signal(syscall.SIGTERM)
	if err := holder.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestAnAdvertisedAddressThatLeadsNowhereIsOneLine: and the node serves.
func TestAnAdvertisedAddressThatLeadsNowhereIsOneLine(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	nowhere := fmt.Sprintf("127.0.0.1:%d", freeBase(t, 1))
	s := serveOne(ctx, t, "", "--listen", "127.0.0.1:0", "--advertise", nowhere)
	s.says(ctx, t, "ready\n")
	s.says(ctx, t, `msg="advertised address may not be reached" by=clients address=`+nowhere)
	s.says(ctx, t, "connection refused")
	s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(s.said.text(), "advertised address may not be reached"); n != 1 {
		t.Errorf("it says so %d times", n)
	}
}

// TestMoreInSyncThanReplicasIsAllowedAndWarnedOf: as in Kafka acks=all then needs all
// that there are, and whoever sets or looks at it is told.
func TestMoreInSyncThanReplicasIsAllowedAndWarnedOf(t *testing.T) {
	d := develop(t, 1)
	const line = "warning: min.insync.replicas is 3, but partition 0 has 1 replica: acks=all needs all of them, and no record is taken while one is missing; set it to at most 1, or add replicas\n"
	_, errs, err := d.run("", "topic", "create", "made", "--replication", "1", "--config", "min.insync.replicas=3")
	if err != nil || !strings.Contains(errs, line) {
		t.Errorf("create: %v: %s", err, errs)
	}
	says(t, "describe", d.ok("", "topic", "describe", "made"), "config min.insync.replicas=3\n"+line)
	d.ok("a\n", "produce", "made", "--acks", "all")
	_, errs, err = d.run("", "topic", "create", "changed", "--replication", "1")
	if err != nil || strings.Contains(errs, "warning") || strings.Contains(d.ok("", "topic", "describe", "changed"), "warning") {
		t.Errorf("create without it: %v: %s", err, errs)
	}
	_, errs, err = d.run("", "topic", "config", "changed", "--set", "min.insync.replicas=3")
	if err != nil || !strings.Contains(errs, line) {
		t.Errorf("config: %v: %s", err, errs)
	}
	_, errs, err = d.run("", "topic", "config", "changed", "--unset", "min.insync.replicas")
	if err != nil || strings.Contains(errs, "warning") {
		t.Errorf("config: %v: %s", err, errs)
	}
	says(t, "health", d.ok("", "cluster", "health"), "healthy: 1 nodes, 2 partitions") // nobody is missing
}

// TestMoreReplicasThanBrokersAreRefused: with both numbers, and who is not there.
func TestMoreReplicasThanBrokersAreRefused(t *testing.T) {
	d := develop(t, 3)
	says(t, "create", d.fails("topic", "create", "more", "--replication", "4"), "INVALID_REPLICATION_FACTOR", "4, but there are 3 brokers")
	if err := syscall.Kill(d.Nodes[2].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.died(3)
	d.until("node-fenced", "cluster", "health")
	says(t, "create", d.fails("topic", "create", "more", "--replication", "4"), "4, but there are 3 brokers; fenced: 3")
	d.ok("", "topic", "create", "enough", "--replication", "3", "--partitions", "1") // it may come back
	d.until("under-replicated", "cluster", "health")
}
