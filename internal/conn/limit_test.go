package conn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestLimitsAreNoDeadlines: what is asked through a client that others may use ends by itself, but has
// no deadline, which would close their connection.
func TestLimitsAreNoDeadlines(t *testing.T) {
	for what, ask := range map[string]func(rueidis.Client){
		"the version": func(c rueidis.Client) { _, _ = askServer(c) },
		"the slots": func(c rueidis.Client) {
			var table slotTable
			table.ask(c, new(Instant))
			table.wg.Wait()
		},
	} {
		t.Run(what, func(t *testing.T) { testbed.Undated(t, ask) })
	}
}

// TestUndatedEndsAlike: only the deadline is hidden.
func TestUndatedEndsAlike(t *testing.T) {
	type key struct{}
	limit := errors.New("the limit")
	ctx, cancel := context.WithTimeoutCause(context.WithValue(t.Context(), key{}, 1), time.Millisecond, limit)
	defer cancel()
	u := Undated(ctx)
	child, stop := context.WithCancel(u)
	defer stop()
	<-child.Done()
	if _, ok := u.Deadline(); ok || !errors.Is(u.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(u), limit) ||
		!errors.Is(context.Cause(child), limit) || u.Value(key{}) != 1 {
		t.Error(u.Err(), context.Cause(u), context.Cause(child))
	}
}
