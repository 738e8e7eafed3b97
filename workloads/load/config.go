package load

import (
	"errors"
	"fmt"
	"time"
)

// Config is one load. The zero value of a field that has a default means the
// default.
type Config struct {
	// Brokers are host:port of at least one broker.
	Brokers []string
	Topic   string
	// Partitions is how many the topic has. CreateTopic makes them; the drivers
	// spread their requests over all of them in turn.
	Partitions int
	// Replication is the number of replicas CreateTopic asks for; default 1.
	Replication int

	// Connections and Depth are the raw drivers' concurrency: requests under way
	// on each connection. Defaults 4 and 1.
	Connections, Depth int
	// Records per batch and RecordSize in bytes are what the raw drivers send;
	// franz-go makes its own batches of records of RecordSize. Defaults 1000 and
	// 1024.
	Records, RecordSize int
	// Acks is how many replicas must have a record: 0, 1, or -1 for all in sync.
	Acks int16
	// FetchBytes is the most that one fetch may return of a partition; default 1
	// MiB. Kafka: max.partition.fetch.bytes.
	FetchBytes int32
	// Verify makes Fetch check the CRC and the offsets of every batch. It costs
	// the client as much as reading does.
	Verify bool

	// Warmup is not measured; Duration is. With Count, the run ends instead after
	// that many requests (records, for franz-go), all measured.
	Warmup, Duration time.Duration
	Count            int64

	// Begin and End, if set, are called at both ends of what is measured, so that
	// the caller can read the server's clocks there.
	Begin, End func()
}

// ErrConfig says a load makes no sense.
var ErrConfig = errors.New("bad load")

// maxTopic keeps the topic's length in one byte of a compact string.
const maxTopic = 126

func (c Config) withDefaults() (Config, error) {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&c.Partitions, 1)
	set(&c.Replication, 1)
	set(&c.Connections, 4)
	set(&c.Depth, 1)
	set(&c.Records, 1000)
	set(&c.RecordSize, 1024)
	if c.FetchBytes <= 0 {
		c.FetchBytes = 1 << 20
	}
	if c.Begin == nil {
		c.Begin = func() {}
	}
	if c.End == nil {
		c.End = func() {}
	}
	switch {
	case len(c.Brokers) == 0:
		return c, fmt.Errorf("%w: no brokers", ErrConfig)
	case c.Topic == "" || len(c.Topic) > maxTopic:
		return c, fmt.Errorf("%w: topic of %d characters, want 1 to %d", ErrConfig, len(c.Topic), maxTopic)
	case c.Count <= 0 && c.Duration <= 0:
		return c, fmt.Errorf("%w: neither a duration nor a count", ErrConfig)
	}
	return c, nil
}

// window is the time that is measured.
type window struct {
	begin, end time.Time // zero: without bound
	count      int64     // requests, if not bounded by time
}

func (c Config) window() window {
	if c.Count > 0 {
		return window{count: c.Count}
	}
	begin := time.Now().Add(c.Warmup)
	return window{begin: begin, end: begin.Add(c.Duration)}
}

// has reports whether an answer at t is measured.
func (w window) has(t time.Time) bool {
	return w.end.IsZero() || !t.Before(w.begin) && t.Before(w.end)
}

// over reports whether nothing more is to be sent at t.
func (w window) over(t time.Time) bool { return !w.end.IsZero() && !t.Before(w.end) }

// attend calls begin and end at their times, then waits for the workers. done
// is closed when they are finished, which ends the wait early.
func (w window) attend(begin, end func(), done <-chan struct{}) time.Duration {
	if w.end.IsZero() {
		begin()
		start := time.Now()
		<-done
		elapsed := time.Since(start)
		end()
		return elapsed
	}
	waitUntil(w.begin, done)
	begin()
	waitUntil(w.end, done)
	elapsed := min(time.Since(w.begin), w.end.Sub(w.begin))
	end()
	<-done
	return elapsed
}

func waitUntil(t time.Time, done <-chan struct{}) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}
