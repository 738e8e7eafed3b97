package job

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// Holder is what jobs run on: a data directory, and its store once Recover has
// opened it.
type Holder struct {
	fs    vfs.FS
	cfg   storage.Config
	store atomic.Pointer[storage.Store]
}

// NewHolder returns the holder of the data directory fs.
func NewHolder(fs vfs.FS, cfg storage.Config) *Holder { return &Holder{fs: fs, cfg: cfg} }

var errNoStore = errors.New("store is not open")

// groupBytes is how many bytes of batches one commit group takes, about.
const groupBytes = 32 << 20

// Run does jobs of one lane, in order, and gives a result for each. Appends that
// follow one another are one commit group. Different lanes may run at the same
// time, and Reads beside Reads; but Recover runs alone, before all others.
func Run(h *Holder, jobs []Job) []Result {
	out := make([]Result, 0, len(jobs))
	for len(jobs) > 0 {
		if n := appends(jobs); n > 0 {
			out = commit(h, jobs[:n], out)
			jobs = jobs[n:]
			continue
		}
		out = append(out, runOne(h, jobs[0]))
		jobs = jobs[1:]
	}
	return out
}

// appends is how many of the first jobs make one commit group.
func appends(jobs []Job) int {
	bytes := 0
	for i, j := range jobs {
		a, ok := j.(Append)
		if !ok || bytes >= groupBytes {
			return i
		}
		for _, b := range a.Batches {
			bytes += len(b)
		}
	}
	return len(jobs)
}

func commit(h *Holder, jobs []Job, out []Result) []Result {
	f := begin(h, jobs)
	f.SyncSegments()
	return append(out, f.Finish()...)
}

// A Flight is a commit group of the lane of logs whose segments are written. It
// must be finished, after the flights that were begun before it.
type Flight struct {
	jobs  []Job
	group *storage.Group // nil if there is no store
}

// Begin is for hosts that overlap commit groups: it begins the group that the
// first jobs make, if that is worth it, and returns the jobs behind. A group is
// worth it that is large, or is of partitions with several replicas: then others
// wait for it. Otherwise it returns no flight and all the jobs, which are to be Run
// when every flight has been finished. It does not keep jobs.
func Begin(h *Holder, jobs []Job) (*Flight, []Job) {
	n := appends(jobs)
	bytes, shared := int64(0), false
	for _, j := range jobs[:n] {
		a := j.(Append)
		shared = shared || a.Early || a.Fetched
		for _, b := range a.Batches {
			bytes += int64(len(b))
		}
	}
	if bytes < h.cfg.LargeAppend && !shared {
		return nil, jobs
	}
	return begin(h, append([]Job(nil), jobs[:n]...)), jobs[n:]
}

func begin(h *Holder, jobs []Job) *Flight {
	f := &Flight{jobs: jobs}
	if st := h.store.Load(); st != nil {
		writes := make([]storage.Write, len(jobs))
		for i, j := range jobs {
			writes[i] = j.(Append).Write
		}
		f.group = st.Begin(writes)
	}
	return f
}

// Early returns the early results that the group's jobs ask for, and can have. It
// comes before Finish.
func (f *Flight) Early() []Result {
	if f.group == nil {
		return nil
	}
	var out []Result
	for i, c := range f.group.Early() {
		if a := f.jobs[i].(Append); a.Early && c.Err == nil {
			out = append(out, Result{Job: a, View: c.View, Early: true})
		}
	}
	return out
}

// Large reports whether SyncSegments has something to do.
func (f *Flight) Large() bool { return f.group != nil && f.group.Large() }

// SyncSegments makes durable what went to segments alone. It may run beside
// other flights.
func (f *Flight) SyncSegments() {
	if f.group != nil {
		f.group.SyncSegments()
	}
}

// Finish commits the group and returns a result for each of its jobs.
func (f *Flight) Finish() []Result {
	out := make([]Result, len(f.jobs))
	for i, j := range f.jobs {
		out[i] = Result{Job: j, Err: errNoStore}
	}
	if f.group == nil {
		return out
	}
	for i, c := range f.group.Finish() {
		out[i].View, out[i].Err = c.View, c.Err
	}
	return out
}

func runOne(h *Holder, j Job) Result {
	r := Result{Job: j}
	st := h.store.Load()
	if _, first := j.(Recover); st == nil && !first {
		r.Err = errNoStore
		return r
	}
	switch j := j.(type) {
	case Recover:
		r.Recovered, r.Err = h.open()
	case Truncate:
		if r.View, r.Err = st.Truncate(j.Log, j.End); r.Err == nil && j.Replay > 0 {
			r.Snapshot, r.After, r.Err = st.Since(j.Log, j.Replay)
		}
	case Reset:
		r.View, r.Err = st.Reset(j.Log, j.Start)
	case RaiseStart:
		r.View, r.Err = st.RaiseStart(j.Log, j.Start, j.Deleted)
	case Delete:
		r.Err = st.Delete(j.Log)
	case BeginCheckpoint:
		r.Err = st.BeginCheckpoint(j.Snapshots)
	case FinishCheckpoint:
		r.Err = st.FinishCheckpoint()
	case Read:
		r.Region, r.Err = j.View.Read(j.From, j.Limit, j.MaxBytes)
	case Lookup:
		r.Found, r.Err = j.run()
	case SaveQuorum:
		r.Err = st.SaveQuorum(j.Records, j.Replace)
	case Close:
		r.Err = st.Close(j.Snapshots)
	default:
		r.Err = fmt.Errorf("job %s: unknown kind", j)
	}
	return r
}

func (j Lookup) run() (storage.TimestampOffset, error) {
	if j.Latest {
		return j.View.MaxTimestamp(j.Limit)
	}
	return j.View.OffsetForTimestamp(j.Timestamp, j.Limit)
}

// open recovers the store. A second Recover is refused: two stores in one
// directory would write over each other.
func (h *Holder) open() (*storage.Recovered, error) {
	if h.store.Load() != nil {
		return nil, errors.New("store is open already")
	}
	st, recovered, err := storage.Open(h.fs, h.cfg)
	if err != nil {
		return nil, err
	}
	h.store.Store(st)
	return &recovered, nil
}

// NotFound is the Offset of a Lookup that found nothing.
const NotFound record.Offset = -1
