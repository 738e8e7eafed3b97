package dev

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// process is a node that was started.
type process struct {
	index int
	cmd   *exec.Cmd
	out   io.Reader
	lines *line
	ready bool // it serves
}

// death is the end of a process.
type death struct {
	node int
	err  error // nil if it stopped in good order
}

func (d death) why() string {
	if d.err == nil {
		return "it stopped in good order"
	}
	return d.err.Error()
}

func start(program string, args []string, index int, log *prefixed) (*process, error) {
	p := &process{index: index, cmd: exec.Command(program, args...), lines: log.of(index + 1)}
	p.cmd.SysProcAttr = attributes()
	p.cmd.Stderr = p.lines
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = out
	return p, p.cmd.Start()
}

// watch says when the process is ready and when it has ended.
func (p *process) watch(ready chan<- int, ended chan<- death) {
	for s := bufio.NewScanner(p.out); s.Scan(); {
		if s.Text() == "ready" {
			ready <- p.index
		}
	}
	err := p.cmd.Wait()
	p.lines.flush()
	if err != nil {
		err = fmt.Errorf("node %d: %w", p.index+1, err)
	}
	ended <- death{p.index, err}
}

// stop asks the process to stop in good order.
func (p *process) stop() { p.cmd.Process.Signal(syscall.SIGTERM) }

func (p *process) kill() { p.cmd.Process.Signal(os.Kill) }

// prefixed writes lines of several processes, each whole and with who wrote it
// before it.
type prefixed struct {
	mu sync.Mutex
	w  io.Writer
}

// say writes a line of pawl dev itself.
func (p *prefixed) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "dev    | "+format+"\n", args...)
}

func (p *prefixed) of(node int) *line { return &line{to: p, prefix: fmt.Sprintf("node %d | ", node)} }

// line is what one process writes.
type line struct {
	to     *prefixed
	prefix string
	begun  []byte // a line without its end
}

// maxLine is how much of a line is kept until its end comes.
const maxLine = 64 << 10 // bytes

// Write implements io.Writer.
func (l *line) Write(p []byte) (int, error) {
	l.begun = append(l.begun, p...)
	for {
		i := bytes.IndexByte(l.begun, '\n')
		if i < 0 && len(l.begun) < maxLine {
			return len(p), nil
		}
		if i < 0 {
			l.flush()
			return len(p), nil
		}
		l.write(l.begun[:i])
		l.begun = append(l.begun[:0], l.begun[i+1:]...)
	}
}

// flush writes what has no end.
func (l *line) flush() {
	if len(l.begun) > 0 {
		l.write(l.begun)
		l.begun = l.begun[:0]
	}
}

func (l *line) write(text []byte) {
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	fmt.Fprintf(l.to.w, "%s%s\n", l.prefix, text)
}
