package held

import (
	"context"
	"sync"

	"github.com/redlatch/redlatch/internal/sender"
)

// Gate lets one command at a time through, first come, first served. Unlike a
// sync.Mutex it may be left by another goroutine than the one that entered, and
// who waits can stop waiting.
type Gate struct {
	mu    sync.Mutex
	held  bool            // guarded by mu
	queue []chan struct{} // guarded by mu
}

// Enter blocks until the gate is free, ctx ends or stop is closed. It reports
// whether the gate is the caller's now.
func (g *Gate) Enter(ctx context.Context, stop <-chan struct{}) bool {
	g.mu.Lock()
	if !g.held {
		g.held = true
		g.mu.Unlock()
		return true
	}
	ch := make(chan struct{}, 1)
	g.queue = append(g.queue, ch)
	g.mu.Unlock()

	select {
	case <-ch:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	g.mu.Lock()
	for i, c := range g.queue {
		if c == ch {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			g.mu.Unlock()
			return false
		}
	}
	g.mu.Unlock()
	// The gate was given to us while we stopped waiting: pass it on.
	g.Leave()
	return false
}

// TryEnter takes the gate if it is free.
func (g *Gate) TryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held {
		return false
	}
	g.held = true
	return true
}

// start starts a call of one who has the gate. A panic of an observer's leaves it.
func (g *Gate) start(s *sender.Sender, c *sender.Call) {
	started := false
	defer func() {
		if !started {
			g.Leave()
		}
	}()
	s.Start(c)
	started = true
}

// Leave lets the next one in.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.held = false
		return
	}
	ch := g.queue[0]
	g.queue = append(g.queue[:0], g.queue[1:]...)
	ch <- struct{}{}
}
