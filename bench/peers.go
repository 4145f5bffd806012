package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// peers are the libraries that Go services use today. Each gets the settings under which it does best in these rows:
// one key instead of a majority of three, no notices about its own writes, the default size of a connection pool
// (larger ones were slower), and, where a library polls, an interval that suits the number of waiters; see manyWaiters.
var peers = []entry{
	{
		name: "rueidislock",
		what: "github.com/redis/rueidis/rueidislock, KeyMajority 1, NoLoopTracking",
		role: peer,
		open: openRueidislock,
	},
	{
		name:     "redsync",
		what:     "github.com/go-redsync/redsync/v4 over go-redis v9, retry every 10 ms, with many waiters its default",
		role:     peer,
		open:     openRedsync(goRedisPool),
		commands: []string{"set"},
	},
	{
		name:     "redsync-rueidis",
		what:     "the same over rueidis, which pipelines for it",
		role:     peer,
		open:     openRedsync(rueidisPool),
		commands: []string{"set"},
	},
	{
		name: "redislock",
		what: "github.com/bsm/redislock over go-redis v9, retry every 10 ms, with many waiters 100 ms",
		role: peer,
		open: openRedislock,
	},
}

// Libraries that poll do so every work.PollEvery. With more waiters than manyWaiters such an interval is the server's
// undoing (redsync falls from 10,000 acquisitions a second to 300), and they get a long one.
const (
	pollEveryMany = 100 * time.Millisecond
	manyWaiters   = 64
)

type rueidisLock struct{ locker rueidislock.Locker }

func openRueidislock(e env) (contender, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{e.Addr()}, ForceSingleClient: true},
		KeyMajority:    1,
		KeyValidity:    e.Lease,
		ExtendInterval: e.Lease / 3,
		NoLoopTracking: true,
		// Its limit for one command: the default of 20 ms is exceeded on a busy machine, and then costs a round.
		TryNextAfter: time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &rueidisLock{l}, nil
}

func (c *rueidisLock) Locker(key string) locker { return &rueidisLocker{c.locker, key} }
func (c *rueidisLock) Close()                   { c.locker.Close() }

type rueidisLocker struct {
	locker rueidislock.Locker
	key    string
}

type cancelHold context.CancelFunc

func (l *rueidisLocker) Lock(ctx context.Context) (hold, error) {
	_, cancel, err := l.locker.WithContext(ctx, l.key)
	if err != nil {
		return nil, err
	}
	return cancelHold(cancel), nil
}

func (h cancelHold) Unlock(context.Context) error {
	h()
	return nil
}

func goRedisClient(addr string) *goredislib.Client {
	return goredislib.NewClient(&goredislib.Options{Addr: addr})
}

func goRedisPool(addr string) (rsredis.Pool, func(), error) {
	client := goRedisClient(addr)
	return goredis.NewPool(client), func() { _ = client.Close() }, nil
}

func rueidisPool(addr string) (rsredis.Pool, func(), error) {
	client, err := rueidisClient(addr)
	if err != nil {
		return nil, nil, err
	}
	return redsyncPool{client}, client.Close, nil
}

type redSync struct {
	env
	sync *redsync.Redsync
	stop []func()
}

// openRedsync takes every server of the row: redsync is a quorum lock where it is given more than one.
func openRedsync(pool func(addr string) (rsredis.Pool, func(), error)) func(env) (contender, error) {
	return func(e env) (contender, error) {
		c := &redSync{env: e}
		var pools []rsredis.Pool
		for _, addr := range e.Addrs {
			p, stop, err := pool(addr)
			if err != nil {
				c.Close()
				return nil, err
			}
			pools, c.stop = append(pools, p), append(c.stop, stop)
		}
		c.sync = redsync.New(pools...)
		return c, nil
	}
}

// Locker makes one mutex per goroutine: a redsync.Mutex holds the value of its only owner.
func (c *redSync) Locker(key string) locker {
	options := []redsync.Option{redsync.WithExpiry(c.Lease), redsync.WithTries(1 << 30)}
	if c.Waiters <= manyWaiters {
		options = append(options, redsync.WithRetryDelay(work.PollEvery))
	} // else its default: random between 50 and 250 ms
	return &redsyncLocker{c.sync.NewMutex(key, options...)}
}

func (c *redSync) Close() {
	for _, stop := range c.stop {
		stop()
	}
}

type redsyncLocker struct{ mutex *redsync.Mutex }

func (l *redsyncLocker) Lock(ctx context.Context) (hold, error) {
	if err := l.mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *redsyncLocker) Unlock(ctx context.Context) error {
	ok, err := l.mutex.UnlockContext(ctx)
	if err == nil && !ok {
		return errors.New("redsync: the lock was not held")
	}
	return err
}

type redisLock struct {
	env
	redis   *goredislib.Client
	client  *redislock.Client
	options *redislock.Options
}

func openRedislock(e env) (contender, error) {
	client := goRedisClient(e.Addr())
	every := work.PollEvery
	if e.Waiters > manyWaiters {
		every = pollEveryMany
	}
	// Without state, and so to be shared by all.
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}
	return &redisLock{env: e, redis: client, client: redislock.New(client), options: options}, nil
}

func (c *redisLock) Locker(key string) locker {
	return &redislockLocker{c, key}
}

func (c *redisLock) Close() { _ = c.redis.Close() }

type redislockLocker struct {
	*redisLock
	key string
}

type redislockHold redislock.Lock

func (l *redislockLocker) Lock(ctx context.Context) (hold, error) {
	lock, err := l.client.Obtain(ctx, l.key, l.Lease, l.options)
	if err != nil {
		return nil, err
	}
	return (*redislockHold)(lock), nil
}

func (h *redislockHold) Unlock(ctx context.Context) error {
	return (*redislock.Lock)(h).Release(ctx)
}
