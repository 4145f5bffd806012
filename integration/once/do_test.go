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
		testbed.Equal(t, must(t, job.of.Once(job.name), hour), job.runs, job.name, "ran")
	}
	testbed.Between(t, x.Int(t, "PTTL", luascript.OnceKey("report")), 1, hour.Milliseconds(), "ms of the record")
}

// A run that fails uses up the period, until Reset.
func TestFailureUsesUpThePeriodUntilReset(t *testing.T) {
	x := newScene(t)
	failed, o := errors.New("disk full"), x.other.Once("report")
	ran, err := x.c.Once("report").Do(t.Context(), hour, func(context.Context) error { return failed })
	testbed.Equal(t, ran, true, "ran")
	bed.Want(t, err, failed)
	testbed.Equal(t, must(t, o, hour), false, "ran again after a failure")
	for _, known := range []bool{true, false} {
		if got, err := o.Reset(t.Context()); got != known || err != nil {
			t.Errorf("Reset: %t, %v; want %t", got, err, known)
		}
	}
	testbed.Equal(t, must(t, o, hour), true, "ran after Reset")
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
		defer func() { testbed.Equal(t, recover(), "no", "what it panics with") }()
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
		testbed.Equal(t, ran, false, name, "ran")
		return err
	}
	for option, err := range map[string]error{"period": run("a", time.Millisecond, nothing), "fn": run("a", hour, nil)} {
		testbed.Equal(t, bed.As[*redlatch.InvalidOptionError](t, err).Option, option, "what is refused")
	}
	_, reset := x.c.Once("").Reset(t.Context())
	x.Do(t, "HSET", luascript.OnceKey("taken"), "a", "b")
	_ = bed.As[*redlatch.ServerError](t, run("taken", hour, nothing))
	// The key of the lock is something else.
	x.Do(t, "SET", "report", "application data")
	for _, err := range []error{reset, run("", hour, nothing), run("report", hour, nothing)} {
		bed.Want(t, err, redlatch.ErrInvalidName)
	}
	testbed.Equal(t, records(t, x.Server), 0, "periods that are used up by nobody")
	x.c.Close()
	bed.Want(t, run("a", hour, nothing), redlatch.ErrClosed)
	x.Do(t, "DEL", luascript.OnceKey("taken"), "report")
}

// Prefix and NameMapper hold for the record as for the lock.
func TestNamesAreMapped(t *testing.T) {
	x := newScene(t, func(c *redlatch.Config) { c.Prefix = "shop:" })
	testbed.Equal(t, must(t, x.c.Once("report"), time.Minute), true, "ran")
	testbed.Equal(t, x.Int(t, "EXISTS", luascript.OnceKey("shop:report")), 1, "records under the mapped name")
}

// On a cluster all keys of a job are in one slot.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testbed.Cluster(t)
	c := bed.Client(t, cluster.Addrs()[0])
	for _, name := range []string{"a", "b", "c", "{x}d"} {
		testbed.Equal(t, must(t, c.Once(name), hour), true, name, "ran")
		testbed.Equal(t, must(t, c.Once(name), hour), false, name, "ran again")
		if ok, err := c.Once(name).Reset(t.Context()); !ok || err != nil {
			t.Error(name, ok, err)
		}
	}
}
