package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
)

// batch is one command in the making.
type batch struct {
	cmd     conn.Command
	members []int // indices of the items in it
}

// batches puts items of one script and slot together.
func (c *Core) batches(items []Item) []batch {
	type group struct {
		script *luascript.Script
		slot   uint16
		key    string // of shared items
	}
	open := map[group]int{}
	var out []batch
	for i, it := range items {
		g := group{script: it.Script}
		if c.topo.Cluster {
			g.slot = luascript.Slot(it.Keys[0])
		}
		if it.Shared {
			g.key = it.Keys[0]
		}
		at, ok := open[g]
		if !ok || len(out[at].cmd.Keys)+len(it.Keys) > batchKeys || len(out[at].members) >= batchKeys {
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

// runBatches sends items and calls each with what came back for every one.
func (c *Core) runBatches(items []Item, each func(i int, vals []conn.Value, err error)) {
	apart := c.runEach(items, c.batches(items), true, each)
	if len(apart) == 0 {
		return
	}
	// A cluster refuses commands of several keys while it moves their slot and some
	// of the keys are here and some there. That can take longer than a lease: each item
	// goes on its own until then.
	alone := make([]batch, len(apart))
	for k, i := range apart {
		it := items[i]
		alone[k] = batch{cmd: conn.Command{Script: it.Script, Keys: it.Keys, Args: it.Args}, members: []int{i}}
	}
	c.runEach(items, alone, false, each)
}

// runEach sends batches. It returns the items of those that a cluster refused for
// having several keys, if they can be split.
func (c *Core) runEach(items []Item, bs []batch, split bool, each func(i int, vals []conn.Value, err error)) (apart []int) {
	var mu sync.Mutex // each is called by one goroutine at a time
	c.runApart(bs, func(b batch, res conn.Result) {
		mu.Lock()
		defer mu.Unlock()
		if split && len(b.members) > 1 && conn.IsTryAgain(res.Err) && !items[b.members[0]].Shared {
			apart = append(apart, b.members...)
			return
		}
		vals := res.Reply.Vals
		for _, m := range b.members {
			n := items[m].Replies
			switch {
			case res.Err != nil:
				each(m, nil, res.Err)
			case len(vals) < n:
				each(m, nil, errShortReply)
			default:
				each(m, vals[:n], nil)
				vals = vals[n:]
			}
		}
	})
	return apart
}

// slotsApart is how many neighbouring slots of a cluster go together, of 16384.
const slotsApart = 256

// runApart sends batches and calls done with the answers as they come. In a cluster
// they go in parts: what belongs to healthy nodes must not wait for the answers
// of one that gives none. Where a node's slots begin and end is not known here, but
// neighbouring slots are mostly one node's.
func (c *Core) runApart(bs []batch, done func(batch, conn.Result)) {
	run := func(bs []batch) {
		cmds := make([]conn.Command, len(bs))
		for i := range bs {
			cmds[i] = bs[i].cmd
		}
		for i, res := range c.run.RunMulti(context.Background(), cmds) {
			done(bs[i], res)
		}
	}
	if !c.topo.Cluster || len(bs) == 1 {
		run(bs)
		return
	}
	parts := map[uint16][]batch{}
	for _, b := range bs {
		part := luascript.Slot(b.cmd.Keys[0]) / slotsApart
		parts[part] = append(parts[part], b)
	}
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() { run(part) }) // ends with the answers, or with the connection
	}
	wg.Wait()
}
