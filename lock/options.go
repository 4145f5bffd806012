package lock

import (
	"time"

	"github.com/redlatch/redlatch/internal/settings"
)

// AcquireOption changes one acquisition.
type AcquireOption func(*AcquireSettings)

// AcquireSettings is what [AcquireOption]s fill in. It is exported for types
// that implement [Locker]; callers use the options.
type AcquireSettings struct {
	// Lease is the fixed lease, 0 for the watchdog.
	Lease time.Duration
}

// WithLease gives the hold a fixed lease: the hold ends at most that long after the
// acquisition, unless [Hold].Extend moves that. The watchdog never renews it beyond that end. The
// hold's context ends a little earlier, with cause [ErrLeaseLost]. Choose a lease longer
// than the slowest run of the critical section. 0 means the watchdog; a negative lease or
// one below a millisecond is an [ErrInvalidOption] of the acquisition.
func WithLease(lease time.Duration) AcquireOption {
	return func(s *AcquireSettings) { s.Lease = lease }
}

// SettingsOf applies opts and returns the settings.
func SettingsOf(opts []AcquireOption) AcquireSettings {
	if len(opts) == 0 {
		return AcquireSettings{} // without the allocation below
	}
	var s AcquireSettings
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	return s
}

// Option configures a lock object when it is made; each option says which kinds it applies to. A nil Option changes
// nothing.
type Option interface{ option }

type option = settings.Option[settings.Lock]

// Fenced asks for a fencing token with every acquisition. [Hold].Token is then strictly
// increasing over all holders of the name (of a read-write lock over its writers: readers
// have the last writer's), even after a failover or a lost counter, unless the new
// server's clock is behind by more than the outage lasted. Send the token with every write to the
// protected resource, and let the resource refuse a token smaller than the largest it has
// seen: a lease alone can't stop a holder that was paused for longer than the lease.
//
// It costs a little server time per acquisition, and one small key per lock name, which
// expires after Config.FenceTTL.
//
// Write under [DoFenced]: it refuses a lock that was made without this option. [Hold].Token can't, since all kinds of
// locks and types of your own have the same interface.
//
// Use it for all locks of a name, or for none. A hold of a lock without it has no token,
// so re-entering that hold through a lock with it is an [ErrInvalidOption].
func Fenced() Option {
	return settings.Func[settings.Lock](func(s *settings.Lock) { s.Fenced = true })
}
