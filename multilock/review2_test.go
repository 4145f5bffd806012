package multilock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// master is a server of one lock, with the clock of the test's bubble.
type master struct {
	silent
	mu    sync.Mutex
	down  bool
	began time.Time
	runID string
	field string
	ends  time.Time
}

// restart makes it empty.
func (m *master) restart(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began, m.runID, m.field = time.Now(), id, ""
}

func (m *master) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return conn.Reply{}, io.EOF
	}
	now := time.Now()
	if !now.Before(m.ends) {
		m.field = ""
	}
	lease := func(s string) time.Duration {
		n, _ := strconv.Atoi(s)
		return time.Duration(n) * time.Millisecond
	}
	r, mine := conn.Reply{}, m.field == cmd.Args[0]
	switch cmd.Script {
	case luascript.Acquire:
		if m.field == "" || mine {
			m.field, m.ends, r.Code = cmd.Args[0], now.Add(lease(cmd.Args[1])), 1
		} else {
			r.Vals = []conn.Value{{}, {Int: m.ends.Sub(now).Milliseconds()}, {Str: m.field, IsStr: true}, {IsStr: true}}
		}
	case luascript.Release:
		if mine {
			m.field, r.Code = "", 1
		}
	case luascript.Renew:
		r.Vals = []conn.Value{{}}
		if mine {
			m.ends, r.Vals[0].Int = now.Add(lease(cmd.Args[1])), 1
		}
		r.Code = r.Vals[0].Int
	}
	if cmd.Tell {
		r.Server = conn.Server{RunID: m.runID, Uptime: now.Sub(m.began)}
	}
	return r, nil
}

func (m *master) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	out := make([]conn.Result, len(cmds))
	for i := range cmds {
		out[i].Reply, out[i].Err = m.Run(ctx, cmds[i])
	}
	return out
}

// A process that has seen a young server restart does not take the whole for a new deployment:
// what that server forgot may still be held.
func TestRestartSeenIsNoNewDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leaseTime = 30 * time.Second
		var list []*master
		for _, id := range []string{"1a", "2a", "3a"} {
			list = append(list, &master{runID: id, began: time.Now()})
		}
		process := func(name string) (q *MultiLock, end func()) {
			locks := make([]lock.Locker, 3)
			var cores []*engine.Core
			for i := range list {
				core := engine.NewCore(engine.Config{
					ID: name + string(rune('a'+i)), LeaseTime: leaseTime, UnlockTimeout: time.Second, Log: slog.New(slog.DiscardHandler),
				}, list[i], pubsub.NewHub(silent{}, nil))
				cores = append(cores, core)
				locks[i] = rlock.New(core, "q")
			}
			return NewQuorum(locks...), func() {
				for _, core := range cores {
					core.Close()
					core.Wait()
				}
			}
		}
		one, endOne := process("11111111-1111-1111-1111-11111111111")
		two, endTwo := process("22222222-2222-2222-2222-22222222222")
		defer endOne()
		defer endTwo()
		// Somebody else has a copy on the third, still for a moment.
		list[2].field, list[2].ends = "somebody", time.Now().Add(3*time.Second)
		time.Sleep(2 * time.Second)
		first, err := one.TryLock(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		work := first.Context()
		time.Sleep(2 * time.Second)

		list[2].down = true
		if _, err := two.TryLock(t.Context(), 0, 0); !errors.Is(err, lock.ErrNotAcquired) {
			t.Fatal("the second process, which sees two servers:", err)
		}
		list[2].down = false
		list[1].restart("2b") // it has forgotten the first one's copy
		time.Sleep(time.Second)
		second, err := two.TryLock(t.Context(), 0, 0)
		if err == nil && work.Err() == nil {
			t.Errorf("two holders: the first until %v from now, as far as it knows; a server has been up for 1 s, which the second process saw as another one before",
				time.Until(first.ValidUntil()))
		}
		for _, h := range []lock.Hold{second, first} {
			if h != nil {
				_ = h.Unlock(context.Background())
			}
		}
	})
}
