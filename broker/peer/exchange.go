package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/wire"
)

const (
	// readBuffer is what a link reads ahead.
	readBuffer = 32 << 10 // bytes
	// writeBytes is how much is gathered before it is written.
	writeBytes = 256 << 10
	// keptBytes is the biggest buffer that waits for the next requests.
	keptBytes = 64 << 10
	// wholeBytes is the longest response whose memory is made at once.
	wholeBytes = 16 << 20
	// pieceBytes is what must arrive of a long response in one CallTimeout.
	pieceBytes = 1 << 20
)

// errOrder says the other node answers something it was not asked.
var errOrder = errors.New("answer to no call")

// serve reads and writes conn, the link's connection, until it breaks or ctx
// ends, and says why.
func (l *link) serve(ctx context.Context, conn *net.TCPConn) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		l.down(conn)
	})
	defer func() {
		if !stop() {
			<-ended
		}
	}()
	var writer sync.WaitGroup
	var failed error
	writer.Go(func() {
		if failed = l.write(conn); failed != nil {
			l.down(conn)
		}
	})
	err := l.read(conn)
	l.down(conn)
	writer.Wait()
	if failed != nil && (err == nil || errors.Is(err, net.ErrClosed)) {
		err = failed
	}
	return err
}

// read reads answers until the connection breaks.
func (l *link) read(conn *net.TCPConn) error {
	in := bufio.NewReaderSize(conn, readBuffer)
	progress := func() { conn.SetReadDeadline(time.Now().Add(l.c.cfg.CallTimeout)) }
	for {
		frame, err := readFrame(in, l.c.cfg.MaxResponse, progress)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.c.log.Warn("node does not answer", l.attr(), slog.String("link", l.kind.String()))
		}
		if err != nil {
			return err
		}
		call, err := l.front(conn)
		if err == nil && wire.Correlation(frame) != call.correlation {
			err = errOrder
		}
		var resp any
		if err == nil {
			resp, err = l.decode(call, frame)
		}
		if errors.Is(err, errOrder) || errors.Is(err, wire.ErrMalformed) {
			l.c.log.Error("node's answer cannot be read", l.attr(), slog.String("link", l.kind.String()), slog.Any("err", err))
		}
		if err != nil {
			return err
		}
		if !l.answered(conn) {
			return net.ErrClosed
		}
		l.c.post(broker.PeerReply{From: l.to.ID, Call: call.id, Response: resp})
	}
}

func (l *link) decode(call openCall, frame []byte) (resp any, err error) {
	defer func() {
		if v := recover(); v != nil { // another node must not be able to stop this one
			l.c.log.Error("decoder panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("%w: panic", wire.ErrMalformed)
		}
	}()
	return wire.DecodeResponse(call.req, frame)
}

// readBody reads size bytes. Memory for very many is made as they arrive.
func readBody(r io.Reader, size int, progress func()) ([]byte, error) {
	frame := make([]byte, 0, min(size, wholeBytes))
	for len(frame) < size {
		if progress != nil {
			progress()
		}
		if len(frame) == cap(frame) {
			frame = slices.Grow(frame, min(size-len(frame), len(frame)))
		}
		from := len(frame)
		frame = frame[:min(size, cap(frame), from+pieceBytes)]
		if _, err := io.ReadFull(r, frame[from:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return frame, nil
}

// write encodes and writes requests until conn is not the link's any more.
func (l *link) write(conn *net.TCPConn) error {
	var requests []queued
	var frame []byte
	for {
		var ok bool
		if requests, ok = l.take(conn, requests); !ok {
			return nil
		}
		for i := range requests {
			frame = wire.AppendRequest(frame, requests[i].correlation, clientID, requests[i].req)
			if len(frame) < writeBytes && i < len(requests)-1 {
				continue
			}
			if err := conn.SetWriteDeadline(time.Now().Add(l.c.cfg.CallTimeout)); err != nil {
				return err
			}
			if _, err := conn.Write(frame); err != nil {
				return err
			}
			frame = frame[:0]
			if cap(frame) > keptBytes {
				frame = nil
			}
		}
		clear(requests)
	}
}
