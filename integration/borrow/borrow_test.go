package borrow

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/acl"
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

// kinds are those that need one server.
func kinds() []bed.Kind {
	return slices.DeleteFunc(bed.Kinds(), func(k bed.Kind) bool { return k.Servers > 1 })
}

// Every kind works through a client of any shape, also when it has to be waited for, and the client is as good as before
// when the locks are closed.
func TestEveryKindThroughEveryShape(t *testing.T) {
	t.Parallel()
	for shape, change := range shapes {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			client, opt := app(t, s.Addr(), change)
			a := with(t, client, func(c *redlatch.Config) { c.Redis = opt })
			b := with(t, client) // two Clients may share one
			for _, k := range kinds() {
				h := bed.Lock(t, t.Context(), k.New([]*redlatch.Client{a}, k.Name))
				got := bed.Async(t.Context(), k.Excluded([]*redlatch.Client{b}, k.Name))
				bed.Eventually(t, "a subscription", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS")) > 0 })
				bed.Unlock(t, h)
				bed.Unlock(t, bed.Hold(t, got))
			}
			b.Close()
			works(t, client)
			bed.Unlock(t, bed.Lock(t, t.Context(), a.RLock("after")))
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
	s := bed.Server(t)
	client, _ := app(t, s.Addr(), func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 })
	c := with(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
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
				bed.Want(t, h.Unlock(ctx), nil)
				end()
			}
		})
	}
	wg.Wait()
	close(stop)
	noise.Wait()
	testbed.Equal(t, count, took, "the count")
	testbed.AtLeast(t, took, 1, "who had it")
	t.Logf("%d of %d acquired", took, workers*rounds)
}

// Options that a client of the application's makes meaningless are refused, each by its name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
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
		refused := bed.As[*redlatch.InvalidOptionError](t, err)
		if c != nil || refused.Option != option || refused.Reason == "" {
			t.Errorf("%s: %v", option, err)
		}
	}
	_, err := redlatch.NewWithClient(nil, redlatch.Config{})
	bed.Want(t, err, redlatch.ErrInvalidOption)
	works(t, client)
}

// A client that sends scripts to a replica is found out, though its options are not told.
func TestAReplicaIsRefused(t *testing.T) {
	t.Parallel()
	set := testbed.Replicas(t, 1)
	client, _ := app(t, set.Replicas()[0].Addr(), func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
	c, err := redlatch.NewWithClient(client, redlatch.Config{})
	if reason := bed.As[*redlatch.InvalidOptionError](t, err).Reason; c != nil || !strings.Contains(reason, "replica") {
		t.Error(err)
	}
	works(t, client)
}

// A user without the permission for the probe's key is not refused for it.
func TestTheProbeNeedsNoPermission(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	s.SetUser(t, "app", append([]string{"on", ">secret"}, acl.Rules("reentrant")...)...)
	client, _ := app(t, s.Addr(), func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.DisableCache = "app", "secret", true
	})
	for prefix, name := range map[string]string{"": "app:x", "app:": "x"} {
		c := with(t, client, func(c *redlatch.Config) { c.Prefix = prefix })
		bed.Want(t, c.RLock(name).Do(t.Context(), func(context.Context) error { return nil }), nil)
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

// A question of an operator's has a limit: when that passes, the application's own command, which waits
// behind it on the same connection, goes on waiting for its answer.
func TestALimitEndsNoCommandOfTheApplication(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
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
	bed.Eventually(t, "an answer", func() bool { return get() == nil })
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
	bed.Want(t, <-listed, redlatch.ErrUnavailable)
	testbed.AtMost(t, time.Since(began), 5*time.Second, "the list gave up after")
	select {
	case err := <-got:
		t.Fatalf("the application's command ended with the list: %v", err)
	case <-time.After(200 * time.Millisecond): // a connection that is closed tells those who wait there at once
	}
	s.Thaw(t)
	bed.Want(t, <-got, nil)
	works(t, client)
}

// The application has taken every connection of the pool: a waiter can't subscribe, but it
// can leave, and Close does not wait for the pool.
func TestAnExhaustedPool(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	client, _ := app(t, s.Addr(), func(o *rueidis.ClientOption) { o.BlockingPoolSize = 2 })
	holder, waiter := with(t, client), with(t, client)
	h := bed.Lock(t, t.Context(), holder.RLock("a"))
	var taken []func()
	for range 2 {
		_, release := client.Dedicate()
		taken = append(taken, release)
	}
	var got <-chan bed.Attempt
	testbed.Mark(t.Name(), func() { got = bed.Async(t.Context(), waiter.RLock("a")) })
	bed.Eventually(t, "it sleeps", func() bool { return testbed.MarkedIn(t.Name(), "(*acquisition).sleep") > 0 }) // it has found the lock busy, and its subscription waits for the pool
	closed := make(chan struct{})
	go func() {
		waiter.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(bed.Patience):
		t.Error("Close waits for the pool")
	}
	bed.Want(t, bed.Get(t, got).Err, redlatch.ErrClosed)
	for _, release := range taken {
		release()
	}
	bed.Unlock(t, h)
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
	client, _ := app(t, "", func(o *rueidis.ClientOption) { *o = opt })
	_, err := redlatch.NewWithClient(client, redlatch.Config{Redis: opt})
	option := bed.As[*redlatch.InvalidOptionError](t, err).Option
	testbed.Equal(t, option, "Redis.Sentinel.TopologyRefreshInterval", "what is refused")
	opt.Sentinel.TopologyRefreshInterval = 500 * time.Millisecond
	client, _ = app(t, "", func(o *rueidis.ClientOption) { *o = opt })
	change := func(c *redlatch.Config) { c.LeaseTime, c.Redis = lease, opt }
	a, b := with(t, client, change), with(t, client, change)
	h := bed.Lock(t, t.Context(), a.RLock("held"))
	got := bed.Async(t.Context(), b.RLock("held"))
	// One whose renewal is not due for long shows that the move itself is noticed.
	const long = 90 * time.Second
	patient := with(t, client, func(c *redlatch.Config) { c.LeaseTime, c.Redis = long, opt })
	began := time.Now()
	still := bed.Lock(t, t.Context(), patient.RLock("still"))
	set.AwaitSync(t)
	next := set.Failover(t)
	for next.Int(t, "PTTL", "still") < (long - time.Since(began) + 500*time.Millisecond).Milliseconds() {
		if time.Since(began) > long/6 {
			t.Fatal("the lease was not made whole on the new master before it was due")
		}
		time.Sleep(20 * time.Millisecond)
	}
	bed.Unlock(t, still)
	patient.Close()
	channel := luascript.CallChannel("held") + "*"
	bed.Eventually(t, "the waiter listens to the new master", func() bool { return len(next.List(t, "PUBSUB", "CHANNELS", channel)) > 0 })
	time.Sleep(lease + lease/2) // what the old master promised has ended
	bed.Unlock(t, h)            // it has survived the failover
	bed.Unlock(t, bed.Hold(t, got))
	a.Close()
	b.Close()
	works(t, client)
}

// On a cluster the subscriptions are sharded and the client's nodes are used as they are.
func TestCluster(t *testing.T) {
	cluster := testbed.Cluster(t)
	client, opt := app(t, cluster.Addrs()[0])
	c := with(t, client, func(c *redlatch.Config) { c.Redis = opt })
	for _, name := range []string{"a", "b", "c", "d"} {
		for _, k := range kinds() {
			bed.Unlock(t, bed.Lock(t, t.Context(), k.New([]*redlatch.Client{c}, "{"+name+"}"+k.Name)))
		}
	}
	c.Close()
	works(t, client)
}

// deaf is a client of the application's that can't be used for subscriptions.
type deaf struct{ rueidis.Client }

func (deaf) Dedicate() (rueidis.DedicatedClient, func()) { panic("not implemented") }

// A client that panics when it is asked to subscribe ends no process: who waits looks by himself.
func TestAClientThatCannotSubscribe(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	client, opt := app(t, s.Addr())
	other := bed.Client(t, s.Addr())
	built := bed.Client(t, s.Addr(), func(c *redlatch.Config) {
		c.ClientBuilder = func(opt rueidis.ClientOption) (rueidis.Client, error) {
			made, err := rueidis.NewClient(opt)
			return deaf{made}, err
		}
	})
	for what, c := range map[string]*redlatch.Client{
		"NewWithClient": with(t, deaf{client}, func(c *redlatch.Config) { c.Redis = opt }), "ClientBuilder": built,
	} {
		h := bed.Lock(t, t.Context(), other.RLock("a"))
		var got <-chan bed.Attempt
		testbed.Mark(t.Name()+what, func() { got = bed.Async(t.Context(), c.RLock("a")) })
		bed.Eventually(t, "it sleeps", func() bool { return testbed.MarkedIn(t.Name()+what, "(*acquisition).sleep") > 0 })
		bed.Unlock(t, h)
		bed.Unlock(t, bed.Hold(t, got))
		c.Close()
	}
	works(t, client)
}
