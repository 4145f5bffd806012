package hazard

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestServerThatRefusesWhileAClientUnsubscribes: it begins to refuse (its disk is full, a script
// does not end, it is a replica without its master) when the client has been told that it
// answers, and before it sees the UNSUBSCRIBE and what the client library sends behind it. The
// library takes such an answer for another one and panics in a goroutine of its own; so the
// connection has to end first. Whoever waits later is woken as ever.
func TestServerThatRefusesWhileAClientUnsubscribes(t *testing.T) {
	for _, refusal := range []struct {
		name  string
		begin func(t *testing.T, s *testbed.Server) (end func())
	}{
		{"MISCONF", noSave}, {"BUSY", endless}, {"MASTERDOWN", orphan},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			proxy := testbed.NewProxy(t, s.Addr())
			c, other := dial(t, proxy.Addr()), dial(t, s.Addr())
			hold := take(t, t.Context(), other.RLock("n"))
			left := proxy.StallRequest(testbed.Contains("UNSUBSCRIBE"))
			_, err := c.RLock("n").TryLock(t.Context(), 100*time.Millisecond, 0)
			is(t, "a short wait", err, redlatch.ErrNotAcquired)
			left.Wait(t)
			_, before := proxy.Connections()
			end := refusal.begin(t, s)
			left.Release()
			// It has lost that connection when it makes another one, or has none but the other.
			eventually(t, "the end of the connection that unsubscribed", func() bool {
				live, accepted := proxy.Connections()
				return accepted > before || live < 2
			})
			end()
			next := async(t.Context(), c.RLock("n"))
			eventually(t, "a listener", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS")) > 0 })
			unlock(t, hold)
			unlock(t, await(t, next).hold)
		})
	}
}

// noSave makes the server fail to save, so that it refuses writes and PING.
func noSave(t *testing.T, s *testbed.Server) (end func()) {
	t.Helper()
	name := filepath.Join(s.Hash(t, "CONFIG", "GET", "dir")["dir"], "dump.rdb")
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Do(t, "CONFIG", "SET", "save", "360000 1000000000")
	s.Do(t, "BGSAVE")
	eventually(t, "a save that fails", func() bool { return s.Info(t, "persistence")["rdb_last_bgsave_status"] == "err" })
	return func() {
		s.Do(t, "CONFIG", "SET", "save", "")
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// endless runs a script without an end, until it is killed.
func endless(t *testing.T, s *testbed.Server) (end func()) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		ClientName: "redlatch-testbed", ConnWriteTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Do(t, "CONFIG", "SET", "lua-time-limit", "5")
	done := make(chan struct{})
	go func() { // until the script is killed
		defer close(done)
		_ = c.Do(context.Background(), c.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
	}()
	eventually(t, "BUSY", func() bool {
		_, err := s.Try("PING")
		return err != nil
	})
	return func() {
		if _, err := s.Try("SCRIPT", "KILL"); err != nil {
			t.Error(err)
		}
		<-done
		c.Close()
	}
}

// orphan makes the server a replica of a master that is not there, without old data.
func orphan(t *testing.T, s *testbed.Server) (end func()) {
	t.Helper()
	s.Do(t, "CONFIG", "SET", "replica-serve-stale-data", "no")
	s.Do(t, "REPLICAOF", "127.0.0.1", "1")
	return func() { s.Do(t, "REPLICAOF", "NO", "ONE") }
}
