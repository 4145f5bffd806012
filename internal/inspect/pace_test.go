package inspect

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// After the burst, work takes its share of the time, and no more is saved up than the burst. The end of ctx ends a rest.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := NewPace(0.02, 50*time.Millisecond)
		rests := func(work, want time.Duration) {
			t.Helper()
			began := time.Now()
			p.owe(work)
			p.rest(ctx)
			if took := time.Since(began); (took - want).Abs() > time.Millisecond {
				t.Errorf("%v of work: it rests for %v, not %v", work, took, want)
			}
		}
		rests(50*time.Millisecond, 0)
		rests(20*time.Millisecond, time.Second)
		time.Sleep(time.Hour)
		rests(70*time.Millisecond, time.Second)
		if p.Rested() != 2*time.Second {
			t.Errorf("it has rested for %v", p.Rested())
		}
		cancel()
		rests(time.Hour, 0)
		PaceOf(t.Context()).owe(time.Hour) // without a bound
		PaceOf(t.Context()).rest(t.Context())
	})
}
