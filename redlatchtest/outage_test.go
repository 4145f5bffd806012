package redlatchtest_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestAWaitThroughAnOutageIsLogged: a Lock that goes on trying while the server is away says so after some seconds, once a
// minute for all of the Client; a blip and a busy lock are no outage.
func TestAWaitThroughAnOutageIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		server := redlatchtest.NewServer(t)
		client := server.Client(redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		told := func() int {
			synctest.Wait()
			return strings.Count(log.String(), "acquiring failed, retrying")
		}
		lock := func(wait time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := client.RLock("orders:42").Lock(ctx)
			wants(t, err, redlatch.ErrNotAcquired, redlatch.ErrUnavailable)
		}
		server.Take("orders:42")
		lock(20 * time.Second) // busy
		server.Down()
		lock(3 * time.Second) // a blip
		testbed.Equal(t, told(), 0, "told of no outage:", &log)
		go lock(90 * time.Second) // from second 5 on: at 5 and 65
		lock(90 * time.Second)
		if n := told(); n != 2 || !strings.Contains(log.String(), "lock=orders:42") || !strings.Contains(log.String(), "error=") {
			t.Errorf("told %d times in 90 seconds:\n%s", n, &log)
		}
		server.Up()
	})
}
