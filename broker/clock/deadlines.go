package clock

// Deadlines is a heap of things that are due. The zero value is empty. Things
// due at one instant come out in the order they went in.
//
// There is no removal: whoever finds that a thing which came out no longer
// matters ignores it. That is cheaper than keeping positions.
type Deadlines[T any] struct {
	heap []due[T]
	seq  uint64
}

type due[T any] struct {
	at   Instant
	seq  uint64
	what T
}

func (d due[T]) before(e due[T]) bool { return d.at < e.at || d.at == e.at && d.seq < e.seq }

// Next is when the first thing is due, or Never.
func (d *Deadlines[T]) Next() Instant {
	if len(d.heap) == 0 {
		return Never
	}
	return d.heap[0].at
}

// Len is how many things are in the heap.
func (d *Deadlines[T]) Len() int { return len(d.heap) }

// Add makes what due at the given instant. It costs O(log n).
func (d *Deadlines[T]) Add(at Instant, what T) {
	d.seq++
	d.heap = append(d.heap, due[T]{at, d.seq, what})
	i := len(d.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !d.heap[i].before(d.heap[parent]) {
			break
		}
		d.heap[i], d.heap[parent] = d.heap[parent], d.heap[i]
		i = parent
	}
}

// Due takes out the first thing that is due at now, if there is one.
func (d *Deadlines[T]) Due(now Instant) (what T, ok bool) {
	if d.Next() > now || len(d.heap) == 0 {
		return what, false
	}
	what = d.heap[0].what
	last := len(d.heap) - 1
	d.heap[0] = d.heap[last]
	d.heap[last] = due[T]{}
	d.heap = d.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if d.heap[child].before(d.heap[least]) {
				least = child
			}
		}
		if least == i {
			return what, true
		}
		d.heap[i], d.heap[least] = d.heap[least], d.heap[i]
		i = least
	}
}
