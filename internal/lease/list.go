package lease

import "iter"

// List is a chain of things in the order in which they were put in. Each thing
// carries its Entry, so that going in and out costs the same however many there are.
// The zero value is empty. It must not be copied.
type List[T any] struct {
	ring Entry[T] // the entries, and this one between the last and the first
}

// Entry is a thing's place in a list.
type Entry[T any] struct {
	item       T
	prev, next *Entry[T] // nil: in none
}

// First is the thing that was put in first, the zero value if there is none.
func (l *List[T]) First() (item T) {
	if first := l.ring.next; first != nil {
		item = first.item
	}
	return item
}

// All are the things. One may go out when its turn has come, no other.
func (l *List[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for e := l.ring.next; e != nil && e != &l.ring; {
			item := e.item
			if e = e.next; !yield(item) {
				return
			}
		}
	}
}

// Push puts item at the end; it stays where it is if it is in a list already.
func (l *List[T]) Push(e *Entry[T], item T) {
	if e.In() {
		return
	}
	end := &l.ring
	if end.next == nil {
		end.prev, end.next = end, end
	}
	*e = Entry[T]{item: item, prev: end.prev, next: end}
	e.prev.next, end.prev = e, e
}

// In reports whether the entry is in a list.
func (e *Entry[T]) In() bool { return e.next != nil }

// Remove takes the entry out of its list, if it is in one.
func (e *Entry[T]) Remove() {
	if e.In() {
		e.prev.next, e.next.prev = e.next, e.prev
		*e = Entry[T]{}
	}
}
