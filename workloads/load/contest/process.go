package contest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawlbroker/pawl/workloads/load"
)

// System is a broker, or a cluster of them, that can be started from the command
// line.
type System struct {
	Name  string
	Nodes int // how many processes; 0 is one
	// Command is the command line of process i of those that will be in places.
	Command func(places []Place, i int) []string
	Env     []string // added to ours
}

// Place is where a process of a system is to be.
type Place struct {
	Dir    string // an empty directory for its data
	Listen string // host:port for clients, as the next two
	Peers  string // for other processes of the system
	Web    string // for /metrics
}

// stopWithin is how long a process may take to end before it is killed.
const stopWithin = 10 * time.Second

// Process is a system that runs.
type Process struct {
	Addr    string // host:port for clients, of the first node
	started time.Time
	nodes   []*node
	stop    context.CancelFunc
}

// node is one process of a system.
type node struct {
	Place
	cmd  *exec.Cmd
	said bytes.Buffer // on stderr
}

// Start runs a system on free ports of 127.0.0.1, in empty directories below
// base.
func (s System) Start(ctx context.Context, base string) (*Process, error) {
	n := max(s.Nodes, 1)
	ports, err := freePorts(3 * n)
	if err != nil {
		return nil, err
	}
	places := make([]Place, n)
	for i := range places {
		dir, err := os.MkdirTemp(base, "pawl-bench-")
		if err != nil {
			return nil, err
		}
		places[i] = Place{filepath.Clean(dir), ports[3*i], ports[3*i+1], ports[3*i+2]}
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Process{Addr: places[0].Listen, stop: stop, started: time.Now()}
	for i, place := range places {
		line := s.Command(places, i)
		node := &node{Place: place, cmd: exec.CommandContext(ctx, line[0], line[1:]...)}
		node.cmd.Env = append(os.Environ(), s.Env...)
		node.cmd.Stderr = &node.said
		node.cmd.Cancel = func() error { return node.cmd.Process.Signal(syscall.SIGTERM) }
		node.cmd.WaitDelay = stopWithin
		if err := node.cmd.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", s.Name, err), p.Stop())
		}
		p.nodes = append(p.nodes, node)
	}
	return p, nil
}

// freePorts finds ports that nobody listens on.
func freePorts(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// Stop ends the processes, waits for them, and empties the files that they leave.
// To remove them would slow down who comes next: ext4 steps over every inode that
// was freed in the last minutes, one by one, for each file that is made.
func (p *Process) Stop() error {
	p.stop()
	var errs []error
	for _, n := range p.nodes {
		err := n.cmd.Wait()
		var exit *exec.ExitError
		if errors.Is(err, context.Canceled) || errors.As(err, &exit) && exit.ExitCode() == -1 {
			err = nil // ended by the signal that was to end it
		}
		errs = append(errs, err)
	}
	for _, n := range p.nodes {
		errs = append(errs, empty(n.Dir))
	}
	return errors.Join(errs...)
}

// empty cuts every file below dir to nothing.
func empty(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return os.Truncate(path, 0)
	})
}

// complaint adds the last that each process said to an error.
func (p *Process) complaint(err error) error {
	if err == nil {
		return nil
	}
	p.stop()
	for _, n := range p.nodes {
		n.cmd.Wait() // so that nothing is written to said any more
		lines := strings.Split(strings.TrimSpace(n.said.String()), "\n")
		err = fmt.Errorf("%w (it said last: %s)", err, lines[len(lines)-1])
	}
	return err
}

// ready waits until all processes take connections, and know of each other.
func (p *Process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return load.Reach(ctx, p.Addr, len(p.nodes))
}

// sum adds up what is known of each node.
func sum[T int64 | float64 | time.Duration](p *Process, of func(*node) (T, error)) (total T, err error) {
	for _, n := range p.nodes {
		one, err := of(n)
		if err != nil {
			return 0, err
		}
		total += one
	}
	return total, nil
}

// cpu is the processor time that the system has taken.
func (p *Process) cpu() (time.Duration, error) { return sum(p, (*node).cpu) }

// memory is what a line of /proc/PID/status says, in bytes: VmRSS for what is
// resident, VmHWM for the most that ever was.
func (p *Process) memory(line string) (int64, error) {
	return sum(p, func(n *node) (int64, error) { return n.memory(line) })
}

// syncs is how many times the system has synced a file, as its metrics say.
func (p *Process) syncs(ctx context.Context) (float64, error) {
	return sum(p, func(n *node) (float64, error) { return n.syncs(ctx) })
}

// clockTick is the unit of /proc/PID/stat. Linux tells user space 100 a second
// on every machine.
const clockTick = time.Second / 100

func (n *node) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in brackets that may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat: %q", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, err
}

func (n *node) memory(line string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, l := range strings.Split(string(status), "\n") {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/PID/status: no %s", line)
}

func (n *node) syncs(ctx context.Context) (float64, error) {
	const name = "pawl_storage_syncs_total"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Web+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no %s in the metrics", name)
}
