package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// looked is what one look at the server came to: top and the page show what one said.
type looked struct {
	began time.Time
	took  time.Duration
	locks []redlatch.Inspection          // the first ones by name
	more  int                            // locks that there are besides
	open  map[string]redlatch.Inspection // those that were looked at in depth, by the names given
	err   error
}

// lookAll looks at all locks, and at some in depth: what can't be read of one of these is its Problem.
func lookAll(ctx context.Context, client *redlatch.Client, pattern string, open ...string) *looked {
	l := &looked{began: time.Now(), open: map[string]redlatch.Inspection{}}
	l.locks, l.more, l.err = list(ctx, client, pattern, maxListed)
	for _, name := range open {
		if _, have := l.open[name]; have || name == "" || l.err != nil {
			continue
		}
		in, err := look(ctx, client, name)
		switch {
		case isGone(err):
			l.err = err
		case err != nil:
			in.Kind, in.Problem = redlatch.KindUnknown, message(err)
		}
		in.Name, l.open[name] = name, in
	}
	for i, in := range l.locks { // the whole one, where there is one
		if whole := l.open[in.Name]; whole.Held() {
			l.locks[i] = whole
		}
	}
	l.took = time.Since(l.began)
	return l
}

// isGone reports whether the server could not be reached.
func isGone(err error) bool { return errors.Is(err, redlatch.ErrUnavailable) }

// maxListed and maxMemory bound a list: more fills the memory, and nobody reads it.
const (
	maxListed = 10_000
	maxMemory = 32 << 20
)

// list collects the first locks by name, at most that many, and tells how many more there are.
func list(ctx context.Context, client *redlatch.Client, pattern string, most int) (locks []redlatch.Inspection, more int, err error) {
	locks = []redlatch.Inspection{}
	n, size := 0, 0
	for in, err := range client.Locks(ctx, pattern) {
		if err != nil {
			return nil, 0, err
		}
		n++
		locks = append(locks, shown(in))
		if size += sizeOf(in); len(locks) > 2*most || size > 2*maxMemory {
			locks, size = shorten(locks, most)
		}
	}
	locks, _ = shorten(locks, most)
	return locks, n - len(locks), nil
}

// shorten sorts locks by name and keeps the first ones: at most that many, in at most maxMemory; it tells how much.
func shorten(locks []redlatch.Inspection, most int) (kept []redlatch.Inspection, size int) {
	slices.SortFunc(locks, func(x, y redlatch.Inspection) int { return strings.Compare(x.Name, y.Name) })
	for i, in := range locks {
		n := sizeOf(in)
		if i == most || size+n > maxMemory {
			return slices.Clone(locks[:i]), size
		}
		size += n
	}
	return locks, size
}

// sizeOf is about the memory of what is known of a lock.
func sizeOf(in redlatch.Inspection) int {
	n := 300 + len(in.Name) + len(in.Key)
	for _, h := range in.Holders {
		n += 250 + len(h.Owner)
	}
	for _, w := range in.Queue {
		n += 200 + len(w.Owner)
	}
	return n
}
