package refusals

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

const waiter = "6d4e6c1a-0000-4000-8000-000000000002:g1-7"

// moved is a kind whose commands have several keys.
type moved struct {
	take    func(key string) []conn.Command // the last one takes the lock
	field   string
	renew   func(key string) []conn.Command // of one key each
	free    func(key string) conn.Command   // of one key
	release func(key string) conn.Command
	left    func(key string) []string // keys that the release must clean up
}

func movedKinds(publish string) map[string]moved {
	ms, more := strconv.Itoa(lease), strconv.Itoa(2*lease)
	one := func(s *luascript.Script, key string, args ...string) conn.Command {
		return conn.Command{Script: s, Keys: []string{key}, Args: args}
	}
	fair := func(s *luascript.Script, key string, args ...string) conn.Command {
		return conn.Command{Script: s, Keys: fairKeys(key), Args: append([]string{publish, "g:" + key + ":", "o:" + key + ":"}, args...)}
	}
	renewRW := func(field string) func(key string) []conn.Command {
		return func(key string) []conn.Command {
			return []conn.Command{
				one(luascript.Renew, key, field, more), one(luascript.RWLease, luascript.RWLeasesKey(key), field, more),
			}
		}
	}
	return map[string]moved{
		"fair": {
			field: field,
			take: func(key string) []conn.Command {
				return []conn.Command{
					fair(luascript.FairAcquire, key, field, ms, "-", "", "0"),
					fair(luascript.FairAcquire, key, waiter, ms, "-", "", ms, "nonce"), // it queues up
				}
			},
			renew:   func(key string) []conn.Command { return []conn.Command{one(luascript.Renew, key, field, more)} },
			free:    func(key string) conn.Command { return one(luascript.Release, key, field, "0") },
			release: func(key string) conn.Command { return fair(luascript.FairRelease, key, field, "0", "0", "0") },
			left:    func(key string) []string { return fairKeys(key)[1:4] },
		},
		"read": {
			field: field,
			take: func(key string) []conn.Command {
				return []conn.Command{{Script: luascript.RWRead, Keys: readKeys(key, field), Args: []string{field, ms, "", "", "0", "0", "", ""}}}
			},
			renew: func(key string) []conn.Command {
				return append(renewRW(field)(key), one(luascript.Renew, luascript.RWTimeoutKey(key, field), "", more))
			},
			free: func(key string) conn.Command { return one(luascript.RWFree, key, field) },
			release: func(key string) conn.Command {
				args := []string{field, luascript.RWChannel(key), publish, "0", luascript.RWTimeoutPrefix(key), "0", "0", "1"}
				return conn.Command{Script: luascript.RWReadRelease, Keys: readReleaseKeys(key, field), Args: args}
			},
			left: func(key string) []string {
				return []string{luascript.RWLeasesKey(key), luascript.RWTimeoutKey(key, field)}
			},
		},
		"write": {
			field: field + ":write",
			take: func(key string) []conn.Command {
				return []conn.Command{{Script: luascript.RWWrite, Keys: writeKeys(key), Args: []string{field, ms, "0", "", "", publish, "1"}}}
			},
			renew: renewRW(field + ":write"),
			free:  func(key string) conn.Command { return one(luascript.RWFree, key, field+":write") },
			release: func(key string) conn.Command {
				args := []string{field, luascript.RWChannel(key), publish, "0", "0", "0", "1"}
				return conn.Command{Script: luascript.RWWriteRelease, Keys: writeReleaseKeys(key), Args: args}
			},
			left: func(key string) []string { return []string{luascript.RWLeasesKey(key)} },
		},
	}
}

// TestWhileASlotMoves: while a cluster refuses commands of several keys, locks are
// kept and freed by commands of one key; the release that follows cleans up.
func TestWhileASlotMoves(t *testing.T) {
	set := testbed.Cluster(t)
	c, err := conn.Open(rueidis.ClientOption{InitAddress: set.Addrs()}, time.Minute, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for name, k := range movedKinds(c.Topology().Publish()) {
		for what, moves := range map[string]func(key string) []string{
			"its key has moved":     func(key string) []string { return []string{key} },
			"the others have":       k.left,
			"none has moved so far": func(string) []string { return nil },
		} {
			t.Run(name+", "+what, func(t *testing.T) { whileItsSlotMoves(t, set, c, k, name+" "+what, moves) })
		}
	}
}

func whileItsSlotMoves(t *testing.T, set *testbed.ClusterSet, c *conn.Conn, k moved, key string, moves func(string) []string) {
	t.Helper()
	run := func(cmd conn.Command) conn.Reply {
		t.Helper()
		r, err := c.Run(context.Background(), cmd)
		if err != nil {
			t.Fatalf("%s %q: %v", cmd.Script.Name, cmd.Keys, err)
		}
		return r
	}
	for i, cmd := range k.take(key) {
		if r := run(cmd); i == 0 && r.Code != 1 {
			t.Fatalf("taking it: %+v", r)
		}
	}
	slot := testbed.Slot(key)
	from, to := set.NodeOfSlot(t, slot), set.Masters(t)[0]
	if to == from {
		to = set.Masters(t)[1]
	}
	mig := set.BeginMigration(t, slot, to)
	at := from
	for _, m := range moves(key) {
		if mig.MoveKey(t, m) && m == key {
			at = to
		}
	}
	if r, err := c.Run(context.Background(), k.release(key)); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Fatalf("the release: %+v %v, want TRYAGAIN", r, err)
	}
	began := time.Now()
	for i, cmd := range k.renew(key) {
		if r := run(cmd); r.Code != 1 {
			t.Errorf("renewal %d: %+v", i, r)
		}
	}
	held := luaLook(t, at, key, k.field)
	if held[0] != "1" || len(held[1]) < len(strconv.Itoa(lease+1000)) {
		t.Errorf("after the renewal: count and TTL %q", held)
	}
	if r := run(k.free(key)); r.Code != 1 {
		t.Errorf("freeing it: %+v", r)
	}
	if r := run(k.free(key)); r.Code != 0 {
		t.Errorf("freeing it twice: %+v", r)
	}
	if took := time.Since(began); took > time.Second { // a few ms; the machine may be busy
		t.Errorf("renewing and freeing took %v", took)
	}
	mig.Finish(t)
	if n := to.Int(t, "EXISTS", key); n != 0 {
		t.Error("the lock is there after it was freed")
	}
	if r := run(k.release(key)); r.Code != 0 {
		t.Errorf("the release after the move: %+v", r)
	}
	for _, l := range k.left(key) {
		if n := to.Int(t, "EXISTS", l); n != 0 {
			t.Errorf("%s was left", l)
		}
	}
	if strings.HasPrefix(key, "fair") {
		if got := to.Hash(t, "HGETALL", key); got[waiter] != "1" {
			t.Errorf("the next in the queue holds nothing: %v", got)
		}
	}
}

// luaLook reads where clients may be sent on with ASK: a slot's keys that are
// there are answered for.
func luaLook(t *testing.T, s *testbed.Server, key, field string) [2]string {
	t.Helper()
	c, err := s.Client()
	if err != nil {
		t.Fatal(err)
	}
	var out [2]string
	for i, cmd := range []rueidis.Completed{
		c.B().Hget().Key(key).Field(field).Build(), c.B().Pttl().Key(key).Build(),
	} {
		res := c.DoMulti(context.Background(), c.B().Asking().Build(), cmd)
		if out[i], err = res[1].ToString(); err != nil {
			n, err := res[1].AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			out[i] = strconv.FormatInt(n, 10)
		}
	}
	return out
}
