package work

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
)

// Profiles are the files that a process writes about the time that it counts; "" is none. They cost time of their own:
// a trace a part of what it shows, the profile of allocations several times as much as the work.
type Profiles struct {
	CPU    string // a CPU profile
	Allocs string // a profile of every allocation, not of a sample
	Trace  string // an execution trace: when each goroutine runs, waits and is woken, and by whom
}

// prepare is called before the process does anything that is not to be seen.
func (p Profiles) prepare() {
	if p.Allocs != "" {
		runtime.MemProfileRate = 0
	}
}

// start begins what was asked for; stop ends it and writes the files.
func (p Profiles) start() (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		errs := make([]error, 0, len(stops))
		for _, f := range stops {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	add := func(file string, begin func(*os.File) (func() error, error)) {
		if file == "" || err != nil {
			return
		}
		f, failed := os.Create(file)
		if failed != nil {
			err = failed
			return
		}
		end, failed := begin(f)
		if failed != nil {
			err = errors.Join(failed, f.Close())
			return
		}
		stops = append(stops, func() error { return errors.Join(end(), f.Close()) })
	}
	add(p.CPU, func(f *os.File) (func() error, error) {
		return func() error { pprof.StopCPUProfile(); return nil }, pprof.StartCPUProfile(f)
	})
	add(p.Trace, func(f *os.File) (func() error, error) {
		return func() error { trace.Stop(); return nil }, trace.Start(f)
	})
	add(p.Allocs, func(f *os.File) (func() error, error) {
		runtime.MemProfileRate = 1
		return func() error {
			// Up to the next collections but one, allocations are not in the profile.
			runtime.GC()
			runtime.GC()
			return pprof.Lookup("allocs").WriteTo(f, 0)
		}, nil
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}
