package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Locks lists all kinds once, among a lot of data, by name and by prefix.
func TestLocks(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr(), inName("all"), func(c *redlatch.Config) { c.Prefix = "p[1]:" }), t.Context()
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

	list := func(c *redlatch.Client, pattern string) map[string]redlatch.Kind {
		out := map[string]redlatch.Kind{}
		for in, err := range c.Locks(ctx, pattern) {
			if err != nil {
				t.Fatal(err)
			}
			if _, twice := out[in.Name]; twice {
				t.Errorf("%s twice", in.Name)
			}
			out[in.Name] = in.Kind
			if in.HolderCount != 1 || (c.Name() == "all" && in.Holders[0].Client != "all") {
				t.Errorf("%+v", in)
			}
		}
		return out
	}
	if got := list(c, ""); !maps.Equal(got, want) {
		t.Errorf("%d of %d locks", len(got), len(want))
	}
	if got := list(c, "orders:1?"); len(got) != 10 {
		t.Errorf("%v", got)
	}
	if got := list(other, "else*"); !maps.Equal(got, map[string]redlatch.Kind{"elsewhere": redlatch.KindReentrant}) {
		t.Errorf("%v", got)
	}
	seen := 0
	for _, err := range c.Locks(ctx, "*") { // a loop that ends early
		if seen++; err != nil || seen == 3 {
			break
		}
	}
	third := rlClient(t, s.Addr()) // closed by the loop itself
	for _, err := range third.Locks(ctx, "*") {
		if third.Close(); err != nil && !errors.Is(err, redlatch.ErrClosed) {
			t.Error(err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range c.Locks(ended, "*") {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for _, h := range holds {
		if err := h.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	for _, err := range c.Locks(ctx, "*") {
		if !errors.Is(err, redlatch.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := c.Inspect(ctx, "x"); !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
	if _, err := c.ForceUnlock(ctx, "x"); !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
}

// What stands there is listed, also under a name that no lock of ours may have.
func TestLocksListsWhatStandsThere(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	s.Do(t, "HSET", "{a}", "8743c9c0-0795-4907-87fd-6c719a6b4586:42", "1")
	t.Cleanup(func() { s.Do(t, "DEL", "{a}") })
	var names []string
	for in, err := range c.Locks(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, in.Name)
	}
	if len(names) != 1 || names[0] != "{a}" {
		t.Errorf("listed: %q", names)
	}
}

// In a cluster the locks of every master are listed.
func TestLocksOfACluster(t *testing.T) {
	t.Parallel()
	cl := testbed.Cluster(t)
	c, ctx := rlClient(t, cl.Addrs()[0], inName("n")), t.Context()
	var holds []redlatch.Hold
	for i := range 30 {
		holds = append(holds, bed.Lock(t, ctx, c.RLock(fmt.Sprintf("k%d", i))))
	}
	n := 0
	for in, err := range c.Locks(ctx, "k*") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; in.HolderCount != 1 || in.Holders[0].Client != "n" {
			t.Errorf("%+v", in)
		}
	}
	if n != 30 {
		t.Errorf("%d of 30 locks", n)
	}
	if was, err := c.ForceUnlock(ctx, "k3"); !was || err != nil {
		t.Errorf("%v, %v", was, err)
	}
	if in := inLook(t, c, "k4"); in.Holders[0].Client != "n" {
		t.Errorf("%+v", in)
	}
	for i, h := range holds {
		if err := h.Unlock(ctx); err != nil && i != 3 {
			t.Fatal(err)
		}
	}
}
