package host

import (
	"sync"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/storage/assert"
	"github.com/pawlbroker/pawl/storage/job"
)

// lane is a queue of jobs and those who wait for them.
type lane struct {
	mu     sync.Mutex
	some   sync.Cond
	jobs   []job.Job
	closed bool
}

func newLane() *lane {
	l := &lane{}
	l.some.L = &l.mu
	return l
}

func (l *lane) add(jobs []job.Job) {
	l.mu.Lock()
	l.jobs = append(l.jobs, jobs...)
	l.mu.Unlock()
	if len(jobs) == 1 {
		l.some.Signal()
	} else {
		l.some.Broadcast()
	}
}

// close ends the lane. Jobs that were not taken are never run: the node is
// gone, and nothing it wanted was promised to anyone.
func (l *lane) close() {
	l.mu.Lock()
	l.closed, l.jobs = true, nil
	l.mu.Unlock()
	l.some.Broadcast()
}

// takeAll waits for jobs and returns all there are, or none once the lane is
// closed. spare is memory to use again.
func (l *lane) takeAll(spare []job.Job) []job.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.jobs) == 0 && !l.closed {
		l.some.Wait()
	}
	jobs := l.jobs
	l.jobs = spare[:0]
	return jobs
}

// takeOne waits for a job.
func (l *lane) takeOne() (job.Job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.jobs) == 0 && !l.closed {
		l.some.Wait()
	}
	if l.closed {
		return nil, false
	}
	j := l.jobs[0]
	l.jobs[0] = nil
	l.jobs = l.jobs[1:]
	return j, true
}

// takeMore adds what has come meanwhile to jobs.
func (l *lane) takeMore(jobs []job.Job) []job.Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	jobs = append(jobs, l.jobs...)
	clear(l.jobs)
	l.jobs = l.jobs[:0]
	return jobs
}

// runAll runs a lane whose jobs are one sequence: what has queued up while
// others ran is one group.
func (h *Host) runAll(l *lane) {
	defer h.recoverCrash("lane")
	var jobs []job.Job
	for {
		jobs = l.takeAll(jobs)
		if len(jobs) == 0 {
			return
		}
		h.run(jobs)
		clear(jobs)
	}
}

func (h *Host) run(jobs []job.Job) {
	results := h.cfg.Run(jobs)
	assert.That(len(results) == len(jobs), "host: not one result for each job")
	h.report(results)
}

func (h *Host) report(results []job.Result) {
	if len(results) == 0 {
		return
	}
	events := make([]broker.Event, len(results))
	for i, r := range results {
		events[i] = broker.JobDone{Result: r}
	}
	h.inbox.post(events)
}

// maxFlights is how many commit groups may be on their way at once, and maxHeavy how
// many that are large. What comes while one is being synced goes with the next sync
// only if it has begun by then; so there must be room for many small ones.
const (
	maxFlights = 32
	maxHeavy   = 4
)

// runLogs runs the lane of logs. Commit groups overlap, if Begin lets them: while
// one is being synced, the next is written, and what is early is told of. They are
// finished in order, and nothing else runs before they are.
func (h *Host) runLogs(l *lane) {
	defer h.recoverCrash("lane of logs")
	var flying sync.WaitGroup
	defer flying.Wait()
	slots, heavy := make(chan struct{}, maxFlights), make(chan struct{}, maxHeavy)
	landed := make(chan struct{}) // closed when the newest flight has landed
	close(landed)
	var jobs []job.Job
	for {
		jobs = l.takeAll(jobs)
		if len(jobs) == 0 {
			return
		}
		for rest := jobs; len(rest) > 0; {
			var f Flight
			if h.cfg.Begin != nil {
				slots <- struct{}{}
				all := l.takeMore(rest)
				if f, rest = h.cfg.Begin(all); f == nil {
					<-slots
				} else {
					clear(all[:len(all)-len(rest)])
				}
			}
			if f == nil {
				<-landed
				rest = l.takeMore(rest)
				h.run(rest)
				clear(rest)
				break
			}
			h.report(f.Early())
			before, done := landed, make(chan struct{})
			landed = done
			large := f.Large()
			if large {
				heavy <- struct{}{}
			}
			flying.Go(func() {
				defer h.recoverCrash("commit group")
				defer close(done)
				defer func() { <-slots }()
				if large {
					defer func() { <-heavy }()
				}
				f.SyncSegments()
				<-before
				h.report(f.Finish())
			})
		}
		clear(jobs)
	}
}

// runOne runs jobs that do not depend on each other.
func (h *Host) runOne(l *lane) {
	defer h.recoverCrash("lane")
	for {
		j, ok := l.takeOne()
		if !ok {
			return
		}
		results := h.cfg.Run([]job.Job{j})
		assert.That(len(results) == 1, "host: not one result for each job")
		h.Post(broker.JobDone{Result: results[0]})
	}
}
