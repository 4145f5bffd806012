package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// BenchmarkLockUnlock is an uncontended Lock + Unlock, each goroutine with a key of its own. It shows allocations; for
// speed, "go run" the program, which lets the contenders take turns. Go's own flags profile it (-cpuprofile, -memprofile,
// -trace).
func BenchmarkLockUnlock(b *testing.B) {
	for _, name := range uncontended(1).contenders {
		e, err := lookup(name)
		testbed.Must(b, err)
		for _, goroutines := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/%d", e.name, goroutines), func(b *testing.B) {
				c, err := e.open(env{Addrs: []string{testbed.Standalone(b).Addr()}, Lease: 30 * time.Second, Waiters: 1})
				testbed.Must(b, err)
				b.Cleanup(c.Close)
				b.ReportAllocs()
				lockUnlock(b, c, goroutines)
			})
		}
	}
}

// lockUnlock shares the turns out among goroutines. The first turn of each, which may load a script, is not counted.
func lockUnlock(b *testing.B, c contender, goroutines int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var turns atomic.Int64
	done, begin := make(chan error, goroutines), make(chan struct{})
	for g := range goroutines {
		l := c.Locker(fmt.Sprintf("bench:%d", g))
		turn := func() error {
			h, err := l.Lock(ctx)
			if err != nil {
				return err
			}
			return h.Unlock(ctx) // cancellable, as a request's: so are those of users
		}
		go func() {
			err := turn()
			done <- err
			<-begin
			for err == nil && turns.Add(1) <= int64(b.N) {
				err = turn()
			}
			done <- err
		}()
	}
	wait := func() {
		for range goroutines {
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
	}
	wait()
	b.ResetTimer()
	close(begin)
	wait()
	b.StopTimer()
}
