package tcp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/vfs"
)

const (
	// sendfileFrom is how long a region must be for sendfile to be cheaper than
	// a read and a copy.
	sendfileFrom = 16 << 10 // bytes
	// pieceBytes is the most that goes out under one deadline.
	pieceBytes = 1 << 20
	// gatherBytes is how much is gathered before it is written.
	gatherBytes = 256 << 10
	// keptBytes is the biggest buffer that waits for the next responses.
	keptBytes = 64 << 10
	// writeAtMost bounds how many responses are popped at once.
	writeAtMost = 64
)

// write is the writer goroutine.
func (c *conn) write() {
	defer c.s.workers.Done()
	w := writer{c: c}
	for {
		ready, ok := c.popReady(w.ready[:0])
		if !ok {
			return
		}
		has, last, err := w.send(ready)
		clear(ready)
		w.ready = ready
		c.s.give(has)
		c.mu.Lock()
		c.writing = false
		c.room.Signal()
		c.mu.Unlock()
		if err != nil {
			c.s.log.Debug("response not sent", slog.String("client", c.tcp.RemoteAddr().String()), slog.Any("err", err))
			if e := (*storage.RegionError)(nil); errors.As(err, &e) {
				c.s.post(broker.ReadFailed{RegionError: e})
			}
		}
		if err != nil || last {
			c.close()
			return
		}
	}
}

// popReady waits for responses whose turn it is and appends them to ready. It
// reports false once the connection is closed.
func (c *conn) popReady(ready []wire.Ready[request]) ([]wire.Ready[request], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.order.Ready() && !c.closed {
		c.some.Wait()
	}
	if c.closed {
		return nil, false
	}
	for len(ready) < writeAtMost {
		r, ok := c.order.Pop()
		if !ok {
			break
		}
		ready = append(ready, r)
	}
	c.writing = true
	return ready, true
}

// writer sends the responses of one connection.
type writer struct {
	c        *conn
	ready    []wire.Ready[request]
	frame    wire.Frame
	gathered []byte    // to be written next
	deadline time.Time // of writes, as set
}

// send sends responses. has is what their requests held; last says the
// connection is to be closed after them.
func (w *writer) send(ready []wire.Ready[request]) (has held, last bool, err error) {
	for i := range ready {
		r := &ready[i]
		has.add(r.Tag.held)
		if err != nil || last {
			continue
		}
		switch {
		case r.Tag.forwarded:
			err = w.frame.AppendForwarded(r.Correlation, r.Response)
		case r.Response.Body != nil:
			err = w.frame.Append(r.Correlation, r.Response.Body)
		}
		last = r.Response.Close
		if err == nil && len(w.frame.Bytes) >= gatherBytes {
			err = w.flush()
		}
	}
	if err == nil {
		err = w.flush()
	}
	for i := range ready {
		// What a response has of its request, such as a topic's name, is sent by now.
		if err == nil {
			w.c.s.pool.put(spent(&ready[i]))
		}
	}
	return has, last, err
}

// spent is the frame of a request whose response was sent, unless somebody may
// read it yet.
func spent(r *wire.Ready[request]) []byte {
	if r.Response.InUse {
		return nil
	}
	return r.Tag.frame
}

// flush sends the frame and empties it.
func (w *writer) flush() error {
	err := w.sendFrame()
	w.frame.Reset()
	if cap(w.frame.Bytes) > keptBytes {
		w.frame.Bytes = nil
	}
	w.gathered = w.gathered[:0]
	if cap(w.gathered) > keptBytes {
		w.gathered = nil
	}
	return err
}

func (w *writer) sendFrame() error {
	f, at := &w.frame, 0
	for _, h := range f.Holes {
		head := f.Bytes[at:h.At]
		at = h.At
		file, ok := h.Region.File.(vfs.OSFile)
		if !ok || h.Region.Len < sendfileFrom {
			w.gathered = append(w.gathered, head...)
			if err := w.copyRegion(h.Region); err != nil {
				return err
			}
			continue
		}
		if len(w.gathered) > 0 {
			w.gathered = append(w.gathered, head...)
			head = w.gathered
		}
		if err := w.writePieces(head, true); err != nil {
			return err
		}
		w.gathered = w.gathered[:0]
		if err := w.sendRegion(file.OSFile(), h.Region); err != nil {
			return err
		}
	}
	tail := f.Bytes[at:]
	if len(w.gathered) > 0 {
		tail = append(w.gathered, tail...)
		w.gathered = tail
	}
	return w.writePieces(tail, false)
}

// copyRegion gathers a region's bytes, and writes them when they are many.
func (w *writer) copyRegion(r storage.Region) error {
	for r.Len > 0 {
		n := min(r.Len, gatherBytes)
		from := len(w.gathered)
		w.gathered = append(w.gathered, make([]byte, n)...)
		if got, err := r.File.ReadAt(w.gathered[from:], r.Pos); int64(got) < n {
			if err == nil || errors.Is(err, io.EOF) {
				return fmt.Errorf("read region at %d: %w", r.Pos, io.ErrUnexpectedEOF) // it was cut meanwhile
			}
			return &storage.RegionError{Region: r, Err: err}
		}
		r.Pos, r.Len = r.Pos+n, r.Len-n
		if len(w.gathered) >= gatherBytes {
			if err := w.writePieces(w.gathered, true); err != nil {
				return err
			}
			w.gathered = w.gathered[:0]
		}
	}
	return nil
}

// writePieces writes p. more says that something follows at once, so that the
// kernel need not send a packet yet.
func (w *writer) writePieces(p []byte, more bool) error {
	for len(p) > 0 {
		n := min(len(p), pieceBytes)
		if err := w.extend(); err != nil {
			return err
		}
		if err := writeAll(w.c.tcp, w.c.raw, p[:n], more || n < len(p)); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// sendRegion sends bytes of a file without reading them.
func (w *writer) sendRegion(f *os.File, r storage.Region) error {
	for r.Len > 0 {
		piece := min(r.Len, pieceBytes)
		if err := w.extend(); err != nil {
			return err
		}
		switch err := sendFile(w.c.tcp, w.c.raw, f, r.Pos, piece); {
		case errors.Is(err, syscall.EIO): // the file's: sockets give others
			return &storage.RegionError{Region: r, Err: err}
		case err != nil:
			return fmt.Errorf("send %s at %d: %w", f.Name(), r.Pos, err)
		}
		r.Pos, r.Len = r.Pos+piece, r.Len-piece
	}
	return nil
}

// extend gives the client the time for one more piece. The deadline is moved
// only when a quarter of it has gone by, since to set it is not free.
func (w *writer) extend() error {
	timeout := w.c.s.cfg.WriteTimeout
	now := time.Now()
	if w.deadline.Sub(now) >= timeout-timeout/4 {
		return nil
	}
	w.deadline = now.Add(timeout)
	return w.c.tcp.SetWriteDeadline(w.deadline)
}
