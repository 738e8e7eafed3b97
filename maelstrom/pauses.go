package maelstrom

import (
	"sync"
	"time"
)

// pauses notices that the process was stopped for a while. A message that is
// read right after that may have waited in the pipe all the time, and whoever
// sent it may have given up.
type pauses struct {
	mu      sync.Mutex
	ticked  time.Time // when the process was last seen running
	stopped time.Time // the last time before a pause, and
	resumed time.Time // the first after it
}

const (
	// tickEvery is how often a running process says that it runs.
	tickEvery = 50 * time.Millisecond
	// longPause is how long it must have been silent to have been stopped.
	longPause = 500 * time.Millisecond
	// backlogTime is how long after a pause what is read may have waited.
	backlogTime = time.Second
)

// run ticks until stop is closed.
func (p *pauses) run(stop <-chan struct{}) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.tick(time.Now())
		case <-stop:
			return
		}
	}
}

// tick says that the process runs.
func (p *pauses) tick(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ticked.IsZero() && now.Sub(p.ticked) > longPause {
		p.stopped, p.resumed = p.ticked, now
	}
	p.ticked = now
}

// arrival is the earliest time at which a message that was just read may have
// been sent.
func (p *pauses) arrival(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.ticked.IsZero() && now.Sub(p.ticked) > longPause:
		return p.ticked
	case !p.resumed.IsZero() && now.Sub(p.resumed) < backlogTime:
		return p.stopped
	}
	return now
}
