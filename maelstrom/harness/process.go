package harness

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Process is one life of a node.
type Process interface {
	Stdin() io.Writer
	Stdout() io.Reader
	// Kill ends the process with no warning. Its standard output ends.
	Kill() error
	// Pause stops the process where it is; Resume lets it go on.
	Pause() error
	Resume() error
	// Wait returns when the process has ended; it is called once, after Stdout
	// has been read to its end.
	Wait() error
}

// Launcher starts a node. It is given the same name in every life of a node,
// so that the node finds what it wrote.
type Launcher func(name string) (Process, error)

// command is a child process.
type command struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
}

// Command returns a launcher of real processes. Make is called for each life;
// it leaves standard input and output alone.
func Command(make func(name string) *exec.Cmd) Launcher {
	return func(name string) (Process, error) {
		cmd := make(name)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return &command{cmd, stdin, stdout}, nil
	}
}

func (c *command) Stdin() io.Writer  { return c.stdin }
func (c *command) Stdout() io.Reader { return c.stdout }
func (c *command) Kill() error       { return c.cmd.Process.Kill() }
func (c *command) Pause() error      { return c.cmd.Process.Signal(syscall.SIGSTOP) }
func (c *command) Resume() error     { return c.cmd.Process.Signal(syscall.SIGCONT) }

func (c *command) Wait() error {
	err := c.cmd.Wait()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// inside is a node that runs in this process. A pause is not felt.
type inside struct {
	stdin   *io.PipeWriter
	stdout  *io.PipeReader
	closers []io.Closer
	once    sync.Once
	ended   chan struct{}
}

// Inside returns a launcher of nodes that are functions: serve is called for
// each life and returns when its input ends.
func Inside(serve func(name string, in io.Reader, out io.Writer)) Launcher {
	return func(name string) (Process, error) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p := &inside{stdin: inW, stdout: outR, closers: []io.Closer{inR, inW, outW}, ended: make(chan struct{})}
		go func() {
			defer close(p.ended)
			serve(name, inR, outW)
			p.Kill()
		}()
		return p, nil
	}
}

func (p *inside) Stdin() io.Writer  { return p.stdin }
func (p *inside) Stdout() io.Reader { return p.stdout }
func (p *inside) Pause() error      { return nil }
func (p *inside) Resume() error     { return nil }

func (p *inside) Kill() error {
	p.once.Do(func() {
		for _, c := range p.closers {
			c.Close()
		}
	})
	return nil
}

func (p *inside) Wait() error {
	<-p.ended
	return nil
}
