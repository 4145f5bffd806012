package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/redlatch/redlatch/bench/internal/work"
)

func TestOpenRefusesStrangers(t *testing.T) {
	if c, err := open("redis", work.Env{}); err == nil {
		c.Close()
		t.Error("a contender of another program was opened")
	}
}

// TestBusyIsToldFromBroken: a row that is there means to wait; anything else means to give up.
func TestBusyIsToldFromBroken(t *testing.T) {
	busy := fmt.Errorf("insert: %w", &mysql.MySQLError{Number: duplicateEntry})
	if !isServerError(busy, duplicateEntry, deadlock) {
		t.Error("a duplicate key is not taken for a busy lock")
	}
	for _, err := range []error{nil, errors.New("broken"), &mysql.MySQLError{Number: 1045}} {
		if isServerError(err, duplicateEntry, deadlock) {
			t.Errorf("%v is taken for a busy lock", err)
		}
	}
}

// TestNobodyServes: a contender whose server has gone says so instead of waiting for ever.
func TestNobodyServes(t *testing.T) {
	e := work.Env{Addrs: []string{"127.0.0.1:1"}, Lease: time.Second}
	c, err := open("mariadb-unique", e)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Locker("key").Lock(t.Context()); err == nil {
		t.Error("a lock was acquired from nobody")
	}
}
