package promises

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// heldPage is what a Client's HeldHandler shows.
type heldPage struct {
	Held []struct {
		Name, Owner string
		HeldS       float64 `json:"held_seconds"`
		LeaseLeftS  float64 `json:"remaining_seconds"`
	}
	Waiting []struct {
		Name, Owner, Holder string
		WaitingS            float64 `json:"waiting_seconds"`
	}
	Servers []struct {
		Problem    string
		Unanswered int
	}
}

func pageOf(t *testing.T, c *redlatch.Client) (p heldPage) {
	t.Helper()
	w := httptest.NewRecorder()
	c.HeldHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/?format=json", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return p
}

// holds reports whether the page lists the lock as held, and waits for how many calls it lists as waiting.
func (p heldPage) holds(name string) bool {
	for _, h := range p.Held {
		if strings.HasPrefix(h.Name, name) {
			return true
		}
	}
	return false
}

func (p heldPage) waits(name string) (n int) {
	for _, w := range p.Waiting {
		if strings.HasPrefix(w.Name, name) {
			n++
		}
	}
	return n
}

// HeldHandler lists what the process holds and whoever waits in it, since when, also while its servers are silent or away.
func TestTheHeldPage(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"holds, and calls that wait": func(t *testing.T, x *bed.Site, name string) {
			began := time.Now()
			h := bed.Lock(t, t.Context(), x.Beside(name))
			one, two := bed.Async(t.Context(), x.Lock(name)), bed.Async(t.Context(), x.Lock(name))
			shown := 2
			if quorum(x) {
				shown = len(x.Servers) // of those who wait for the same one the first, for each copy
			}
			bed.Eventually(t, "they wait", func() bool {
				n := 0
				for _, c := range x.Through {
					n += pageOf(t, c).waits(name)
				}
				return n == shown
			})
			quiet(t, x)
			here, there := pageOf(t, x.Through[0]), pageOf(t, x.Direct[0])
			passed := time.Since(began).Seconds() + 0.001
			if here.holds(name) || !there.holds(name) || there.waits(name) > 0 {
				t.Errorf("held: %+v of one who waits, %+v of the holder", here.Held, there.Held)
			}
			for _, w := range here.Waiting {
				if strings.HasPrefix(w.Name, name) && (w.WaitingS < 0 || w.WaitingS > passed || x.Kind.Name != "quorum" && !strings.HasPrefix(w.Owner, x.Through[0].ID())) {
					t.Errorf("after %.3fs: %+v", passed, w)
				}
			}
			for _, l := range there.Held {
				if strings.HasPrefix(l.Name, name) && (l.HeldS > passed || l.LeaseLeftS < 1 || l.LeaseLeftS > bed.Lease.Seconds()) {
					t.Errorf("after %.3fs: %+v", passed, l)
				}
			}
			bed.Unlock(t, h)
			for range 2 {
				var a bed.Attempt
				select {
				case a = <-one:
				case a = <-two:
				case <-time.After(bed.Patience):
				}
				if a.Hold == nil {
					t.Fatalf("Lock: %v", a.Err)
				}
				bed.Unlock(t, a.Hold)
			}
			bed.Eventually(t, "nobody waits or holds", func() bool {
				p := pageOf(t, x.Through[0])
				return p.waits(name) == 0 && !p.holds(name)
			})
		},
		"servers that are silent, or away": func(t *testing.T, x *bed.Site, name string) {
			for _, p := range x.Proxies {
				p.Refuse()
				p.Cut()
			}
			ctx, cancel := context.WithCancel(t.Context())
			got := bed.Async(ctx, x.Lock(name))
			bed.Eventually(t, "a server in trouble", func() bool { return len(pageOf(t, x.Through[0]).Servers) == 1 })
			if x.Kind.Servers == 1 {
				bed.Eventually(t, "who waits for it", func() bool { return pageOf(t, x.Through[0]).waits(name) == 1 })
			}
			cancel()
			if r := bed.Get(t, got); r.Err == nil {
				t.Error("a lock without its servers")
			}
			for _, p := range x.Proxies {
				p.Admit(t)
			}
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock(name)))
			bed.Eventually(t, "no trouble", func() bool { return len(pageOf(t, x.Through[0]).Servers) == 0 })
		},
	})
}
