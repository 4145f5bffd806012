package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who waits has one name for as long as it waits, however often it asks: that of its place on the server.
func TestAWaiterKeepsItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		h := take(t, t.Context(), second(t, f, leaseTime), "l")
		go func() { // ends with the test's unlock
			if err := take(t, t.Context(), core, "l").Unlock(context.Background()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		}()
		synctest.Wait()
		first := core.Waiting(9)[0].Owner
		for asked := len(f.scripts("acquire")); len(f.scripts("acquire")) < asked+3; time.Sleep(time.Second) {
			if now := core.Waiting(9)[0].Owner; now != first {
				t.Fatalf("%s waits, and was %s", now, first)
			}
		}
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}
