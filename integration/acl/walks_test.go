package acl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// walks do all that a use of the table is for.
var walks = map[string]func(w *walk){
	"reentrant": func(w *walk) {
		w.take(w.a.RLock("l"), w.b.RLock("l"))
		w.giveUp("given up")
		w.take(redlatch.MultiLock(w.a.RLock("m1"), w.a.RLock("m2")), redlatch.MultiLock(w.b.RLock("m1"), w.b.RLock("m2")))
	},
	"fenced": func(w *walk) { w.take(w.a.RLock("l", redlatch.Fenced()), w.b.RLock("l", redlatch.Fenced())) },
	"links":  func(w *walk) { w.take(w.a.RLock("l"), w.b.RLock("l")) },
	"state": func(w *walk) {
		h, err := w.a.RLock("l").Lock(w.ctx)
		if w.note(err) {
			return
		}
		_, err = w.a.RLock("l").State(w.ctx)
		w.note(err)
		w.note(h.Unlock(w.ctx))
	},
	"acks": func(w *walk) {
		_, err := w.a.RLock("l").TryLock(w.ctx, 0, 0)
		var acks *redlatch.ReplicaAcksError
		if !errors.As(err, &acks) || acks.Err != nil {
			w.note(err)
		}
	},
	"fair":       walkFair,
	"redisson":   walkRedisson,
	"read-write": walkReadWrite,
	"quorum": func(w *walk) {
		w.take(redlatch.QuorumLock(w.a.RLock("q")), redlatch.QuorumLock(w.b.RLock("q")))
	},
	"once": func(w *walk) {
		ran, err := w.a.Once("job").Do(w.ctx, time.Hour, func(context.Context) error { return nil })
		if w.note(err) {
			return
		}
		again, err := w.b.Once("job").Do(w.ctx, time.Hour, func(context.Context) error { return nil })
		w.note(err)
		if !ran || again {
			w.note(fmt.Errorf("ran %v, %v", ran, again))
		}
		_, err = w.a.Once("failed").Do(w.ctx, time.Hour, func(context.Context) error { return errFailed })
		if !errors.Is(err, errFailed) {
			w.note(err)
		}
		_, err = w.a.Once("job").Reset(w.ctx)
		w.note(err)
		h, err := w.a.RLock("busy").Lock(w.ctx)
		if w.note(err) {
			return
		}
		if _, err = w.b.Once("busy").Do(w.ctx, time.Hour, func(context.Context) error { return nil }); !errors.Is(err, redlatch.ErrNotAcquired) {
			w.note(err)
		}
		w.note(h.Unlock(w.ctx))
	},
}

var errFailed = errors.New("failed")

// take uses a lock in every way while the other one waits for it.
func (w *walk) take(x, y redlatch.Locker) {
	if w.over() {
		return
	}
	h, err := x.Lock(w.ctx)
	if w.note(err) {
		return
	}
	if inner, err := x.Lock(h.Context()); !w.note(err) {
		w.note(inner.Unlock(w.ctx))
	}
	w.note(h.Extend(w.ctx, lease+time.Second))
	for _, patience := range []time.Duration{0, 50 * time.Millisecond} {
		if _, err := y.TryLock(w.ctx, patience, 0); !errors.Is(err, redlatch.ErrNotAcquired) || errors.As(err, new(*redlatch.ServerError)) {
			w.note(err)
		}
	}
	var got <-chan bed.Attempt
	name := w.t.Name() + fmt.Sprintf("%p", y)
	testbed.Mark(name, func() { got = bed.Async(w.ctx, y) })
	bed.Eventually(w.t, "the other one waits, or is refused", func() bool {
		return testbed.MarkedIn(name, "engine.(*acquisition).sleep")+testbed.MarkedIn(name, "multilock.(*acquisition).sleepUntil") > 0 || len(got) > 0
	})
	// No right is of renewals alone; some are of who waits for long.
	for valid := h.ValidUntil(); (w.without == "" || w.nodes != nil) && !w.over() && !h.ValidUntil().After(valid) && h.Context().Err() == nil; {
		time.Sleep(5 * time.Millisecond)
	}
	w.note(errors.Join(context.Cause(h.Context()), h.Unlock(w.ctx)))
	if next := <-got; !w.note(next.Err) { // at the end of ctx at the latest
		w.note(next.Hold.Unlock(w.ctx))
	}
	w.until("no subscription", func() bool {
		n := 0
		for _, s := range append([]*testbed.Server{w.s}, w.nodes...) {
			n += len(s.List(w.t, "PUBSUB", "CHANNELS", "*"+w.prefix+"*"))
			if w.nodes != nil {
				n += len(s.LockChannels(w.t, "*"+w.prefix+"*"))
			}
		}
		return n == 0
	})
}

// giveUp leaves an acquisition whose command comes when it has been given up, and asks again.
func (w *walk) giveUp(name string) {
	if w.over() {
		return
	}
	request := w.proxy.DropRequest(bed.Of(w.prefix + name))
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	got := bed.Async(ctx, w.a.RLock(name))
	request.Wait(w.t)
	cancel()
	if err := bed.Get(w.t, got).Err; !errors.Is(err, context.Canceled) {
		w.note(err)
	}
	w.until("it is given up", func() bool { return w.s.Int(w.t, "EXISTS", "redlatch_void:{"+w.prefix+name+"}") == 1 })
	h, err := w.b.RLock(name).TryLock(w.ctx, 0, 0)
	if !w.note(err) {
		w.note(h.Unlock(w.ctx))
	}
}

// until waits for a state for a while, and says that it does not come.
func (w *walk) until(what string, ok func() bool) {
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if len(w.warnings()) > 0 {
			return // nothing is to be expected
		}
		if time.Now().After(end) {
			w.say("not seen: " + what)
		}
	}
}

// walkFair has waiters leave from the middle and from the end, and Redisson drop some and stand behind them.
func walkFair(w *walk) {
	fair := func(c *redlatch.Client) redlatch.Locker { return c.FairLock("l", fairlock.WithSkipAfter(time.Second)) }
	w.take(fair(w.a), fair(w.b))
	_, err := w.a.FairLock("l").State(w.ctx)
	w.note(err)
	queue, scores := "redisson_lock_queue:{"+w.prefix+"l}", "redisson_lock_timeout:{"+w.prefix+"l}"
	if w.over() {
		return
	}
	length := func(n int64) {
		w.t.Helper()
		w.until(fmt.Sprint(n, " places"), func() bool { return w.s.Int(w.t, "LLEN", queue) == n && w.s.Int(w.t, "ZCARD", scores) == n })
	}
	h, err := fair(w.a).Lock(w.ctx)
	if w.note(err) {
		return
	}
	defer func() { w.note(h.Unlock(w.ctx)) }()
	var leave [4]context.CancelFunc
	var left [4]<-chan bed.Attempt
	for i := range leave {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(w.ctx)
		left[i] = bed.Async(ctx, fair(w.b))
		length(int64(i + 1))
	}
	for range 2 { // as Redisson drops them
		w.s.Do(w.t, "ZREM", scores, w.s.Text(w.t, "LPOP", queue))
	}
	length(4)
	for _, key := range []string{queue, scores} { // one of them is lost
		w.s.Do(w.t, "DEL", key)
		length(4)
	}
	w.s.Do(w.t, "ZADD", scores, "100000000001", redissons)
	w.s.Do(w.t, "RPUSH", queue, redissons)
	w.until("Redisson's is lifted with ours", func() bool { return w.s.Int(w.t, "ZCOUNT", scores, "1000000000000", "+inf") == 5 })
	w.s.Do(w.t, "RPOP", queue)
	w.s.Do(w.t, "ZREM", scores, redissons)
	for n, i := range []int{1, 3, 0, 2} { // in the middle, at the end, in front
		leave[i]()
		if err := bed.Get(w.t, left[i]).Err; !errors.Is(err, context.Canceled) {
			w.note(err)
		}
		length(int64(3 - n))
	}
}

// walkRedisson waits behind a waiter of Redisson, and listens to what calls that.
func walkRedisson(w *walk) {
	h, err := w.a.FairLock("l").Lock(w.ctx)
	if w.note(err) {
		return
	}
	queue, scores := "redisson_lock_queue:{"+w.prefix+"l}", "redisson_lock_timeout:{"+w.prefix+"l}"
	w.s.Do(w.t, "RPUSH", queue, redissons)
	w.s.Do(w.t, "ZADD", scores, "9999999999999", redissons)
	listens := func(n int) func() bool {
		return func() bool {
			for line := range strings.Lines(w.s.Text(w.t, "CLIENT", "LIST")) {
				if strings.Contains(line, " user="+w.user+" ") && strings.Contains(line, " psub=1 ") {
					return n == 1
				}
			}
			return n == 0
		}
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	got := bed.Async(ctx, w.b.FairLock("l"))
	w.until("the pattern", listens(1))
	cancel()
	if err := bed.Get(w.t, got).Err; !errors.Is(err, context.Canceled) {
		w.note(err)
	}
	w.until("no pattern", listens(0))
	w.s.Do(w.t, "DEL", queue, scores)
	w.note(h.Unlock(w.ctx))
}

// redissons is a waiter of Redisson.
const redissons = "11111111-89ab-cdef-0123-456789abcdef:7"

func walkReadWrite(w *walk) {
	for _, opts := range [][]redlatch.Option{nil, {redlatch.ShareReads()}} {
		x, y := w.a.ReadWriteLock("l", opts...), w.b.ReadWriteLock("l", opts...)
		w.take(x.WriteLock(), y.ReadLock())
		w.take(x.ReadLock(), y.WriteLock())
		h, err := x.WriteLock().Lock(w.ctx)
		if w.note(err) || w.over() {
			return
		}
		_, err = y.ReadLock().State(w.ctx)
		w.note(err)
		if below, err := x.ReadLock().Lock(h.Context()); !w.note(err) {
			w.note(errors.Join(h.Unlock(w.ctx), below.Unlock(w.ctx)))
		}
	}
}
