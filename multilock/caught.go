package multilock

import (
	"errors"
	"sync"
)

// errBroken is what a member is refused with whose goroutine ended without an answer.
var errBroken = errors.New("code of the user's ended its goroutine")

// caught calls f and returns what it panicked with, if it did. Members are asked in goroutines of
// ours, and code of the user's (a context, a client of ClientBuilder's) that panics there would end
// the program. The panic belongs to the caller, who may recover from it; the stack is the caller's
// then.
func caught(f func()) (broke any) {
	defer func() { broke = recover() }()
	f()
	return nil
}

// together calls f for some indexes at once, each in a goroutine, and waits for them. What one of
// them panics with, the caller does.
func together(indexes []int, f func(i int)) {
	if len(indexes) == 0 {
		return
	}
	broke := make([]any, len(indexes))
	var all sync.WaitGroup
	for n, i := range indexes {
		all.Go(func() { broke[n] = caught(func() { f(i) }) }) // ends with f
	}
	all.Wait()
	for _, b := range broke {
		if b != nil {
			panic(b)
		}
	}
}
