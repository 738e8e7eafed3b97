package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlbroker/pawl/cmd/pawl/cli"
)

// graceTime is how long nodes may take to stop before they are killed.
const graceTime = 30 * time.Second

// Command is `pawl dev`.
func Command(a *cli.App) *cobra.Command {
	var count int
	var listen, dataDir string
	var set []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster on this machine",
		Long: fmt.Sprintf(`Run a cluster of real brokers on this machine, each a process of its own, until ctrl-C stops them all. What they log comes
with the number of the node before it. A node that dies is reported and left dead, so that one can see what a cluster does
without it.

Node n listens for clients at the port of --listen plus n-1, for nodes %d above that, and for metrics and health %d above.
Topics have up to three replicas. The data stays in --data-dir, and the cluster goes on with it the next time.`, peerPorts, httpPorts),
		Example: `  pawl dev
  pawl dev --nodes 5 --listen 127.0.0.1:19092 --data-dir /tmp/five
  pawl dev --set auto.create.topics.enable=false`,
		Args: cli.Positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := plan(count, listen, dataDir)
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			c := &cluster{program: self, nodes: nodes, set: set, log: &prefixed{w: a.Err}, out: a.Out, json: asJSON}
			return c.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&count, "nodes", 3, "how many nodes")
	flags.StringVar(&listen, "listen", "127.0.0.1:9092", "where clients connect to the first node, host:port")
	flags.StringVar(&dataDir, "data-dir", "./pawl-dev", "where each node has a directory")
	flags.StringArrayVar(&set, "set", nil, "set key=value for every node, with the names of server.properties")
	flags.BoolVar(&asJSON, "json", false, "print where the nodes are as JSON, for programs")
	return cmd
}

// cluster is the processes of one `pawl dev`.
type cluster struct {
	program string
	nodes   []node
	set     []string
	log     *prefixed
	out     io.Writer
	json    bool

	running  map[int]*process // by index in nodes
	told     bool             // what to connect to was printed
	stopping bool
	failed   error
}

// run starts the nodes and waits until they have stopped: all by themselves, which
// is an error, or because ctx ended.
func (c *cluster) run(ctx context.Context) error {
	// A node is told when the thread that started it ends, which must be with
	// the program and not before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var watchers sync.WaitGroup
	defer watchers.Wait()
	c.running = map[int]*process{}
	ready, ended := make(chan int), make(chan death)
	for i := range c.nodes {
		p, err := start(c.program, arguments(c.nodes, i, c.set), i, c.log)
		if err != nil {
			c.stop(fmt.Errorf("node %d: %w", i+1, err))
			break
		}
		c.running[i], c.nodes[i].PID = p, p.cmd.Process.Pid
		watchers.Go(func() { p.watch(ready, ended) })
	}
	asked, grace := ctx.Done(), time.NewTimer(graceTime)
	defer grace.Stop()
	for len(c.running) > 0 {
		select {
		case i := <-ready:
			c.running[i].ready = true
			c.tell()
		case d := <-ended:
			c.died(d)
		case <-asked:
			asked = nil
			c.log.say("stopping %d nodes", len(c.running))
			c.stop(nil)
			grace.Reset(graceTime)
		case <-grace.C:
			c.killLate()
		}
	}
	return c.failed
}

// stop asks every node to stop; err, if there is one, is why.
func (c *cluster) stop(err error) {
	c.stopping, c.failed = true, errors.Join(c.failed, err)
	for _, p := range c.running {
		p.stop()
	}
}

// killLate ends the nodes that were asked to stop and have not.
func (c *cluster) killLate() {
	for i, p := range c.running {
		if c.stopping {
			c.log.say("node %d does not stop: killed", i+1)
			p.kill()
		}
	}
}

// died takes note that a node has ended.
func (c *cluster) died(d death) {
	delete(c.running, d.node)
	if c.stopping {
		c.failed = errors.Join(c.failed, d.err)
		return
	}
	c.log.say("node %d has died (%v), and pawl dev leaves it dead; start it with: %s", d.node+1, d.why(), c.commandLine(d.node))
	if len(c.running) == 0 {
		c.failed = errors.New("every node has died: the reasons are above")
		return
	}
	c.tell() // if the others waited for it
}

// commandLine is how to start a node by hand.
func (c *cluster) commandLine(i int) string {
	return strings.Join(append([]string{"pawl"}, arguments(c.nodes, i, c.set)...), " ")
}

// tell prints what to connect to, once, when every node that runs is ready.
func (c *cluster) tell() {
	if c.told || c.stopping {
		return
	}
	for _, p := range c.running {
		if !p.ready {
			return
		}
	}
	c.told = true
	if err := c.print(); err != nil {
		c.stop(err)
	}
}

func (c *cluster) print() error {
	told := struct {
		Brokers []string `json:"brokers"`
		Nodes   []node   `json:"nodes"`
	}{}
	for i := range c.nodes {
		if c.running[i] != nil {
			told.Brokers = append(told.Brokers, c.nodes[i].Listen)
			told.Nodes = append(told.Nodes, c.nodes[i])
		}
	}
	if c.json {
		return json.NewEncoder(c.out).Encode(told)
	}
	fmt.Fprintf(c.out, "ready: connect to %s\n", strings.Join(told.Brokers, ","))
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tPID\tCLIENTS\tHEALTH AND METRICS\tDATA")
	for _, n := range told.Nodes {
		fmt.Fprintf(w, "%d\t%d\t%s\thttp://%s/metrics\t%s\n", n.ID, n.PID, n.Listen, n.HTTP, n.DataDir)
	}
	return w.Flush()
}
