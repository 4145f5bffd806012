package multilock

import "errors"

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

// result is what one of several calls came to.
type result[T any] struct {
	i     int
	val   T
	err   error
	broke any // it panicked with that
}

// atOnce calls f for each i below n in a goroutine, which ends with f, and returns what they come to.
func atOnce[T any](n int, f func(i int) (T, error)) <-chan result[T] {
	results := make(chan result[T], n)
	for i := range n {
		go func() {
			r := result[T]{i: i, err: errBroken}
			defer func() { results <- r }()
			r.broke = caught(func() { r.val, r.err = f(i) })
		}()
	}
	return results
}

// together calls f for some indexes at once and waits for them. What one of them panics with, the caller does.
func together(indexes []int, f func(i int)) {
	var broke any
	results := atOnce(len(indexes), func(n int) (_ struct{}, err error) { f(indexes[n]); return })
	for range indexes {
		if r := <-results; r.broke != nil {
			broke = r.broke
		}
	}
	if broke != nil {
		panic(broke)
	}
}
