package borrow

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// shapes are options that applications use and New would refuse or change.
var shapes = map[string]func(*rueidis.ClientOption){
	"defaults":              func(*rueidis.ClientOption) {},
	"many connections":      func(o *rueidis.ClientOption) { o.PipelineMultiplex = 3 },
	"no pipelining":         func(o *rueidis.ClientOption) { o.DisableAutoPipelining = true },
	"always pipelining":     func(o *rueidis.ClientOption) { o.AlwaysPipelining = true },
	"RESP2":                 func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
	"no retry":              func(o *rueidis.ClientOption) { o.DisableRetry = true },
	"tracking by broadcast": func(o *rueidis.ClientOption) { o.ClientTrackingOptions = []string{"PREFIX", "app:", "BCAST"} },
}

// locks makes one lock of each kind.
func locks(c *redlatch.Client, name string) map[string]redlatch.Locker {
	rw := c.ReadWriteLock(name + "rw")
	return map[string]redlatch.Locker{
		"rlock": c.RLock(name+"r", redlatch.Fenced()), "fair": c.FairLock(name + "f"),
		"read": rw.ReadLock(), "write": rw.WriteLock(),
		"multi": redlatch.MultiLock(c.RLock("{"+name+"}1"), c.RLock("{"+name+"}2")),
	}
}

// Every kind works through a client of any shape, also when it has to be waited for, and
// the client is as good as before when the locks are closed.
func TestEveryKindThroughEveryShape(t *testing.T) {
	t.Parallel()
	for shape, change := range shapes {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			client, opt := app(t, s.Addr(), change)
			a := with(t, client, func(c *redlatch.Config) { c.Redis = opt })
			b := with(t, client) // two Clients may share one
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			others := locks(b, "x")
			for kind, l := range locks(a, "x") {
				h, err := l.Lock(ctx)
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				if kind == "read" {
					others[kind] = others["write"] // readers would not wait
				}
				got := make(chan error, 1)
				go func() {
					h, err := others[kind].Lock(ctx)
					if err == nil {
						err = h.Unlock(ctx)
					}
					got <- err
				}()
				deadline := time.Now().Add(patience)
				for len(s.List(t, "PUBSUB", "CHANNELS")) == 0 && time.Now().Before(deadline) {
					time.Sleep(time.Millisecond)
				}
				if err := h.Unlock(ctx); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				if err := <-got; err != nil {
					t.Errorf("%s, the waiter: %v", kind, err)
				}
			}
			b.Close()
			works(t, client)
			if err := a.RLock("after").Do(ctx, func(context.Context) error { return nil }); err != nil {
				t.Errorf("a's lock after b was closed: %v", err)
			}
			a.Close()
			works(t, client)
		})
	}
}

// The application's own deadlines break connections that the locks share, and cancelled
// acquisitions overtake each other on several connections: sections stay exclusive, and
// nothing is left behind.
func TestExclusionBesideAnApplicationThatCancels(t *testing.T) {
	t.Parallel()
	s := server(t)
	client, _ := app(t, s.Addr(), func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 })
	c := with(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stop := make(chan struct{})
	var noise, wg sync.WaitGroup
	noise.Go(func() { // the application: deadlines that pass
		for {
			select {
			case <-stop:
				return
			default:
			}
			short, end := context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Microsecond)
			_ = client.Do(short, client.B().Get().Key("app:data").Build()).Error()
			end()
		}
	})
	const workers, rounds = 6, 40
	count, took := 0, 0 // guarded by the lock
	for range workers {
		wg.Go(func() {
			for range rounds {
				short, end := context.WithTimeout(ctx, time.Duration(rand.IntN(20000))*time.Microsecond)
				h, err := c.RLock("counter-lock").Lock(short)
				if err != nil {
					end()
					if _, waited := errors.AsType[*redlatch.NotAcquiredError](err); !waited {
						t.Error(err)
					}
					continue
				}
				was := count
				time.Sleep(50 * time.Microsecond)
				count = was + 1
				took++
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
				end()
			}
		})
	}
	wg.Wait()
	close(stop)
	noise.Wait()
	if count != took || took == 0 {
		t.Errorf("counted %d of %d", count, took)
	}
	t.Logf("%d of %d acquired", took, workers*rounds)
}

// Options that a client of the application's makes meaningless are refused, each by its name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := server(t)
	client, _ := app(t, s.Addr())
	for option, change := range map[string]func(*redlatch.Config){
		"Redis.ConnLifetime": func(c *redlatch.Config) { c.Redis.ConnLifetime = time.Hour },
		"Redis.ReplicaOnly":  func(c *redlatch.Config) { c.Redis.ReplicaOnly = true },

		"Redis.Standalone.EnableRedirect": func(c *redlatch.Config) { c.Redis.Standalone.EnableRedirect = true },

		"Redis.BlockingPoolSize":  func(c *redlatch.Config) { c.Redis.BlockingPoolSize = 1 },
		"Redis.RingScaleEachConn": func(c *redlatch.Config) { c.Redis.RingScaleEachConn = 9 },
		"Redis.ConnWriteTimeout": func(c *redlatch.Config) { // the default of 10 s
			c.LeaseTime, c.Redis.InitAddress = 15*time.Second, []string{s.Addr()}
		},
		"Redis.Dialer.KeepAlive": func(c *redlatch.Config) { c.Redis.Dialer.KeepAlive = -1 },
		"LeaseTime":              func(c *redlatch.Config) { c.LeaseTime = -1 },
		"ClientBuilder": func(c *redlatch.Config) {
			c.ClientBuilder = rueidis.NewClient
		},
	} {
		var cfg redlatch.Config
		change(&cfg)
		c, err := redlatch.NewWithClient(client, cfg)
		var refused *redlatch.InvalidOptionError
		if c != nil || !errors.As(err, &refused) || refused.Option != option || refused.Reason == "" {
			t.Errorf("%s: %v", option, err)
		}
	}
	if _, err := redlatch.NewWithClient(nil, redlatch.Config{}); !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Error(err)
	}
	works(t, client)
}

// A client that sends scripts to a replica is found out, though its options are not told.
func TestAReplicaIsRefused(t *testing.T) {
	t.Parallel()
	set := testbed.Replicas(t, 1)
	client, _ := app(t, set.Replicas()[0].Addr(), func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
	c, err := redlatch.NewWithClient(client, redlatch.Config{})
	var refused *redlatch.InvalidOptionError
	if c != nil || !errors.As(err, &refused) || !strings.Contains(refused.Reason, "replica") {
		t.Error(err)
	}
	works(t, client)
}

// A user without the permission for the probe's key is not refused for it.
func TestTheProbeNeedsNoPermission(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.SetUser(t, "app", "on", ">secret",
		"~app:*", "~redisson_lock_token:{app:*", "~redlatch_void:{app:*", "~redlatch_trace:{app:*", "~redlatch_wait:{app:*", "&redisson_lock__channel:{app:*", "&redlatch_wake:{app:*",
		"+time", "+zadd", "+zpopmin", "+zrem",
		"+hello", "+ping", "+eval", "+evalsha", "+subscribe", "+unsubscribe", "+publish",
		"+exists", "+hset", "+pexpire", "+hexists", "+hget", "+pttl", "+hkeys", "+hdel", "+sismember", "+sadd")
	client, _ := app(t, s.Addr(), func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.DisableCache = "app", "secret", true
	})
	for prefix, name := range map[string]string{"": "app:x", "app:": "x"} {
		c := with(t, client, func(c *redlatch.Config) { c.Prefix = prefix })
		if err := c.RLock(name).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("with prefix %q: %v", prefix, err)
		}
		c.Close()
	}
}

// A client whose server is gone is refused as unavailable.
func TestAServerThatIsGone(t *testing.T) {
	t.Parallel()
	s := testbed.Standalone(t)
	client, _ := app(t, s.Addr())
	s.Kill(t)
	c, err := redlatch.NewWithClient(client, redlatch.Config{})
	if c != nil || !errors.Is(err, redlatch.ErrUnavailable) {
		t.Error(err)
	}
}

// marked waits until the goroutine that the test has marked with its name is in a function.
func marked(t *testing.T, function string) {
	t.Helper()
	for end := time.Now().Add(patience); testbed.MarkedIn(t.Name(), function) == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nobody is in %s", function)
		}
	}
}

// Close does not wait for a server that stands still, though nobody closes the connection.
func TestCloseBesideAFrozenServer(t *testing.T) {
	t.Parallel()
	s := server(t)
	client, _ := app(t, s.Addr())
	c := with(t, client, func(c *redlatch.Config) { c.UnlockTimeout = 300 * time.Millisecond })
	h, err := c.RLock("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Freeze(t)
	got := make(chan error, 1)
	testbed.Mark(t.Name(), func() {
		go func() { // ends with c
			_, err := c.RLock("other").Lock(context.Background())
			got <- err
		}()
	})
	marked(t, "(*Call).Wait") // its command is on its way
	began := time.Now()
	c.Close()
	if took := time.Since(began); took > 10*time.Second { // the server stands still until it has returned
		t.Errorf("Close took %v", took)
	}
	if err := <-got; !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, redlatch.ErrClosed) {
		t.Error(cause)
	}
	s.Thaw(t)
	works(t, client)
	s.Do(t, "DEL", "held", "other") // left to their leases
	if n := s.Int(t, "EXISTS", luascript.TraceKey("held")); n != 0 {
		t.Error("a trace without a span")
	}
}

// A question of an operator's has a limit: when that passes, the application's own command, which waits
// behind it on the same connection, goes on waiting for its answer.
func TestALimitEndsNoCommandOfTheApplication(t *testing.T) {
	t.Parallel()
	s := server(t)
	client, _ := app(t, s.Addr(), func(o *rueidis.ClientOption) { o.DisableRetry = true })
	c := with(t, client, func(c *redlatch.Config) { c.UnlockTimeout = time.Second })
	get := func() error {
		// A ctx that can't end: on a new connection such a command is not pipelined, nor is then the next
		// one, if it has a deadline.
		err := client.Do(context.Background(), client.B().Get().Key("app:data").Build()).Error()
		if rueidis.IsRedisNil(err) {
			return nil
		}
		return err
	}
	s.Do(t, "CLIENT", "KILL", "TYPE", "normal") // the locks have made the library pipeline on the first one
	deadline := time.Now().Add(patience)
	for err := get(); err != nil; err = get() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	s.Freeze(t)
	listed := make(chan error, 1)
	testbed.Mark(t.Name(), func() {
		go func() { // ends with the list's limit
			for _, err := range c.Locks(context.Background(), "") {
				listed <- err
				return
			}
			listed <- nil
		}()
	})
	for len(listed) == 0 && testbed.MarkedIn(t.Name(), "(*pipe).Do") == 0 { // until its SCAN is on its way
		time.Sleep(time.Millisecond) // it ends with its limit, at the latest
	}
	got := make(chan error, 1)
	go func() { got <- get() }()
	began := time.Now()
	if err := <-listed; !errors.Is(err, redlatch.ErrUnavailable) {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the list gave up after %v", took)
	}
	select {
	case err := <-got:
		t.Fatalf("the application's command ended with the list: %v", err)
	case <-time.After(200 * time.Millisecond): // a connection that is closed tells those who wait there at once
	}
	s.Thaw(t)
	if err := <-got; err != nil {
		t.Errorf("the application's command: %v", err)
	}
	works(t, client)
}

// The application has taken every connection of the pool: a waiter can't subscribe, but it
// can leave, and Close does not wait for the pool.
func TestAnExhaustedPool(t *testing.T) {
	t.Parallel()
	s := server(t)
	client, _ := app(t, s.Addr(), func(o *rueidis.ClientOption) { o.BlockingPoolSize = 2 })
	holder, waiter := with(t, client), with(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := holder.RLock("a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var taken []func()
	for range 2 {
		_, release := client.Dedicate()
		taken = append(taken, release)
	}
	got := make(chan error, 1)
	testbed.Mark(t.Name(), func() {
		go func() { // ends with waiter
			_, err := waiter.RLock("a").Lock(ctx)
			got <- err
		}()
	})
	marked(t, "(*acquisition).sleep") // it has found the lock busy, and its subscription waits for the pool
	closed := make(chan struct{})
	go func() {
		waiter.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("Close waits for the pool")
	}
	if err := <-got; !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
	for _, release := range taken {
		release()
	}
	if err := h.Unlock(ctx); err != nil {
		t.Error(err)
	}
	works(t, client)
}

// What is held survives a failover, and waiters go over: the client's master is watched
// without a hook in its dialling.
func TestSentinelFailover(t *testing.T) {
	const lease = 6 * time.Second
	set := testbed.Sentinel(t)
	opt := rueidis.ClientOption{
		InitAddress: set.SentinelAddrs(), ConnWriteTimeout: time.Second,
		Sentinel: rueidis.SentinelOption{MasterSet: testbed.MasterName},
	}
	client, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var refused *redlatch.InvalidOptionError
	if _, err := redlatch.NewWithClient(client, redlatch.Config{Redis: opt}); !errors.As(err, &refused) ||
		refused.Option != "Redis.Sentinel.TopologyRefreshInterval" {
		t.Error(err)
	}
	opt.Sentinel.TopologyRefreshInterval = 500 * time.Millisecond
	client, err = rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	change := func(c *redlatch.Config) { c.LeaseTime, c.Redis = lease, opt }
	a, b := with(t, client, change), with(t, client, change)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	h, err := a.RLock("held").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		h, err := b.RLock("held").Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		got <- err
	}()
	// One whose renewal is not due for long shows that the move itself is noticed.
	const long = 90 * time.Second
	patient := with(t, client, func(c *redlatch.Config) { c.LeaseTime, c.Redis = long, opt })
	began := time.Now()
	still, err := patient.RLock("still").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	set.AwaitSync(t)
	next := set.Failover(t)
	for next.Int(t, "PTTL", "still") < (long - time.Since(began) + 500*time.Millisecond).Milliseconds() {
		if time.Since(began) > long/6 {
			t.Fatal("the lease was not made whole on the new master before it was due")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := still.Unlock(ctx); err != nil {
		t.Error(err)
	}
	patient.Close()
	channel := luascript.CallChannel("held") + "*"
	deadline := time.Now().Add(lease)
	for len(next.List(t, "PUBSUB", "CHANNELS", channel)) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the waiter does not listen to the new master")
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(lease + lease/2) // what the old master promised has ended
	if err := h.Unlock(ctx); err != nil {
		t.Errorf("the lock did not survive the failover: %v", err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	a.Close()
	b.Close()
	works(t, client)
}

// On a cluster the subscriptions are sharded and the client's nodes are used as they are.
func TestCluster(t *testing.T) {
	cluster := testbed.Cluster(t)
	client, opt := app(t, cluster.Addrs()[0])
	c := with(t, client, func(c *redlatch.Config) { c.Redis = opt })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range []string{"a", "b", "c", "d"} {
		for kind, l := range locks(c, name) {
			h, err := l.Lock(ctx)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if err := h.Unlock(ctx); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
	c.Close()
	works(t, client)
}
