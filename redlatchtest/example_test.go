package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// Shop is the code under test: it takes its locks from a function.
type Shop struct {
	Locks func(name string) redlatch.Locker
	Wait  time.Duration // for the lock; 0: one attempt
}

// Ship ships an order, unless somebody else does it.
func (s *Shop) Ship(ctx context.Context, order string) (result string, err error) {
	const watchdog = 0
	hold, err := s.Locks("order:"+order).TryLock(ctx, s.Wait, watchdog)
	switch {
	case errors.Is(err, redlatch.ErrUnavailable):
		return "try again later", nil
	case errors.Is(err, redlatch.ErrNotAcquired):
		return "somebody ships it", nil
	case err != nil:
		return "", err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	return "shipped", hold.Context().Err()
}

// program stands for the *testing.T of your test.
type program struct{ cleanups []func() }

func (p *program) Helper()                        {}
func (p *program) Context() context.Context       { return context.Background() }
func (p *program) Cleanup(f func())               { p.cleanups = append(p.cleanups, f) }
func (p *program) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (p *program) end() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
}

// The real thing, on a server of the test's own.
func ExampleNew() {
	t := &program{} // your *testing.T
	defer t.end()

	client := redlatchtest.New(t)
	shop := &Shop{Locks: func(name string) redlatch.Locker { return client.RLock(name) }}

	fmt.Println(shop.Ship(t.Context(), "42"))
	// Output:
	// shipped <nil>
}

// Somebody else holds the lock; then the server goes away and comes back.
func ExampleNewServer() {
	t := &program{} // your *testing.T
	defer t.end()

	server := redlatchtest.NewServer(t)
	client := server.Client()
	// A server that does not answer is told apart from a slow one after a second.
	shop := &Shop{Locks: func(name string) redlatch.Locker { return client.RLock(name) }, Wait: 2 * time.Second}

	theirs := server.Take("order:42")
	for _, state := range server.Held() {
		fmt.Println("held:", state.Name, state.Mode)
	}
	fmt.Println(shop.Ship(t.Context(), "42"))
	fmt.Println(theirs.Unlock(t.Context()))

	server.Down()
	fmt.Println(shop.Ship(t.Context(), "42"))
	server.Up()
	fmt.Println(shop.Ship(t.Context(), "42"))
	// Output:
	// held: order:42 lock
	// somebody ships it <nil>
	// <nil>
	// try again later <nil>
	// shipped <nil>
}

// A section that loses its lock: the key is gone, the holder finds out at its next check.
func ExampleServer_Lose() {
	t := &program{} // your *testing.T
	defer t.end()

	server := redlatchtest.NewServer(t)
	client := server.Client(redlatch.WithLeaseTime(150 * time.Millisecond)) // checked every 50 ms
	hold, err := client.RLock("import").Lock(t.Context())
	if err != nil {
		fmt.Println(err)
		return
	}
	server.Lose("import")
	<-hold.Context().Done()
	fmt.Println(errors.Is(context.Cause(hold.Context()), redlatch.ErrLeaseLost))
	fmt.Println(errors.Is(hold.Unlock(t.Context()), redlatch.ErrLeaseLost))
	// Output:
	// true
	// true
}

// No server at all: each outcome on demand.
func ExampleNewLocker() {
	ctx := context.Background()
	lock := redlatchtest.NewLocker("order:42")
	shop := &Shop{Locks: func(string) redlatch.Locker { return lock }}

	fmt.Println(shop.Ship(ctx, "42"))

	free := lock.Busy("java-7")
	fmt.Println(shop.Ship(ctx, "42"))
	free()

	lock.SetUnavailable(true)
	fmt.Println(shop.Ship(ctx, "42"))
	lock.SetUnavailable(false)

	fmt.Println(len(lock.Holds()), "holds are left") // a forgotten Unlock would show here
	// Output:
	// shipped <nil>
	// somebody ships it <nil>
	// try again later <nil>
	// 0 holds are left
}

// The lock is lost in the middle of a section.
func ExampleLocker_Lose() {
	ctx := context.Background()
	lock := redlatchtest.NewLocker("import")
	err := redlatch.Do(ctx, lock, func(ctx context.Context) error {
		lock.Lose()
		return context.Cause(ctx)
	})
	fmt.Println(errors.Is(err, redlatch.ErrLeaseLost))
	// Output: true
}

// Locks by name, for code that asks for them.
func ExampleNewLockers() {
	locks := redlatchtest.NewLockers()
	shop := &Shop{Locks: locks.ByName}

	locks.Get("order:7").Busy("another replica")
	for _, order := range []string{"7", "42"} {
		fmt.Println(shop.Ship(context.Background(), order))
	}
	fmt.Println(locks.Names(), locks.Held())
	// Output:
	// somebody ships it <nil>
	// shipped <nil>
	// [order:42 order:7] []
}
