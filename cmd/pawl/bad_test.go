package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
