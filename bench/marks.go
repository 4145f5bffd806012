package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// marks are not locks that anybody should use: they bound what a lock can reach.
var marks = []entry{
	{
		name:     "limit",
		what:     "bare SET NX PX and compare-and-delete with automatic pipelining; it cannot wait",
		role:     mark,
		open:     openLimit,
		commands: []string{"set"},
	},
	{
		name: "floor",
		what: "one token in a list, BLPOP to take and RPUSH to give back; no lease, no owner",
		role: mark,
		open: openFloor,
		prepare: func(ctx context.Context, a *admin, key string) error {
			return a.client().Do(ctx, a.client().B().Rpush().Key(key).Element("token").Build()).Error()
		},
		commands: []string{"blpop", "rpush"},
	},
}

func rueidisClient(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{addr},
		ForceSingleClient: true,
		DisableCache:      true,
	})
}

var compareAndDelete = rueidis.NewLuaScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// errBusy is what a contender that cannot wait says when it would have to.
var errBusy = errors.New("busy")

type limit struct {
	client  rueidis.Client
	leaseMs int64
	owner   string
	next    atomic.Uint64
}

func openLimit(e env) (contender, error) {
	client, err := rueidisClient(e.Addr())
	if err != nil {
		return nil, err
	}
	return &limit{
		client:  client,
		leaseMs: e.Lease.Milliseconds(),
		owner:   strconv.FormatInt(time.Now().UnixNano(), 36) + ":",
	}, nil
}

func (l *limit) Locker(key string) locker { return &limitLocker{limit: l, key: []string{key}} }
func (l *limit) Close()                   { l.client.Close() }

type limitLocker struct {
	*limit
	key []string
}

type limitHold struct {
	locker *limitLocker
	value  []string
}

func (l *limitLocker) Lock(ctx context.Context) (hold, error) {
	value := l.owner + strconv.FormatUint(l.next.Add(1), 36)
	err := l.client.Do(ctx, l.client.B().Set().Key(l.key[0]).Value(value).Nx().PxMilliseconds(l.leaseMs).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil, errBusy
	}
	if err != nil {
		return nil, err
	}
	return &limitHold{locker: l, value: []string{value}}, nil
}

func (h *limitHold) Unlock(ctx context.Context) error {
	n, err := compareAndDelete.Exec(ctx, h.locker.client, h.locker.key, h.value).AsInt64()
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("%s was not held", h.locker.key[0])
	}
	return nil
}

type floor struct{ client rueidis.Client }

func openFloor(e env) (contender, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{e.Addr()},
		ForceSingleClient: true,
		DisableCache:      true,
		// Each waiter blocks a connection of its own.
		BlockingPoolSize: 2048,
	})
	if err != nil {
		return nil, err
	}
	return &floor{client}, nil
}

func (f *floor) Locker(key string) locker { return &floorLocker{f, key} }
func (f *floor) Close()                   { f.client.Close() }

type floorLocker struct {
	*floor
	key string
}

func (l *floorLocker) Lock(ctx context.Context) (hold, error) {
	if err := l.client.Do(ctx, l.client.B().Blpop().Key(l.key).Timeout(0).Build()).Error(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *floorLocker) Unlock(ctx context.Context) error {
	return l.client.Do(ctx, l.client.B().Rpush().Key(l.key).Element("token").Build()).Error()
}
