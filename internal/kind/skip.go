package kind

import (
	"time"

	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// SkipAfter is the skip time of a kind whose waiters have places on the server.
func SkipAfter(set settings.Lock) (time.Duration, error) {
	refuse := func(reason string) (time.Duration, error) {
		return 0, &lock.InvalidOptionError{Option: "WithSkipAfter", Reason: reason}
	}
	switch {
	case set.SkipAfter == 0:
		return lock.DefaultSkipAfter, nil
	case set.SkipAfter < lock.MinSkipAfter:
		return refuse("it is below " + lock.MinSkipAfter.String() + ": living waiters would be passed over")
	case set.SkipAfter > lock.MaxSkipAfter:
		return refuse("it is above " + lock.MaxSkipAfter.String() + ": a dead waiter would hold up the others for ever")
	}
	return set.SkipAfter, nil
}
