package promises

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

type cases = map[string]func(t *testing.T, x *bed.Site, name string)

// overKinds runs each case for each kind of lock, on a lock of its own, of which nothing may be left.
func overKinds(t *testing.T, change []func(*redlatch.Config), cases cases) {
	t.Helper()
	each(t, change, cases, func(*testing.T) {})
}

// besideEachOther does so with cases that don't disturb each other: none does something to the servers or proxies.
func besideEachOther(t *testing.T, change []func(*redlatch.Config), cases cases) {
	t.Helper()
	each(t, change, cases, (*testing.T).Parallel)
}

func each(t *testing.T, change []func(*redlatch.Config), cases cases, start func(t *testing.T)) {
	t.Helper()
	for _, k := range bed.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			x := bed.NewSite(t, k, change...)
			for what, run := range cases {
				t.Run(what, func(t *testing.T) {
					start(t)
					name := bed.Name(t.Name())
					run(t, x, name)
					bed.Eventually(t, "no key left", func() bool { return len(x.Keys(t, name)) == 0 })
				})
			}
		})
	}
}

// refused fails if somebody who asks for the lock can enter. Whom a machine that stands still leaves without an
// answer asks again.
func refused(t *testing.T, l redlatch.Locker) {
	t.Helper()
	refusedTo(t, context.Background(), l)
}

// refusedTo is refused for an owner.
func refusedTo(t *testing.T, ctx context.Context, l redlatch.Locker) { //nolint:revive // t first, as in testing
	t.Helper()
	h, err := l.TryLock(ctx, 0, 0)
	for end := time.Now().Add(bed.Patience); errors.Is(err, redlatch.ErrUnavailable) && time.Now().Before(end); {
		h, err = l.TryLock(ctx, 0, 0)
	}
	if err == nil {
		t.Error("a second holder came in")
		bed.Unlock(t, h)
	} else if !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Errorf("TryLock beside a holder: %v", err)
	}
}

// alive fails if the hold's context has ended.
func alive(t *testing.T, h redlatch.Hold) {
	t.Helper()
	if h.Context().Err() != nil {
		t.Fatalf("the hold's context has ended: %v", context.Cause(h.Context()))
	}
}

// want fails if the error matches none of these.
func want(t *testing.T, what string, err error, sentinels ...error) {
	t.Helper()
	if !oneOf(err, sentinels) {
		t.Errorf("%s: %v, want one of %v", what, err, sentinels)
	}
}

// wantNot fails if the error matches one of these.
func wantNot(t *testing.T, what string, err error, sentinels ...error) {
	t.Helper()
	if oneOf(err, sentinels) {
		t.Errorf("%s: %v, which is none of %v", what, err, sentinels)
	}
}

// ended waits until the hold's context has ended for this cause.
func ended(t *testing.T, h redlatch.Hold, cause error) {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(bed.Patience):
		t.Fatalf("the hold's context does not end")
	}
	if got := context.Cause(h.Context()); !errors.Is(got, cause) {
		t.Errorf("the hold's context ended with %v, want %v", got, cause)
	}
}

// operated is what operators ask of every lock.
type operated interface {
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// quorum reports whether the site's lock is one, which asks no copy for more than LeaseTime and gives a node
// only a part of the lease to answer.
func quorum(x *bed.Site) bool { return x.Kind.Name == "quorum" }

// parted reports whether the lock's parts end one by one. The others stay until Unlock then, or the end of what
// was asked for: nothing is freed under a section that still runs.
func parted(x *bed.Site) bool { return x.Kind.Servers > 1 }

// brief is a lease whose end a test waits for.
func brief(x *bed.Site) time.Duration {
	if quorum(x) {
		return 2 * time.Second
	}
	return 200 * time.Millisecond
}

// asked is for how long the lock's keys stand at most when a lease of d was asked for.
func asked(x *bed.Site, d time.Duration) time.Duration {
	if quorum(x) {
		return min(d, bed.Lease)
	}
	return d
}

// stands is for how long the lock is held on its servers, if nothing more is asked for.
func stands(t *testing.T, x *bed.Site, name string) time.Duration {
	t.Helper()
	if !quorum(x) {
		first, _ := x.Left(t, name)
		return first
	}
	ends := make([]int64, len(x.Servers))
	for i, s := range x.Servers {
		ends[i] = s.Int(t, "PTTL", name)
	}
	slices.Sort(ends)
	return time.Duration(ends[len(ends)/2]) * time.Millisecond // a majority stands as long
}

// onAll sends a command to each of the site's servers.
func onAll(t *testing.T, x *bed.Site, args ...string) {
	t.Helper()
	for _, s := range x.Servers {
		s.Do(t, args...)
	}
}

// quiet waits until nobody asks the site's servers: who waits sleeps.
func quiet(t *testing.T, x *bed.Site) {
	t.Helper()
	for _, s := range x.Servers {
		s.AwaitQuiet(t)
	}
}
