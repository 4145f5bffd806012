package integration

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// inText is an answer that is a text.
func inText(t *testing.T, m rueidis.RedisMessage) string {
	t.Helper()
	text, err := m.ToString()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func inName(name string) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.Name = name }
}

func inLook(t *testing.T, c *redlatch.Client, name string) redlatch.Inspection {
	t.Helper()
	in, err := c.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// inUntil looks until ok says so.
func inUntil(t *testing.T, c *redlatch.Client, name string, ok func(redlatch.Inspection) bool) redlatch.Inspection {
	t.Helper()
	for end := time.Now().Add(bed.Patience); ; {
		in := inLook(t, c, name)
		if ok(in) {
			return in
		}
		if time.Now().After(end) {
			t.Fatalf("it stays %+v", in)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Each kind is found by itself, with its holders, where they run, and its waiters.
func TestInspectEveryKind(t *testing.T) {
	s := bed.Server(t)
	holder := rlClient(t, s.Addr(), inName("holder"))
	waiter := rlClient(t, s.Addr(), inName("waiter"))
	op := rlClient(t, s.Addr(), inName("operator"))
	ctx := t.Context()

	if in := inLook(t, op, "free"); in.Kind != redlatch.KindNone || in.Held() || in.HolderCount != 0 {
		t.Fatalf("free: %+v", in)
	}

	rw := holder.ReadWriteLock("rw")
	for _, tc := range []struct {
		name       string
		hold, wait redlatch.Locker
		kind       redlatch.Kind
		mode       redlatch.Mode
		queue      int
	}{
		{"plain", holder.RLock("plain"), waiter.RLock("plain"), redlatch.KindReentrant, redlatch.ModeLock, 0},
		{"fair", holder.FairLock("fair"), waiter.FairLock("fair"), redlatch.KindFair, redlatch.ModeLock, 1},
		{"rw", rw.WriteLock(), waiter.ReadWriteLock("rw").ReadLock(), redlatch.KindReadWrite, redlatch.ModeWrite, 1},
		{"rw2", holder.ReadWriteLock("rw2").ReadLock(), waiter.ReadWriteLock("rw2").WriteLock(), redlatch.KindReadWrite, redlatch.ModeRead, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := bed.Lock(t, ctx, tc.hold)
			got := bed.Async(ctx, tc.wait)
			in := inUntil(t, op, tc.name, func(in redlatch.Inspection) bool {
				return in.Processes == 1 && in.QueueLength == tc.queue
			})
			if in.Kind != tc.kind || in.Mode != tc.mode || in.HolderCount != 1 || len(in.Holders) != 1 || len(in.Queue) != tc.queue {
				t.Fatalf("%+v", in)
			}
			o := in.Holders[0]
			if o.ClientID != holder.ID() || o.Client != "holder" || !strings.Contains(o.Addr, "127.0.0.1:") || o.Count != 1 || o.Mode != tc.mode {
				t.Errorf("holder: %+v", o)
			}
			if o.Remaining <= 0 || o.Remaining > redlatch.DefaultLeaseTime || in.Remaining < o.Remaining-50*time.Millisecond {
				t.Errorf("leases: %v of %v", o.Remaining, in.Remaining)
			}
			for _, w := range in.Queue {
				if w.Client != "waiter" || w.ClientID != waiter.ID() {
					t.Errorf("waiter: %+v", w)
				}
				if tc.kind == redlatch.KindFair && (w.AskedSince.After(in.At) || in.At.Sub(w.AskedSince) > time.Minute) {
					t.Errorf("it waits since %v, now is %v", w.AskedSince, in.At)
				}
			}
			if err := h.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			r := bed.Get(t, got)
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if in := inLook(t, op, tc.name); in.HolderCount != 1 || in.Holders[0].Client != "waiter" {
				t.Errorf("after the hand-over: %+v", in)
			}
			if err := r.Hold.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A writer that reads, too, is two holders; many readers are counted.
func TestInspectReadersAndDowngrade(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	rw := c.ReadWriteLock("rw")
	w := bed.Lock(t, ctx, rw.WriteLock())
	r := bed.Lock(t, w.Context(), rw.ReadLock())
	in := inLook(t, c, "rw")
	if in.Mode != redlatch.ModeWrite || in.HolderCount != 2 {
		t.Fatalf("%+v", in)
	}
	modes := []string{string(in.Holders[0].Mode), string(in.Holders[1].Mode)}
	slices.Sort(modes)
	if !slices.Equal(modes, []string{"read", "write"}) {
		t.Errorf("modes: %v", modes)
	}
	if err := errors.Join(w.Unlock(ctx), r.Unlock(ctx)); err != nil {
		t.Fatal(err)
	}
	var holds []redlatch.Hold
	for range 40 {
		holds = append(holds, bed.Lock(t, ctx, rw.ReadLock()))
	}
	if in := inLook(t, c, "rw"); in.HolderCount != 40 || len(in.Holders) != 40 || in.Mode != redlatch.ModeRead {
		t.Errorf("%d readers, %d shown", in.HolderCount, len(in.Holders))
	}
	for in, err := range c.Locks(ctx, "") {
		if err != nil || in.HolderCount != 40 || len(in.Holders) == 0 || len(in.Holders) > 16 {
			t.Errorf("in the list: %d readers, %d shown, %v", in.HolderCount, len(in.Holders), err)
		}
	}
	for _, h := range holds {
		if err := h.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// The acquisition's id tells since when, where it has a time; a Java owner's tells
// nothing.
func TestInspectSince(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	const client = "343714c0-1111-4222-8333-444455556666"
	asked := time.Now().Add(-90 * time.Second).Truncate(time.Millisecond)
	for field, want := range map[string]time.Time{
		client + ":g1-" + base36(asked.UnixMilli()) + ".1z":       asked,
		client + ":g=job%20x-" + base36(asked.UnixMilli()) + ".2": asked,
		client + ":g1-1":              {},
		client + ":g1-zz.1":           {},
		client + ":g1-zzzzzzzzzzzz.1": {},
		client + ":57":                {},
	} {
		s.Do(t, "HSET", "x", field, "2")
		s.Do(t, "PEXPIRE", "x", "30000")
		in := inLook(t, c, "x")
		if len(in.Holders) != 1 || !in.Holders[0].AskedSince.Equal(want) || in.Holders[0].Count != 2 || in.Holders[0].Owner != field || in.Holders[0].ClientID != client {
			t.Errorf("%s: %+v", field, in.Holders)
		}
		s.Do(t, "DEL", "x")
	}
}

// State tells of each kind since when a holder has the lock, and since when it, or a waiter, has asked for it.
func TestStateSince(t *testing.T) {
	s := bed.Server(t)
	a, b, ctx := rlClient(t, s.Addr()), rlClient(t, s.Addr()), t.Context()
	for name, tc := range map[string]struct {
		holder, waiter redlatch.Locker
		state          func(context.Context) (redlatch.State, error)
		queue          int
	}{
		"plain": {a.RLock("plain"), b.RLock("plain"), a.RLock("plain").State, 0},
		"fair":  {a.FairLock("fair"), b.FairLock("fair"), a.FairLock("fair").State, 1},
		"rw":    {a.ReadWriteLock("rw").ReadLock(), b.ReadWriteLock("rw").WriteLock(), a.ReadWriteLock("rw").State, 1},
	} {
		// between says that somebody asked after one time and before another.
		between := func(what string, at, after, before time.Time) {
			t.Helper()
			if at.Before(after.Truncate(time.Millisecond)) || at.After(before) {
				t.Errorf("%s: %s asked at %v, not between %v and %v", name, what, at, after, before)
			}
		}
		look := func() redlatch.State {
			t.Helper()
			st, err := tc.state(ctx)
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("%s: %+v %v", name, st, err)
			}
			return st
		}
		if st, err := tc.state(ctx); err != nil || st.Held || st.Mode != redlatch.ModeNone || len(st.Holders) != 0 || st.Name != name {
			t.Errorf("%s, which is free: %+v %v", name, st, err)
		}
		began := time.Now()
		h := bed.Lock(t, ctx, tc.holder)
		asked := time.Now()
		got := bed.Async(ctx, tc.waiter)
		inUntil(t, a, name, func(in redlatch.Inspection) bool { return in.Processes == 1 && in.QueueLength == tc.queue })
		st := look()
		waited := time.Now()
		if len(st.Queue) != tc.queue {
			t.Errorf("%s: %d wait, not %d", name, len(st.Queue), tc.queue)
		}
		between("the holder", st.Holders[0].AskedSince, began, asked)
		for _, w := range st.Queue {
			between("the waiter", w.AskedSince, asked, waited)
		}
		bed.Unlock(t, h)
		r := bed.Get(t, got)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		next := look().Holders[0]
		between("the next holder", next.AskedSince, asked, waited)
		if held := next.HeldSince; held.Before(waited.Truncate(time.Millisecond)) || held.After(r.At) {
			t.Errorf("%s: held since %v, not between %v and %v", name, held, waited, r.At)
		}
		bed.Unlock(t, r.Hold)
	}
}

func base36(n int64) string { return strconv.FormatInt(n, 36) }

// UnlockTimeout limits a call as a whole, however many questions it asks: here each answer comes late,
// and the second one after the limit.
func TestInspectHasOneLimit(t *testing.T) {
	t.Parallel()
	const limit, late = 8 * time.Second, 5200 * time.Millisecond
	s := bed.Server(t)
	ctx := t.Context()
	inLook(t, rlClient(t, s.Addr()), "x") // the server knows the script
	p := testbed.NewProxy(t, s.Addr())
	c := rlClient(t, p.Addr(), inName("late"), rlUnlockTimeout(limit), func(c *redlatch.Config) {
		c.Redis.ConnWriteTimeout = 10 * time.Second // no connection is given up
	})
	h := bed.Lock(t, ctx, c.RLock("x"))
	p.Delay(testbed.Replies, late)
	if in := inLook(t, c, "x"); in.HolderCount != 1 || in.Holders[0].Client != "" {
		t.Errorf("the holder is %+v: CLIENT LIST had time beyond the limit", in.Holders)
	}
	ends := 0
	for in, err := range c.Locks(ctx, "") {
		if ends++; !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("listed: %+v, %v", in, err)
		}
	}
	if ends != 1 {
		t.Errorf("the list ended %d times", ends)
	}
	p.Delay(testbed.Replies, 0)
	bed.Unlock(t, h)
}

// Masters that stand still are asked for their connections at once, and hide the names of their own
// clients only. The look at a lock of another one takes no longer than UnlockTimeout.
func TestInspectBesideFrozenMasters(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	cl := testbed.Cluster(t, "--cluster-node-timeout", "60000") // the cluster itself does nothing about it
	t.Cleanup(func() { rlLibraryEnds(t) })
	c := rlClient(t, "", inName("n"), rlUnlockTimeout(limit), func(c *redlatch.Config) {
		c.Redis = rueidis.ClientOption{InitAddress: cl.Addrs(), ConnWriteTimeout: 10 * time.Second}
	})
	h := bed.Lock(t, t.Context(), c.RLock("k"))
	in, err := c.Inspect(t.Context(), "other") // the library has connected where it asks
	if err != nil || in.HolderCount != 0 {
		t.Fatalf("%+v, %v", in, err)
	}
	home := cl.NodeOfKey(t, "k")
	frozen := slices.DeleteFunc(cl.Masters(t), func(m *testbed.Server) bool { return m == home })
	for _, m := range frozen {
		m.Freeze(t)
		defer m.Thaw(t)
	}
	began := time.Now()
	in, err = c.Inspect(t.Context(), "k")
	took := time.Since(began)
	if err != nil || in.HolderCount != 1 {
		t.Errorf("%+v, %v", in, err)
	}
	if took > limit+rlSlack {
		t.Errorf("it took %v beside %d frozen masters", took, len(frozen))
	}
	for _, m := range frozen {
		m.Thaw(t)
	}
	bed.Unlock(t, h)
	c.Close()
}

// A Client's connections carry its name and id; a bad name is refused.
func TestClientName(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr(), inName("checkout/7"))
	list := inText(t, s.Do(t, "CLIENT", "LIST"))
	if c.Name() != "checkout/7" || !strings.Contains(list, "name=redlatch:checkout/7:"+c.ID()+" ") {
		t.Errorf("%s: %s", c.Name(), list)
	}
	if d := rlClient(t, s.Addr()); d.Name() == "" || !strings.Contains(inText(t, s.Do(t, "CLIENT", "LIST")), "name=redlatch:"+d.Name()+":"+d.ID()+" ") {
		t.Errorf("default %q", d.Name())
	}
	// Over RESP2 the name needs a permission, and what has none works without a name.
	for _, tc := range []struct {
		rule string
		want bool
	}{{"+client|setname", true}, {"-client", false}} {
		s.SetUser(t, "old", "on", ">pw", "~*", "&*", "+@all", "-client", tc.rule)
		r := rlClient(t, s.Addr(), inName("resp2"), func(c *redlatch.Config) {
			c.Redis.AlwaysRESP2, c.Redis.Username, c.Redis.Password = true, "old", "pw"
		})
		if err := bed.Lock(t, t.Context(), r.RLock("x")).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(inText(t, s.Do(t, "CLIENT", "LIST")), r.ID()); got != tc.want {
			t.Errorf("%s: named %v", tc.rule, got)
		}
	}
	for _, bad := range []string{"a b", "ä", "a\n", strings.Repeat("x", 129)} {
		cfg := redlatch.Config{Name: bad}
		cfg.Redis.InitAddress = []string{s.Addr()}
		if _, err := redlatch.New(cfg); !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Who waits for a plain lock is listed by process, the one that came first first, with the time, also where the lock was
// deleted by hand; and a process that is gone looks different from one of which nothing may be known.
func TestInspectWhoWaitsForAPlainLock(t *testing.T) {
	s := bed.Server(t)
	holder, first, second := rlClient(t, s.Addr(), inName("holder")), rlClient(t, s.Addr(), inName("first")), rlClient(t, s.Addr(), inName("second"))
	op := rlClient(t, s.Addr(), inName("operator"))
	ctx := t.Context()
	h := bed.Lock(t, ctx, holder.RLock("x"))
	one := bed.Async(ctx, first.RLock("x"))
	inUntil(t, op, "x", func(in redlatch.Inspection) bool { return len(in.Waiting) == 1 })
	two := bed.Async(ctx, second.RLock("x"))
	in := inUntil(t, op, "x", func(in redlatch.Inspection) bool { return len(in.Waiting) == 2 && in.Waiting[1].Client != "" })
	for i, want := range []string{"first", "second"} {
		if w := in.Waiting[i]; w.Client != want || w.AskedSince.After(in.At) || in.At.Sub(w.AskedSince) > time.Minute {
			t.Errorf("%d: %+v at %v", i, w, in.At)
		}
	}
	if in.Waiting[1].AskedSince.Before(in.Waiting[0].AskedSince) {
		t.Errorf("%+v", in.Waiting)
	}
	for l, err := range op.Locks(ctx, "") {
		if err != nil || len(l.Waiting) != 2 {
			t.Errorf("%v %+v", err, l)
		}
	}

	// Nobody names the connections of who is not there; who may not read the list knows nothing of anybody.
	s.Do(t, "HSET", "dead", "8743c9c0-0795-4907-87fd-6c719a6b4586:g1-mwr9e5v7.1", "1")
	defer s.Do(t, "DEL", "dead")
	if in := inLook(t, op, "dead"); !in.Holders[0].Unlisted {
		t.Errorf("gone: %+v", in.Holders[0])
	}
	if in := inLook(t, op, "x"); in.Holders[0].Unlisted || in.Waiting[0].Unlisted {
		t.Errorf("there: %+v", in)
	}
	s.SetUser(t, "blind", "on", ">pw", "+@all", "-client|list", "~*", "&*")
	blind := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "blind", "pw" })
	if in := inLook(t, blind, "dead"); in.Holders[0].Unlisted {
		t.Errorf("not permitted to know: %+v", in.Holders[0])
	}
	for _, got := range []func() redlatch.Hold{func() redlatch.Hold { return h }, func() redlatch.Hold { return bed.Get(t, one).Hold }, func() redlatch.Hold { return bed.Get(t, two).Hold }} {
		if err := got().Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
}
