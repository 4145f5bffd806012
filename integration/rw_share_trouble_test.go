package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestRWShareLineOnceInTrouble: a TryLock that does not wait gets its answer at once, and is
// told what is wrong, also while another reader of its process retries what the server refuses
// for the moment.
func TestRWShareLineOnceInTrouble(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{"plain": nil, "shared": {redlatch.ShareReads()}} {
		t.Run(name, func(t *testing.T) {
			s := rwServer(t)
			c, proxy := rwShareProxy(t, s, 30*time.Second, 10*time.Millisecond)
			l := c.ReadWriteLock("n", opts...).ReadLock()
			rwUnlock(t, rwLock(t, l, t.Context()))
			refuses := proxy.Answer(testbed.Contains("EVALSHA"), "LOADING Redis is loading the dataset in memory").Times(1 << 20)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leads := make(chan error, 1)
			go func() { _, err := l.Lock(ctx); leads <- err }()
			refuses.Wait(t)
			refuses.Wait(t) // it has failed, and tries again
			for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
				began := time.Now()
				_, err := l.TryLock(t.Context(), wait, 0)
				took := time.Since(began)
				t.Logf("wait %v: %v, %v", wait, took, err)
				if took > wait+4*time.Second { // without an answer it waits for 5 s
					t.Errorf("TryLock(%v) took %v while the server answered each command at once", wait, took)
				}
				if !errors.Is(err, redlatch.ErrUnavailable) {
					t.Errorf("TryLock(%v) does not say that the server refuses: %v", wait, err)
				}
			}
			cancel()
			if err := <-leads; err == nil {
				t.Error("the reader that asks got the lock from a server that refuses")
			}
		})
	}
}
