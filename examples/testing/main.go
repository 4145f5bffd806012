// Testing is code that takes locks, and its unit tests: without a server, and with the
// real locks on a server inside the test's process. Look at main_test.go.
//
//	go test ./examples/testing
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/testing
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redlatch/redlatch"
)

func main() {
	client, err := redlatch.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), redlatch.WithPrefix("shop:"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	till := &cashier{
		lock:   func(name string) redlatch.Locker { return client.RLock(name) },
		charge: func(_ context.Context, order string) error { fmt.Println("charged order", order); return nil },
		paid:   map[string]bool{},
	}
	log.Print("paid: ", till.pay(context.Background(), "42"))
}

// What callers of pay can do something about.
var (
	errBusy  = errors.New("somebody else is paying this order")
	errLater = errors.New("try again later")
)

// cashier charges each order once. It gets its locks from a function, so that a test
// can give it others; it does not know of Redis.
type cashier struct {
	lock   func(name string) redlatch.Locker
	charge func(ctx context.Context, order string) error
	paid   map[string]bool // stands for the database
}

// pay waits for two seconds at most while another replica pays the same order.
func (c *cashier) pay(ctx context.Context, order string) (err error) {
	const wait, watchdog = 2 * time.Second, 0
	hold, err := c.lock("order:"+order).TryLock(ctx, wait, watchdog)
	switch {
	case errors.Is(err, redlatch.ErrUnavailable):
		return errLater
	case errors.Is(err, redlatch.ErrNotAcquired):
		return errBusy
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	if c.paid[order] {
		return nil
	}
	if err := c.charge(hold.Context(), order); err != nil { // its ctx ends when the lock is lost
		return err
	}
	c.paid[order] = true
	return nil
}
