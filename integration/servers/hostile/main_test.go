// Package hostile tests what whoever may write to some key of a server, or publish there, can do to
// those who lock: nothing but what SECURITY.md says.
package hostile

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m)
}

// dial returns a client that is closed when the test ends.
func dial(t testing.TB, addr string, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	cfg := redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{addr}}, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	c, err := redlatch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// within is a ctx for a call that must not take long.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// java is an owner of Redisson's, by number.
const java = "6d4e6c1a-0000-4000-8000-00000000000a:"

// dialRaw returns a client of the library alone.
func dialRaw(t testing.TB, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
