package partition

import (
	"errors"
	"log/slog"
	"slices"
	"syscall"

	"github.com/pawlbroker/pawl/broker/metadata"
	"github.com/pawlbroker/pawl/storage"
	"github.com/pawlbroker/pawl/storage/assert"
)

// A damaged log is not served. The controller has others lead it, and this node gets
// it from them again: see Heartbeat in broker/controller, and giveUp.

// ReadFailed takes it that bytes of a log could not be read when they were to be
// sent to somebody.
func (t *Table) ReadFailed(id storage.LogID, err error, at Moment, out *Out) {
	if p := t.partition(id); p != nil {
		t.spoilIfDamaged(p, err, at, out)
	}
}

// spoilIfDamaged makes a read that found damage close the partition. So does one
// that the disk failed, if another replica is in sync, which can lead and give this
// one its log again. Any other error of a read is told to the one who asked, and is
// worth a line.
func (t *Table) spoilIfDamaged(p *Partition, err error, at Moment, out *Out) {
	if errors.As(err, new(*storage.DamageError)) || errors.Is(err, syscall.EIO) && t.elsewhere(p) {
		t.spoil(p, err, at, out)
		return
	}
	if errors.Is(err, storage.ErrOutOfRange) {
		return
	}
	out.Lines = append(out.Lines, Line{slog.LevelError, "read failed", append(p.attrs(), slog.String("error", err.Error()))})
}

// elsewhere reports whether another node has a partition in sync.
func (t *Table) elsewhere(p *Partition) bool {
	mp, ok := t.image.Partition(p.topic.ID, p.index)
	return ok && slices.ContainsFunc(mp.ISR, func(n metadata.NodeID) bool { return n != t.node.Self })
}

// spoil makes the partition refuse everything because of err.
func (t *Table) spoil(p *Partition, err error, at Moment, out *Out) {
	if p.damage != nil {
		return
	}
	assert.Reached("partition: damaged")
	p.damage = err
	p.replica.Doubt()
	attrs := append(p.attrs(), slog.String("error", err.Error()))
	var d *storage.DamageError
	if errors.As(err, &d) {
		attrs = append(attrs, slog.String("file", d.File), slog.Int64("position", d.Pos))
	}
	out.Lines = append(out.Lines, Line{slog.LevelError, "partition is damaged and not served", attrs})
	out.Damaged = append(out.Damaged, p.log())
	t.news(p, false, at, out)
	t.follow(p, at, out)
}
