package engine

import (
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// Handle is what a public lock object is made of. The object embeds it under a private name, so that no public
// signature has a type of this package: [Open] and [Of] reach it by methods that nobody else can call.
type Handle[B Builder] struct {
	lock *Lock
}

// Builder makes the kind of a lock object for its key.
type Builder interface {
	Kind(c *Core, key string, set settings.Lock) (kind.Kind, error)
}

func (h *Handle[B]) open(c *Core, name string, set settings.Lock) {
	h.lock = c.NewLock(name, func(key string) (kind.Kind, error) {
		var b B
		return b.Kind(c, key, set)
	})
}

func (h *Handle[B]) inner() *Lock { return h.lock }

// None takes a Handle's place in an object that has no lock of its own.
type None struct{}

func (None) inner() *Lock { return nil }

// Object is a lock object of this module: no type outside of it has the method.
type Object interface {
	inner() *Lock
}

// opener is an Object with a Handle.
type opener interface {
	Object
	open(c *Core, name string, set settings.Lock)
}

// Open makes a lock object of its zero value and returns it.
func Open[O opener](o O, c *Core, name string, opts ...lock.Option) O {
	o.open(c, name, settings.Of[settings.Lock](opts))
	return o
}

// Of is the lock in an object; nil if it has none of its own.
func Of(o Object) *Lock { return o.inner() }
