package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// driver is what one connection does: it knows how to send the next request
// and to read the next answer.
type driver interface {
	// send appends the next request to buf, or writes it by itself.
	send(buf []byte) ([]byte, error)
	// receive reads one answer and counts what it carried.
	receive() (records, bytes int64, err error)
}

// worker keeps Depth requests under way on one connection.
type worker struct {
	link  *link
	drive driver
	depth int
	left  int64 // requests that may still be sent, if bounded
	tally Result
	spent []time.Duration
}

// run returns when the window is over and every request is answered. One
// goroutine is enough: it reads the answers that are there, and sends as many
// requests with one write.
func (w *worker) run(win window) error {
	sentAt := make([]time.Time, w.depth) // ring
	var sent, done int
	var buf []byte
	now := time.Now()
	for {
		buf = buf[:0]
		for ; sent-done < w.depth && !win.over(now) && (win.count == 0 || w.left > 0); sent++ {
			var err error
			if buf, err = w.drive.send(buf); err != nil {
				return err
			}
			sentAt[sent%w.depth] = now
			w.left--
		}
		if len(buf) > 0 {
			if _, err := w.link.sock.Write(buf); err != nil {
				return err
			}
		}
		if sent == done {
			return nil
		}
		for first := true; first || sent > done && w.link.ready(); first = false {
			records, bytes, err := w.drive.receive()
			if err != nil {
				return err
			}
			now = time.Now()
			if win.has(now) {
				w.tally.Requests++
				w.tally.Records += records
				w.tally.Bytes += bytes
				w.spent = append(w.spent, now.Sub(sentAt[done%w.depth]))
			}
			done++
		}
	}
}

// run connects, drives every connection, and adds up what they measured.
func run(ctx context.Context, cfg Config, drivers func(l *link, conn int, partitions []int32) driver) (Result, error) {
	led, err := leaders(ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	type broker struct {
		addr       string
		partitions []int32
	}
	var brokers []broker
	for addr, partitions := range led {
		brokers = append(brokers, broker{addr, partitions})
	}
	slices.SortFunc(brokers, func(a, b broker) int { return cmp.Compare(a.addr, b.addr) })
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workers := make([]*worker, cfg.Connections)
	for i := range workers {
		b := brokers[i%len(brokers)]
		l, err := dial(ctx, b.addr)
		if err != nil {
			return Result{}, fmt.Errorf("connect: %w", err)
		}
		defer l.sock.Close()
		defer l.closeWith(ctx)()
		share := cfg.Count / int64(cfg.Connections)
		if int64(i) < cfg.Count%int64(cfg.Connections) {
			share++
		}
		workers[i] = &worker{link: l, drive: drivers(l, i, b.partitions), depth: cfg.Depth, left: share}
	}
	win := cfg.window()
	var group sync.WaitGroup
	for _, w := range workers {
		group.Go(func() {
			if err := w.run(win); err != nil {
				cancel(err) // the others' connections close
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	total := Result{Elapsed: win.attend(cfg.Begin, cfg.End, done)}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, io.EOF) {
		return Result{}, err
	} else if err != nil {
		return Result{}, fmt.Errorf("the broker closed the connection: %w", err)
	}
	var spent []time.Duration
	for _, w := range workers {
		total.Requests += w.tally.Requests
		total.Records += w.tally.Records
		total.Bytes += w.tally.Bytes
		spent = append(spent, w.spent...)
	}
	total.Latency = latencyOf(spent)
	return total, nil
}

// turn goes round the partitions of one connection. Connections begin far
// apart, so that they do not all write to one partition at a time.
type turn struct {
	partitions []int32
	at         int
}

func newTurn(partitions []int32, conn, connections int) turn {
	return turn{partitions, conn * max(len(partitions)/connections, 1) % len(partitions)}
}

func (t *turn) next() int32 {
	p := t.partitions[t.at]
	t.at = (t.at + 1) % len(t.partitions)
	return p
}
