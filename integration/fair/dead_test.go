package fair

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

const (
	skip = time.Second
	// slack is what the machine may add to a limit of the lock's.
	slack = 300 * time.Millisecond
)

// ahead fills the queue with waiters of p and one of this process behind them.
// The lock is held by hold.
func ahead(t *testing.T, s *testbed.Server, skip time.Duration, n int) (p *testbed.Process, hold redlatch.Hold, behind chan result) {
	t.Helper()
	l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(skip))
	hold = lockIt(t, l)
	p = spawn(t, s, 30*time.Second, skip)
	for i := range n {
		p.Send(t, "lock %d", i)
		queued(t, s, int64(i+1))
	}
	behind = make(chan result, 1)
	wait(t.Context(), l, 1, behind)
	queued(t, s, int64(n+1))
	return p, hold, behind
}

// The head dies and the lock is released at that moment, when the server still
// takes it for alive: the grant that nobody receives costs no more than the
// skip time.
func TestADeadHeadIsSkipped(t *testing.T) {
	for _, tc := range []struct {
		name string
		skip time.Duration
		dead int
		end  func(*testing.T, *testbed.Process)
	}{
		{"killed", skip, 1, func(t *testing.T, p *testbed.Process) { t.Helper(); p.Kill(t) }},
		{"frozen", skip, 1, func(t *testing.T, p *testbed.Process) { t.Helper(); p.Freeze(t) }},
		{"ten killed", skip, 10, func(t *testing.T, p *testbed.Process) { t.Helper(); p.Kill(t) }},
		{"ten frozen", skip, 10, func(t *testing.T, p *testbed.Process) { t.Helper(); p.Freeze(t) }},
		{"by default", fairlock.DefaultSkipAfter, 1, func(t *testing.T, p *testbed.Process) { t.Helper(); p.Kill(t) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := testbed.Standalone(t)
			p, hold, behind := ahead(t, s, tc.skip, tc.dead)
			busy := newMeter(t)
			tc.end(t, p)
			dead := time.Now()
			bed.Unlock(t, hold)
			if n := s.Int(t, "EXISTS", name); n != 1 {
				t.Error("the lock was not handed to the head, which was alive as far as anybody knew")
			}
			if ttl := time.Duration(s.Int(t, "PTTL", name)) * time.Millisecond; ttl > tc.skip {
				t.Errorf("the grant lasts for %v, longer than the skip time", ttl)
			}
			r := entered(t, behind, 3*tc.skip)
			if took := r.at.Sub(dead); took > tc.skip+busy.slack() {
				t.Errorf("%d dead waiters cost %v, more than the skip time of %v", tc.dead, took, tc.skip)
			}
			bed.Unlock(t, r.hold)
		})
	}
}

// Those who have been silent for the skip time when the lock is released cost
// nothing any more, however many.
func TestTheLongDeadCostNothing(t *testing.T) {
	s := testbed.Standalone(t)
	p, hold, behind := ahead(t, s, skip, 10)
	p.Kill(t)
	eventually(t, 10*time.Second, "all of them have been silent for the skip time", func() bool {
		return s.Int(t, "EVAL", `
local clock, dead = redis.call('TIME'), 0
for _, want in ipairs(redis.call('HVALS', KEYS[1])) do
  if tonumber(string.sub(want, 1, 13)) < clock[1] * 1000 + math.floor(clock[2] / 1000) then dead = dead + 1 end
end
return dead`, "1", wantsKey) == 10
	})
	busy, start := newMeter(t), time.Now()
	bed.Unlock(t, hold)
	r := receive(t, behind, 3*skip)
	if took := r.at.Sub(start); r.err != nil || took > busy.slack() {
		t.Errorf("%v after the release, %v", took, r.err)
	}
	bed.Unlock(t, r.hold)
	nothingLeft(t, s)
}

// A process that stood still for longer than the skip time has lost its place
// and the lock that was handed to it meanwhile: it does not believe that it has
// it, queues up again and gets it in its turn.
func TestAThawedWaiterQueuesUpAgain(t *testing.T) {
	t.Parallel() // it waits, for the most part
	s := bed.Server(t, recordKey)
	p, hold, behind := ahead(t, s, skip, 1)
	p.Freeze(t)
	bed.Unlock(t, hold)
	r := entered(t, behind, 3*skip)
	p.Thaw(t)
	queued(t, s, 1)
	select {
	case line := <-p.Lines():
		t.Fatalf("while somebody else holds the lock: %q", line)
	case <-time.After(2 * skip):
	}
	bed.Unlock(t, r.hold)
	p.Expect(t, "got 0")
	p.Send(t, "unlock 0")
	p.Expect(t, "unlocked 0")
	p.Send(t, "close")
	p.Expect(t, "closed")
}

// A refresh that comes late, but within the skip time, costs no place; neither
// does a wait of many skip times, nor a long queue ahead.
func TestALivingWaiterIsNotSkipped(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const skip = 3 * time.Second
	s := testbed.Standalone(t)
	p, hold, behind := ahead(t, s, skip, 300)
	for range 2 {
		p.Freeze(t)
		time.Sleep(skip * 6 / 10)
		p.Thaw(t)
		time.Sleep(skip * 5 / 10)
	}
	bed.Unlock(t, hold)
	for i := range 300 {
		p.Expect(t, fmt.Sprintf("got %d ", i))
		p.Send(t, "unlock %d", i)
	}
	bed.Unlock(t, entered(t, behind, 5*time.Second).hold)
}

// The holder dies: the head enters when its lease has run out, not before, and
// without a message. Nobody asks again and again meanwhile.
func TestTheHolderDies(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const lease = 2 * time.Second
	s := testbed.Standalone(t)
	p := spawn(t, s, lease, fairlock.DefaultSkipAfter)
	p.Send(t, "lock a")
	p.Expect(t, "got a")
	clients := [2]*redlatch.Client{dial(t, s.Addr()), dial(t, s.Addr())}
	got := make(chan result, 40)
	for i := range cap(got) {
		// Their refreshes, each 10 s, don't disturb the calm, however long they take to come.
		wait(t.Context(), clients[i%2].FairLock(name, fairlock.WithSkipAfter(30*time.Second)), i, got)
		queued(t, s, int64(i+1))
	}
	calm(t, s)
	p.Kill(t)
	busy := newMeter(t)
	before, ttl, start := s.CommandStats(t), s.Int(t, "PTTL", name), time.Now()
	r := inTurn(t, got, lease+3*time.Second, 0)
	took, left := r.at.Sub(start), time.Duration(ttl)*time.Millisecond
	if took < left-20*time.Millisecond || took > left+busy.slack() {
		t.Errorf("the head entered after %v, with %v of the lease left", took, left)
	}
	// A refresh of the head when the lease ends, and one round of all at most, in several
	// batches if they came at different times.
	if n := s.CommandStats(t).Sub(before).Calls["evalsha"]; n > 20 {
		t.Errorf("%d scripts in %v", n, took)
	}
	bed.Unlock(t, r.hold)
	for range cap(got) - 1 {
		bed.Unlock(t, receive(t, got, 5*time.Second).hold)
	}
}

// 1,000 waiters of one client wait for seconds: their places are kept alive by a
// few commands per refresh, one subscription and the goroutines that they are.
func TestWaitingIsCheap(t *testing.T) {
	s := testbed.Standalone(t)
	c := dial(t, s.Addr())
	l := c.FairLock(name)
	hold := lockIt(t, l)
	const waiters = 1000
	got := make(chan result, waiters)
	for i := range waiters {
		wait(t.Context(), l, i, got)
	}
	queued(t, s, waiters)
	calm(t, s)
	before := s.CommandStats(t)
	const watch = 3 * time.Second
	time.Sleep(watch)
	diff := s.CommandStats(t).Sub(before)
	// every second, 128 per command, and once more for those that fell due apart
	if most := int64(watch/time.Second+1) * (waiters/128 + 2) * 2; diff.Calls["evalsha"] > most {
		t.Errorf("%d scripts in %v for %d waiters, not %d", diff.Calls["evalsha"], watch, waiters, most)
	}
	t.Logf("%d scripts, %v of the server in %v", diff.Calls["evalsha"], diff.Time["evalsha"], watch)
	if channels := s.List(t, "PUBSUB", "CHANNELS"); len(channels) != 1 || s.Int(t, "PUBSUB", "NUMPAT") != 0 {
		t.Errorf("subscriptions: %v", channels)
	}
	if n := len(s.ForeignClients(t)); n > 3 {
		t.Errorf("%d connections", n)
	}
	bed.Unlock(t, hold)
	for range waiters {
		bed.Unlock(t, entered(t, got, 5*time.Second).hold)
	}
	nothingLeft(t, s)
}
