package sim

import (
	"time"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/broker/clock"
	"github.com/pawlbroker/pawl/sim/kernel"
	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage/job"
)

// lane is one queue of disk work. In the lane of logs commit groups overlap as they
// do in broker/host: while one is on its way, the next may be begun, and what is
// early is told of; they are finished in order, and nothing else runs before they
// are.
type lane struct {
	queue    []job.Job
	turn     bool   // one is scheduled
	running  bool   // what was done in the last turn is still to be told
	told     []told // at scheduled instants, in order
	lastTold clock.Instant
	flights  []*flight // oldest first
	hold     hold
}

// hold is what the queue waits for, beside its turn.
type hold uint8

const (
	noHold  hold = iota
	forSlot      // too many flights
	forAll       // what is next cannot go beside flights
)

// told is the results of one group.
type told struct {
	results []job.Result
	flight  bool
}

// flight is a commit group on its way.
type flight struct {
	id     uint64
	group  *job.Flight
	large  bool
	synced bool
}

// full reports whether no more flights may begin.
func (l *lane) full() bool {
	heavy := 0
	for _, f := range l.flights {
		if f.large {
			heavy++
		}
	}
	return len(l.flights) == maxFlights || heavy > maxHeavy
}

// maxFlights is how many may be on their way at once, and maxHeavy how many large ones
// the lane does not wait for.
const (
	maxFlights = 32
	maxHeavy   = 4
)

// Submit implements broker.Disk.
func (m *machine) Submit(j job.Job) {
	m.w.check.Submitted(m.id, j)
	n := j.Lane()
	l := &m.lanes[n]
	l.queue = append(l.queue, j)
	if n == job.Reads {
		m.after(m.diskDelay(), whatLookup, 0)
		return
	}
	m.takeTurn(n)
}

// takeTurn schedules the next turn of a lane, if it needs one.
func (m *machine) takeTurn(n job.Lane) {
	l := &m.lanes[n]
	if !l.turn && !l.running && l.hold == noHold && len(l.queue) > 0 {
		l.turn = true
		m.after(m.diskDelay(), whatLane, uint64(n))
	}
}

func (m *machine) diskDelay() time.Duration {
	d := kernel.Skewed(m.disks, 10*time.Microsecond, time.Duration(m.w.cfg.DiskMicros)*time.Microsecond)
	if m.slowUntil > m.w.k.Now() {
		d *= 50
	}
	return d
}

// runLane takes everything that waits in a lane: as flights, as far as it is
// commit groups that may overlap, else as one piece of work.
func (m *machine) runLane(n job.Lane) {
	l := &m.lanes[n]
	jobs := l.queue
	l.queue, l.turn = nil, false
	for n == job.Logs && len(jobs) > 0 {
		if l.full() {
			l.queue, l.hold = jobs, forSlot
			return
		}
		var f *job.Flight
		rest := jobs
		if !m.blocking("begin", n, jobs, func() { f, rest = m.work.begin(jobs) }) {
			return
		}
		if f == nil {
			break
		}
		m.flightID++
		l.flights = append(l.flights, &flight{id: m.flightID, group: f, large: f.Large()})
		if early := f.Early(); len(early) > 0 {
			m.w.count("append shown early")
			m.tell(n, told{early, true})
		}
		m.after(m.diskDelay(), whatSync, m.flightID)
		jobs = rest
	}
	switch {
	case len(jobs) == 0:
	case len(l.flights) > 0:
		l.queue, l.hold = jobs, forAll
	default:
		if results, ok := m.run(jobs); ok {
			l.running = true
			m.tell(n, told{results: results})
		}
	}
}

// syncFlight makes a flight's segments durable, beside whatever else goes on.
func (m *machine) syncFlight(id uint64) {
	l := &m.lanes[job.Logs]
	for _, f := range l.flights {
		if f.id == id {
			if !m.blocking("sync", job.Logs, nil, f.group.SyncSegments) {
				return
			}
			f.synced = true
		}
	}
	m.land()
}

// land schedules the end of the oldest flight, once it can come.
func (m *machine) land() {
	if l := &m.lanes[job.Logs]; len(l.flights) > 0 && l.flights[0].synced {
		m.after(m.diskDelay()/4, whatFinish, 0)
	}
}

func (m *machine) finishFlight() {
	l := &m.lanes[job.Logs]
	if len(l.flights) == 0 || !l.flights[0].synced {
		return
	}
	f := l.flights[0]
	l.flights = l.flights[1:]
	var results []job.Result
	if !m.blocking("finish", job.Logs, nil, func() { results = f.group.Finish() }) {
		return
	}
	m.w.count("commit group overlapped")
	m.tell(job.Logs, told{results, true})
	m.land()
	if l.hold == forSlot || len(l.flights) == 0 {
		l.hold = noHold
		m.takeTurn(job.Logs)
	}
}

// run does jobs, unless the machine dies over them.
func (m *machine) run(jobs []job.Job) (results []job.Result, ok bool) {
	if _, last := jobs[len(jobs)-1].(job.Close); last {
		m.closing = true
	}
	if !m.blocking("ran", jobs[0].Lane(), jobs, func() { results = m.work.run(jobs) }) {
		return nil, false
	}
	if len(results) != len(jobs) {
		m.w.check.Violate("one result for each job", "%d jobs, %d results", len(jobs), len(results))
	}
	return results, true
}

// blocking does disk work, and says whether the process has outlived it.
func (m *machine) blocking(what string, n job.Lane, jobs []job.Job, f func()) bool {
	m.guard(f)
	m.w.check.ReadErrors = m.w.check.ReadErrors || m.disk.Hits(simdisk.ReadError) > 0
	m.w.k.Trace.Event(m.who, what, uint64(n), uint64(len(jobs)), uint64(m.disk.Sum()))
	if m.disk.Crashed() {
		m.powerOff()
		return false
	}
	return m.node != nil
}

// tell lets the node know of results after a while, in the order of the lane.
func (m *machine) tell(n job.Lane, t told) {
	l := &m.lanes[n]
	l.told = append(l.told, t)
	l.lastTold = max(l.lastTold, m.w.k.Now().Add(m.diskDelay()))
	m.w.k.At(l.lastTold, m, whatResults, uint64(n)<<32|m.life)
}

func (m *machine) tellResults(n job.Lane) {
	l := &m.lanes[n]
	t := l.told[0]
	l.told = l.told[1:]
	life := m.life
	for _, r := range t.results {
		if r.Recovered != nil {
			m.w.check.Recovered(m.id, r.Recovered, m.clean, m.closing)
			m.closing = false
			m.w.noteRecovery(r.Recovered)
		}
		m.step(broker.JobDone{Result: r})
		if m.life != life || m.node == nil {
			return
		}
	}
	if !t.flight {
		l.running = false
	}
	m.takeTurn(n)
}

// runLookup runs one job of the lane whose jobs overtake each other.
func (m *machine) runLookup() {
	l := &m.lanes[job.Reads]
	if len(l.queue) == 0 {
		return
	}
	j := l.queue[0]
	l.queue = l.queue[1:]
	results, ok := m.run([]job.Job{j})
	if !ok || len(results) != 1 {
		return
	}
	slot := len(m.lookups)
	if n := len(m.free); n > 0 {
		slot, m.free = m.free[n-1], m.free[:n-1]
	} else {
		m.lookups = append(m.lookups, job.Result{})
	}
	m.lookups[slot] = results[0]
	m.after(m.diskDelay(), whatLookupDone, uint64(slot))
}
