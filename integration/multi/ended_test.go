package multi

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A caller whose context ends while the last copies of a quorum are waited for gets a hold that
// unlocks all of them, or nothing.
func TestContextEndsInTheGraceOfAQuorum(t *testing.T) {
	list := servers(t, 3)
	proxy := testbed.NewProxy(t, list[2].Addr())
	cs := clients(t, []string{list[0].Addr(), list[1].Addr(), proxy.Addr()}, lease(time.Minute))
	q := redlatch.QuorumLock(copies(cs, "a")...)
	h, err := q.Lock(t.Context()) // each server is known from here on
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Delay(testbed.Requests, 20*time.Millisecond)
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(500+i*200)*time.Microsecond)
		h, err := q.Lock(ctx)
		if err == nil {
			<-ctx.Done()
			if err := h.Unlock(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
	}
	for _, s := range list {
		bed.Eventually(t, "nothing is held", func() bool { return len(s.List(t, "KEYS", "a")) == 0 })
	}
}
