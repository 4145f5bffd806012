package sender

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/lease"
)

// Call is one command on its way. Fill in the first part, Start it, and either
// Wait for the answer or let Then have it. It must not be copied or used again
// before it has ended.
type Call struct {
	Cmd   conn.Command
	Class Class
	// Own says that Done is called although Then takes the answer. Else an observer hears of
	// the end of the command in the background.
	Own bool
	// Unseen: an observer hears nothing of it.
	Unseen bool
	// Ctx is for its values; it is not watched.
	Ctx context.Context
	// Then is called once with the answer by a goroutine of the sender's, so it does
	// not block. nil: somebody waits.
	Then func(*Call)
	// Signal is for Wait; nil: Start makes it. Once Wait has reported the answer, or Leave has
	// returned, it is empty and another call may have it.
	Signal chan struct{}

	// The answer. Sent is an instant before the first byte was written.
	Sent  time.Time
	Reply conn.Reply
	Err   error

	s    *Sender
	lane *lane
	end  func(error)
	slot uint16

	// guarded by lane.mu
	state     state
	signalled bool
	place     lease.Entry[*Call] // in the lane's queue, or among what is away
}

type state uint8

const (
	queued state = iota
	sent
	answered
	withdrawn
)

// Start hands the call over; it does not block. An observer is told of the command first, in
// the caller's goroutine; if that panics, nothing was handed over. (Of renewals and refreshes
// it hears as batches.)
func (s *Sender) Start(c *Call) {
	c.s = s
	c.lane, c.slot = s.laneOf(c.Cmd.Keys[0])
	if o := s.cfg.Observer; o != nil && c.Class != Renew && !c.Unseen {
		c.Ctx, c.end = o.Command(c.Ctx, c.Cmd.Script.Name, time.Time{})
	}
	if c.Then == nil && c.Signal == nil {
		c.Signal = make(chan struct{}, 1)
	}
	c.lane.start(c)
}

// Wait blocks until the answer is there (true). It returns false when ended, a ctx's Done, is closed,
// the deadline (if not zero) passes or the sender is interrupted: Leave must follow. The ctx may be the user's,
// and panic: who does not clean up behind that asks it before Start.
func (c *Call) Wait(ended <-chan struct{}, deadline time.Time) bool {
	if deadline.IsZero() {
		select {
		case <-c.Signal:
		case <-ended:
			return false
		}
	} else {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		select {
		case <-c.Signal:
		case <-t.C:
			return false
		case <-ended:
			return false
		}
	}
	c.lane.mu.Lock()
	over := c.state == answered
	c.lane.mu.Unlock()
	return over
}

// Done tells an observer of the end of an answered call, in the caller's goroutine: what
// others wait for comes before it.
func (c *Call) Done() {
	if end := c.end; end != nil {
		c.end = nil
		end(c.Err)
	}
}

// Left is what Leave found.
type Left uint8

const (
	// Answered says that the answer is there. Done must follow.
	Answered Left = iota
	// Withdrawn says that the command was never sent, and won't be.
	Withdrawn
	// Away says that the command was sent; its answer is then's.
	Away
)

// Leave ends the waiting. then gets the answer of a command that was sent; it
// may be nil.
func (c *Call) Leave(then func(*Call)) Left {
	l := c.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-c.Signal:
	default:
	}
	switch c.state {
	case answered:
		return Answered
	case queued:
		c.place.Remove()
		c.state, c.Err = withdrawn, context.Canceled
		c.s.tellEnd(c)
		return Withdrawn
	default:
		if then == nil {
			then = func(*Call) {}
		}
		c.Then = then
		return Away
	}
}
