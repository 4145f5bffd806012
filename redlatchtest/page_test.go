package redlatchtest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

// What docs/TESTING.md shows, as it stands there.

// Orders ships orders. It knows nothing about Redis.
type Orders struct {
	lock func(name string) redlatch.Locker
}

func NewOrders(lock func(name string) redlatch.Locker) *Orders { return &Orders{lock} }

func (o *Orders) Ship(ctx context.Context, id string) error {
	return redlatch.Do(ctx, o.lock("order:"+id), func(ctx context.Context) error {
		return o.ship(ctx, id) // ctx ends when the lock is lost
	})
}

func TestShipTwice(t *testing.T) {
	locks := redlatchtest.NewLockers()
	orders := NewOrders(locks.ByName)

	locks.Get("order:42").Busy("another replica")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := orders.Ship(ctx, "42"); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	if held := locks.Held(); len(held) > 0 {
		t.Errorf("not unlocked: %v", held)
	}
}

func TestShipAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.NewServer(t)
		client := server.Client()
		orders := NewOrders(func(name string) redlatch.Locker { return client.RLock(name) })

		server.Take("order:42") // another replica ships it,
		server.Other().Close()  // and dies: its lease of 30 s runs on
		if err := orders.Ship(t.Context(), "42"); err != nil {
			t.Error(err)
		}
		if held := server.Held(); len(held) > 0 { // also: server.Down(), server.Lose("order:42")
			t.Errorf("not unlocked: %v", held)
		}
	})
}

func (o *Orders) ship(ctx context.Context, _ string) error { return ctx.Err() }

// The page shows this file's code.
func TestTestingPage(t *testing.T) {
	page, err := os.ReadFile("../docs/TESTING.md")
	if err != nil {
		t.Skip("not in the repository:", err)
	}
	own, err := os.ReadFile("page_test.go")
	testbed.Must(t, err)
	shown := 0
	for i, block := range strings.Split(string(page), "```") {
		code, ok := strings.CutPrefix(block, "go\n")
		if i%2 == 0 || !ok || !strings.HasPrefix(code, "// Orders") && !strings.HasPrefix(code, "func Test") {
			continue
		}
		shown++
		if !strings.Contains(string(own), code) {
			t.Errorf("differs from what is tested:\n%s", code)
		}
	}
	testbed.Equal(t, shown, 3, "blocks that were found")
}
