package multilock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// master is a server of plain locks, with the clock of the test's bubble.
type master struct {
	silent
	mu    sync.Mutex
	down  bool
	began time.Time
	runID string
	keys  map[string]*masterKey
}

type masterKey struct {
	field string
	ends  time.Time
}

// take has somebody hold a key.
func (m *master) take(key, field string, lease time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.key(key).field, m.key(key).ends = field, time.Now().Add(lease)
}

// key is one of them, whose lease may have ended. The mutex is the caller's.
func (m *master) key(name string) *masterKey {
	if m.keys == nil {
		m.keys = map[string]*masterKey{}
	}
	k := m.keys[name]
	if k == nil {
		k = &masterKey{}
		m.keys[name] = k
	}
	if !time.Now().Before(k.ends) {
		k.field = ""
	}
	return k
}

// cut takes it off the network, or puts it back.
func (m *master) cut(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// restart makes it empty.
func (m *master) restart(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began, m.runID, m.keys = time.Now(), id, nil
}

func (m *master) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return conn.Reply{}, io.EOF
	}
	now, k := time.Now(), m.key(cmd.Keys[0])
	lease := func(s string) time.Duration {
		n, _ := strconv.Atoi(s)
		return time.Duration(n) * time.Millisecond
	}
	r, mine := conn.Reply{}, k.field == cmd.Args[0]
	switch cmd.Script {
	case luascript.Acquire:
		if k.field == "" || mine {
			k.field, k.ends, r.Code = cmd.Args[0], now.Add(lease(cmd.Args[1])), 1
		} else {
			r.Vals = []conn.Value{{}, {Int: k.ends.Sub(now).Milliseconds()}, {Str: k.field, IsStr: true}, {IsStr: true}}
		}
	case luascript.Release:
		if mine {
			k.field, r.Code = "", 1
		}
	case luascript.Reenter:
		if mine {
			k.ends, r.Code = now.Add(lease(cmd.Args[2])), 1
		}
	case luascript.Renew:
		r.Vals = []conn.Value{{}}
		if mine {
			k.ends, r.Vals[0].Int = now.Add(lease(cmd.Args[1])), 1
		}
		r.Code = r.Vals[0].Int
	}
	if cmd.Tell {
		r.Server = conn.Server{RunID: m.runID}
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

const deployedLease = 30 * time.Second

// deploy starts three masters.
func deploy() []*master {
	var list []*master
	for _, id := range []string{"1a", "2a", "3a"} {
		list = append(list, &master{runID: id, began: time.Now()})
	}
	return list
}

// process is one that uses the masters: with quorums of them, by name.
func process(t *testing.T, list []*master, id string) func(name string) *MultiLock {
	t.Helper()
	cores := make([]*engine.Core, len(list))
	for i, m := range list {
		cores[i] = engine.NewCore(engine.Config{
			ID:        strings.Repeat(id, 8) + "-" + strings.Repeat(strings.Repeat(id, 4)+"-", 3) + strings.Repeat(id, 11) + string(rune('a'+i)),
			LeaseTime: deployedLease, UnlockTimeout: time.Second, Log: slog.New(slog.DiscardHandler),
		}, m, pubsub.NewHub(silent{}, nil))
	}
	t.Cleanup(func() {
		for _, core := range cores {
			core.Close()
			core.Wait()
		}
	})
	return func(name string) *MultiLock {
		locks := make([]Member, len(cores))
		for i, core := range cores {
			locks[i] = engine.Open(new(rlock.RLock), core, name)
		}
		return NewQuorum(locks...)
	}
}

// now is one attempt.
func now(t *testing.T, q *MultiLock) (lock.Hold, error) {
	t.Helper()
	return q.TryLock(t.Context(), 0, 0)
}

func has(t *testing.T, q *MultiLock) lock.Hold {
	t.Helper()
	h, err := now(t, q)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func gives(t *testing.T, h lock.Hold) {
	t.Helper()
	if err := h.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
}

// halfHeld is a new deployment in which a process holds the lock q on the first two masters, the
// second of which may forget it.
func halfHeld(t *testing.T, list []*master) lock.Hold {
	t.Helper()
	q := process(t, list, "1")("q")
	time.Sleep(time.Second)
	gives(t, has(t, q))
	list[2].take("q", "somebody", time.Second)
	time.Sleep(time.Second / 2)
	h := has(t, q)
	time.Sleep(time.Second)
	return h
}

// staysOut: whoever asks gets no lock that somebody holds.
func staysOut(t *testing.T, who *MultiLock, first lock.Hold) {
	t.Helper()
	if first.Context().Err() != nil {
		t.Fatal("the first hold has ended: the test tests nothing")
	}
	second, err := now(t, who)
	if err == nil {
		t.Errorf("two holders: the first until %v from now, as far as it knows", time.Until(first.ValidUntil()))
		_ = second.Unlock(context.Background())
	} else if !observe.Waited(err) {
		t.Error(err)
	}
}

// A process that has seen a young server restart does not take the whole for a new deployment,
// whatever is free: what that server forgot may still be held.
func TestRestartSeenIsNoNewDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := deploy()
		two := process(t, list, "2")
		first := halfHeld(t, list)
		list[2].cut(true)
		staysOut(t, two("q"), first) // it sees two servers
		list[2].cut(false)
		list[1].restart("2b") // it has forgotten the first one's copy
		time.Sleep(time.Second)
		staysOut(t, two("q"), first)
		if _, err := now(t, two("free")); !errors.Is(err, lock.ErrUnavailable) {
			t.Error("a server that was seen to restart counts:", err)
		}
		_ = first.Unlock(context.Background())
		time.Sleep(deployedLease + time.Second)
		for _, name := range []string{"q", "free"} {
			gives(t, has(t, two(name)))
		}
	})
}

// Nor does one that was started after the restart get what is held: as long as a majority has not
// restarted, a copy is left. What it gets of other locks says nothing of this one.
func TestRestartUnseenIsNoNewDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := deploy()
		first := halfHeld(t, list)
		list[1].restart("2b")
		time.Sleep(time.Second)
		two := process(t, list, "2")
		staysOut(t, two("q"), first)
		gives(t, has(t, two("free")))
		staysOut(t, two("q"), first)
		_ = first.Unlock(context.Background())
		gives(t, has(t, two("q")))
	})
}

// In a new deployment each process needs all servers for its first acquisition of a lock, and a
// majority from then on; the same as ever once the servers are old enough.
func TestNewDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := deploy()
		all := process(t, list, "1")
		list[2].take("q", "somebody", time.Second)
		_, err := now(t, all("q"))
		if !errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrUnavailable) {
			t.Error("a lock of which somebody has a copy:", err)
		}
		time.Sleep(2 * time.Second)
		h := has(t, all("q"))
		list[2].cut(true)
		again, err := all("q").TryLock(h.Context(), 0, 0)
		if err != nil {
			t.Fatal("a re-entry with two of three:", err)
		}
		gives(t, again)
		_ = h.Unlock(context.Background())
		gives(t, has(t, all("q")))
		if _, err := now(t, all("other")); !errors.Is(err, lock.ErrUnavailable) {
			t.Error("another lock, with two of three servers:", err)
		}
		time.Sleep(deployedLease)
		gives(t, has(t, all("other")))
	})
}

// When a majority of servers that count has granted the lock, nobody else has it: so the copy of a server
// that has just restarted is one of the hold's, which outlives the loss of another.
func TestAYoungCopyIsTheHoldsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := deploy()
		one := process(t, list, "1")
		gives(t, has(t, one("q")))
		time.Sleep(deployedLease + time.Second)
		list[2].restart("3b")
		h := has(t, one("q"))
		time.Sleep(time.Second)
		list[0].cut(true)
		time.Sleep(2 * deployedLease)
		if h.Context().Err() != nil {
			t.Error("it ended with one of three servers:", context.Cause(h.Context()))
		}
		list[0].cut(false)
		gives(t, h)
	})
}

// A process that was idle while a server restarted has seen the new run for no time at all, however long ago
// it saw the earlier one.
func TestAnIdleProcessHasSeenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := deploy()
		one, two := process(t, list, "1"), process(t, list, "2")
		gives(t, has(t, one("q")))
		gives(t, has(t, two("q")))
		time.Sleep(2 * deployedLease)
		list[2].take("q", "somebody", time.Second)
		first := has(t, one("q")) // on the first two
		time.Sleep(2 * time.Second)
		list[1].restart("2b")
		staysOut(t, two("q"), first)
		_ = first.Unlock(context.Background())
	})
}
