package held

import "time"

// Timed is what a TimeHeap orders.
type Timed interface {
	// Due is when it must be looked at, and where it notes its index in the heap,
	// -1 when it is not there.
	Due() (at time.Time, index *int32)
}

// TimeHeap implements heap.Interface: what is due first is on top.
type TimeHeap[T Timed] []T

// Len implements heap.Interface.
func (h TimeHeap[T]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h TimeHeap[T]) Less(i, j int) bool {
	a, _ := h[i].Due()
	b, _ := h[j].Due()
	return a.Before(b)
}

// Swap implements heap.Interface.
func (h TimeHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h.note(i)
	h.note(j)
}

func (h TimeHeap[T]) note(i int) {
	_, index := h[i].Due()
	*index = int32(i) // #nosec G115 -- nobody has so many
}

// Push implements heap.Interface.
func (h *TimeHeap[T]) Push(x any) {
	*h = append(*h, x.(T)) //nolint:forcetypeassert // only these are pushed
	h.note(len(*h) - 1)
}

// Pop implements heap.Interface.
func (h *TimeHeap[T]) Pop() any {
	old := *h
	x := old[len(old)-1]
	clear(old[len(old)-1:])
	*h = old[:len(old)-1]
	_, index := x.Due()
	*index = -1
	return x
}
