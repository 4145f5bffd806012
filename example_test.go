package redlatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
)

// The main job: only one of us at a time.
func Example() {
	ctx := context.Background()
	client, err := redlatch.Open(redisURL) // "redis://127.0.0.1:6379"
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	hold, err := client.RLock("orders:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock(ctx) //nolint:errcheck // Do joins the error; this is the short form

	// Work with the hold's context: it ends when the lock is lost.
	ship := func(ctx context.Context) error { return ctx.Err() }
	fmt.Println(ship(hold.Context()))
	// Output: <nil>
}

func ExampleNew() {
	client, err := redlatch.New(redlatch.Config{
		Redis:     rueidis.ClientOption{InitAddress: []string{strings.TrimPrefix(redisURL, "redis://")}},
		LeaseTime: 20 * time.Second,
		Prefix:    "shop:",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	fmt.Println(client.RLock("orders:42").Name())

	_, err = redlatch.New(redlatch.Config{Redis: rueidis.ClientOption{
		InitAddress: []string{"127.0.0.1:6379"}, ConnLifetime: time.Minute,
	}})
	fmt.Println(errors.Is(err, redlatch.ErrInvalidOption))
	// Output:
	// orders:42
	// true
}

// TryLock waits for a bounded time, or not at all, and tells who holds the lock.
func ExampleLocker_tryLock() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	lock := client.RLock("nightly-report")

	const oneAttempt, watchdog = 0, 0
	hold, err := lock.TryLock(ctx, oneAttempt, watchdog)
	if err != nil {
		fmt.Println(err)
		return
	}
	const wait = time.Second
	_, err = lock.TryLock(ctx, wait, watchdog)
	var busy *redlatch.NotAcquiredError
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired), errors.As(err, &busy) && busy.Remaining > 0)
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// true true
	// <nil>
}

// The hold's context is the owner: with it the same lock is taken again.
func ExampleHold_reentry() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	lock := client.RLock("account:7")

	outer, err := lock.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	inner, err := client.RLock("account:7").Lock(outer.Context())
	if err != nil {
		fmt.Println(err)
		return
	}
	state, _ := lock.State(ctx)
	fmt.Println("count", state.Holders[0].Count)
	fmt.Println(inner.Unlock(ctx), outer.Unlock(ctx), outer.Unlock(ctx))
	// Output:
	// count 2
	// <nil> <nil> redlatch: lock not held
}

func ExampleDo() {
	client := open()
	defer client.Close()
	err := redlatch.Do(context.Background(), client.RLock("cache:prices"), func(context.Context) error {
		fmt.Println("rebuilding")
		return errors.New("source is down")
	})
	fmt.Println(err)
	// Output:
	// rebuilding
	// source is down
}

// An error of Do tells whether the section has run: one of Unlock is an *UnlockError.
func ExampleUnlockError() {
	ctx := context.Background()
	client := open()
	shipping := func(context.Context) error {
		fmt.Println("shipping")
		client.Close() // the program is stopping
		return nil
	}
	for range 2 {
		err := redlatch.Do(ctx, client.RLock("order:9"), shipping, redlatch.WithLease(time.Second))
		_, ran := errors.AsType[*redlatch.UnlockError](err)
		fmt.Println(errors.Is(err, redlatch.ErrClosed), ran)
	}
	// Output:
	// shipping
	// true true
	// true false
}

// A job that runs only if nobody else is at it: with a wait of 0, TryDo tries once. A deadline of ctx, as with Do,
// would end the job as well.
func ExampleTryDo() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	lock := client.RLock("cache:rates")
	rebuild := func(context.Context) error {
		fmt.Println("rebuilding")
		return nil
	}

	const oneAttempt, watchdog = 0, 0
	fmt.Println(redlatch.TryDo(ctx, lock, oneAttempt, watchdog, rebuild))
	hold, err := lock.Lock(ctx) // somebody else does it
	if err != nil {
		fmt.Println(err)
		return
	}
	err = redlatch.TryDo(ctx, lock, oneAttempt, watchdog, rebuild)
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired))
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// rebuilding
	// <nil>
	// true
	// <nil>
}

// A fixed lease ends on time, whatever happens; the section learns of it.
func ExampleWithLease() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	hold, err := client.RLock("import").Lock(ctx, redlatch.WithLease(100*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-hold.Context().Done() // slower than its lease
	fmt.Println(errors.Is(context.Cause(hold.Context()), redlatch.ErrLeaseLost))
	fmt.Println(errors.Is(hold.Unlock(ctx), redlatch.ErrLeaseLost))
	// Output:
	// true
	// true
}

// A section with a fixed lease that turns out to be longer asks for more time.
func ExampleHold_extend() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	hold, err := client.RLock("export").Lock(ctx, redlatch.WithLease(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hold.Extend(ctx, time.Hour)) // from now on, not in addition
	fmt.Println(time.Until(hold.ValidUntil()) > 50*time.Minute)

	fmt.Println(hold.Extend(ctx, time.Second)) // the hold lasts for longer already
	fmt.Println(time.Until(hold.ValidUntil()) > 50*time.Minute)
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// <nil>
	// true
	// <nil>
	// true
	// <nil>
}

// Fencing tokens increase from holder to holder; the protected resource refuses
// a smaller one than it has seen.
func ExampleFenced() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	lock := client.RLock("stock:42", redlatch.Fenced())
	var tokens [2]uint64
	for i := range tokens {
		hold, err := lock.Lock(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		tokens[i] = hold.Token()
		if err := hold.Unlock(ctx); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(tokens[1] > tokens[0])
	// Output: true
}

// Several acquisitions of one logical job that share no hold's context.
func ExampleWithOwner() {
	client := open()
	defer client.Close()
	lock := client.RLock("batch")
	ctx := redlatch.WithOwner(context.Background(), "job-17")

	const oneAttempt, watchdog = 0, 0
	first, err := lock.TryLock(ctx, oneAttempt, watchdog)
	fmt.Println(err)
	second, err := lock.TryLock(ctx, oneAttempt, watchdog) // re-enters
	fmt.Println(err)
	fmt.Println(second.Unlock(ctx), first.Unlock(ctx))
	// Output:
	// <nil>
	// <nil>
	// <nil> <nil>
}

// Goroutines started inside a critical section with its context are the same
// owner. Those that must exclude each other say so.
func ExampleNewOwner() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	order, err := client.RLock("order:1").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer order.Unlock(ctx) //nolint:errcheck // the example is about the children

	printer := client.RLock("printer")
	var wg sync.WaitGroup
	var inside, most int
	for range 4 {
		wg.Go(func() {
			hold, err := printer.Lock(redlatch.NewOwner(order.Context()))
			if err != nil {
				return
			}
			inside++ // guarded by the printer's lock
			most = max(most, inside)
			inside--
			_ = hold.Unlock(ctx)
		})
	}
	wg.Wait()
	fmt.Println("at once:", most)
	// Output: at once: 1
}

// Operators look, and take away.
func ExampleClient_forceUnlock() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	lock := client.RLock("stuck")
	if _, err := lock.Lock(ctx); err != nil {
		fmt.Println(err)
		return
	}
	state, _ := lock.State(ctx)
	fmt.Println(state.Held, state.Mode, len(state.Holders))
	freed, err := lock.ForceUnlock(ctx)
	fmt.Println(freed, err)
	// Output:
	// true lock 1
	// true <nil>
}

// Shutdown lets what is held be finished, like http.Server's.
func ExampleClient_Shutdown() {
	ctx := context.Background()
	client := open()
	hold, err := client.RLock("last").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error)
	go func() { done <- client.Shutdown(ctx) }()
	time.AfterFunc(20*time.Millisecond, func() { _ = hold.Unlock(ctx) })
	fmt.Println(<-done)
	_, err = client.RLock("another").Lock(ctx)
	fmt.Println(errors.Is(err, redlatch.ErrClosed))
	// Output:
	// <nil>
	// true
}

// Two who wait for a fair lock are served in the order in which they came, also
// when they are in different processes.
func ExampleClient_FairLock() {
	ctx := context.Background()
	client := open()
	defer client.Close()

	// A waiter whose process dies is passed over two seconds later.
	lock := client.FairLock("printer", fairlock.WithSkipAfter(2*time.Second))
	hold, err := lock.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	var wg sync.WaitGroup
	for i := 1; i <= 2; i++ {
		wg.Go(func() {
			if err := lock.Do(ctx, func(context.Context) error {
				fmt.Println("job", i)
				return nil
			}); err != nil {
				fmt.Println(err)
			}
		})
		for { // until it stands in the queue
			if state, err := lock.State(ctx); err != nil || state.QueueLength == i {
				break
			}
		}
	}
	fmt.Println(hold.Unlock(ctx)) // the first one has the lock now
	wg.Wait()
	// Unordered output:
	// <nil>
	// job 1
	// job 2
}

// A page for a debug port: what this process holds and waits for. It has no access control.
func ExampleClient_HeldHandler() {
	ctx := context.Background()
	client := open()
	defer client.Close()
	mux := http.NewServeMux()
	mux.Handle("/debug/locks", client.HeldHandler())
	server := httptest.NewServer(mux) // in a program: http.ListenAndServe("localhost:6060", mux)
	defer server.Close()

	hold, err := client.RLock("orders:43").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := http.Get(server.URL + "/debug/locks?format=json") // without the parameter: text
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	var page struct {
		Held []struct {
			Name string
			Held float64 `json:"held_seconds"`
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		fmt.Println(err)
	}
	for _, l := range page.Held {
		fmt.Println(l.Name, "held for less than a minute:", l.Held < 60)
	}
	fmt.Println(hold.Unlock(ctx))
	// Output:
	// orders:43 held for less than a minute: true
	// <nil>
}

func ExampleClient_Held() {
	ctx := context.Background()
	client := open()
	defer client.Close()

	hold, err := client.RLock("held:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range client.Held() {
		fmt.Println(l.Name, l.Type, l.Count)
	}

	// A Shutdown that can't wait any longer says what was not unlocked.
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	var still *redlatch.ShutdownError
	if errors.As(client.Shutdown(short), &still) {
		fmt.Println("still held:", still.Held[0].Name)
	}
	if err := hold.Unlock(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// held:42 reentrant 1
	// still held: held:42
}
