package sender

import (
	"testing"
	"time"
)

// A timer that is used again has nothing of its last use, also in a program that keeps the timers
// of older Go versions (GODEBUG asynctimerchan=1, which Go 1.26 still knows): those put the tick
// into the channel and leave it there.
func TestTimersUsedAgainAreFresh(t *testing.T) {
	t.Setenv("GODEBUG", "asynctimerchan=1")
	s := New(&held{}, Config{})
	for range 20 {
		a := s.StartTimer(time.Millisecond)
		for limit := time.Now().Add(time.Minute); len(a.C) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("the timer does not fire")
			}
		}
		s.StopTimer(a)
		b := s.StartTimer(time.Hour)
		select {
		case <-b.C:
			t.Fatal("the tick of the last use: an Unlock gives up at once, a TryLock does not wait")
		default:
		}
		s.StopTimer(b)
	}
}
