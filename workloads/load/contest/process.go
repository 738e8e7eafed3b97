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

// System is a broker that can be started from the command line.
type System struct {
	Name string
	// Command is a command line that serves clients on listen and /metrics on
	// web, both host:port, with its data in an empty directory.
	Command func(dir, listen, web string) []string
	Env     []string // added to ours
}

// stopWithin is how long a process may take to end before it is killed.
const stopWithin = 10 * time.Second

// Process is a system that runs.
type Process struct {
	Addr    string // host:port for clients
	started time.Time
	web     string
	dir     string
	cmd     *exec.Cmd
	stop    context.CancelFunc
	said    bytes.Buffer // on stderr
}

// Start runs a system on free ports of 127.0.0.1, in an empty directory below
// base.
func (s System) Start(ctx context.Context, base string) (*Process, error) {
	dir, err := os.MkdirTemp(base, "pawl-bench-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Process{Addr: ports[0], web: ports[1], dir: dir, stop: stop}
	line := s.Command(filepath.Clean(dir), p.Addr, p.web)
	p.cmd = exec.CommandContext(ctx, line[0], line[1:]...)
	p.cmd.Env = append(os.Environ(), s.Env...)
	p.cmd.Stderr = &p.said
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopWithin
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
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

// Stop ends the process, waits for it, and empties the files that it leaves. To
// remove them would slow down who comes next: ext4 steps over every inode that
// was freed in the last minutes, one by one, for each file that is made.
func (p *Process) Stop() error {
	p.stop()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.Is(err, context.Canceled) || errors.As(err, &exit) && exit.ExitCode() == -1 {
		err = nil // ended by the signal that was to end it
	}
	return errors.Join(err, empty(p.dir))
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

// complaint adds the last that the process said to an error.
func (p *Process) complaint(err error) error {
	if err == nil {
		return nil
	}
	p.stop()
	p.cmd.Wait() // so that nothing is written to said any more
	lines := strings.Split(strings.TrimSpace(p.said.String()), "\n")
	return fmt.Errorf("%w (it said last: %s)", err, lines[len(lines)-1])
}

// ready waits until the process takes connections.
func (p *Process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return load.Reach(ctx, p.Addr)
}

// clockTick is the unit of /proc/PID/stat. Linux tells user space 100 a second
// on every machine.
const clockTick = time.Second / 100

// cpu is the processor time that the process has taken.
func (p *Process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
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

// memory is what a line of /proc/PID/status says, in bytes: VmRSS for what is
// resident, VmHWM for the most that ever was.
func (p *Process) memory(line string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
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

// syncs is how many times the process has synced a file, as its metrics say.
func (p *Process) syncs(ctx context.Context) (float64, error) {
	const name = "pawl_storage_syncs_total"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.web+"/metrics", nil)
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
