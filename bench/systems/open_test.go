package main

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestOpenRefuses: a contender of another program is refused at once, and one whose server has gone says so instead of
// waiting for ever.
func TestOpenRefuses(t *testing.T) {
	if c, err := open("redis", work.Env{}); err == nil {
		c.Close()
		t.Error("a contender of another program was opened")
	}
	c, err := open("mariadb", work.Env{Addrs: []string{"127.0.0.1:1"}, Lease: time.Second})
	testbed.Must(t, err)
	defer c.Close()
	if _, err := c.Locker("key").Lock(t.Context()); err == nil {
		t.Error("a lock was acquired from nobody")
	}
}
