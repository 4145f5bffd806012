package redlatchtest_test

import (
	"testing"
	"testing/synctest"
	"time"
	"context"
	"errors"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

func TestProto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		c := s.Client()
		h, err := c.RLock("a").Lock(t.Context())
		if err != nil { t.Fatal(err) }
		time.Sleep(5*time.Minute)
		if err := h.Unlock(t.Context()); err != nil { t.Fatal(err) }
		h, err = c.RLock("a").Lock(t.Context(), redlatch.WithLease(time.Hour))
		if err != nil { t.Fatal(err) }
		began := time.Now()
		<-h.Context().Done()
		t.Log(time.Since(began), context.Cause(h.Context()))
		if !errors.Is(h.Unlock(t.Context()), redlatch.ErrLeaseLost) { t.Error() }
	})
}
