package once

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A run uses up the period for everybody.
func TestARunUsesUpThePeriodForEverybody(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
	if !must(t, a.Once("report"), hour) {
		t.Fatal("the first call did not run")
	}
	if must(t, a.Once("report"), hour) || must(t, b.Once("report"), hour) {
		t.Error("a second run in one period")
	}
	if !must(t, b.Once("other"), hour) {
		t.Error("another name did not run")
	}
	if ttl := s.Int(t, "PTTL", luascript.OnceKey("report")); ttl <= 0 || ttl > hour.Milliseconds() {
		t.Errorf("the record lives for %d ms", ttl)
	}
}

// A run that fails uses up the period, until Reset.
func TestFailureUsesUpThePeriodUntilReset(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
	failed := errors.New("disk full")
	ran, err := a.Once("report").Do(t.Context(), hour, func(context.Context) error { return failed })
	if !ran || !errors.Is(err, failed) {
		t.Fatal(ran, err)
	}
	if must(t, b.Once("report"), hour) {
		t.Error("ran again after a failure")
	}
	if got, err := b.Once("report").Reset(t.Context()); !got || err != nil {
		t.Error(got, err)
	}
	if got, err := b.Once("report").Reset(t.Context()); got || err != nil {
		t.Error("a second Reset:", got, err)
	}
	if !must(t, b.Once("report"), hour) {
		t.Error("did not run after Reset")
	}
}

// A run that fails and loses its lock: the error is both, on one line.
func TestFailureOfARunThatLosesItsLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	failed := errors.New("disk full")
	ran, err := bed.Client(t, s.Addr()).Once("report").Do(t.Context(), hour, func(context.Context) error {
		s.Do(t, "DEL", "report")
		return failed
	})
	if !ran || !errors.Is(err, failed) || !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Fatal(ran, err)
	}
	oneLine(t, err)
}

// A panic of the job reaches its caller and unlocks.
func TestPanicUnlocks(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := bed.Client(t, s.Addr())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = a.Once("report").Do(t.Context(), hour, func(context.Context) error { panic("no") })
	}()
	if st, err := a.RLock("report").State(t.Context()); err != nil || st.Held {
		t.Error(st, err)
	}
}

// What can't be meant is refused, by its name, and uses up nothing.
func TestBadArguments(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := bed.Client(t, s.Addr())
	for name, call := range map[string]func() error{
		"period": func() error { _, err := c.Once("a").Do(t.Context(), time.Millisecond, nothing); return err },
		"fn":     func() error { _, err := c.Once("a").Do(t.Context(), hour, nil); return err },
	} {
		var bad *redlatch.InvalidOptionError
		if err := call(); !errors.As(err, &bad) || bad.Option != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Once("").Do(t.Context(), hour, nothing); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(err)
	}
	if _, err := c.Once("").Reset(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(err)
	}
	s.Do(t, "HSET", luascript.OnceKey("taken"), "a", "b")
	var refused *redlatch.ServerError
	if _, err := c.Once("taken").Do(t.Context(), hour, nothing); !errors.As(err, &refused) {
		t.Error(err)
	}
	s.Do(t, "DEL", luascript.OnceKey("taken"))
	c.Close()
	if ran, err := c.Once("a").Do(t.Context(), hour, nothing); ran || !errors.Is(err, redlatch.ErrClosed) {
		t.Error(ran, err)
	}
}

// Prefix and NameMapper hold for the record as for the lock.
func TestNamesAreMapped(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.Prefix = "shop:" })
	if !must(t, c.Once("report"), time.Minute) {
		t.Fatal("did not run")
	}
	if n := s.Int(t, "EXISTS", luascript.OnceKey("shop:report")); n != 1 {
		t.Error("no record under the mapped name")
	}
}

// On a cluster all keys of a job are in one slot.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testbed.Cluster(t)
	c := bed.Client(t, cluster.Addrs()[0])
	for _, name := range []string{"a", "b", "c", "{x}d"} {
		if !must(t, c.Once(name), hour) || must(t, c.Once(name), hour) {
			t.Error(name)
		}
		if ok, err := c.Once(name).Reset(t.Context()); !ok || err != nil {
			t.Error(name, ok, err)
		}
	}
}
