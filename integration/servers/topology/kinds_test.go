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
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

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
	exclusive(func(k bed.Kind, newLock func(*redlatch.Client, string) redlatch.Locker) {
		for _, shape := range []string{"%s", "x{%s}y", "{%s}z", "\x00\xff bin %s"} {
			name := fmt.Sprintf(shape, k.Name+"-name")
			t.Run(k.Name+"/"+name, func(t *testing.T) {
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
					for _, n := range k.Names(name) {
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
		if k.Parts != nil {
			return // whose names have tags of their own
		}
		for _, name := range []string{"a}b", "a{b", "{}z", "{}", "{tag}", "x{}y"} {
			if _, err := newLock(clients[0], name).Lock(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%s %q: %v, want ErrInvalidName", k.Name, name, err)
			}
		}
	})
	for _, name := range []string{"shared", "order:{42}", "{x}y", "with space"} {
		t.Run("a writer who reads lets readers in: "+name, func(t *testing.T) {
			ctx := within(t, 30*time.Second)
			a, b := clients[0].ReadWriteLock(name), clients[1].ReadWriteLock(name, redlatch.WithSkipAfter(10*time.Minute))
			w := mustLock(t, ctx, a.WriteLock())
			r := mustLock(t, w.Context(), a.ReadLock())
			got := waiting(t, b.ReadLock(), func() bool { return len(set.LockChannels(t, name)) > 0 })
			set.NodeOfKey(t, name).AwaitQuiet(t)
			bed.Unlock(t, w)
			other := gets(t, got, lease/2) // by a message
			if _, err := b.WriteLock().TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
				t.Errorf("a writer beside readers: %v", err)
			}
			bed.Unlock(t, r)
			bed.Unlock(t, other)
			bed.Unlock(t, mustLock(t, ctx, a.WriteLock()))
		})
	}
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
