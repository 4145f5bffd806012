package pubsub

// list is a chain of things in the order in which they were put in. Each thing
// carries its entry, so that going in and out costs the same however many there are.
type list[T any] struct {
	first, last *entry[T]
}

// entry is a thing's place in a list.
type entry[T any] struct {
	item       T
	prev, next *entry[T]
	in         *list[T] // nil: in none
}

// push puts item at the end; it stays where it is if it is in the list already.
func (l *list[T]) push(e *entry[T], item T) {
	if e.in == l {
		return
	}
	*e = entry[T]{item: item, prev: l.last, in: l}
	if l.last != nil {
		l.last.next = e
	} else {
		l.first = e
	}
	l.last = e
}

// remove takes the entry out of its list, if it is in one.
func (e *entry[T]) remove() {
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
	*e = entry[T]{}
}
