// Package replica has what the examples' tests start of each replica of a service.
package replica

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// Locks is a client of redlatch. It is closed with the test.
func Locks(t *testing.T, addr string, options ...redlatch.ConfigOption) *redlatch.Client {
	t.Helper()
	locks, err := redlatch.Open("redis://"+addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locks.Close)
	return locks
}

// Data is a client of the service's data. It is closed with the test.
func Data(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	return redis
}

// UntilWaiting returns when a process waits for a lock. It may be called in any goroutine.
func UntilWaiting(t *testing.T, client *redlatch.Client, lock string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if in, err := client.Inspect(t.Context(), lock); err != nil {
			t.Error(err)
			return
		} else if in.Processes > 0 {
			return
		}
	}
	t.Error("nobody waits for the lock")
}
