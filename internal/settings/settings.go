// Package settings holds what the options of package lock fill in. The option types embed the interfaces of this
// package under private names: programs can pass options and can't read them.
package settings

import "time"

// Lock is what the options of a lock object fill in.
type Lock struct {
	// Fenced asks for fencing tokens.
	Fenced bool
	// SkipAfter is how long after its last heartbeat a waiter of a FairLock or a
	// ReadWriteLock is passed over. 0 means the default.
	SkipAfter time.Duration
	// PreferReaders lets readers of a ReadWriteLock in while a writer waits.
	PreferReaders bool
	// ShareReads lets readers of one process share a hold of a ReadWriteLock.
	ShareReads bool
}

// Force is what the options of a ForceUnlock fill in.
type Force struct {
	Owners []string // the only owners to evict, if Bound is set
	Bound  bool     // else all holders are evicted

	Recorded   bool // in the history on the server
	By, Reason string
	Told       func(err error) // hears why it was not recorded, or nil; nil: nobody hears
}

// Option fills in a part of S.
type Option[S any] interface{ fill(s *S) }

// Func is an Option.
type Func[S any] func(s *S)

func (f Func[S]) fill(s *S) { f(s) }

// Of applies opts.
func Of[S any, O Option[S]](opts []O) (s S) {
	for _, o := range opts {
		if any(o) != nil {
			o.fill(&s)
		}
	}
	return s
}
