package telemetry

import (
	"errors"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/quote"
	"github.com/redlatch/redlatch/lock"
)

// text is an error as a span's status tells it: locks are called in it as LockName
// wants them called.
func (t *tracing) text(err error) string {
	s := err.Error()
	if t.opt.LockName != nil {
		names := map[string]struct{}{}
		collect(err, names)
		for name := range names {
			s = strings.ReplaceAll(s, quote.Name(name), quote.Name(t.opt.LockName(name)))
			if inner := strings.Trim(name, "{}"); inner != name { // the reason why a name is refused
				s = strings.ReplaceAll(s, strconv.Quote(inner), quote.Name(t.opt.LockName(inner)))
			}
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// collect finds the locks' names that an error and those in it tell.
func collect(err error, found map[string]struct{}) {
	name := ""
	switch e := err.(type) { //nolint:errorlint // the whole tree is walked
	case nil:
		return
	case *lock.NotAcquiredError:
		name = e.Name
	case *lock.UnavailableError:
		name = e.Name
	case *lock.LeaseLostError:
		name = e.Name
	case *lock.InvalidNameError:
		name = e.Name
	case *lock.ReplicaAcksError:
		name = e.Name
	case *lock.OtherOwnerError:
		name = e.Name
	case *lock.ServerError:
		name = e.Name
	}
	if name != "" {
		found[name] = struct{}{}
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			collect(e, found)
		}
		return
	}
	collect(errors.Unwrap(err), found)
}
