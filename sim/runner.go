package sim

import (
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// runner does a process's disk work.
type runner struct {
	run   func([]job.Job) []job.Result
	begin func([]job.Job) (*job.Flight, []job.Job)
}

func newRunner(fsys vfs.FS, cfg storage.Config) runner {
	h := job.NewHolder(fsys, cfg)
	return runner{
		run:   func(jobs []job.Job) []job.Result { return job.Run(h, jobs) },
		begin: func(jobs []job.Job) (*job.Flight, []job.Job) { return job.Begin(h, jobs) },
	}
}
