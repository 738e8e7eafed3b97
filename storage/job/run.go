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
	st := h.store.Load()
	writes := make([]storage.Write, len(jobs))
	for i, j := range jobs {
		writes[i] = j.(Append).Write
	}
	var done []storage.Committed
	if st != nil {
		done = st.Commit(writes)
	}
	for i, j := range jobs {
		if st == nil {
			out = append(out, Result{Job: j, Err: errNoStore})
			continue
		}
		out = append(out, Result{Job: j, Err: done[i].Err, View: done[i].View})
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
		r.View, r.Err = st.Truncate(j.Log, j.End)
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
