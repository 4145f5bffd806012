// Package batch puts what several locks need into few commands.
package batch

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/sender"
)

// MaxKeys bounds a command: the server does nothing else meanwhile.
const MaxKeys = 128

// Answer is what came back for one item.
type Answer struct {
	Vals []conn.Value
	Sent time.Time
	Err  error
}

// batch is one command in the making.
type batch struct {
	cmd     conn.Command
	members []int // indices of the items in it
}

// Send sends items, those of one script and slot together. It does not block: each
// is called for every item, by goroutines of the sender's, perhaps several at a
// time, and end once after that.
func Send(s *sender.Sender, cluster bool, items []kind.Item, ran func(cmd conn.Command, sent time.Time, err error),
	each func(i int, a Answer), end func(),
) {
	run := &sending{s: s, items: items, ran: ran, each: each, end: end}
	bs := batches(items, cluster)
	run.open.Store(int32(len(bs))) // #nosec G115 -- few
	for _, b := range bs {
		run.start(b)
	}
}

type sending struct {
	s     *sender.Sender
	items []kind.Item
	ran   func(conn.Command, time.Time, error)
	each  func(int, Answer)
	end   func()
	open  atomic.Int32 // commands without an answer
}

func (r *sending) start(b batch) {
	r.s.Start(&sender.Call{Cmd: b.cmd, Class: sender.Renew, Ctx: context.Background(), Then: func(c *sender.Call) { r.answered(b, c) }})
}

func (r *sending) answered(b batch, c *sender.Call) {
	if r.ran != nil {
		r.ran(b.cmd, c.Sent, c.Err)
	}
	switch first := r.items[b.members[0]]; {
	case conn.IsTryAgain(c.Err) && len(b.members) > 1 && !first.Shared:
		// A cluster refuses commands of several keys while it moves their slot and some
		// of the keys are here and some there. That can take longer than a lease: each
		// item goes on its own until then.
		r.open.Add(int32(len(b.members))) // #nosec G115 -- few
		for _, i := range b.members {
			it := r.items[i]
			r.start(batch{cmd: conn.Command{Script: it.Script, Keys: it.Keys, Args: it.Args}, members: []int{i}})
		}
	default:
		vals := c.Reply.Vals
		for _, i := range b.members {
			n := r.items[i].Replies
			switch {
			case c.Err != nil:
				r.each(i, Answer{Sent: c.Sent, Err: c.Err})
			case len(vals) < n:
				r.each(i, Answer{Sent: c.Sent, Err: conn.ErrShortReply})
			default:
				r.each(i, Answer{Vals: vals[:n], Sent: c.Sent})
				vals = vals[n:]
			}
		}
	}
	if r.open.Add(-1) == 0 {
		r.end()
	}
}

// batches puts items of one script and slot together.
func batches(items []kind.Item, cluster bool) []batch {
	type group struct {
		script *luascript.Script
		slot   uint16
		key    string // of shared items
	}
	open := map[group]int{}
	var out []batch
	for i, it := range items {
		g := group{script: it.Script}
		if cluster {
			g.slot = luascript.Slot(it.Keys[0])
		}
		if it.Shared {
			g.key = it.Keys[0]
		}
		at, ok := open[g]
		if !ok || len(out[at].cmd.Keys)+len(it.Keys) > MaxKeys || len(out[at].members) >= MaxKeys {
			at = len(out)
			open[g] = at
			out = append(out, batch{cmd: conn.Command{Script: it.Script}})
			if it.Shared {
				out[at].cmd.Keys, out[at].cmd.Args = it.Keys, slices.Clone(it.Head)
			}
		}
		b := &out[at]
		if !it.Shared {
			b.cmd.Keys = append(b.cmd.Keys, it.Keys...)
		}
		b.cmd.Args = append(b.cmd.Args, it.Args...)
		b.members = append(b.members, i)
	}
	return out
}
