package fair

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Close ends its waits and takes their places out of the queue before it returns.
func TestCloseLeavesTheQueues(t *testing.T) {
	const waiters = 20
	s := bed.Server(t)
	hold, closing := lockIt(t, bed.Client(t, s.Addr()).FairLock(name)), bed.Client(t, s.Addr())
	got := inLine(t, s, waiters, closing.FairLock(name))
	closing.Close()
	testbed.Equal(t, s.Int(t, "EXISTS", queueKey, scoresKey, wantsKey), 0, "keys of the queue that are left after Close")
	for range waiters {
		bed.Want(t, bed.Receive(t, slack, got).err, redlatch.ErrClosed)
	}
	bed.Unlock(t, hold)
}

// app is a client of a user with the rights that docs/ACL.md gives for fair locks.
func app(t *testing.T, s *testbed.Server) *redlatch.Client {
	t.Helper()
	s.SetUser(t, "app", append([]string{"on", ">secret"}, acl.For("orders:", acl.Rules("fair", "state"))...)...)
	return bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "app", "secret" })
}

// In a long queue those who leave from the middle leave their entry behind, marked: it counts for nothing and costs
// nobody anything. The permissions of docs/ACL.md are enough for that.
func TestALongQueueEmptiesInAnyOrder(t *testing.T) {
	const waiters = 600
	s := bed.Server(t)
	l := app(t, s).FairLock(name, redlatch.WithSkipAfter(time.Minute))
	hold := lockIt(t, l)
	bed.Want(t, hold.Extend(t.Context(), time.Hour), nil)
	got := make(chan result, waiters)
	cancels := make([]context.CancelFunc, waiters)
	stays := map[int]bool{}
	for i := range cancels {
		var ctx context.Context
		ctx, cancels[i] = context.WithCancel(t.Context())
		defer cancels[i]()
		wait(ctx, l, i, got)
		queued(t, s, int64(i+1))
		stays[i] = true
	}
	leave := func(from, to int) {
		t.Helper()
		for id := from; id < to; id++ {
			cancels[id]()
			delete(stays, id)
		}
		for range to - from {
			if r := bed.Receive(t, bed.Patience, got); r.id < from || r.id >= to || r.err == nil {
				t.Fatalf("waiter %d: %v", r.id, r.err)
			}
		}
		bed.Eventually(t, fmt.Sprintf("%d waiters in State", len(stays)), func() bool {
			st, err := l.State(t.Context())
			testbed.Must(t, err)
			return st.QueueLength == len(stays) && len(st.Queue) == len(stays)
		})
	}
	leave(100, 200) // from the middle: the list keeps most of them for the time being
	testbed.Equal(t, s.Int(t, "LLEN", queueKey), waiters, "the list: the entries were searched for")
	leave(596, 599)
	leave(599, 600) // the last one: the list never ends with a marked entry
	if score := s.Int(t, "ZSCORE", scoresKey, s.Text(t, "LINDEX", queueKey, "-1")); score == 0 {
		t.Error("the list ends with a marked entry")
	}
	leave(200, 590) // more than half of it: the list is made anew
	testbed.AtMost(t, s.Int(t, "LLEN", queueKey), int64(2*len(stays)+63), "the list, for waiters:", len(stays))
	bed.Unlock(t, hold)
	for i := range waiters {
		if stays[i] {
			bed.Unlock(t, inTurn(t, got, i))
		}
	}
	testbed.Equal(t, strings.Join(s.DeniedCommands(t), " "), "", "what was denied")
}

// The lock is handed to a waiter that gives up in the same moment: it passes it
// on, and the next one enters at once.
func TestALateGrantIsPassedOn(t *testing.T) {
	s := bed.Server(t)
	proxy := testbed.NewProxy(t, s.Addr())
	l := patient(t, s.Addr()) // no refresh helps
	hold := lockIt(t, l)
	left, next := make(chan result, 1), make(chan result, 1)
	ctx, cancel := context.WithCancel(t.Context())
	wait(ctx, patient(t, proxy.Addr()), 0, left)
	queued(t, s, 1)
	s.AwaitQuiet(t)
	wait(t.Context(), l, 0, next)
	queued(t, s, 2)
	s.AwaitQuiet(t)
	proxy.Pause(testbed.Replies) // the grant is on its way
	bed.Unlock(t, hold)
	cancel()
	bed.Want(t, bed.Receive(t, slack, left).err, context.Canceled)
	h := inTurn(t, next, 0)
	proxy.Resume(testbed.Replies)
	bed.Unlock(t, h)
}
