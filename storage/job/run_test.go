package job_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pawlbroker/pawl/sim/simdisk"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/job"
	"github.com/pawlbroker/pawl/storage/record"
)

func appendJob(partition int32, base record.Offset) job.Append {
	b := record.NewBuilder().Append(1, nil, []byte("v")).Build(record.Options{})
	b.Assign(base, 0)
	return job.Append{Write: storage.Write{Log: storage.LogID{Topic: [16]byte{1}, Partition: partition}, SegmentBytes: 1 << 20,
		AppendTime: record.NoTimestamp, Batches: []record.Batch{b}}}
}

func TestAppendsInARowShareOneSync(t *testing.T) {
	disk := simdisk.New()
	h := job.NewHolder(disk, storage.DefaultConfig())
	if r := job.Run(h, []job.Job{job.Recover{}}); r[0].Err != nil || !r[0].Recovered.Missing {
		t.Fatal(r)
	}
	before := disk.Stats().Syncs
	var jobs []job.Job
	for i := range int32(100) {
		jobs = append(jobs, appendJob(i%50, record.Offset(i/50)))
	}
	for i, r := range job.Run(h, jobs) {
		if r.Err != nil || r.View.End() != 2 || r.Job.String() != jobs[i].String() {
			t.Fatalf("%d: %v ends at %d, %v", i, r.Job, r.View.End(), r.Err)
		}
	}
	if n := disk.Stats().Syncs - before; n != 1 {
		t.Fatalf("%d syncs", n)
	}
}

func TestResultsComeInTheOrderOfTheJobs(t *testing.T) {
	h := job.NewHolder(simdisk.New(), storage.DefaultConfig())
	log := appendJob(0, 0).Log
	jobs := []job.Job{
		appendJob(0, 0), // before Recover: refused
		job.Recover{},
		appendJob(0, 0),
		appendJob(0, 7), // does not continue
		appendJob(0, 1),
		job.Truncate{Log: log, End: 1},
		job.BeginCheckpoint{},
		job.FinishCheckpoint{},
		job.SaveQuorum{Records: [][]byte{[]byte("q")}},
		job.Delete{Log: log},
		job.Delete{Log: log},
		job.Recover{},
		job.Close{},
		appendJob(0, 0),
	}
	got := ""
	for i, r := range job.Run(h, jobs) {
		if r.Job.String() != jobs[i].String() {
			t.Fatalf("result %d is of %s", i, r.Job)
		}
		got += fmt.Sprintf("%d %t %d\n", i, r.Err == nil, r.View.End())
	}
	want := "0 false 0\n1 true 0\n2 true 2\n3 false 0\n4 true 2\n5 true 1\n6 true 0\n7 true 0\n8 true 0\n9 true 0\n10 true 0\n11 false 0\n12 true 0\n13 false 0\n"
	if got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
}

func TestReadAndLookUp(t *testing.T) {
	h := job.NewHolder(simdisk.New(), storage.DefaultConfig())
	r := job.Run(h, []job.Job{job.Recover{}, appendJob(0, 0), appendJob(0, 1)})
	v := r[2].View
	r = job.Run(h, []job.Job{
		job.Read{View: v, From: 1, Limit: 2, MaxBytes: 1},
		job.Read{View: v, From: 3, Limit: 9, MaxBytes: 1},
		job.Lookup{View: v, Timestamp: 1, Limit: 2},
		job.Lookup{View: v, Latest: true, Limit: 2},
		job.Lookup{View: v, Timestamp: 2, Limit: 2},
	})
	if r[0].Err != nil || r[0].Region.Len == 0 || !errors.Is(r[1].Err, storage.ErrOutOfRange) ||
		r[2].Found.Offset != 0 || r[3].Found.Offset != 0 || r[4].Found.Offset != job.NotFound {
		t.Fatal(r)
	}
}

func TestALogBeginsLater(t *testing.T) {
	disk := simdisk.New()
	h := job.NewHolder(disk, storage.DefaultConfig())
	log := appendJob(0, 0).Log
	r := job.Run(h, []job.Job{
		job.Recover{}, appendJob(0, 0), appendJob(0, 1), appendJob(0, 2),
		job.RaiseStart{Log: log, Start: 2},
		job.RaiseStart{Log: log, Start: 1}, // it has begun later already
		job.RaiseStart{Log: log, Start: 4}, // behind its end
		job.RaiseStart{Log: storage.LogID{Topic: [16]byte{2}}, Start: 1},
		appendJob(0, 3),
	})
	for i, want := range []record.Offset{0, 0, 0, 0, 2, 2, 0, 0, 2} {
		if got := r[i].View.Start(); got != want || (r[i].Err != nil) != (i == 6 || i == 7) {
			t.Errorf("%v: the log starts at %d, want %d; %v", r[i].Job, got, want, r[i].Err)
		}
	}
	if !errors.Is(r[6].Err, storage.ErrOutOfRange) || !errors.Is(r[7].Err, storage.ErrUnknownLog) {
		t.Errorf("%v, %v", r[6].Err, r[7].Err)
	}
	rec := job.Run(job.NewHolder(disk, storage.DefaultConfig()), []job.Job{job.Recover{}})[0]
	if v := rec.Recovered.Logs[0].View; rec.Err != nil || v.Start() != 2 || v.End() != 4 {
		t.Errorf("recovered as [%d, %d), %v", v.Start(), v.End(), rec.Err)
	}
}
