package clock

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// server is one whose wall clock the test sets.
type server struct {
	*testbed.Server

	clock *testbed.Clock
}

// start starts a server with a clock of its own.
func start(t *testing.T) *server {
	t.Helper()
	clock, env := testbed.NewClock(t)
	s := &server{testbed.StandaloneEnv(t, env), clock}
	testbed.LeakCheck(t, s.Server, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:"))
	return s
}

// step sets the server's clock to so far ahead of this machine's.
func (s *server) step(t *testing.T, ahead time.Duration) {
	t.Helper()
	s.clock.Set(t, ahead)
	sec, err := strconv.ParseInt(s.List(t, "TIME")[0], 10, 64)
	testbed.Must(t, err)
	if got := time.Until(time.Unix(sec, 0)); got < ahead-5*time.Second || got > ahead+5*time.Second {
		t.Fatalf("the server's clock is %v ahead, want %v", got, ahead)
	}
}
