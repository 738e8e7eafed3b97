package sim

import (
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// newRunner returns what does a process's disk work.
func newRunner(fsys vfs.FS, cfg storage.Config) func([]job.Job) []job.Result {
	h := job.NewHolder(fsys, cfg)
	return func(jobs []job.Job) []job.Result { return job.Run(h, jobs) }
}
