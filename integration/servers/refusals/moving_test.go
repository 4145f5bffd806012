package refusals

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

const waiter = "6d4e6c1a-0000-4000-8000-000000000002:g1-7"

// moving is held while keys move: two nodes that send each other some stand still.
var moving sync.Mutex

// While a cluster refuses commands of several keys, locks are kept and freed by commands of one key; the release that
// follows cleans up, and who waits gets the lock.
func TestWhileASlotMoves(t *testing.T) {
	set := testbed.Cluster(t)
	for _, n := range set.Nodes() {
		n.Do(t, "CONFIG", "SET", "cluster-node-timeout", "3000") // longer than a busy machine's node stands still
	}
	short := func(c *redlatch.Config) { c.LeaseTime = 9 * time.Second } // a busy machine renews in time
	addr := set.Addrs()[0]
	one, two := []*redlatch.Client{bed.Client(t, addr, short)}, []*redlatch.Client{bed.Client(t, addr, short)}
	for _, k := range bed.Kinds() {
		if k.Servers > 1 {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel() // it waits for renewals
			for what, moves := range map[string]func(isLock bool) bool{
				"its key has moved":     func(isLock bool) bool { return isLock },
				"the others have":       func(isLock bool) bool { return !isLock },
				"none has moved so far": func(bool) bool { return false },
			} {
				t.Run(what, func(t *testing.T) {
					name := "{" + k.Name + " " + what + "}:"
					h := bed.Lock(t, t.Context(), k.New(one, name))
					next := bed.Async(t.Context(), k.Excluded(two, name))
					bed.Eventually(t, "a waiter", func() bool { return len(set.LockChannels(t, name, "*"+k.Name+" "+what+"*")) > 0 })
					lockKey := k.Names(name)[0]
					mig := halfWay(t, set, name, func(key string) bool { return moves(key == lockKey) })
					before := h.ValidUntil()
					bed.Eventually(t, "a renewal, or a loss", func() bool { return h.ValidUntil().After(before) || h.Context().Err() != nil })
					began := time.Now()
					bed.Unlock(t, h)
					bed.Eventually(t, "the lock is free", func() bool {
						return len(next) > 0 || !slices.ContainsFunc(set.Nodes(), func(s *testbed.Server) bool { return slices.Contains(keys(t, s, name), lockKey) })
					})
					if took := time.Since(began); took > 2*time.Second { // a few ms; an Unlock that waits gives up after five seconds
						t.Errorf("Unlock took %v", took)
					}
					func() {
						moving.Lock()
						defer moving.Unlock()
						mig.MoveKeys(t)
						mig.Finish(t)
					}()
					bed.Unlock(t, bed.Hold(t, next))
					for _, node := range set.Nodes() {
						bed.Eventually(t, "no key left", func() bool { return len(keys(t, node, name)) == 0 })
					}
				})
			}
		})
	}
}

func keys(t *testing.T, s *testbed.Server, name string) (all []string) {
	t.Helper()
	for _, key := range s.List(t, "KEYS", "*"+strings.TrimSuffix(name, ":")+"*") {
		if !strings.HasPrefix(key, "redlatch_void:") && !strings.HasPrefix(key, "redisson_lock_token:") {
			all = append(all, key)
		}
	}
	return all
}

// halfWay leaves the slot of the lock between two nodes: of its keys these have moved.
func halfWay(t *testing.T, set *testbed.ClusterSet, name string, moves func(key string) bool) *testbed.Migration {
	t.Helper()
	slot := testbed.Slot(name)
	from, to := set.NodeOfSlot(t, slot), set.Masters(t)[0]
	if to == from {
		to = set.Masters(t)[1]
	}
	moving.Lock()
	defer moving.Unlock()
	mig := set.BeginMigration(t, slot, to)
	for _, key := range keys(t, from, name) {
		if moves(key) {
			mig.MoveKey(t, key)
		}
	}
	if m, err := from.Try("EVAL", "return 1", "2", name, name+"other"); err == nil {
		t.Fatalf("commands of several keys are not refused: %v", m)
	}
	return mig
}
