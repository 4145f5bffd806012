package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// kinds are all lock kinds by name.
var kinds = map[string]func(c *redlatch.Client, name string) redlatch.Locker{
	"rlock": func(c *redlatch.Client, name string) redlatch.Locker { return c.RLock(name, redlatch.Fenced()) },
	"fair":  func(c *redlatch.Client, name string) redlatch.Locker { return c.FairLock(name, redlatch.Fenced()) },
	"write": func(c *redlatch.Client, name string) redlatch.Locker {
		return c.ReadWriteLock(name, redlatch.Fenced()).WriteLock()
	},
	"multi": func(c *redlatch.Client, name string) redlatch.Locker {
		return redlatch.MultiLock(c.RLock(name), c.RLock(name+"2"), c.RLock("{"+name+"}3"))
	},
}

// TestClusterKinds: every kind excludes, hands over by a message and leaves
// nothing behind, on several nodes and on names of every shape.
func TestClusterKinds(t *testing.T) {
	set := testbed.Cluster(t)
	// A node that loses its slots loses a release that it answered then, too: its lock stands for its lease.
	nodeTimeout(t, set, 30*time.Second)
	var clients []*redlatch.Client
	var log said
	for range 3 {
		clients = append(clients, open(t, cluster(set), func(c *redlatch.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		}))
	}
	for kind, newLock := range kinds {
		for _, shape := range []string{"%s", "x{%s}y", "{%s}z"} {
			name := fmt.Sprintf(shape, kind+"-name")
			t.Run(kind+"/"+name, func(t *testing.T) {
				var wg sync.WaitGroup
				var mu sync.Mutex
				inside, turns := 0, 0
				ctx := within(t, 30*time.Second)
				began := time.Now()
				halfway := make(chan string, 1) // who waits where, and what stands on the servers, if it takes long
				look := time.AfterFunc(lease/2, func() {
					stacks := make([]byte, 1<<20)
					stacks = stacks[:runtime.Stack(stacks, true)]
					var states []any
					for _, n := range []string{name, name + "2", "{" + name + "}3"} {
						s, err := clients[0].RLock(n).State(ctx)
						states = append(states, s, err)
					}
					halfway <- fmt.Sprintf("%+v\n%s", states, stacks)
				})
				for i := range 12 {
					wg.Go(func() {
						h, err := newLock(clients[i%3], name).Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if inside++; inside > 1 {
							t.Error("two are inside")
						}
						turns++
						mu.Unlock()
						time.Sleep(2 * time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						if err := h.Unlock(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if turns != 12 {
					t.Errorf("%d turns of 12", turns)
				}
				if d := time.Since(began); d > lease {
					t.Errorf("12 turns took %v: a message did not arrive\n%s\nafter %v: %s", d, log.all(), lease/2, <-halfway)
				}
				look.Stop()
			})
		}
	}
	t.Run("readers share, a writer excludes", func(t *testing.T) {
		ctx := within(t, 30*time.Second)
		a, b := clients[0].ReadWriteLock("shared"), clients[1].ReadWriteLock("shared")
		r1, r2 := mustLock(t, ctx, a.ReadLock()), mustLock(t, ctx, b.ReadLock())
		if _, err := b.WriteLock().TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
			t.Errorf("a writer beside readers: %v", err)
		}
		mustUnlock(t, r1)
		mustUnlock(t, r2)
		mustUnlock(t, mustLock(t, ctx, a.WriteLock()))
	})
	// Nothing is left but the fencing counters, and what refuses late commands for a while.
	for _, c := range clients {
		c.Close()
	}
	for _, m := range set.Masters(t) {
		for _, key := range m.List(t, "KEYS", "*") {
			if !strings.HasPrefix(key, "redisson_lock_token") && !strings.HasPrefix(key, "redlatch_void:") {
				t.Errorf("%s is left on %s", key, m.Addr())
			}
		}
		// The server may not have read the connections' ends yet.
		eventually(t, 5*time.Second, "no subscription is left on "+m.Addr(), func() bool { return len(m.LockChannels(t)) == 0 })
	}
}

// Every kind is held, waited for and handed over while its slot moves.
func TestClusterKindsSlotMoves(t *testing.T) {
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	c, other := open(t, cluster(set)), open(t, cluster(set))
	for kind, newLock := range kinds {
		t.Run(kind, func(t *testing.T) {
			name := "{" + kind + "}z"
			h := mustLock(t, within(t, 60*time.Second), newLock(c, name))
			got := newLock(other, name)
			held := newLock(other, name)
			if _, err := held.TryLock(within(t, 10*time.Second), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
				t.Fatalf("TryLock of a held lock: %v", err)
			}
			next := waiting(t, got, shardHasSubscribers(t, set))
			slot := testbed.Slot(name)
			to := set.Masters(t)[0]
			if to == set.NodeOfSlot(t, slot) {
				to = set.Masters(t)[1]
			}
			m := set.BeginMigration(t, slot, to)
			m.MoveKeys(t)
			m.Finish(t)
			if err := h.Context().Err(); err != nil {
				t.Fatalf("the hold ended: %v: %v", err, context.Cause(h.Context()))
			}
			began := time.Now()
			mustUnlock(t, h)
			mustUnlock(t, gets(t, next, 2*lease))
			t.Logf("handed over after %v", time.Since(began))
			eventually(t, 10*time.Second, "subscriptions end", func() bool { return !shardHasSubscribers(t, set)() })
		})
	}
}

// shardHasSubscribers reports whether anybody listens on any sharded channel.
func shardHasSubscribers(t *testing.T, set *testbed.ClusterSet) func() bool {
	t.Helper()
	return func() bool {
		for _, n := range set.Nodes() {
			if len(n.LockChannels(t)) > 0 {
				return true
			}
		}
		return false
	}
}
