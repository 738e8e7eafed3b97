package simdisk

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

type opKind uint8

const (
	opLink   opKind = iota // node gets the name
	opUnlink               // node loses the name
	opRename               // node has the name from, and gets the name
)

// dirOp is a change of names that is not durable yet.
type dirOp struct {
	kind     opKind
	dir      *inode
	name     string
	node     *inode
	from     *inode // of opRename
	fromName string
}

// entry is one name in one directory.
type entry struct {
	dir  *inode
	name string
}

func (o dirOp) to() entry     { return entry{o.dir, o.name} }
func (o dirOp) source() entry { return entry{o.from, o.fromName} }

func isRoot(name string) bool { return name == "." || name == "" }

// find returns what name names, or nil.
func (d *Disk) find(name string) *inode {
	n := d.root
	if isRoot(name) {
		return n
	}
	for more := true; more; {
		var part string
		part, name, more = strings.Cut(name, "/")
		if n == nil || !n.dir {
			return nil
		}
		n = n.entries[part]
	}
	return n
}

// locate returns the directory that name is in, or nil if there is none, and
// the last part of name.
func (d *Disk) locate(name string) (*inode, string) {
	dir, base := path.Split(name)
	n := d.find(strings.TrimSuffix(dir, "/"))
	if n == nil || !n.dir {
		return nil, base
	}
	return n, base
}

// change makes a change of names that the running system sees at once.
func (d *Disk) change(o dirOp) {
	d.pending = append(d.pending, o)
	d.sum.Word(uint64(o.kind))
	d.sum.String(o.name)
	switch o.kind {
	case opLink:
		o.dir.entries[o.name] = o.node
	case opUnlink:
		delete(o.dir.entries, o.name)
	case opRename:
		delete(o.from.entries, o.fromName)
		o.dir.entries[o.name] = o.node
	}
}

// settle makes a change durable.
func (o dirOp) settle() {
	switch o.kind {
	case opLink:
		o.dir.durable[o.name] = o.node
	case opUnlink:
		delete(o.dir.durable, o.name)
	case opRename:
		delete(o.from.durable, o.fromName)
		o.dir.durable[o.name] = o.node
	}
}

// syncNames makes the pending changes in dir durable, and those before them of
// the same names.
func (d *Disk) syncNames(dir *inode) {
	if len(d.pending) == 0 {
		return
	}
	needed := map[entry]bool{}
	chosen := make([]bool, len(d.pending))
	for i, o := range slices.Backward(d.pending) {
		rename := o.kind == opRename
		chosen[i] = o.dir == dir || needed[o.to()] || rename && (o.from == dir || needed[o.source()])
		if chosen[i] {
			needed[o.to()] = true
			if rename {
				needed[o.source()] = true
			}
		}
	}
	rest := d.pending[:0]
	for i, o := range d.pending {
		if chosen[i] {
			o.settle()
		} else {
			rest = append(rest, o)
		}
	}
	clear(d.pending[len(rest):])
	d.pending = rest
}

// crashNames keeps some of the pending changes: of every name, the first few.
func (d *Disk) crashNames(rng *rand.Rand) {
	lost := map[entry]bool{}
	for _, o := range d.pending {
		rename := o.kind == opRename
		keep := rng.IntN(2) == 0
		if lost[o.to()] || rename && lost[o.source()] {
			keep = false
		}
		if o.kind == opUnlink && o.node.dir && len(o.node.durable) > 0 {
			keep = false // something in it could not be removed
		}
		if keep {
			o.settle()
			continue
		}
		lost[o.to()] = true
		if rename {
			lost[o.source()] = true
		}
	}
	d.pending = nil
}

// unlink takes one name from n; its bytes go with the last handle.
func (d *Disk) unlink(n *inode) {
	if n.dir {
		return
	}
	n.links--
	d.release(n)
}

func (d *Disk) release(n *inode) {
	if n.links == 0 && n.handles == 0 {
		d.used -= int64(len(n.data))
	}
}
