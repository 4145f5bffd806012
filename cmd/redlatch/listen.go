package main

import (
	"context"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// listener counts the messages that unlocks publish, by the lock's key.
type listener struct {
	client rueidis.Client
	ends   context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	counts map[string]int // guarded by mu
}

// listen begins to count. Each pattern is one more receiver of every message.
func (a *app) listen(ctx context.Context) (*listener, error) {
	client, _, err := a.connect("top")
	if err != nil {
		return nil, err
	}
	if client.Mode() == rueidis.ClientModeCluster {
		client.Close()
		return nil, usageError("listen: on a cluster messages go over sharded channels, which have no patterns")
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{client: client, ends: cancel, done: make(chan struct{}), counts: map[string]int{}}
	cmd := client.B().Psubscribe().Pattern("redisson_lock__channel:*", "redisson_rwlock:*", "redlatch_grant:*").Build()
	go func() { // ends with close
		defer close(l.done)
		_ = client.Receive(ctx, cmd, func(m rueidis.PubSubMessage) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if key := exact(lockOf(m.Channel)); l.counts[key] > 0 || len(l.counts) < maxListed {
				l.counts[key]++
			}
		})
	}()
	return l, nil
}

// take returns the counts since the last call.
func (l *listener) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.counts
	l.counts = map[string]int{}
	return counts
}

func (l *listener) close() {
	l.ends()
	l.client.Close()
	<-l.done
}

// lockOf is the key of the lock that a channel belongs to.
func lockOf(channel string) string {
	prefix, key, _ := strings.Cut(channel, ":")
	if prefix == "redlatch_grant" {
		if i := strings.LastIndexByte(key, ':'); i >= 0 {
			key = key[:i]
		}
	}
	if m := called.FindStringIndex(key); m != nil && prefix == "redisson_lock__channel" {
		key = key[:m[0]] // a waiter of Redisson is called
	}
	if inner, ok := strings.CutPrefix(key, "{"); ok && strings.IndexByte(inner, '}') == len(inner)-1 {
		return inner[:len(inner)-1]
	}
	return key
}

// called is the owner at the end of a channel on which Redisson's waiters are called.
var called = regexp.MustCompile(`:[0-9a-f-]{36}:[^:]+$`)
