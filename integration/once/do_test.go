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
	x := newScene(t)
	for _, job := range []struct {
		name string
		of   *redlatch.Client
		runs bool
	}{{"report", x.c, true}, {"report", x.c, false}, {"report", x.other, false}, {"other", x.other, true}} {
		if must(t, job.of.Once(job.name), hour) != job.runs {
			t.Errorf("%s ran: %t", job.name, !job.runs)
		}
	}
	if ttl := x.Int(t, "PTTL", luascript.OnceKey("report")); ttl <= 0 || ttl > hour.Milliseconds() {
		t.Errorf("the record lives for %d ms", ttl)
	}
}

// A run that fails uses up the period, until Reset.
func TestFailureUsesUpThePeriodUntilReset(t *testing.T) {
	x := newScene(t)
	failed, o := errors.New("disk full"), x.other.Once("report")
	ran, err := x.c.Once("report").Do(t.Context(), hour, func(context.Context) error { return failed })
	if !ran || !errors.Is(err, failed) {
		t.Fatal(ran, err)
	}
	if must(t, o, hour) {
		t.Error("ran again after a failure")
	}
	for _, known := range []bool{true, false} {
		if got, err := o.Reset(t.Context()); got != known || err != nil {
			t.Errorf("Reset: %t, %v; want %t", got, err, known)
		}
	}
	if !must(t, o, hour) {
		t.Error("did not run after Reset")
	}
}

// A run that fails and loses its lock: the error is both, on one line.
func TestFailureOfARunThatLosesItsLock(t *testing.T) {
	x := newScene(t)
	failed := errors.New("disk full")
	ran, err := x.c.Once("report").Do(t.Context(), hour, func(context.Context) error {
		x.Do(t, "DEL", "report")
		return failed
	})
	if !ran || !errors.Is(err, failed) || !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Fatal(ran, err)
	}
	oneLine(t, err)
}

// A panic of the job reaches its caller and unlocks.
func TestPanicUnlocks(t *testing.T) {
	x := newScene(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = x.c.Once("report").Do(t.Context(), hour, func(context.Context) error { panic("no") })
	}()
	if st, err := x.c.RLock("report").State(t.Context()); err != nil || st.Held {
		t.Error(st, err)
	}
}

// What can't be meant is refused, by its name, and uses up nothing.
func TestBadArguments(t *testing.T) {
	x := newScene(t)
	run := func(name string, period time.Duration, fn func(context.Context) error) error {
		ran, err := x.c.Once(name).Do(t.Context(), period, fn)
		if ran {
			t.Errorf("%q ran", name)
		}
		return err
	}
	for option, err := range map[string]error{"period": run("a", time.Millisecond, nothing), "fn": run("a", hour, nil)} {
		if bad, is := errors.AsType[*redlatch.InvalidOptionError](err); !is || bad.Option != option {
			t.Errorf("%s: %v", option, err)
		}
	}
	_, reset := x.c.Once("").Reset(t.Context())
	x.Do(t, "HSET", luascript.OnceKey("taken"), "a", "b")
	taken := run("taken", hour, nothing)
	if _, refused := errors.AsType[*redlatch.ServerError](taken); !refused {
		t.Error(taken)
	}
	// The key of the lock is something else.
	x.Do(t, "SET", "report", "application data")
	for _, err := range []error{reset, run("", hour, nothing), run("report", hour, nothing)} {
		bed.Want(t, err, redlatch.ErrInvalidName)
	}
	if _, found := record(t, x.Server, "report"); found {
		t.Error("the period is used up by nobody")
	}
	x.c.Close()
	bed.Want(t, run("a", hour, nothing), redlatch.ErrClosed)
	x.Do(t, "DEL", luascript.OnceKey("taken"), "report")
}

// Prefix and NameMapper hold for the record as for the lock.
func TestNamesAreMapped(t *testing.T) {
	x := newScene(t, func(c *redlatch.Config) { c.Prefix = "shop:" })
	if !must(t, x.c.Once("report"), time.Minute) || x.Int(t, "EXISTS", luascript.OnceKey("shop:report")) != 1 {
		t.Error("no run, or no record under the mapped name")
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
