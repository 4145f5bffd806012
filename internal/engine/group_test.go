package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// deafRunner answers the acquisitions of groups as told, and no release.
type deafRunner struct {
	acquire  func(try int32) (conn.Reply, error)
	tries    atomic.Int32
	releases atomic.Int32
	deaf     atomic.Bool
}

func (d *deafRunner) Topology() conn.Topology { return conn.Topology{} }

func (d *deafRunner) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	if cmd.Script == luascript.GroupAcquire {
		return d.acquire(d.tries.Add(1))
	}
	if d.deaf.Load() {
		time.Sleep(100 * time.Millisecond)
		return conn.Reply{}, errLost
	}
	d.releases.Add(1)
	return conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {IsStr: true}, {Int: 1}, {IsStr: true}}}, nil
}

func (d *deafRunner) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	out := make([]conn.Result, len(cmds))
	for i, cmd := range cmds {
		out[i].Reply, out[i].Err = d.Run(ctx, cmd)
	}
	return out
}

// What tries may have left is given back in the background: a server that does not
// answer keeps nobody past the end of ctx.
func TestGroupGivesBackInTheBackground(t *testing.T) {
	granted := conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {}, {}}}
	busy := conn.Reply{Vals: []conn.Value{{}, {Int: 1}, {Int: 60000}, {Str: "other:g1-1", IsStr: true}, {IsStr: true}}}
	for _, tc := range []struct {
		name    string
		wait    time.Duration
		acquire func(try int32) (conn.Reply, error)
	}{
		{"the grant came too late", leaseTime + 5*time.Second, func(try int32) (conn.Reply, error) {
			if try == 1 {
				time.Sleep(leaseTime + time.Second)
				return granted, nil
			}
			return busy, nil
		}},
		{"busy after a lost reply", 5 * time.Second, func(try int32) (conn.Reply, error) {
			if try == 1 {
				return conn.Reply{}, errLost
			}
			return busy, nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &deafRunner{acquire: tc.acquire}
				d.deaf.Store(true)
				core := coreOn(t, d)
				both := []*engine.Lock{engine.Of(engine.Open(new(rlock.RLock), core, "a")), engine.Of(engine.Open(new(rlock.RLock), core, "b"))}
				ctx, cancel := context.WithTimeout(t.Context(), tc.wait)
				defer cancel()
				began := time.Now()
				_, err := engine.AcquireAll(ctx, both, -1, 0, time.Time{})
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("Acquire: %v", err)
				}
				if over := time.Since(began) - tc.wait; over > 0 {
					t.Errorf("it returned %v after the end of ctx", over)
				}
				// What it left is given back all the same, as soon as the server answers.
				d.deaf.Store(false)
				time.Sleep(2 * time.Second)
				if d.releases.Load() == 0 {
					t.Error("nothing was given back")
				}
			})
		})
	}
}
