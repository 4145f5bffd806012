package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func inLook(t *testing.T, c *redlatch.Client, name string) redlatch.Inspection {
	t.Helper()
	in, err := c.Inspect(t.Context(), name)
	testbed.Must(t, err)
	return in
}

// inUntil looks until ok says so.
func inUntil(t *testing.T, c *redlatch.Client, name string, ok func(redlatch.Inspection) bool) (in redlatch.Inspection) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the last look: %+v", in)
		}
	}()
	bed.Eventually(t, "a look at "+name+" says so", func() bool { in = inLook(t, c, name); return ok(in) })
	return in
}

// Each kind is found by itself, with its holders, where they run, and its waiters.
func TestInspectEveryKind(t *testing.T) {
	s := bed.Server(t)
	holder := rlClient(t, s.Addr(), redlatch.WithName("holder"))
	waiter := rlClient(t, s.Addr(), redlatch.WithName("waiter"))
	op := rlClient(t, s.Addr(), redlatch.WithName("operator"))
	ctx := t.Context()

	if in := inLook(t, op, "free"); in.Kind != redlatch.KindNone || in.Held() || in.HolderCount != 0 {
		t.Fatalf("free: %+v", in)
	}

	for _, tc := range []struct {
		name       string
		hold, wait redlatch.Locker
		kind       redlatch.Kind
		mode       redlatch.Mode
		queue      int
	}{
		{"plain", holder.RLock("plain"), waiter.RLock("plain"), redlatch.KindReentrant, redlatch.ModeLock, 0},
		{"fair", holder.FairLock("fair"), waiter.FairLock("fair"), redlatch.KindFair, redlatch.ModeLock, 1},
		{"rw", holder.ReadWriteLock("rw").WriteLock(), waiter.ReadWriteLock("rw").ReadLock(), redlatch.KindReadWrite, redlatch.ModeWrite, 1},
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
			testbed.Between(t, o.Remaining, 1, redlatch.DefaultLeaseTime, "its lease")
			testbed.AtLeast(t, in.Remaining, o.Remaining-50*time.Millisecond, "the lock's lease")
			for _, w := range in.Queue {
				testbed.Equal(t, w.Client, "waiter", "who waits")
				testbed.Equal(t, w.ClientID, waiter.ID(), "the client that waits")
				if tc.kind == redlatch.KindFair && (w.AskedSince.After(in.At) || in.At.Sub(w.AskedSince) > time.Minute) {
					t.Errorf("it waits since %v, now is %v", w.AskedSince, in.At)
				}
			}
			bed.Unlock(t, h)
			next := bed.Hold(t, got)
			if in := inLook(t, op, tc.name); in.HolderCount != 1 || in.Holders[0].Client != "waiter" {
				t.Errorf("after the hand-over: %+v", in)
			}
			bed.Unlock(t, next)
		})
	}
}

// Of a read-write lock each process counts once, however many of its readers and writers wait.
func TestInspectCountsProcesses(t *testing.T) {
	s := bed.Server(t)
	op, both, writes := rlClient(t, s.Addr()), rlClient(t, s.Addr()), rlClient(t, s.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	h := bed.Lock(t, t.Context(), op.ReadWriteLock("rw").WriteLock())
	var waits []<-chan bed.Attempt
	for range 2 {
		waits = append(waits, bed.Async(ctx, both.ReadWriteLock("rw").ReadLock()), bed.Async(ctx, both.ReadWriteLock("rw").WriteLock()),
			bed.Async(ctx, writes.ReadWriteLock("rw").WriteLock()))
	}
	in := inUntil(t, op, "rw", func(in redlatch.Inspection) bool {
		sorts := map[string]bool{}
		for _, w := range in.Queue {
			sorts[w.ClientID+string(w.Mode)] = true
		}
		return len(sorts) == 3 && in.Processes > 0
	})
	testbed.Equal(t, in.Processes, 2, "processes of", in.Queue)
	cancel()
	for _, got := range waits {
		bed.Get(t, got)
	}
	bed.Unlock(t, h)
}

// A writer that reads, too, is two holders; many readers are counted.
func TestInspectReadersAndDowngrade(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	rw := c.ReadWriteLock("rw")
	w := bed.Lock(t, ctx, rw.WriteLock())
	r := bed.Lock(t, w.Context(), rw.ReadLock())
	in := inLook(t, c, "rw")
	if in.Mode != redlatch.ModeWrite || in.HolderCount != 2 || len(in.Holders) != 2 || in.Holders[0].Mode == in.Holders[1].Mode {
		t.Fatalf("%+v", in)
	}
	bed.Unlock(t, w, r)
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
	bed.Unlock(t, holds...)
}

// UnlockTimeout limits a call as a whole, however many questions it asks: here each answer comes late,
// and the second one after the limit.
func TestInspectHasOneLimit(t *testing.T) {
	t.Parallel()
	const limit, late = 8 * time.Second, 5200 * time.Millisecond
	s := bed.Server(t)
	ctx := t.Context()
	inLook(t, rlClient(t, s.Addr()), "x") // the server knows the script
	p := testbed.NewProxy(t, s.Addr())
	c := rlClient(t, p.Addr(), redlatch.WithName("late"), redlatch.WithUnlockTimeout(limit), func(c *redlatch.Config) {
		c.Redis.ConnWriteTimeout = 10 * time.Second // no connection is given up
	})
	h := bed.Lock(t, ctx, c.RLock("x"))
	p.Delay(testbed.Replies, late)
	if in := inLook(t, c, "x"); in.HolderCount != 1 || in.Holders[0].Client != "" {
		t.Errorf("the holder is %+v: CLIENT LIST had time beyond the limit", in.Holders)
	}
	ends := 0
	for _, err := range c.Locks(ctx, "") {
		ends++
		bed.Want(t, err, redlatch.ErrUnavailable)
	}
	testbed.Equal(t, ends, 1, "times that the list ended")
	p.Delay(testbed.Replies, 0)
	bed.Unlock(t, h)
}

// A Client's connections carry its name and id; a bad name is refused.
func TestClientName(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr(), redlatch.WithName("checkout/7"))
	for _, c := range []*redlatch.Client{c, rlClient(t, s.Addr())} {
		list := s.Text(t, "CLIENT", "LIST")
		if c.Name() == "" || !strings.Contains(list, "name=redlatch:"+c.Name()+":"+c.ID()+" ") {
			t.Errorf("%s: %s", c.Name(), list)
		}
	}
	testbed.Equal(t, c.Name(), "checkout/7", "its name")
	// Over RESP2 the name needs a permission, and a command of the server's; what has none works without a name.
	for _, tc := range []struct {
		rule string
		want bool
	}{{"+client|setname", true}, {"-client", false}} {
		s.SetUser(t, "old", "on", ">pw", "~*", "&*", "+@all", "-client", tc.rule)
		r := rlClient(t, s.Addr(), redlatch.WithName("resp2"), func(c *redlatch.Config) {
			c.Redis.AlwaysRESP2, c.Redis.Username, c.Redis.Password = true, "old", "pw"
		})
		bed.Unlock(t, bed.Lock(t, t.Context(), r.RLock("x")))
		testbed.Equal(t, strings.Contains(s.Text(t, "CLIENT", "LIST"), r.ID()), tc.want, tc.rule, "named")
	}
	bare := testbed.Standalone(t, "--rename-command", "CLIENT", "")
	r := rlClient(t, bare.Addr(), func(c *redlatch.Config) { c.Redis.AlwaysRESP2 = true })
	bed.Unlock(t, bed.Lock(t, t.Context(), r.RLock("x")))
	for _, bad := range []string{"a b", "ä", "a\n", strings.Repeat("x", 129)} {
		cfg := redlatch.Config{Name: bad}
		cfg.Redis.InitAddress = []string{s.Addr()}
		if _, err := redlatch.New(cfg); !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Readers whose leases have ended hold nothing: they are not counted, however many there are, also where a list looks at a
// few only.
func TestDeadReadersAreNotCounted(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	h := bed.Lock(t, t.Context(), c.ReadWriteLock("x").ReadLock())
	for i := range 300 {
		dead := fmt.Sprintf("8743c9c0-0795-4907-87fd-6c719a6b4586:g%d-mwr9e5v7.1", i)
		s.Do(t, "HSET", "x", dead, "1")
		s.Do(t, "ZADD", "redlatch_rw_leases:{x}", strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10), dead)
	}
	for in, err := range c.Locks(t.Context(), "") {
		testbed.Must(t, err)
		testbed.Equal(t, in.HolderCount, 1, "holders in the list")
	}
	testbed.Equal(t, inLook(t, c, "x").HolderCount, 1, "holders")
	s.Do(t, "DEL", "x", "redlatch_rw_leases:{x}")
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
}

// Who waits for an RLock is listed by process, the one that came first first, with the time, also where the lock was
// deleted by hand; and a process that is gone looks different from one of which nothing may be known.
func TestInspectWhoWaitsForAnRLock(t *testing.T) {
	s := bed.Server(t)
	called := func(name string) *redlatch.Client { return rlClient(t, s.Addr(), redlatch.WithName(name)) }
	holder, first, second, op := called("holder"), called("first"), called("second"), called("operator")
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
	testbed.AtLeast(t, in.Waiting[1].AskedSince.Sub(in.Waiting[0].AskedSince), 0, "how much later the second came")
	for l, err := range op.Locks(ctx, "") {
		testbed.Must(t, err)
		testbed.Equal(t, len(l.Waiting), 2, "those who wait, in the list")
	}

	// Nobody names the connections of who is not there; who may not read the list knows nothing of anybody.
	s.Do(t, "HSET", "dead", "8743c9c0-0795-4907-87fd-6c719a6b4586:g1-mwr9e5v7.1", "1")
	defer s.Do(t, "DEL", "dead")
	testbed.Equal(t, inLook(t, op, "dead").Holders[0].Unlisted, true, "gone")
	if in := inLook(t, op, "x"); in.Holders[0].Unlisted || in.Waiting[0].Unlisted {
		t.Errorf("there: %+v", in)
	}
	// The list that was read for that knows nothing of who comes now, either.
	young := bed.Lock(t, ctx, rlClient(t, s.Addr()).RLock("young"))
	testbed.Equal(t, inLook(t, op, "young").Holders[0].Unlisted, false, "gone, of who has just come")
	bed.Unlock(t, young)
	s.SetUser(t, "blind", "on", ">pw", "+@all", "-client|list", "~*", "&*")
	blind := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "blind", "pw" })
	testbed.Equal(t, inLook(t, blind, "dead").Holders[0].Unlisted, false, "gone, for who may not know")
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Hold(t, one))
	bed.Unlock(t, bed.Hold(t, two))
}
