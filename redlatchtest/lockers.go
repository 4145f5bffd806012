package redlatchtest

import (
	"maps"
	"slices"
	"sync"

	"github.com/redlatch/redlatch"
)

// Lockers is a set of Lockers by name, for code that takes a function
// func(name string) redlatch.Locker: pass it [Lockers.ByName]. It is safe for concurrent
// use.
type Lockers struct {
	opts []redlatch.Option

	mu     sync.Mutex
	byName map[string]*Locker // guarded by mu
}

// NewLockers returns an empty set. It makes each lock, with opts, on first use.
func NewLockers(opts ...redlatch.Option) *Lockers {
	return &Lockers{opts: opts, byName: map[string]*Locker{}}
}

// Get returns the lock of this name, always the same one.
func (ls *Lockers) Get(name string) *Locker {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[name]
	if l == nil {
		l = NewLocker(name, ls.opts...)
		ls.byName[name] = l
	}
	return l
}

// ByName is Get for the code under test.
func (ls *Lockers) ByName(name string) redlatch.Locker { return ls.Get(name) }

// Names returns the names in use, in order.
func (ls *Lockers) Names() []string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Sorted(maps.Keys(ls.byName))
}

// Held returns the names of the locks that the code under test holds.
func (ls *Lockers) Held() []string {
	var held []string
	for _, name := range ls.Names() {
		if len(ls.Get(name).Holds()) > 0 {
			held = append(held, name)
		}
	}
	return held
}
