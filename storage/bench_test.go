package storage_test

import (
	"fmt"
	"testing"

	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

func benchBatch(bytes int) record.Batch {
	return record.NewBuilder().Append(1, nil, make([]byte, bytes)).Build(record.Options{})
}

// nullSync is a file system whose syncs do nothing, to measure everything else.
type nullSync struct{ vfs.FS }

type nullSyncFile struct{ vfs.File }

func (nullSyncFile) Sync() error            { return nil }
func (nullSync) SyncFiles([]vfs.File) error { return nil }
func (n nullSync) Create(name string) (vfs.File, error) {
	f, err := n.FS.Create(name)
	return nullSyncFile{f}, err
}
func (n nullSync) Open(name string) (vfs.File, error) {
	f, err := n.FS.Open(name)
	return nullSyncFile{f}, err
}

func benchCommit(b *testing.B, fsys vfs.FS, logs, bytes int) {
	st, _, err := storage.Open(fsys, storage.DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	writes := make([]storage.Write, logs)
	for i := range writes {
		writes[i] = storage.Write{Log: storage.LogID{Topic: [16]byte{1}, Partition: int32(i)}, SegmentBytes: 1 << 30,
			AppendTime: record.NoTimestamp, Batches: []record.Batch{benchBatch(bytes)}}
	}
	b.SetBytes(int64(logs * bytes))
	commit := func(n int) {
		for i := range writes {
			writes[i].Batches[0].Assign(record.Offset(n), 0)
		}
		for _, c := range st.Commit(writes) {
			if c.Err != nil {
				b.Fatal(c.Err)
			}
		}
	}
	for n := range 20 {
		commit(n)
	}
	b.ResetTimer()
	for n := range b.N {
		commit(n + 20)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, logs := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("logs=%d", logs), func(b *testing.B) { benchCommit(b, vfs.OS(b.TempDir()), logs, 100) })
		b.Run(fmt.Sprintf("logs=%d/nosync", logs), func(b *testing.B) { benchCommit(b, nullSync{vfs.OS(b.TempDir())}, logs, 100) })
	}
}

func BenchmarkCommitLarge(b *testing.B) {
	benchCommit(b, vfs.OS(b.TempDir()), 1, 1<<20)
}

// BenchmarkPlain is what a commit is measured against: append to one file,
// fdatasync.
func BenchmarkPlain(b *testing.B) {
	for _, bytes := range []int{171, 64 * 171, 1000 * 171, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", bytes), func(b *testing.B) {
			f, err := vfs.OS(b.TempDir()).Create("f")
			if err != nil {
				b.Fatal(err)
			}
			p := make([]byte, bytes)
			b.SetBytes(int64(bytes))
			for n := range b.N {
				if _, err := f.WriteAt(p, int64(n*bytes)); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
