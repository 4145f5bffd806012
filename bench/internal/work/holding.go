package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// holdingJob acquires many locks with the watchdog and holds them, so that memory, goroutines and renewals can be seen.
type holdingJob struct {
	holds []Hold
	res   Result
}

// How many goroutines acquire and release the locks: enough for pipelining to work.
const holdingWorkers = 64

func (j *holdingJob) start(ctx context.Context, m *measurement) error {
	lockers := make([]Locker, m.Holds)
	for i := range lockers {
		lockers[i] = m.contender.Locker(fmt.Sprintf("%s:%d", m.Key, i))
	}
	j.holds = make([]Hold, m.Holds)
	// The first acquisition opens connections and loads scripts: that belongs to the client, not to a hold.
	h, err := m.contender.Locker(m.Key + ":first").Lock(ctx)
	if err == nil {
		err = h.Unlock(ctx)
	}
	if err != nil {
		return err
	}
	before, routines := memory(), runtime.NumGoroutine()
	if err := eachOf(len(j.holds), func(i int) (err error) {
		j.holds[i], err = lockers[i].Lock(ctx)
		return err
	}); err != nil {
		return err
	}
	after := memory()
	j.res.Routines = runtime.NumGoroutine() - routines
	j.res.Heap = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	j.res.Stack = int64(after.StackInuse) - int64(before.StackInuse)
	runtime.KeepAlive(lockers)
	return nil
}

func (j *holdingJob) drain() {}

func (j *holdingJob) finish(r *Result) error {
	r.Heap, r.Stack, r.Routines = j.res.Heap, j.res.Stack, j.res.Routines
	// A lost lock is an error here too: the row is about holds that last.
	return eachOf(len(j.holds), func(i int) error { return j.holds[i].Unlock(context.Background()) })
}

// eachOf calls do for 0 … n-1 by several goroutines and returns their first errors.
func eachOf(n int, do func(i int) error) error {
	errs := make([]error, holdingWorkers)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += holdingWorkers {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func memory() runtime.MemStats {
	// Twice: what finalizers let go of is collected by the second.
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s
}
