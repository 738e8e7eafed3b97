package host

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/pawlbroker/pawl/broker"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

// plane is a Flight of truncations, which stand for appends. It lands when it may.
type plane struct {
	jobs  []job.Job
	may   <-chan struct{}
	large bool
}

func (p *plane) results(early bool) []job.Result {
	results := run(p.jobs)
	for i := range results {
		results[i].Early = early
	}
	return results
}

func (p *plane) Early() []job.Result  { return p.results(true) }
func (p *plane) Large() bool          { return p.large }
func (p *plane) SyncSegments()        {}
func (p *plane) Finish() []job.Result { <-p.may; return p.results(false) }

// TestEarlyResultsComeBeforeTheSync has as many groups as may overlap begin before the
// first is finished.
func TestEarlyResultsComeBeforeTheSync(t *testing.T) {
	const n = maxFlights + 6
	may := make(chan struct{}, n)
	cfg := config(t)
	cfg.Begin = func(jobs []job.Job) (Flight, []job.Job) {
		return &plane{jobs: slices.Clone(jobs), may: may}, nil
	}
	var order []string
	early, done := 0, 0
	h := start(cfg, func(no *node, ev broker.Event) {
		switch ev := ev.(type) {
		case broker.Wake:
			no.env.Disk.Submit(job.Truncate{End: 0})
		case broker.JobDone:
			end := ev.Job.(job.Truncate).End
			if !ev.Early {
				order = append(order, fmt.Sprint("done ", end))
				if done++; done == n {
					no.env.Stop(nil)
				}
				return
			}
			order = append(order, fmt.Sprint("early ", end))
			switch early++; {
			case early < maxFlights:
				no.env.Disk.Submit(job.Truncate{End: end + 1})
			case early == maxFlights:
				for i := range record.Offset(n - maxFlights) {
					no.env.Disk.Submit(job.Truncate{End: end + 1 + i})
				}
				for range n {
					may <- struct{}{}
				}
			}
		}
	})
	h.Post(broker.Wake{})
	if err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e, d := slices.Index(order, fmt.Sprint("early ", i)), slices.Index(order, fmt.Sprint("done ", i))
		if e < 0 || d < e || i > 0 && (e < slices.Index(order, fmt.Sprint("early ", i-1)) || d < slices.Index(order, fmt.Sprint("done ", i-1))) {
			t.Errorf("job %d: early at %d, done at %d in %v", i, e, d, order)
		}
	}
}

// TestWhatQueuesUpWhileAllAreOnTheirWayIsOneGroup has the lane wait with one job while
// others come.
func TestWhatQueuesUpWhileAllAreOnTheirWayIsOneGroup(t *testing.T) {
	t.Run("small", func(t *testing.T) { whatQueuesUpIsOneGroup(t, false, maxFlights) })
	t.Run("large", func(t *testing.T) { whatQueuesUpIsOneGroup(t, true, maxHeavy+1) })
}

func whatQueuesUpIsOneGroup(t *testing.T, large bool, most int) {
	synctest.Test(t, func(t *testing.T) {
		n := record.Offset(most + 6)
		may := make(chan struct{})
		cfg := config(t)
		var groups []int
		cfg.Begin = func(jobs []job.Job) (Flight, []job.Job) {
			groups = append(groups, len(jobs))
			return &plane{jobs: slices.Clone(jobs), may: may, large: large}, nil
		}
		submitted, done := record.Offset(0), record.Offset(0)
		h := start(cfg, func(no *node, ev broker.Event) {
			switch ev := ev.(type) {
			case broker.ConnClosed:
				no.env.Disk.Submit(job.Truncate{End: submitted})
				submitted++
			case broker.JobDone:
				if ev.Early {
					return
				}
				if end := ev.Job.(job.Truncate).End; end != done {
					t.Errorf("result %d is of job %d", done, end)
				}
				if done++; done == n {
					no.env.Stop(nil)
				}
			}
		})
		for range n {
			h.Post(broker.ConnClosed{})
			synctest.Wait()
		}
		close(may)
		if err := h.Wait(); err != nil {
			t.Fatal(err)
		}
		if want := append(slices.Repeat([]int{1}, most), 6); !slices.Equal(groups, want) {
			t.Errorf("groups of %v, want %v", groups, want)
		}
	})
}
