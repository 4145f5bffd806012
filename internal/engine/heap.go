package engine

import "time"

// timed is what a timeHeap orders.
type timed interface {
	// due is when it must be looked at, and where it notes its index in the heap,
	// -1 when it is not there.
	due() (at time.Time, index *int)
}

func (s *session) due() (time.Time, *int) { return s.nextAt, &s.index }

func (p *place) due() (time.Time, *int) { return p.at, &p.index }

// timeHeap implements heap.Interface: what is due first is on top.
type timeHeap[T timed] []T

func (h timeHeap[T]) Len() int { return len(h) }

func (h timeHeap[T]) Less(i, j int) bool {
	a, _ := h[i].due()
	b, _ := h[j].due()
	return a.Before(b)
}

func (h timeHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h.note(i)
	h.note(j)
}

func (h timeHeap[T]) note(i int) {
	_, index := h[i].due()
	*index = i
}

// Push implements heap.Interface.
func (h *timeHeap[T]) Push(x any) {
	*h = append(*h, x.(T)) //nolint:forcetypeassert // only these are pushed
	h.note(len(*h) - 1)
}

// Pop implements heap.Interface.
func (h *timeHeap[T]) Pop() any {
	old := *h
	x := old[len(old)-1]
	clear(old[len(old)-1:])
	*h = old[:len(old)-1]
	_, index := x.due()
	*index = -1
	return x
}
