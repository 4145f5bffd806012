package main

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"sync"

	"github.com/redis/rueidis"
)

// listener counts the messages of unlocks. It is safe for concurrent use.
type listener struct {
	mu     sync.Mutex
	counts map[string]int // guarded by mu; by the lock's key
	deaf   string         // guarded by mu; why it hears nothing
}

// channelOf is a channel of a lock: its key in braces, or one that contains a brace, and who is called.
var channelOf = regexp.MustCompile(`^\w+:(?:\{([^{]*)\}|(.*?))(?::[0-9a-f-]{36}(?::[^:]+)?)?$`)

// listen counts until ctx ends, or client. Each pattern is one more receiver of every message.
func (l *listener) listen(ctx context.Context, client rueidis.Client, clean func(string) string) {
	patterns := client.B().Psubscribe().Pattern("redisson_lock__channel:*", "redisson_rwlock:*", "redlatch_grant:*").Build()
	err := client.Receive(ctx, patterns, func(m rueidis.PubSubMessage) {
		l.mu.Lock()
		defer l.mu.Unlock()
		parts := channelOf.FindStringSubmatch(m.Channel)
		if parts != nil && len(l.counts) < maxListed {
			l.counts[exact(parts[1]+parts[2])]++
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = clean(message(cmp.Or(err, errors.New("the server has ended it"))))
}

// take moves the counts since the last call into a look, and tells why there are none.
func (l *listener) take(to *looked) (deaf string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to.heard, l.counts = l.counts, map[string]int{}
	return l.deaf
}
