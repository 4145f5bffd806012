package testbed

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/rueidis"
)

// FailSaves makes the server fail to save, from a moment on that it does not wait for: then
// the server refuses writes and PING (MISCONF). The function that it returns lets the server
// save again.
func (s *Server) FailSaves(tb TB) (end func()) {
	tb.Helper()
	name := filepath.Join(s.Hash(tb, "CONFIG", "GET", "dir")["dir"], "dump.rdb")
	if err := os.Mkdir(name, 0o700); err != nil { // a folder is in the file's way
		tb.Fatalf("testbed: %v", err)
	}
	s.Do(tb, "CONFIG", "SET", "save", "360000 1000000000")
	s.Do(tb, "BGSAVE")
	return func() {
		tb.Helper()
		s.Do(tb, "CONFIG", "SET", "save", "")
		for s.Info(tb, "persistence")["rdb_bgsave_in_progress"] != "0" {
			time.Sleep(poll)
		}
		if err := os.Remove(name); err != nil {
			tb.Fatalf("testbed: %v", err)
		}
	}
}

// Hang makes the server run a script without an end, from a moment on that it does not wait
// for: then the server refuses commands (BUSY). The function that it returns kills the script
// and returns once the server is free.
func (s *Server) Hang(tb TB) (end func()) {
	tb.Helper()
	s.Do(tb, "CONFIG", "SET", "lua-time-limit", "5")
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		ClientName: clientName, ConnWriteTimeout: time.Minute,
	})
	if err != nil {
		tb.Fatalf("testbed: connect to %s: %v", s.Addr(), err)
	}
	done := make(chan struct{})
	go func() { // until the script is killed
		defer close(done)
		_ = c.Do(context.Background(), c.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
	}()
	return func() {
		// It may not have begun yet, and is not killed before its limit.
		for ended := false; !ended; {
			_, _ = s.Try("SCRIPT", "KILL")
			select {
			case <-done:
				ended = true
			case <-time.After(poll):
			}
		}
		c.Close()
	}
}
