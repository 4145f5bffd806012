package multi

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// opened makes clients by URLs, as a program does that knows of no option.
func opened(t *testing.T, addrs []string, opts ...redlatch.ConfigOption) []*redlatch.Client {
	t.Helper()
	out := make([]*redlatch.Client, len(addrs))
	for i, a := range addrs {
		c, err := redlatch.Open("redis://"+a, append(opts, redlatch.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			t.Fatalf("server %d: %v", i, err)
		}
		t.Cleanup(c.Close)
		out[i] = c
	}
	return out
}

// TestQuorumOpensWhileAServerIsAway: a program of three Opens and a QuorumLock starts while one server is down, or
// frozen. The lock works as soon as the process has watched the others for a lease, the missing server counts as
// unavailable, and joins when it comes.
func TestQuorumOpensWhileAServerIsAway(t *testing.T) {
	for name, away := range map[string]func(t *testing.T, s *testbed.Server) (back func()){
		"down": func(t *testing.T, s *testbed.Server) func() {
			s.Kill(t)
			return func() { s.Restart(t, testbed.Empty) }
		},
		"frozen": func(t *testing.T, s *testbed.Server) func() {
			s.Freeze(t)
			return func() { s.Thaw(t) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := servers(t, 3)
			back := away(t, list[1])
			cs := opened(t, addrs(list), redlatch.WithLeaseTime(3*time.Second))
			q := redlatch.QuorumLock(copies(cs, "q")...)
			h := bed.Lock(t, t.Context(), q)
			held(t, list[0], "q")
			held(t, list[2], "q")
			_, err := cs[1].RLock("alone").TryLock(t.Context(), 0, 0)
			want(t, err, redlatch.ErrUnavailable)
			if errors.Is(err, redlatch.ErrInvalidOption) {
				t.Error(err)
			}
			bed.Unlock(t, h)
			back()
			bed.Eventually(t, "a quorum with all three", func() bool {
				h := bed.Lock(t, t.Context(), q)
				defer bed.Unlock(t, h)
				return heldOn(t, list, "q") == 3
			})
			for _, s := range list {
				becomesFree(t, s, "q", "alone")
			}
		})
	}
}

// Who asks Open to connect is told at once that the server is not there.
func TestOpenMustConnect(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	s.Kill(t)
	c, err := redlatch.Open("redis://"+s.Addr(), redlatch.MustConnect())
	want(t, err, redlatch.ErrUnavailable)
	if c != nil {
		t.Error("a client beside an error")
	}
	s.Restart(t, testbed.Empty)
}

// A server that was not there when the Client was made, and turns out to be a node of a cluster,
// has its locks refused, with what to change: a client of single servers does not hear all messages
// there.
func TestOpenMeetsAClusterLate(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t)
	proxy := testbed.NewProxy(t, set.Addrs()[0])
	proxy.Refuse()
	c := opened(t, []string{proxy.Addr()})[0]
	_, err := c.RLock("l").TryLock(t.Context(), 0, 0)
	want(t, err, redlatch.ErrUnavailable)
	proxy.Admit(t)
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
	defer cancel()
	_, err = c.RLock("l").Lock(ctx)
	var refused *redlatch.ServerError
	var why *redlatch.ConnectError
	if !errors.As(err, &refused) || !errors.As(err, &why) || why.Reason != redlatch.ConnectTopology || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
	free(t, set.NodeOfKey(t, "l"), "l")
}
