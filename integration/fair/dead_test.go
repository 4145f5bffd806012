package fair

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// ahead fills the queue with waiters of a process and one of this process behind them. The lock is held by hold; ids
// are those of the process's commands.
func ahead(t *testing.T, s *testbed.Server, skip time.Duration, n int) (p *bed.Worker, ids []int, hold redlatch.Hold, behind chan result) {
	t.Helper()
	l := bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(skip))
	hold, p = lockIt(t, l), spawn(t, s, bed.Lease)
	for i := range n {
		ids = append(ids, p.Start(t, ask(skip)))
		queued(t, s, int64(i+1))
	}
	behind = make(chan result, 1)
	wait(t.Context(), l, 1, behind)
	queued(t, s, int64(n+1))
	return p, ids, hold, behind
}

// The head dies and the lock is released at that moment, when the server still takes it for alive: the grant that
// nobody receives costs no more than the skip time, however many died. Those who have been silent for that long cost
// nothing any more.
func TestADeadHeadIsSkipped(t *testing.T) {
	kill := func(t *testing.T, p *bed.Worker) { t.Helper(); p.Kill(t) }
	freeze := func(t *testing.T, p *bed.Worker) { t.Helper(); p.Freeze(t) }
	for what, tc := range map[string]struct {
		end  func(*testing.T, *bed.Worker)
		dead int
		long bool // before the release
	}{
		"killed": {kill, 1, false}, "ten killed": {kill, 10, false}, "ten killed long ago": {kill, 10, true},
		"frozen": {freeze, 1, false}, "ten frozen": {freeze, 10, false}, "ten frozen long ago": {freeze, 10, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := testbed.Standalone(t)
			p, _, hold, behind := ahead(t, s, skip, tc.dead)
			tc.end(t, p)
			most := skip + slack
			if tc.long {
				time.Sleep(skip + time.Millisecond)
				most = slack
			}
			freed := time.Now()
			bed.Unlock(t, hold)
			if ttl := time.Duration(s.Int(t, "PTTL", name)) * time.Millisecond; !tc.long && (ttl <= 0 || ttl > skip) {
				t.Errorf("the head, which was alive as far as anybody knew, has the lock for %v, not for a skip time", ttl)
			}
			r := entered(t, behind, 3*skip)
			testbed.AtMost(t, r.at.Sub(freed), most, tc.dead, "dead waiters cost")
			bed.Unlock(t, r.hold)
		})
	}
}

// A process that stood still for longer than the skip time has lost its place
// and the lock that was handed to it meanwhile: it does not believe that it has
// it, queues up again and gets it in its turn.
func TestAThawedWaiterQueuesUpAgain(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const skip = time.Second
	s := bed.Server(t)
	p, ids, hold, behind := ahead(t, s, skip, 1)
	p.Freeze(t)
	bed.Unlock(t, hold)
	h := inTurn(t, behind, 1)
	p.Thaw(t)
	queued(t, s, 1)
	for end := time.Now().Add(2 * skip); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if a, is := p.Take(t, "locked"); is {
			t.Fatalf("while somebody else holds the lock: %+v", a)
		}
	}
	bed.Unlock(t, h)
	p.Await(t, ids[0], "locked")
	p.Unlock(t, ids[0])
	bed.End(t, p)
}

// A refresh that comes late, but within the skip time, costs no place; neither
// does a wait of many skip times, nor a long queue ahead.
func TestALivingWaiterIsNotSkipped(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const skip = 3 * time.Second
	s := bed.Server(t)
	p, ids, hold, behind := ahead(t, s, skip, 300)
	for range 2 {
		p.Freeze(t)
		time.Sleep(skip * 6 / 10)
		p.Thaw(t)
		time.Sleep(skip * 5 / 10)
	}
	bed.Unlock(t, hold)
	for _, id := range ids {
		p.Await(t, id, "locked")
		if len(behind) > 0 {
			t.Fatal("one who came later has the lock")
		}
		p.Unlock(t, id)
	}
	bed.Unlock(t, inTurn(t, behind, 1))
	bed.End(t, p)
}

// 1,000 waiters of one client wait for seconds: their places are kept alive by a
// few commands per refresh, one subscription and the goroutines that they are.
func TestWaitingIsCheap(t *testing.T) {
	const waiters, seconds = 1000, 3
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	got := make(chan result, waiters)
	for i := range waiters {
		wait(t.Context(), l, i, got)
	}
	queued(t, s, waiters)
	s.AwaitQuiet(t)
	before := s.CommandStats(t)
	time.Sleep(seconds * time.Second)
	diff := s.CommandStats(t).Sub(before)
	// every second, 128 per command, and once more for those that fell due apart
	testbed.AtMost(t, diff.Calls["evalsha"], (seconds+1)*(waiters/128+2)*2, "scripts in seconds:", seconds)
	testbed.Equal(t, len(s.List(t, "PUBSUB", "CHANNELS")), 1, "subscriptions")
	testbed.Equal(t, s.Int(t, "PUBSUB", "NUMPAT"), 0, "patterns")
	testbed.AtMost(t, len(s.ForeignClients(t)), 3, "connections")
	bed.Unlock(t, hold)
	for range waiters {
		bed.Unlock(t, entered(t, got, bed.Patience).hold)
	}
}
