package multilock

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// silent is a server that nobody needs to ask.
type silent struct{}

func (silent) Topology() conn.Topology { return conn.Topology{} }
func (silent) Run(context.Context, conn.Command) (conn.Reply, error) {
	return conn.Reply{}, errors.New("nobody was to ask")
}

func (silent) RunMulti(_ context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	return make([]conn.Result, len(cmds))
}
func (silent) Node(uint16) string { return "" }
func (silent) Moved(string)       {}
func (silent) Dial(string, pubsub.Handler) (pubsub.Link, error) {
	return nil, errors.New("nobody was to ask")
}

// TestClosedClientsAreNotAsked: while the majority of a quorum's clients, or one that a MultiLock needs,
// is closed, no other one's server is asked, and no line joined.
func TestClosedClientsAreNotAsked(t *testing.T) {
	for name, combine := range map[string]func(...Member) *MultiLock{"all": New, "quorum": NewQuorum} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cores, locks := make([]*engine.Core, 3), make([]Member, 3)
				for i := range cores {
					cores[i] = engine.NewCore(engine.Config{
						ID: string(rune('a' + i)), LeaseTime: time.Minute, UnlockTimeout: time.Second, Log: slog.New(slog.DiscardHandler),
					}, silent{}, pubsub.NewHub(silent{}, nil))
					locks[i] = engine.Open(new(rlock.RLock), cores[i], "q")
					defer func() { cores[i].Close(); cores[i].Wait() }()
				}
				for _, c := range cores[:2] {
					c.Close()
				}
				began := time.Now()
				_, err := combine(locks...).Lock(t.Context())
				if !errors.Is(err, lock.ErrClosed) || time.Since(began) > 0 {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}
