//go:build unix

package redisson

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// soakKills kills processes of the soak at moments that matter. A process is stopped
// first, so that what it holds and where it stands can be read from the server, and is
// let go on when it is not what the kill is for.
type soakKills struct {
	server *testbed.Server
	n      int
	hit    map[string]int      // by side and what the process did when it died
	aims   map[string][]string // by side: what is still to be met
}

// soakAims are what the victims are to be caught at, in this order; what could not be
// met in time is tried again later.
var soakAims = []string{"holds fair", "queued fair", "holds write", "holds read", "holds rlock", "holds fenced", "holds multi", "queued fair"}

// soakHashes are the locks of the soak by the way in which they are held.
var soakHashes = map[string][]string{
	"rlock": {"soak-r1", "soak-r2"}, "fenced": {"soak-n1"}, "fair": {"soak-f1", "soak-f2"}, "rw": {"soak-w1", "soak-w2"},
}

// next kills one of the processes, the sides in turns, and returns which.
func (k *soakKills) next(t *testing.T, alive []*soaker) int {
	t.Helper()
	side := soakSides[k.n%2] + " "
	k.n++
	if len(k.aims[side]) == 0 {
		k.aims[side] = slices.Clone(soakAims)
	}
	aim := k.aims[side][0]
	k.aims[side] = k.aims[side][1:]
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(rand.N(5 * time.Millisecond)) {
		i := rand.IntN(len(alive))
		s := alive[i]
		if s.side()+" " != side {
			continue
		}
		s.driver.Freeze(t)
		at := k.at(t, s)
		if !slices.Contains(at, aim) && time.Now().Before(end) {
			s.driver.Thaw(t)
			continue
		}
		s.driver.Kill(t)
		if !slices.Contains(at, aim) {
			k.aims[side] = append(k.aims[side], aim)
		}
		for _, a := range at {
			k.hit[side+a]++
		}
		return i
	}
}

// at is what a stopped process holds and where it stands, by the server.
func (k *soakKills) at(t *testing.T, s *soaker) (at []string) {
	t.Helper()
	plain := map[string]int{} // holds of plain locks, by owner
	for kind, keys := range soakHashes {
		for _, key := range keys {
			for field := range k.server.Hash(t, "HGETALL", key) {
				if !strings.HasPrefix(field, s.client+":") {
					continue
				}
				switch {
				case kind == "rlock":
					// A multi-lock of ours may have an acquisition id for each member: the owner is before it.
					owner, _, _ := strings.Cut(strings.TrimPrefix(field, s.client+":"), "-")
					if plain[owner]++; plain[owner] == 2 {
						at = append(at, "holds multi")
					}
				case kind != "rw":
				case strings.HasSuffix(field, ":write"):
					at = append(at, "holds write")
				default:
					at = append(at, "holds read")
				}
				if kind != "rw" {
					at = append(at, "holds "+kind)
				}
			}
		}
	}
	for _, n := range soakHashes["fair"] {
		for _, field := range k.server.List(t, "LRANGE", "redisson_lock_queue:{"+n+"}", "0", "-1") {
			if strings.HasPrefix(field, s.client+":") {
				at = append(at, "queued fair")
			}
		}
	}
	return at
}

// report shows what was hit; a soak with enough kills must have hit holders and
// waiters of both sides.
func (k *soakKills) report(t *testing.T) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(k.hit)) {
		t.Logf("killed: %-32s %d", what, k.hit[what])
	}
	if k.n < 14 { // a short soak, or a slow machine
		return
	}
	for _, side := range soakSides {
		for _, aim := range []string{"queued fair", "holds fair", "holds write", "holds read", "holds rlock"} {
			testbed.AtLeast(t, k.hit[side+" "+aim], 1, "kills that met", side, aim)
		}
	}
}
