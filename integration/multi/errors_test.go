package multi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rlock"
)

// outcome is what an error must say of an acquisition that ended without a hold.
func outcome(t *testing.T, err error, notAcquired, unavailable bool) {
	t.Helper()
	if errors.Is(err, redlatch.ErrNotAcquired) != notAcquired || errors.Is(err, redlatch.ErrUnavailable) != unavailable {
		t.Errorf("not acquired should be %v, unavailable %v: %v", notAcquired, unavailable, err)
	}
	if err != nil && strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("more than one line: %q", err)
	}
}

// TestErrorsOfAMultiLock: a busy member and a server that is away are both told, of which the outage decides, within
// the wait. Nothing is kept on the other server, and who waits goes on when the one is back.
func TestErrorsOfAMultiLock(t *testing.T) {
	t.Parallel()
	list := servers(t, 2)
	m := across(clients(t, list))
	bed.Unlock(t, bed.Lock(t, t.Context(), m))
	h := bed.Lock(t, t.Context(), bed.Client(t, list[0].Addr()).RLock("a"))
	list[1].Kill(t)
	away := func(n redlatch.NodeError) bool { return n.Node == list[1].Addr() } // a busy machine's other one may be told of, too
	try := func(wait time.Duration) error {
		t.Helper()
		began := time.Now()
		_, err := m.TryLock(t.Context(), wait, 0)
		outcome(t, err, false, true)
		un, is := errors.AsType[*redlatch.UnavailableError](err)
		if took := time.Since(began); !is || !slices.ContainsFunc(un.Nodes, away) || took > wait+3*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		return err
	}
	err := try(0)
	busy, is := errors.AsType[*redlatch.NotAcquiredError](err)
	if !is || busy.Holder == "" || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), "[a b]") {
		t.Errorf("details %v", err)
	}
	bed.Unlock(t, h)
	free(t, list[0], "a")
	_ = try(0)
	free(t, list[0], "a")
	_ = try(500 * time.Millisecond)
	becomeFree(t, "a", list[0]) // given back in the background when the wait is over
	got := bed.Async(t.Context(), m)
	list[1].Restart(t, testbed.Empty)
	bed.Unlock(t, bed.Hold(t, got))
}

// While the server of one member does not answer, the others are not held for the MultiLocks that wait for it, but for
// a moment; if it is several servers, the error names each.
func TestNothingIsHeldBesideASilentServer(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	m, single := across(clients(t, list)), bed.Client(t, list[0].Addr()).RLock("a")
	bed.Unlock(t, bed.Lock(t, t.Context(), m))
	for _, s := range list[1:] {
		s.Freeze(t)
	}
	const crowd = 6
	done := make(chan error, crowd)
	for range crowd {
		go func() { done <- m.Do(t.Context(), func(context.Context) error { return nil }) }()
	}
	began := time.Now()
	for range 12 {
		bed.Unlock(t, bed.Lock(t, t.Context(), single))
		time.Sleep(10 * time.Millisecond) // else the others hardly come between
	}
	if took := time.Since(began); took > 6*time.Second { // a second, for the first attempts; each took one
		t.Errorf("twelve turns took %v", took)
	}
	_, err := m.TryLock(t.Context(), 2500*time.Millisecond, 0)
	for _, s := range list[1:] {
		if !errors.Is(err, redlatch.ErrUnavailable) || !strings.Contains(err.Error(), s.Addr()) {
			t.Errorf("%v does not name %s", err, s.Addr())
		}
		s.Thaw(t)
	}
	for range crowd {
		bed.Want(t, <-done, nil)
	}
}

// A MultiLock whose members have equal names asks the servers who they are, to order them, within
// the wait.
func TestErrorsOfEqualNames(t *testing.T) {
	t.Parallel()
	list := servers(t, 2)
	m := redlatch.MultiLock(copies(clients(t, list), "x")...) // silent is what has not answered for a second
	list[1].Freeze(t)
	// One server is asked after the other: the longer wait leaves a second after a late answer of the first.
	for _, wait := range []time.Duration{20 * time.Millisecond, 2500 * time.Millisecond} {
		began := time.Now()
		_, err := m.TryLock(t.Context(), wait, 0)
		took := time.Since(began)
		late := took >= time.Second // the machine stood still, and silence may be told of
		silent := wait > time.Second || late && errors.Is(err, redlatch.ErrUnavailable)
		outcome(t, err, !silent, silent)
		testbed.AtMost(t, took, wait+2*time.Second, "a wait of", wait, "took")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Lock(ctx)
	outcome(t, err, false, true)
	bed.Want(t, err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "[x ×2]") {
		t.Errorf("it does not say of how many copies: %v", err)
	}
	list[1].Thaw(t)
	bed.Unlock(t, bed.Lock(t, t.Context(), m))
}

// database is one of a server.
func database(n int) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.Redis.SelectDB = n }
}

// borrowers are clients on an application's connections to a server's database 1, of which one says that it is that
// one, and one says nothing.
func borrowers(t *testing.T, s *testbed.Server) []*redlatch.Client {
	t.Helper()
	opt := rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true, ForceSingleClient: true, SelectDB: 1}
	raw, err := rueidis.NewClient(opt)
	bed.Want(t, err, nil)
	t.Cleanup(raw.Close)
	var out []*redlatch.Client
	for _, said := range []rueidis.ClientOption{opt, {}} {
		c, err := redlatch.NewWithClient(raw, redlatch.Config{Redis: said, Logger: slog.New(slog.DiscardHandler)})
		bed.Want(t, err, nil)
		t.Cleanup(c.Close)
		out = append(out, c)
	}
	return out
}

// A lock is busy for another client though its holder, who got it together with a member of this MultiLock, asks: that
// is no lock named twice.
func TestAMemberThatItsOwnerHoldsByAnotherClientIsBusy(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c, other, job := bed.Client(t, s.Addr()), bed.Client(t, s.Addr()), redlatch.WithOwner(t.Context(), "job")
	both := bed.Lock(t, job, redlatch.MultiLock(plain(c, "a", "b")...))
	m := redlatch.MultiLock(c.RLock("a"), other.RLock("b"))
	_, err := m.TryLock(job, 0, 0)
	outcome(t, err, true, false)
	got := bed.Async(job, m)
	bed.Unlock(t, both)
	bed.Unlock(t, bed.Hold(t, got))
}

// What can't be one lock is refused, with the reason, by the first call: also what is one lock twice, through clients
// of one database, though an application's client does not say which one it uses.
func TestCompositionErrors(t *testing.T) {
	t.Parallel()
	s := bed.Server(t, "text")
	c, other := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
	one, alsoOne := bed.Client(t, s.Addr(), database(1)), bed.Client(t, s.Addr(), database(1))
	there := bed.Server(t).Addr()
	elsewhere, alsoThere := bed.Client(t, there), bed.Client(t, there)
	borrowed := borrowers(t, s)
	s.Do(t, "SET", "text", "x")
	fenced, rw := redlatch.Fenced(), c.ReadWriteLock("rw")
	fencedRW, otherRW := c.ReadWriteLock("rw", fenced), elsewhere.ReadWriteLock("rw")
	var nobody *rlock.RLock
	for sentinel, locks := range map[error]map[string]*multiLock{
		redlatch.ErrInvalidOption: {
			"no member":                        redlatch.MultiLock(),
			"nil":                              redlatch.MultiLock(c.RLock("a"), nil),
			"a nil lock":                       redlatch.MultiLock(nobody),
			"a zero value":                     new(multiLock),
			"a zero member":                    redlatch.MultiLock(new(rlock.RLock)),
			"a zero MultiLock":                 redlatch.MultiLock(c.RLock("a"), new(multiLock)),
			"a zero MultiLock, embedded":       redlatch.MultiLock(c.RLock("a"), new(named)),
			"quorum of zero members":           redlatch.QuorumLock(new(rlock.RLock), new(multiLock)),
			"one lock by two clients":          redlatch.MultiLock(c.RLock("a"), other.RLock("a")),
			"one quorum by two clients each":   redlatch.MultiLock(quorum([]*redlatch.Client{c, elsewhere}, "a"), quorum([]*redlatch.Client{other, alsoThere}, "a")),
			"one database by two":              redlatch.MultiLock(c.RLock("a"), one.RLock("a"), alsoOne.RLock("a")),
			"a borrowed database":              redlatch.MultiLock(one.RLock("a"), borrowed[0].RLock("a")),
			"a borrowed database, not told":    redlatch.MultiLock(one.RLock("a"), borrowed[1].RLock("a")),
			"nested bad":                       redlatch.MultiLock(c.RLock("a"), redlatch.MultiLock()),
			"two kinds on one key":             redlatch.MultiLock(rw.WriteLock(), c.RLock("rw")),
			"two kinds on one key, fair":       redlatch.MultiLock(rw.WriteLock(), c.FairLock("rw")),
			"reads are fenced, writes not":     redlatch.MultiLock(fencedRW.ReadLock(), rw.WriteLock()), // the write lock is taken for both
			"writes not, reads are fenced":     redlatch.MultiLock(rw.WriteLock(), fencedRW.ReadLock()),
			"quorum of none":                   redlatch.QuorumLock(),
			"quorum of names":                  redlatch.QuorumLock(c.RLock("a"), other.RLock("b")),
			"quorum of one client's names":     redlatch.QuorumLock(plain(c, "a", "b")...),
			"quorum of one client's kinds":     redlatch.QuorumLock(rw.WriteLock(), c.RLock("rw")),
			"quorum of one client":             redlatch.QuorumLock(c.RLock("a"), c.RLock("a"), c.RLock("a")),
			"quorum on one server":             redlatch.QuorumLock(c.RLock("a"), other.RLock("a")),
			"quorum of databases":              redlatch.QuorumLock(c.RLock("a"), one.RLock("a"), elsewhere.RLock("a")),
			"quorum of fair":                   redlatch.QuorumLock(c.FairLock("a"), elsewhere.FairLock("a")),
			"quorum of kinds":                  redlatch.QuorumLock(c.RLock("a"), elsewhere.FairLock("a")),
			"quorum of a multi":                redlatch.QuorumLock(redlatch.MultiLock(plain(c, "a", "b")...)),
			"quorum, one is not fenced":        redlatch.QuorumLock(c.RLock("a", fenced), elsewhere.RLock("a")),
			"quorum, one reader is not fenced": redlatch.QuorumLock(fencedRW.ReadLock(), otherRW.ReadLock()),
			"quorum, one writer is not fenced": redlatch.QuorumLock(fencedRW.WriteLock(), otherRW.WriteLock()),
		},
		redlatch.ErrInvalidName: {
			"no name of one":          redlatch.MultiLock(plain(c, "a", "")...),
			"no names":                redlatch.MultiLock(plain(c, "", "")...),
			"no name of a quorum":     redlatch.QuorumLock(c.RLock(""), elsewhere.RLock("")),
			"a key that holds a text": redlatch.MultiLock(plain(c, "a", "b", "text")...),
		},
	} {
		for what, l := range locks {
			// With a wait: that two are one server is known when both have answered.
			_, err := l.TryLock(t.Context(), 10*time.Second, 0)
			if !errors.Is(err, sentinel) || strings.HasSuffix(what, "fenced") && !strings.Contains(err.Error(), "fenced") {
				t.Errorf("%s: %v, want %v", what, err, sentinel)
			}
			var option *redlatch.InvalidOptionError
			if errors.As(err, &option) && (option.Option == "QuorumLock") != strings.HasPrefix(what, "quorum") {
				t.Errorf("%s: %v, of another lock", what, err)
			}
			if strings.HasSuffix(what, "names") && !strings.Contains(err.Error(), "name") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	for _, l := range []*multiLock{redlatch.MultiLock(), new(multiLock)} {
		_, told := l.State(t.Context())
		_, freed := l.ForceUnlock(t.Context())
		bed.Want(t, told, redlatch.ErrInvalidOption)
		bed.Want(t, freed, redlatch.ErrInvalidOption)
	}
	free(t, s, "a", "b", "rw")
}

// named is a lock of the user's that embeds one of redlatch's.
type named struct{ *multiLock }

// A member that embeds a lock is that lock, also if that is a MultiLock or a quorum.
func TestEmbeddedMembers(t *testing.T) {
	t.Parallel()
	c := bed.Client(t, bed.Server(t).Addr())
	both, one := named{redlatch.MultiLock(plain(c, "a", "b")...)}, &named{redlatch.QuorumLock(c.RLock("q"))}
	h := bed.Lock(t, t.Context(), redlatch.MultiLock(both, struct{ *rlock.RLock }{c.RLock("c")}, one))
	testbed.Equal(t, h.Name(), "[[a b] c q]", "its name")
	bed.Unlock(t, h)
}

// One name in two databases is two locks of one server.
func TestSameNameInTwoDatabases(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	zero, one := bed.Client(t, s.Addr()), bed.Client(t, s.Addr(), database(1))
	m := redlatch.MultiLock(one.RLock("x"), zero.RLock("x"))
	others := copies([]*redlatch.Client{bed.Client(t, s.Addr()), bed.Client(t, s.Addr(), database(1))}, "x")
	h := bed.Lock(t, t.Context(), m)
	for _, c := range []*redlatch.Client{zero, one} {
		if st, err := c.RLock("x").State(t.Context()); err != nil || !st.Held {
			t.Errorf("%+v, %v", st, err)
		}
	}
	got := bed.Async(t.Context(), redlatch.MultiLock(others...))
	blocked(t, got)
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Hold(t, got))

	h = bed.Lock(t, t.Context(), others[1]) // in the second one alone
	_, err := m.TryLock(t.Context(), 0, 0)
	outcome(t, err, true, false)
	free(t, s, "x")
	bed.Unlock(t, h)
	for _, stranger := range append(borrowers(t, s), one) {
		bed.Unlock(t, bed.Lock(t, t.Context(), redlatch.MultiLock(stranger.RLock("x"), zero.RLock("x"))))
	}
}
