package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// crowdSection is one note of a worker.
type crowdSection struct {
	client   string
	from, to time.Time
}

// crowdSections reads the notes, in the order in which they were made, and fails the test when two sections met or one
// was lost from the counter.
func crowdSections(t *testing.T, s *testbed.Server) []crowdSection {
	t.Helper()
	var all []crowdSection
	for _, note := range s.List(t, "LRANGE", "sections", "0", "-1") {
		var one crowdSection
		var from, to int64
		if _, err := fmt.Sscan(note, &one.client, &from, &to); err != nil {
			t.Fatalf("note %q: %v", note, err)
		}
		one.from, one.to = time.UnixMicro(from), time.UnixMicro(to)
		if n := len(all); n > 0 && one.from.Before(all[n-1].to) {
			t.Errorf("two inside: %v and %v", all[n-1], one)
		}
		all = append(all, one)
	}
	if n := s.Int(t, "GET", "counter"); int(n) != len(all) {
		t.Errorf("%d sections, and the counter says %d", len(all), n)
	}
	return all
}

// The others go on when the process that stands first on the list, a real one, is stopped or killed
// as it is about to be called: who is stopped costs a look at most, and when it runs again it takes
// turns as before.
func TestCrowdTheFirstProcess(t *testing.T) {
	const look = 1500 * time.Millisecond // until somebody looks without being called
	freeze := func(t *testing.T, p *bed.Worker) { t.Helper(); p.Freeze(t) }
	thaw := func(t *testing.T, p *bed.Worker) { t.Helper(); p.Thaw(t) }
	kill := func(t *testing.T, p *bed.Worker) { t.Helper(); p.Kill(t) }
	for _, tc := range []struct {
		name       string
		stop, then func(t *testing.T, p *bed.Worker)
		lives      bool
		stands     time.Duration // how long nobody has the lock at most
	}{
		{"is stopped", freeze, thaw, true, look},
		{"is killed", kill, nil, false, crowdSoon},
		{"is stopped, then killed", freeze, kill, false, look},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			list := luascript.WaitKey("l")
			holder := bed.Lock(t, t.Context(), rlClient(t, s.Addr()).RLock("l"))
			crowd := map[string]*bed.Worker{}
			for range 5 {
				p := rwSpawn(t, s, 30*time.Second)
				crowd[p.ClientID] = p
				p.Start(t, bed.Command{
					ID: 1, Do: "loop", Kind: "plain", Name: "l", Count: 1, Hold: time.Millisecond, Counter: "counter", Notes: "sections",
				})
			}
			bed.Eventually(t, "all wait", func() bool { return s.Int(t, "ZCARD", list) == int64(len(crowd)) })
			rlSubscribed(t, s, "l", int64(len(crowd)))
			first := s.List(t, "ZRANGE", list, "0", "0")[0]
			tc.stop(t, crowd[first])
			began := time.Now()
			bed.Unlock(t, holder)
			bed.Eventually(t, "the others take turns", func() bool { return s.Int(t, "LLEN", "sections") > 50 })
			resumed := time.Now()
			if tc.then != nil {
				tc.then(t, crowd[first])
			}
			at := s.Int(t, "LLEN", "sections")
			bed.Eventually(t, "they go on", func() bool { return s.Int(t, "LLEN", "sections") > at+200 })
			for client, p := range crowd {
				select {
				case <-p.Done(): // killed
					if client != first {
						t.Errorf("%s has ended: %s", client, p.Stderr())
					}
				default:
					p.CloseInput(t)
				}
			}
			for client, p := range crowd {
				if err := p.Wait(t); err != nil && client != first {
					t.Errorf("%s: %v: %s", client, err, p.Stderr())
				}
			}

			sections, last, longest := crowdSections(t, s), began, time.Duration(0)
			turns := map[string]int{}
			var again time.Time // the first turn of who was stopped
			for _, one := range sections {
				longest = max(longest, one.from.Sub(last))
				last = one.to
				turns[one.client]++
				if one.client == first && again.IsZero() {
					again = one.from
				}
			}
			t.Logf("%d sections, at most %v between two; turns %v", len(sections), longest, turns)
			if longest > tc.stands {
				t.Errorf("nobody had the lock for %v", longest)
			}
			if turns[first] > 0 != tc.lives {
				t.Errorf("%d turns of the first", turns[first])
			}
			if tc.lives && (again.Before(resumed) || again.Sub(resumed) > look) {
				t.Errorf("it ran again, and its turn came after %v", again.Sub(resumed))
			}
			if others := len(turns) - min(1, turns[first]); others != len(crowd)-1 {
				t.Errorf("%d others took turns", others)
			}
			bed.Eventually(t, "nobody is on the list", func() bool { return s.Int(t, "EXISTS", list) == 0 })
			s.Do(t, "DEL", "counter", "sections")
		})
	}
}
