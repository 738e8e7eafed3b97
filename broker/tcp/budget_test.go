package tcp

import "testing"

func TestBudgetServesInOrder(t *testing.T) {
	b := newBudget(10)
	gone := make(chan struct{})
	if !b.take(6, gone) || b.try(5) || !b.try(4) {
		t.Fatal("10 are 6 and 4")
	}
	order := make(chan string, 2)
	begin := func(name string, n int64) {
		before := b.waiters()
		go func() {
			if b.take(n, gone) {
				order <- name
			}
		}()
		for b.waiters() == before {
		}
	}
	begin("big", 8)
	begin("small", 1)
	if b.give(4); b.try(1) {
		t.Error("one who came later was served first")
	}
	b.give(6)
	<-order // big and small are both served: 9 of 10
	<-order
	if b.taken() != 9 {
		t.Errorf("%d taken", b.taken())
	}
}

func TestBudgetForgetsWhoLeaves(t *testing.T) {
	b := newBudget(10)
	never := make(chan struct{})
	b.take(10, never)
	gone, left := make(chan struct{}), make(chan bool)
	go func() { left <- b.take(10, gone) }()
	for b.waiters() == 0 {
	}
	behind := make(chan bool)
	go func() { behind <- b.take(3, never) }()
	for b.waiters() == 1 {
	}
	b.give(5)
	close(gone)
	if <-left {
		t.Error("it was given what it left for")
	}
	if !<-behind {
		t.Error("who stood behind it still waits")
	}
	b.give(8)
	if b.taken() != 0 {
		t.Errorf("%d taken", b.taken())
	}
}

func (b *budget) waiters() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}
