package engine

import (
	"context"
	"slices"

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
	cmds := make([]conn.Command, len(bs))
	for i := range bs {
		cmds[i] = bs[i].cmd
	}
	for i, res := range c.run.RunMulti(context.Background(), cmds) {
		members := bs[i].members
		if split && len(members) > 1 && conn.IsTryAgain(res.Err) && !items[members[0]].Shared {
			apart = append(apart, members...)
			continue
		}
		vals := res.Reply.Vals
		for _, m := range members {
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
	}
	return apart
}
