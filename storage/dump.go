package storage

import (
	"fmt"
	"io"
	"strings"

	"github.com/pawlbroker/pawl/storage/checkpoint"
	"github.com/pawlbroker/pawl/storage/journal"
	"github.com/pawlbroker/pawl/storage/record"
	"github.com/pawlbroker/pawl/storage/vfs"
)

// Dump writes a file of a data directory as text. quorum describes a record of
// the quorum's journal. A file that can only be read in part is dumped up to
// there, and the error says where that is.
func Dump(fsys vfs.FS, name string, w io.Writer, quorum func([]byte) string) error {
	switch {
	case name == checkpointName:
		return dumpCheckpoint(fsys, w)
	case name == cleanName:
		b, err := checkpoint.Read(fsys, name)
		if err != nil {
			return err
		}
		mark, _ := decodeClean(b)
		_, err = fmt.Fprintf(w, "clean: journal ends with group %d, quorum with group %d\n", mark.journal, mark.quorum)
		return err
	case strings.HasSuffix(name, ".index"):
		return dumpIndex(fsys, name, w)
	case strings.HasSuffix(name, ".log"):
		return dumpSegment(fsys, name, w)
	case strings.HasSuffix(name, ".journal"):
		describe := describeRecord
		if strings.HasPrefix(name, quorumDir+"/") {
			describe = quorum
		}
		return dumpJournal(fsys, name, w, describe)
	}
	return fmt.Errorf("%s: not a file of the store", name)
}

func readAll(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", name, err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); int64(n) < size {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

func dumpJournal(fsys vfs.FS, name string, w io.Writer, describe func([]byte) string) error {
	b, err := readAll(fsys, name)
	if err != nil {
		return err
	}
	seq, first, err := journal.DecodeFile(b, func(g journal.Group) error {
		_, err := fmt.Fprintf(w, "group %d at %d: %d bytes, %d records, durable through %d, reset=%t\n",
			g.Number, g.Pos, g.Size, len(g.Records), g.Durable, g.Reset)
		for _, r := range g.Records {
			if err == nil {
				_, err = fmt.Fprintf(w, "  %s\n", describe(r))
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = fmt.Fprintf(w, "file %d of %d bytes, first group %d\n", seq, len(b), first)
	return err
}

// describeRecord is a record of the logs' journal as text.
func describeRecord(b []byte) string {
	r, err := decodeRecord(b)
	if err != nil {
		return fmt.Sprintf("%v: %x", err, b)
	}
	at := fmt.Sprintf("log=%s segment=%d.%d pos=%d", r.log, r.base, r.generation, r.pos)
	switch r.kind {
	case kindBatches:
		first, _, err := record.Peek(r.batches)
		if err != nil {
			return fmt.Sprintf("batches %s bytes=%d: %v", at, len(r.batches), err)
		}
		return fmt.Sprintf("batches %s bytes=%d first=%d", at, len(r.batches), first.BaseOffset())
	case kindExtent:
		return fmt.Sprintf("extent %s bytes=%d offsets=[%d,%d) headers=%#08x", at, r.len, r.first, r.offset, r.headers)
	case kindTruncate:
		if !r.cut {
			return fmt.Sprintf("truncate log=%s end=%d generation=%d", r.log, r.offset, r.next)
		}
		return fmt.Sprintf("truncate %s end=%d generation=%d entries=%d", at, r.offset, r.next, r.entries)
	case kindReset:
		return fmt.Sprintf("reset log=%s start=%d generation=%d", r.log, r.offset, r.next)
	case kindDelete:
		return fmt.Sprintf("delete log=%s", r.log)
	}
	return fmt.Sprintf("start log=%s offset=%d", r.log, r.offset)
}

func dumpIndex(fsys vfs.FS, name string, w io.Writer) error {
	b, err := readAll(fsys, name)
	if err != nil {
		return err
	}
	for at := 0; at < len(b); at += entrySize {
		e, err := decodeEntry(b[at:])
		if err != nil {
			return fmt.Errorf("%s at %d: %w", name, at, err)
		}
		if _, err := fmt.Fprintf(w, "first=%d pos=%d len=%d batches=%d max_timestamp=%d frames=%#08x\n",
			e.first, e.pos, e.len, e.batches, e.maxTime, e.frames); err != nil {
			return err
		}
	}
	return nil
}

func dumpSegment(fsys vfs.FS, name string, w io.Writer) error {
	b, err := readAll(fsys, name)
	if err != nil {
		return err
	}
	for rest := b; len(rest) > 0; {
		at := len(b) - len(rest)
		var batch record.Batch
		if batch, rest, err = record.Cut(rest); err != nil {
			return fmt.Errorf("%s at %d: %w", name, at, err)
		}
		if _, err := fmt.Fprintf(w, "pos=%d bytes=%d offsets=[%d,%d) epoch=%d attributes=%#x max_timestamp=%d producer=%d/%d sequence=%d\n",
			at, len(batch), batch.BaseOffset(), batch.NextOffset(), batch.LeaderEpoch(), batch.Attributes(), batch.MaxTimestamp(),
			batch.ProducerID(), batch.ProducerEpoch(), batch.BaseSequence()); err != nil {
			return err
		}
	}
	return nil
}

func dumpCheckpoint(fsys vfs.FS, w io.Writer) error {
	b, err := checkpoint.Read(fsys, checkpointName)
	if err != nil {
		return err
	}
	s := &Store{cfg: DefaultConfig()}
	c, err := s.decode(b)
	if err != nil {
		return fmt.Errorf("%s: %w", checkpointName, err)
	}
	fmt.Fprintf(w, "journal from file %d, group %d; an index entry per %d bytes\n", c.seq, c.last+1, c.interval)
	for _, l := range c.logs {
		v := l.view
		fmt.Fprintf(w, "log=%s offsets=[%d,%d) generation=%d epochs=%v snapshot=%d bytes at %d deleted=%d bytes", v.log, v.start, v.end, v.generation, v.epochs, len(l.snapshot), l.upTo, len(l.deleted))
		if v.damage != nil {
			fmt.Fprintf(w, " damage=%q", v.damage)
		}
		fmt.Fprintln(w)
		for i := range v.parts() {
			p := v.part(i)
			if _, err := fmt.Fprintf(w, "  segment=%d.%d bytes=%d next=%d entries=%d max_timestamp=%d\n",
				p.seg.base, p.seg.generation, p.size, p.next, p.indexed, p.maxTime); err != nil {
				return err
			}
		}
	}
	return nil
}
