package observe

import (
	"sync"
	"time"
)

// News tells the user's code (an observer, a log handler) what belongs to no call of the
// user's: losses, renewals, what went on in the background. One goroutine tells it all, one
// thing after the other, in order; it runs while there is something to tell. Nobody else
// waits for it, so code that blocks or is slow holds up nothing but later news.
//
// The zero value is empty. It is safe for concurrent use. Its mutex is a leaf.
type News struct {
	Guard *Guard // stops the panics of what is told

	mu      sync.Mutex
	queue   []func()      // guarded by mu; not told
	telling bool          // guarded by mu; the goroutine runs
	idle    chan struct{} // guarded by mu; closed when all is told; nil: nobody waits
}

// maxNews is how many news may wait before those are dropped that others follow. What is told once is
// kept: a loss, or the end of a span or of a hold, which a metric counts down. So code that never
// returns costs memory with each of those.
const maxNews = 1024

// Tell has something told, however much waits. It does not block.
func (n *News) Tell(tell func()) { n.add(tell, false) }

// TellOften is Tell for what is told again and again, as that a renewal worked. It is dropped
// while too much waits.
func (n *News) TellOften(tell func()) { n.add(tell, true) }

func (n *News) add(tell func(), often bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if often && len(n.queue) >= maxNews {
		return
	}
	n.queue = append(n.queue, tell)
	if !n.telling {
		n.telling = true
		go n.run() // ends when all is told
	}
}

func (n *News) run() {
	over := false
	defer func() {
		if !over { // a handler ended its goroutine: runtime.Goexit, as t.FailNow does
			go n.run()
		}
	}()
	for {
		tell := n.next()
		if tell == nil {
			over = true
			return
		}
		n.say(tell)
	}
}

func (n *News) say(tell func()) {
	defer n.Guard.Recover()
	tell()
}

// Late are arguments of a log line that ask code of the user's (the values of a context): who writes
// the line has them made, by Resolve.
type Late func() []any

// Resolve makes the late ones among the arguments of a log line.
func Resolve(args []any) []any {
	out := make([]any, 0, len(args)+4)
	for _, a := range args {
		if late, ok := a.(Late); ok {
			out = append(out, late()...)
			continue
		}
		out = append(out, a)
	}
	return out
}

// next is what to tell now; nil: nothing is left.
func (n *News) next() func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		n.queue, n.telling = nil, false
		if n.idle != nil {
			close(n.idle)
			n.idle = nil
		}
		return nil
	}
	tell := n.queue[0]
	n.queue[0] = nil
	n.queue = n.queue[1:]
	return tell
}

// Wait blocks until all is told.
func (n *News) Wait() {
	for {
		n.mu.Lock()
		if !n.telling {
			n.mu.Unlock()
			return
		}
		if n.idle == nil {
			n.idle = make(chan struct{})
		}
		idle := n.idle
		n.mu.Unlock()
		<-idle
	}
}

// Within waits for what wait waits for, but no longer than limit; it reports whether that
// was enough.
func Within(limit time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() { // ends with what it waits for
		wait()
		close(done)
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
