package observe

import (
	"errors"

	"github.com/redlatch/redlatch/lock"
)

// Waited reports whether err is that of an acquisition whose wait or ctx ended: the lock was busy
// ([lock.ErrNotAcquired]), or nobody knows ([lock.ErrUnavailable]).
func Waited(err error) bool {
	_, waited := errors.AsType[*lock.NotAcquiredError](err)
	return waited
}
