package redlatchtest

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// addr is the server's name; nothing listens there.
const addr = "redlatchtest:6379"

// databases is how many Held and Lose look at: as many as a Redis has.
const databases = 16

// TB is the part of testing.TB that this package needs; *testing.T, *testing.B and
// *testing.F implement it.
type TB interface {
	Helper()
	Cleanup(f func())
	Context() context.Context
	Fatalf(format string, args ...any)
}

// New returns a real Client on its own server inside this process. Both end with the
// test. Use [NewServer] to inspect or break the server.
func New(tb TB, opts ...redlatch.ConfigOption) *redlatch.Client {
	tb.Helper()
	return NewServer(tb).Client(opts...)
}

// Server is a Redis inside this process. It is safe for concurrent use, except that
// methods that can end the test (Client, Take, Held, URL) belong to the test's goroutine.
type Server struct {
	tb    TB
	redis *miniredis.Miniredis
	clock *clock
	net   *network
	own   *network // leads to the server also while it is down, or frozen
	info  *info

	mu     sync.Mutex
	other  *redlatch.Client            // guarded by mu; made when needed
	eyes   [databases]*redlatch.Client // guarded by mu; made when needed: Held works after Other().Close()
	listen net.Listener                // guarded by mu; for URL
	accept sync.WaitGroup
}

// NewServer starts a server. It ends with the test, after its clients.
func NewServer(tb TB) *Server {
	tb.Helper()
	redis := miniredis.NewMiniRedis()
	clock := startClock(redis)
	s := &Server{tb: tb, redis: redis, clock: clock, net: newNetwork(clock.tick), own: newNetwork(clock.tick), info: newInfo()}
	first, err := s.redis.Dial()
	if err != nil {
		tb.Fatalf("redlatchtest: start the server: %v", err)
	}
	_ = first.Close() // it was needed to start a server that does not listen
	s.redis.Server().SetPreHook(s.info.hook)
	tb.Cleanup(s.close)
	return s
}

func (s *Server) close() {
	s.mu.Lock()
	if s.listen != nil {
		_ = s.listen.Close()
	}
	s.mu.Unlock()
	for _, n := range []*network{s.net, s.own} {
		n.set(func() { n.ended = true }, true)
	}
	s.redis.Close()
	s.accept.Wait()
}

// Options returns options for a rueidis client on this server: for the application's own
// data, or for redlatch.NewWithClient. The caller closes that client.
func (s *Server) Options() rueidis.ClientOption { return s.options(s.net) }

func (s *Server) options(over *network) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:       []string{addr},
		ForceSingleClient: true,
		DisableCache:      true,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return over.dial(s.redis.Server().ServeConn)
		},
	}
}

// Client returns a new Client on this server, closed when the test of [NewServer] ends: a Server keeps
// that test's TB, and its methods take none. A subtest that is to close its Clients makes a Server of its
// own. Clients behave like different processes. A Client logs nothing, unless an option sets a logger.
func (s *Server) Client(opts ...redlatch.ConfigOption) *redlatch.Client {
	s.tb.Helper()
	cfg := redlatch.Config{Redis: s.Options(), Logger: slog.New(slog.DiscardHandler)}
	for _, o := range opts {
		if o != nil {
			o(&cfg)
		}
	}
	c, err := redlatch.New(cfg)
	if err != nil {
		s.tb.Fatalf("redlatchtest: %v", err)
	}
	s.tb.Cleanup(c.Close)
	return c
}

// Other returns a Client that plays another process; the same one at every call.
func (s *Server) Other() *redlatch.Client {
	s.tb.Helper()
	return s.made(&s.other)
}

// made makes a Client at the first call.
func (s *Server) made(c **redlatch.Client, opts ...redlatch.ConfigOption) *redlatch.Client {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if *c == nil {
		*c = s.Client(opts...)
	}
	return *c
}

// Take takes RLock(name) as another process and returns the hold; unlock it to let others
// in. It ends the test if the lock is already held. With WithPrefix or a NameMapper, name
// is the resulting key. It is in database 0. For other kinds, lock with [Server.Other].
func (s *Server) Take(name string) redlatch.Hold {
	s.tb.Helper()
	h, err := s.Other().RLock(name).TryLock(context.WithoutCancel(s.tb.Context()), 0, 0)
	if err != nil {
		s.tb.Fatalf("redlatchtest: take %q: %v", name, err)
	}
	return h
}

// Held returns the held locks, sorted by name, with their keys as names, their modes and
// owners. It looks at all databases, 0 to 15, also while the server is down or frozen.
func (s *Server) Held() []redlatch.State {
	s.tb.Helper()
	var held []redlatch.State
	s.clock.tick()
	for db := range databases {
		for _, key := range s.redis.DB(db).Keys() {
			if state := s.look(db, key); state.Held {
				held = append(held, state)
			}
		}
	}
	slices.SortStableFunc(held, func(a, b redlatch.State) int { return strings.Compare(a.Name, b.Name) })
	return held
}

// look is the state of a lock; it is not held if it is none.
func (s *Server) look(db int, key string) redlatch.State {
	s.tb.Helper()
	fields, err := s.redis.DB(db).HKeys(key)
	if err != nil || !slices.ContainsFunc(fields, isOwner) {
		return redlatch.State{}
	}
	eye := s.made(&s.eyes[db], func(c *redlatch.Config) { c.Redis, c.Redis.SelectDB = s.options(s.own), db })
	look := eye.RLock(key).State
	if slices.Contains(fields, "mode") {
		look = eye.ReadWriteLock(key).State
	}
	state, err := look(context.WithoutCancel(s.tb.Context()))
	if err != nil {
		s.tb.Fatalf("redlatchtest: look at %q: %v", key, err)
	}
	return state
}

// isOwner tells a lock's fields, <uuid>:<owner>, from other data.
func isOwner(field string) bool {
	client, owner, ok := strings.Cut(field, ":")
	return ok && len(client) == 36 && strings.Count(client, "-") == 4 && owner != ""
}

// Lose removes the lock, of any kind, from the server, as a failover, a full memory or a
// careless DEL would. Neither its holder nor its waiters are notified: the holder's Client
// finds out at its next check, LeaseTime/3 later at most, and ends the hold's context with
// cause ErrLeaseLost. Lose reports whether the key existed, in any database from 0 to 15; it
// removes it from all of them.
func (s *Server) Lose(name string) bool {
	s.clock.tick()
	existed := false
	for db := range databases {
		existed = s.redis.DB(db).Del(name) || existed
	}
	return existed
}

// Down stops the server: connections break and new ones are refused, until Up. It keeps
// its data, and its clock runs on, so leases end meanwhile. A Client that got no answer meanwhile has something to
// take back: its Close tries that for up to UnlockTimeout, unless the server is Up.
func (s *Server) Down() { s.net.set(func() { s.net.down = true }, true) }

// Up brings the server back.
func (s *Server) Up() { s.net.set(func() { s.net.down = false }, false) }

// Freeze makes the server stand still: connections stay open and commands are accepted,
// but none is answered until Thaw. Then they run, however late.
func (s *Server) Freeze() { s.net.set(func() { s.net.frozen = true }, false) }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.net.set(func() { s.net.frozen = false }, false) }

// Restart breaks all connections and forgets all data, as a server without persistence
// does. Its run_id changes: a quorum does not count it until its client has seen the new one
// for LeaseTime.
func (s *Server) Restart() {
	s.net.set(func() { s.net.down = true }, true)
	s.redis.FlushAll()
	s.info.restart()
	s.Up()
}

// URL returns the server's address for redlatch.Open, other clients and other processes.
// The first call opens a loopback port. It can't be used in a bubble of testing/synctest,
// where connections of the operating system do not work.
func (s *Server) URL() string {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen == nil {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			s.tb.Fatalf("redlatchtest: %v", err)
		}
		s.listen = l
		s.accept.Go(func() { // ends when close closes the listener
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = s.net.join(c, s.redis.Server().ServeConn) // refused while the server is down
			}
		})
	}
	return "redis://" + s.listen.Addr().String()
}
