package redlatchtest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
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
			if _, err := client.RLock("orders:42").Lock(ctx); !errors.Is(err, redlatch.ErrNotAcquired) && !errors.Is(err, redlatch.ErrUnavailable) {
				t.Error(err)
			}
		}
		server.Take("orders:42")
		lock(20 * time.Second) // busy
		server.Down()
		lock(3 * time.Second) // a blip
		if n := told(); n != 0 {
			t.Errorf("told %d times of no outage:\n%s", n, &log)
		}
		go lock(90 * time.Second) // from second 5 on: at 5 and 65
		lock(90 * time.Second)
		if n := told(); n != 2 || !strings.Contains(log.String(), "lock=orders:42") || !strings.Contains(log.String(), "error=") {
			t.Errorf("told %d times in 90 seconds:\n%s", n, &log)
		}
		server.Up()
	})
}
