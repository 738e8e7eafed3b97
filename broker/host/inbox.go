package host

import (
	"sync"
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
)

// inbox is the loop's queue. It is never full: bounds stand at the door, where
// requests are admitted. The loop takes everything that is there at once, which
// is what makes a mutex cheaper here than a channel.
type inbox struct {
	mu     sync.Mutex
	events []broker.Event
	asleep bool // the loop waits for wake
	nudged bool // the next take does not wait
	closed bool

	wake  chan struct{} // holds one
	timer *time.Timer
}

func (q *inbox) post(events []broker.Event) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	q.events = append(q.events, events...)
	wake := q.asleep
	q.asleep = false
	q.mu.Unlock()
	if wake {
		q.wake <- struct{}{}
	}
}

// nudge ends a take that waits, or else keeps the next one from waiting.
func (q *inbox) nudge() {
	q.mu.Lock()
	q.nudged = true
	q.mu.Unlock()
	q.post(nil)
}

// take returns all events, or none once the time for a wake has come or after a
// nudge. spare is memory to use again. times says what the time is and when the
// wake is due.
func (q *inbox) take(spare []broker.Event, times func() (now, wake clock.Instant)) []broker.Event {
	q.mu.Lock()
	if len(q.events) > 0 || q.nudged {
		defer q.mu.Unlock()
		return q.swap(spare)
	}
	q.mu.Unlock()

	// Looked at only when there is nothing to do, and before falling asleep, so
	// that the mutex is held for no longer than a swap.
	now, due := times()
	if due <= now {
		return spare[:0]
	}
	q.mu.Lock()
	if len(q.events) > 0 || q.nudged {
		defer q.mu.Unlock()
		return q.swap(spare)
	}
	q.asleep = true
	q.mu.Unlock()

	if !q.sleep(now, due) {
		q.mu.Lock()
		if q.asleep {
			q.asleep = false
		} else {
			<-q.wake // a poster saw the loop asleep and is about to say so
		}
		q.mu.Unlock()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.swap(spare)
}

// sleep waits to be woken until due, and reports whether it was.
func (q *inbox) sleep(now, due clock.Instant) bool {
	if due == clock.Never {
		<-q.wake
		return true
	}
	if q.timer == nil {
		q.timer = time.NewTimer(due.Sub(now))
	} else {
		q.timer.Reset(due.Sub(now))
	}
	defer q.timer.Stop()
	select {
	case <-q.wake:
		return true
	case <-q.timer.C:
		return false
	}
}

func (q *inbox) swap(spare []broker.Event) []broker.Event {
	events := q.events
	q.events, q.nudged = spare[:0], false
	return events
}

// close makes the inbox forget what comes.
func (q *inbox) close() {
	q.mu.Lock()
	q.closed, q.events = true, nil
	q.mu.Unlock()
}
