package lease

import "iter"

// List is a chain of things in the order in which they were put in. Each thing
// carries its Entry, so that going in and out costs the same however many there are.
// The zero value is empty.
type List[T any] struct {
	first, last *Entry[T]
}

// Entry is a thing's place in a list.
type Entry[T any] struct {
	item       T
	prev, next *Entry[T]
	in         *List[T] // nil: in none
}

// First is the thing that was put in first, the zero value if there is none.
func (l *List[T]) First() (item T) {
	if l.first != nil {
		item = l.first.item
	}
	return item
}

// All are the things. One may go out when its turn has come, no other.
func (l *List[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for e := l.first; e != nil; {
			item := e.item
			if e = e.next; !yield(item) {
				return
			}
		}
	}
}

// Push puts item at the end; it stays where it is if it is in the list already.
func (l *List[T]) Push(e *Entry[T], item T) {
	if e.in == l {
		return
	}
	*e = Entry[T]{item: item, prev: l.last, in: l}
	if l.last != nil {
		l.last.next = e
	} else {
		l.first = e
	}
	l.last = e
}

// In reports whether the entry is in a list.
func (e *Entry[T]) In() bool { return e.in != nil }

// Remove takes the entry out of its list, if it is in one.
func (e *Entry[T]) Remove() {
	l := e.in
	if l == nil {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.last = e.prev
	}
	*e = Entry[T]{}
}
