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
	Item int
	Vals []conn.Value // valid during the call
	Sent time.Time
	Err  error
}

// Work is what Send sends.
type Work interface {
	// Len is how many items there are.
	Len() int
	// Item builds one. It is called again for an item that must be sent once more.
	Item(i int) kind.Item
	// Answered is called with what a command brought for its items, so that each is in one
	// of the calls, by goroutines of the sender's, perhaps several at a time; with none for a
	// command whose items are sent once more. Both are valid during the call.
	Answered(c *sender.Call, as []Answer)
	// End is called once after that.
	End()
}

// Send sends items, those of one script and slot together. It does not block.
func Send(s *sender.Sender, cluster bool, w Work) {
	r := &sending{s: s, cluster: cluster, work: w, left: w.Len(), places: map[group]int{}}
	if r.left == 0 {
		w.End()
		return
	}
	r.open.Store(1) // ours
	for i := range w.Len() {
		r.add(i, w.Item(i))
		r.left--
	}
	for _, b := range r.batches {
		r.start(b)
	}
	r.ended()
}

type sending struct {
	s       *sender.Sender
	cluster bool
	work    Work
	open    atomic.Int32 // commands without an answer, and Send while it runs

	// Send's
	left    int // items without a command
	batches []*batch
	places  map[group]int // where a group's batch is
	latest  group         // whose item came last, and where its batch is
	place   int
}

// group is what items must have in common to travel together.
type group struct {
	script *luascript.Script
	slot   uint16
	key    string // of shared items
}

// batch is one command in the making, or under way.
type batch struct {
	r       *sending
	call    sender.Call
	members []member
	shared  bool
}

type member struct {
	item    int32
	replies int32
}

// add puts an item to those of its script and slot. What is full leaves at once: it is
// answered while the rest is built.
func (r *sending) add(i int, it kind.Item) {
	at := r.placeOf(it)
	b := r.batches[at]
	if b != nil && (len(b.call.Cmd.Keys)+len(it.Keys) > MaxKeys || len(b.members) >= MaxKeys) {
		r.start(b)
		b = nil
	}
	if b == nil {
		b = r.newBatch(it)
		r.batches[at] = b
	}
	if !it.Shared {
		b.call.Cmd.Keys = append(b.call.Cmd.Keys, it.Keys...)
	}
	b.call.Cmd.Args = append(b.call.Cmd.Args, it.Args...)
	b.members = append(b.members, member{int32(i), int32(it.Replies)}) // #nosec G115 -- few
}

// placeOf finds the place of an item's group: mostly it is that of the item before.
func (r *sending) placeOf(it kind.Item) int {
	g := group{script: it.Script}
	if r.cluster {
		g.slot = luascript.Slot(it.Keys[0])
	}
	if it.Shared {
		g.key = it.Keys[0]
	}
	if g == r.latest {
		return r.place
	}
	at, ok := r.places[g]
	if !ok {
		at = len(r.batches)
		r.batches = append(r.batches, nil)
		r.places[g] = at
	}
	r.latest, r.place = g, at
	return at
}

// newBatch makes room for what may come: one node's items are mostly of one script.
func (r *sending) newBatch(it kind.Item) *batch {
	b := &batch{r: r, shared: it.Shared}
	b.call.Cmd.Script = it.Script
	room := 1
	if !r.cluster {
		room = min(r.left, MaxKeys)
	}
	b.members = make([]member, 0, room)
	if it.Shared {
		b.call.Cmd.Keys, b.call.Cmd.Args = it.Keys, slices.Clone(it.Head)
		return b
	}
	b.call.Cmd.Keys = make([]string, 0, min(room*len(it.Keys), MaxKeys))
	b.call.Cmd.Args = make([]string, 0, room*len(it.Args))
	return b
}

func (r *sending) start(b *batch) {
	r.open.Add(1)
	b.call.Class, b.call.Ctx, b.call.Then = sender.Renew, context.Background(), b.answered
	r.s.Start(&b.call)
}

func (r *sending) ended() {
	if r.open.Add(-1) == 0 {
		r.work.End()
	}
}

func (b *batch) answered(c *sender.Call) {
	r := b.r
	switch {
	case (conn.IsTryAgain(c.Err) || conn.IsPermanent(c.Err)) && len(b.members) > 1 && !b.shared:
		// A cluster refuses commands of several keys while it moves their slot and some
		// of the keys are here and some there. That can take longer than a lease: each
		// item goes on its own until then. A cluster that looks like a single server always refuses them.
		// And one key of many may be what is refused for good: the user may not touch it any more.
		r.work.Answered(c, nil)
		for _, m := range b.members {
			it := r.work.Item(int(m.item))
			one := &batch{r: r, members: []member{m}}
			one.call.Cmd = conn.Command{Script: it.Script, Keys: it.Keys, Args: it.Args}
			r.start(one)
		}
	default:
		vals, as := c.Reply.Vals, make([]Answer, len(b.members))
		for i, m := range b.members {
			a, n := &as[i], int(m.replies)
			a.Item, a.Sent, a.Err = int(m.item), c.Sent, c.Err
			switch {
			case c.Err != nil:
			case len(vals) < n:
				a.Err, vals = conn.ErrShortReply, nil // what follows belongs to nobody
			default:
				a.Vals, vals = vals[:n], vals[n:]
			}
		}
		r.work.Answered(c, as)
	}
	r.ended()
}
