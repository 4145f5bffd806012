package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	rsredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/rueidis"
)

// redsyncPool lets redsync send its commands through a rueidis client, whose automatic pipelining serves many
// goroutines better than a pool of connections does. redsync's own adapter needs a further module for the same thing.
type redsyncPool struct{ client rueidis.Client }

func (p redsyncPool) Get(ctx context.Context) (rsredis.Conn, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	return redsyncConn{p.client, ctx}, nil
}

type redsyncConn struct {
	client rueidis.Client
	ctx    context.Context
}

func (c redsyncConn) Get(name string) (string, error) {
	value, err := c.client.Do(c.ctx, c.client.B().Get().Key(name).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return value, err
}

func (c redsyncConn) Set(name, value string) (bool, error) {
	err := c.client.Do(c.ctx, c.client.B().Set().Key(name).Value(value).Build()).Error()
	return err == nil, err
}

func (c redsyncConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	cmd := c.client.B().Set().Key(name).Value(value).Nx().PxMilliseconds(expiry.Milliseconds()).Build()
	err := c.client.Do(c.ctx, cmd).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

func (c redsyncConn) Eval(script *rsredis.Script, keysAndArgs ...any) (any, error) {
	words := make([]string, len(keysAndArgs))
	for i, v := range keysAndArgs {
		if s, ok := v.(string); ok {
			words[i] = s
		} else {
			words[i] = fmt.Sprint(v)
		}
	}
	keys, args := words[:script.KeyCount], words[script.KeyCount:]
	run := c.client.B().Evalsha().Sha1(script.Hash).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	v, err := c.client.Do(c.ctx, run).ToAny()
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		load := c.client.B().Eval().Script(script.Src).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
		v, err = c.client.Do(c.ctx, load).ToAny()
	}
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return v, err
}

func (c redsyncConn) ScriptLoad(script *rsredis.Script) error {
	hash, err := c.client.Do(c.ctx, c.client.B().ScriptLoad().Script(script.Src).Build()).ToString()
	if err == nil {
		script.Hash = hash
	}
	return err
}

func (c redsyncConn) PTTL(name string) (time.Duration, error) {
	ms, err := c.client.Do(c.ctx, c.client.B().Pttl().Key(name).Build()).AsInt64()
	return time.Duration(ms) * time.Millisecond, err
}

func (c redsyncConn) Close() error { return nil }
