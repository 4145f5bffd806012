package lock

import (
	"errors"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/quote"
)

// Join is errors.Join with a one-line message. It leaves out nil errors; a single error
// is returned as it is.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &joined{all}
}

// joined is reached by a pointer, so that it can be compared and be the key of a map, as any error.
type joined struct{ errs []error }

func (e *joined) Error() string {
	parts := make([]string, 0, len(e.errs))
	before := "" // what the error before begins with
	for _, err := range e.errs {
		text, begins := quote.Line(err.Error()), ""
		if un, ok := errors.AsType[*UnavailableError](err); ok {
			begins = un.begins()
		}
		if !slices.Contains(parts, text) { // a loss may be the work's error and the Unlock's
			parts = append(parts, strings.TrimPrefix(text, before)) // several servers may have failed one lock
		}
		before = begins
	}
	return strings.Join(parts, "; ")
}

// Unwrap leads to each error.
func (e *joined) Unwrap() []error { return e.errs }
