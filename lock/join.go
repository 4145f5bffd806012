package lock

import (
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
	for _, err := range e.errs {
		if text := quote.Line(err.Error()); !slices.Contains(parts, text) { // a loss may be the work's error and the Unlock's
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}

// Unwrap leads to each error.
func (e *joined) Unwrap() []error { return e.errs }
