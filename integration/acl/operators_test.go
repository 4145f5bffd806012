package acl

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// crowd has an application hold a lock of each kind, with a waiter each, until the test ends.
func (w *walk) crowd() (app *redlatch.Client, names []string) {
	app = bed.Client(w.t, w.s.Addr(), func(c *redlatch.Config) { c.Prefix, c.Name = w.prefix, "app/1" })
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	for _, of := range []struct {
		name        string
		holds, wait redlatch.Locker
	}{
		{"plain", app.RLock("plain"), app.RLock("plain")},
		{"fair", app.FairLock("fair", redlatch.Fenced()), app.FairLock("fair", redlatch.Fenced())},
		{"read", app.ReadWriteLock("read").ReadLock(), app.ReadWriteLock("read").WriteLock()},
		{"write", app.ReadWriteLock("write").WriteLock(), app.ReadWriteLock("write").ReadLock()},
	} {
		bed.Lock(w.t, ctx, of.holds)
		bed.Async(ctx, of.wait)
		bed.Eventually(w.t, "somebody waits for "+of.name, func() bool {
			in, err := app.Inspect(w.t.Context(), of.name)
			return err == nil && in.Processes > 0
		})
		names = append(names, of.name)
	}
	java := w.prefix + "java" // a reader of Redisson's
	w.s.Do(w.t, "HSET", java, "mode", "read", redissons, "1")
	w.s.Do(w.t, "SET", "{"+java+"}:"+redissons+":rwlock_timeout:1", "1", "PX", "60000")
	w.s.Do(w.t, "PEXPIRE", java, "60000")
	w.s.Do(w.t, "SCRIPT", "FLUSH") // or +eval were not needed
	return app, append(names, "java")
}

// inspecting makes a walk that inspects all of them, and says what is not known.
func inspecting(unknown func(in redlatch.Inspection, java bool) bool) func(w *walk) {
	return func(w *walk) {
		_, names := w.crowd()
		for _, name := range names {
			if in, err := w.a.Inspect(w.ctx, name); !w.note(err) && unknown(in, name == "java") {
				w.say(fmt.Sprintf("not complete: %+v", in))
			}
		}
	}
}

func init() {
	walks["operators"] = inspecting(func(in redlatch.Inspection, java bool) bool {
		return !in.Held() || in.Name != "plain" && !java && in.QueueLength != 1 || in.Name == "fair" && (in.Token == 0 || len(in.Queue) != 1)
	})
	walks["numbers"] = inspecting(func(in redlatch.Inspection, java bool) bool { return in.Processes != 1 && !java })
	walks["names"] = inspecting(func(in redlatch.Inspection, java bool) bool { return in.Holders[0].Client != "app/1" && !java })
	walks["jobs"] = func(w *walk) {
		app := bed.Client(w.t, w.s.Addr(), func(c *redlatch.Config) { c.Prefix = w.prefix })
		_, err := app.Once("job").Do(w.ctx, time.Hour, func(context.Context) error { return nil })
		testbed.Must(w.t, err)
		w.s.Do(w.t, "SCRIPT", "FLUSH")
		if run, err := w.a.Once("job").Last(w.ctx); !w.note(err) && run.Began.IsZero() {
			w.say("no run is known")
		}
	}
	walks["list"] = func(w *walk) {
		_, names := w.crowd()
		n := 0
		for _, err := range w.a.Locks(w.ctx, "") {
			if !w.note(err) {
				n++
			}
		}
		if n != len(names) {
			w.say(fmt.Sprintf("%d of %d locks", n, len(names)))
		}
	}
	walks["history"] = func(w *walk) {
		_, err := w.a.Evictions(w.ctx, "", 10)
		w.note(err)
	}
	walks["record"] = func(w *walk) {
		app, _ := w.crowd()
		_, err := w.a.ForceUnlock(w.ctx, "plain", redlatch.Recorded("ann", "it hangs"))
		w.note(err)
		w.a.Close() // all is logged
		if kept, err := app.Evictions(w.ctx, "plain", 10); err != nil || len(kept) != 1 {
			w.say(fmt.Sprint(len(kept), " evictions are noted: ", err))
		}
	}
	walks["evict"] = func(w *walk) {
		app, names := w.crowd()
		for _, name := range names {
			before, err := app.Inspect(w.ctx, name)
			if w.note(err) {
				continue
			}
			if was, err := w.a.ForceUnlock(w.ctx, name, redlatch.IfOwner(before.Holders[0].Owner)); !w.note(err) && !was {
				w.say(name + " was not freed")
			}
		}
		// A writer who reads too: the write lock alone, and the rest.
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		rw := app.ReadWriteLock("both")
		h := bed.Lock(w.t, ctx, rw.WriteLock())
		bed.Lock(w.t, h.Context(), rw.ReadLock())
		_, err := w.a.ReadWriteLock("both").WriteLock().ForceUnlock(w.ctx)
		w.note(err)
		_, err = w.a.ForceUnlock(w.ctx, "both")
		w.note(err)
	}
}

// Who may look changes nothing: an eviction is refused whole.
func TestWhoLooksEvictsNobody(t *testing.T) {
	w := start(t, testbed.Standalone(t), 1, "operators", "")
	app, names := w.crowd()
	for _, name := range names {
		before, err := app.Inspect(w.ctx, name)
		testbed.Must(t, err)
		was, err := w.a.ForceUnlock(w.ctx, name)
		testbed.Equal(t, was, false, name, "was forced")
		testbed.Equal(t, bed.As[*redlatch.ServerError](t, err).ErrorType(), "noperm", name)
		if after, err := app.Inspect(w.ctx, name); err != nil || !after.Held() || after.Holders[0].Owner != before.Holders[0].Owner {
			t.Errorf("%+v became %+v, %v", before, after, err)
		}
	}
}

// What a write to a fencing counter is worth: one below the server's clock nothing; one above it is the next token, and
// taken back it leaves tokens that are smaller; the largest ends the acquisitions.
func TestWhatAWriteToACounterIsWorth(t *testing.T) {
	s := testbed.Standalone(t)
	l := bed.Client(t, s.Addr()).RLock("l", redlatch.Fenced())
	token := func() uint64 {
		h := bed.Lock(t, t.Context(), l)
		defer bed.Unlock(t, h)
		return h.Token()
	}
	const counter, ahead, last = "redisson_lock_token:{l}", uint64(1) << 52, uint64(1)<<53 - 1
	before := token()
	s.Do(t, "SET", counter, "1")
	lower := token()
	s.Do(t, "SET", counter, strconv.FormatUint(ahead, 10))
	higher := token()
	s.Do(t, "DEL", counter)
	none := token()
	testbed.AtLeast(t, lower, before+1, "behind a lower counter")
	testbed.Equal(t, higher, ahead+1, "behind a higher one")
	testbed.Between(t, none, before+1, ahead, "behind none")
	s.Do(t, "SET", counter, strconv.FormatUint(last, 10))
	_, err := l.TryLock(t.Context(), 0, 0) // behind the largest
	_ = bed.As[*redlatch.ServerError](t, err)
}
