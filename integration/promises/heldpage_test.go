package promises

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// heldPage is what a Client's HeldHandler shows.
type heldPage struct {
	Held, Waiting []pageRow
	Servers       []any
}

type pageRow struct {
	Name, Owner string
	Held        float64 `json:"held_seconds"`
	Left        float64 `json:"remaining_seconds"`
	Waiting     float64 `json:"waiting_seconds"`
}

// pageOf is what a Client's page shows of a lock, and of servers in trouble.
func pageOf(t *testing.T, c *redlatch.Client, name string) (p heldPage) {
	t.Helper()
	w := httptest.NewRecorder()
	c.HeldHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/?format=json", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	others := func(r pageRow) bool { return !strings.HasPrefix(r.Name, name) }
	p.Held, p.Waiting = slices.DeleteFunc(p.Held, others), slices.DeleteFunc(p.Waiting, others)
	return p
}

// HeldHandler lists what the process holds and whoever waits in it, since when, also while its servers are silent or away.
func TestTheHeldPage(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"holds, and calls that wait": func(t *testing.T, x *bed.Site, name string) {
			began := time.Now()
			h := bed.Lock(t, t.Context(), x.Beside(name))
			one, two := passes(t.Context(), x.Lock(name)), passes(t.Context(), x.Lock(name))
			shown := 2
			if quorum(x) {
				shown = len(x.Servers) // of those who wait for the same one the first, for each copy
			}
			bed.Eventually(t, "they wait", func() bool {
				n := 0
				for _, c := range x.Through {
					n += len(pageOf(t, c, name).Waiting)
				}
				return n == shown
			})
			quiet(t, x)
			here, there := pageOf(t, x.Through[0], name), pageOf(t, x.Direct[0], name)
			took := time.Since(began).Seconds() + 0.001
			if len(here.Held) > 0 || len(there.Held) == 0 || len(there.Waiting) > 0 {
				t.Errorf("%+v of one who waits, %+v of the holder", here, there)
			}
			for _, w := range here.Waiting {
				if w.Waiting < 0 || w.Waiting > took || !quorum(x) && !strings.HasPrefix(w.Owner, x.Through[0].ID()) {
					t.Errorf("after %.3fs: %+v", took, w)
				}
			}
			for _, l := range there.Held {
				if l.Held > took || l.Left < 1 || l.Left > bed.Lease.Seconds() {
					t.Errorf("after %.3fs: %+v", took, l)
				}
			}
			bed.Unlock(t, h)
			passed(t, "the first", one, false)
			passed(t, "the second", two, false)
			bed.Eventually(t, "nobody waits or holds", func() bool {
				p := pageOf(t, x.Through[0], name)
				return len(p.Waiting)+len(p.Held) == 0
			})
		},
		"servers that are silent, or away": func(t *testing.T, x *bed.Site, name string) {
			cutOff(x)
			ctx, cancel := context.WithCancel(t.Context())
			got := bed.Async(ctx, x.Lock(name))
			bed.Eventually(t, "a server in trouble", func() bool { return len(pageOf(t, x.Through[0], name).Servers) == 1 })
			if x.Kind.Servers == 1 {
				bed.Eventually(t, "who waits for it", func() bool { return len(pageOf(t, x.Through[0], name).Waiting) == 1 })
			}
			cancel()
			if r := bed.Get(t, got); r.Err == nil {
				t.Error("a lock without its servers")
			}
			admit(t, x)
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock(name)))
			bed.Eventually(t, "no trouble", func() bool { return len(pageOf(t, x.Through[0], name).Servers) == 0 })
		},
	})
}
