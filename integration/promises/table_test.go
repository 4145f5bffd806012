package promises

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
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

// entered waits for who gets the lock, and when.
func entered(t *testing.T, from <-chan bed.Attempt) bed.Attempt {
	t.Helper()
	a := bed.Get(t, from)
	if a.Err != nil {
		t.Fatalf("Lock: %v", a.Err)
	}
	return a
}

// either waits for who of two gets the lock; asked once more, for the other one.
func either(t *testing.T, one, other <-chan bed.Attempt) redlatch.Hold {
	t.Helper()
	var a bed.Attempt
	select {
	case a = <-one:
	case a = <-other:
	case <-time.After(bed.Patience):
		t.Fatal("neither gets the lock")
	}
	if a.Err != nil {
		t.Fatalf("Lock: %v", a.Err)
	}
	return a.Hold
}

// begun asks for a lock, and returns when a command of that has come to a proxy.
func begun(t *testing.T, ctx context.Context, x *bed.Site, name string, l redlatch.Locker) <-chan bed.Attempt { //nolint:revive // t first, as in testing
	t.Helper()
	asked := x.Asked(t, name)
	got := bed.Async(ctx, l)
	asked()
	return got
}

// waits lets somebody behind the proxies wait for what the lock excludes, until nothing is under way.
func waits(t *testing.T, x *bed.Site, name string) <-chan bed.Attempt {
	t.Helper()
	got := begun(t, t.Context(), x, name, x.Kind.Excluded(x.Through, name))
	quiet(t, x)
	return got
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

func oneOf(err error, sentinels []error) bool {
	return slices.ContainsFunc(sentinels, func(e error) bool { return errors.Is(err, e) })
}

// ended waits until the hold's context has ended for this cause.
func ended(t *testing.T, h redlatch.Hold, cause error) {
	t.Helper()
	if got := bed.Ended(t, h); !errors.Is(got, cause) {
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

// cutOff leaves the clients behind the proxies without connections, until admit.
func cutOff(x *bed.Site) {
	for _, p := range x.Proxies {
		p.Refuse()
		p.Cut()
	}
}

func admit(t *testing.T, x *bed.Site) {
	t.Helper()
	for _, p := range x.Proxies {
		p.Admit(t)
	}
}

// slowed delays what goes through the proxies in one direction.
func slowed(x *bed.Site, d testbed.Direction, by time.Duration) {
	for _, p := range x.Proxies {
		p.Delay(d, by)
	}
}

// closeAll closes one client after the other, and returns how long that took.
func closeAll(clients []*redlatch.Client) time.Duration {
	began := time.Now()
	for _, c := range clients {
		c.Close()
	}
	return time.Since(began)
}

// quiet waits until nobody asks the site's servers: who waits sleeps.
func quiet(t *testing.T, x *bed.Site) {
	t.Helper()
	for _, s := range x.Servers {
		s.AwaitQuiet(t)
	}
}
