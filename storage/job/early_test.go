package job_test

import (
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

func early(j job.Append) job.Append   { j.Early = true; return j }
func fetched(j job.Append) job.Append { j.Fetched = true; return j }

// TestWhichGroupsAreBegun says that one append that somebody waits for is enough, and
// that only those which ask for it have an early result, if they can be done.
func TestWhichGroupsAreBegun(t *testing.T) {
	cfg := storage.DefaultConfig()
	cfg.LargeAppend = 1000
	h := job.NewHolder(simdisk.New(), cfg)
	job.Run(h, []job.Job{job.Recover{}, appendJob(0, 0)}) // the journal has room
	large := appendJob(2, 0)
	large.Batches[0] = record.NewBuilder().Append(1, nil, make([]byte, 2000)).Build(record.Options{})
	large.Batches[0].Assign(0, 0)
	for _, c := range []struct {
		name  string
		jobs  []job.Job
		begun int // of the jobs
		early []int
		large bool
	}{
		{"small", []job.Job{appendJob(0, 1)}, 0, nil, false},
		{"none", []job.Job{job.BeginCheckpoint{}, early(appendJob(0, 1))}, 0, nil, false},
		{"fetched", []job.Job{appendJob(1, 0), fetched(appendJob(0, 1)), job.BeginCheckpoint{}}, 2, nil, false},
		{"early", []job.Job{early(appendJob(0, 2)), appendJob(1, 1), early(appendJob(0, 9)), early(appendJob(0, 3))}, 4, []int{0, 3}, false},
		{"large", []job.Job{large}, 1, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, rest := job.Begin(h, c.jobs)
			if n := len(c.jobs) - len(rest); n != c.begun || (f != nil) != (n > 0) {
				t.Fatalf("%d jobs are begun, want %d", n, c.begun)
			}
			if f == nil {
				return
			}
			if f.Large() != c.large {
				t.Errorf("large: %t", f.Large())
			}
			got := f.Early()
			if len(got) != len(c.early) {
				t.Fatalf("early results %v", got)
			}
			for i, r := range got {
				want := c.jobs[c.early[i]].(job.Append)
				if !r.Early || r.Err != nil || r.Job.String() != want.String() || r.View.End() < want.Batches[0].NextOffset() {
					t.Errorf("early result %d: %v, %v, the log ends at %d", i, r.Job, r.Err, r.View.End())
				}
			}
			f.SyncSegments()
			for i, r := range f.Finish() {
				if r.Early || r.Job.String() != c.jobs[i].String() {
					t.Errorf("result %d: %+v", i, r)
				}
			}
		})
	}
}

// TestBeginWithoutAStore refuses everything in the end, and says nothing early.
func TestBeginWithoutAStore(t *testing.T) {
	f, _ := job.Begin(job.NewHolder(simdisk.New(), storage.DefaultConfig()), []job.Job{early(appendJob(0, 0))})
	if f.Large() || len(f.Early()) > 0 {
		t.Error("there is something of it")
	}
	f.SyncSegments()
	if r := f.Finish(); len(r) != 1 || r[0].Err == nil {
		t.Errorf("%v", r)
	}
}
