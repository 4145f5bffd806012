package integration

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Locks lists all kinds once, among a lot of data, by name and by prefix, also what stands under a name that no lock of
// ours may have; it ends when the loop, its ctx or the Client does.
func TestLocks(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr(), redlatch.WithName("all"), func(c *redlatch.Config) { c.Prefix = "p[1]:" }), t.Context()
	other := rlClient(t, s.Addr())
	inForeign(t, s)
	var holds []redlatch.Hold
	want := map[string]redlatch.Kind{}
	for i := range 600 {
		name := fmt.Sprintf("orders:%d", i)
		holds = append(holds, bed.Lock(t, ctx, c.RLock(name)))
		want[name] = redlatch.KindReentrant
	}
	holds = append(holds, bed.Lock(t, ctx, c.ReadWriteLock("cache").ReadLock()), bed.Lock(t, ctx, other.RLock("elsewhere")))
	want["cache"] = redlatch.KindReadWrite

	s.Do(t, "HSET", "p[1]:{a}", "8743c9c0-0795-4907-87fd-6c719a6b4586:42", "1")
	defer s.Do(t, "DEL", "p[1]:{a}")
	want["{a}"] = redlatch.KindReentrant

	list := func(c *redlatch.Client, pattern string) map[string]redlatch.Kind {
		out := map[string]redlatch.Kind{}
		for in, err := range c.Locks(ctx, pattern) {
			testbed.Must(t, err)
			_, twice := out[in.Name]
			testbed.Equal(t, twice, false, in.Name, "twice")
			out[in.Name] = in.Kind
			if in.HolderCount != 1 || c.Name() == "all" && in.Holders[0].Client != "all" && in.Name != "{a}" {
				t.Errorf("%+v", in)
			}
		}
		return out
	}
	if got := list(c, ""); !maps.Equal(got, want) {
		t.Errorf("%d of %d locks", len(got), len(want))
	}
	testbed.Equal(t, len(list(c, "orders:1?")), 10, "locks by prefix")
	testbed.Equal(t, fmt.Sprint(list(other, "else*")), "map[elsewhere:reentrant]", "locks of the other one")
	seen := 0
	for _, err := range c.Locks(ctx, "*") { // a loop that ends early
		if seen++; err != nil || seen == 3 {
			break
		}
	}
	third := rlClient(t, s.Addr()) // closed by the loop itself
	for _, err := range third.Locks(ctx, "*") {
		third.Close()
		bed.Want(t, err, nil, redlatch.ErrClosed)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range c.Locks(ended, "*") {
		bed.Want(t, err, context.Canceled)
	}
	bed.Unlock(t, holds...)
	c.Close()
	for _, err := range c.Locks(ctx, "*") {
		bed.Want(t, err, redlatch.ErrClosed)
	}
	_, err := c.Inspect(ctx, "x")
	bed.Want(t, err, redlatch.ErrClosed)
	_, err = c.ForceUnlock(ctx, "x")
	bed.Want(t, err, redlatch.ErrClosed)
}
