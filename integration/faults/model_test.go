package faults

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// part is what the model takes of a hold at one moment: all of its names, or one of them.
type part struct {
	hold  *hold
	first int // the first name's place among the hold's names
	names []string
}

// parts cuts a hold. One command takes a plain lock, a group or a copy, and a quorum counts
// as one lock. The members of other multi-locks are taken, and given back, one after the
// other: their holds exclude what they say from grant to release, but no single moment has
// them all. Holds of one owner can tell. One of them re-enters a member that another has
// not given back yet, and takes the next member anew, since that one is free already.
func (o *hold) parts() []part {
	if o.Kind != kindMixed && o.Kind != kindSpread {
		return []part{{o, 0, o.Names}}
	}
	all := make([]part, len(o.Names))
	for i := range all {
		all[i] = part{o, i, o.Names[i : i+1]}
	}
	return all
}

// step is one operation of the model: an acquisition, a release or the end of a hold
// by its lease.
type step struct {
	part
	acquire bool
}

// lockState is one lock of the model: the write holds of one owner, and read holds.
type lockState struct {
	owner   string
	writes  int
	readers []string // their owners, in order: one for each hold
	token   uint64   // the last one given out
}

func (s lockState) equal(o lockState) bool {
	return s.owner == o.owner && s.writes == o.writes && s.token == o.token && slices.Equal(s.readers, o.readers)
}

// enter takes the lock; false if a lock would not have been given.
func (s lockState) enter(owner string, read bool, token uint64) (lockState, bool) {
	if s.writes > 0 && s.owner != owner {
		return s, false
	}
	if read {
		i, _ := slices.BinarySearch(s.readers, owner)
		s.readers = slices.Insert(slices.Clone(s.readers), i, owner)
		return s, true
	}
	switch fresh := s.writes == 0; {
	case fresh && len(s.readers) > 0: // an owner's own reads, too: no upgrade
		return s, false
	case token == 0:
	case fresh && token <= s.token, !fresh && token != s.token:
		return s, false
	}
	s.owner, s.writes, s.token = owner, s.writes+1, max(s.token, token)
	return s, true
}

// leave gives one hold back; false if there is none.
func (s lockState) leave(owner string, read bool) (lockState, bool) {
	if read {
		i, ok := slices.BinarySearch(s.readers, owner)
		if ok {
			s.readers = slices.Delete(slices.Clone(s.readers), i, i+1)
		}
		return s, ok
	}
	if s.writes == 0 || s.owner != owner {
		return s, false
	}
	if s.writes--; s.writes == 0 {
		s.owner = ""
	}
	return s, true
}

// lockModel is a set of locks that are taken one by one or several at once, as parts are.
// They are free at first, and tokens are the last ones that were given out.
func lockModel(names []string, tokens []uint64) porcupine.Model {
	index := map[string]int{}
	for i, name := range names {
		index[name] = i
	}
	return porcupine.Model{
		Init: func() any {
			free := make([]lockState, len(names))
			for i := range free {
				free[i].token = tokens[i]
			}
			return free
		},
		Step: func(state, input, _ any) (bool, any) {
			before := state.([]lockState) //nolint:forcetypeassert // as Init made it
			op := input.(step)            //nolint:forcetypeassert // as given below
			after := slices.Clone(before)
			for k, name := range op.names {
				i, ok := index[name], false
				if op.acquire {
					after[i], ok = after[i].enter(op.hold.Owner, op.hold.Read, op.token(k))
				} else {
					after[i], ok = after[i].leave(op.hold.Owner, op.hold.Read)
				}
				if !ok {
					return false, state
				}
			}
			return true, after
		},
		Equal: func(a, b any) bool {
			return slices.EqualFunc(a.([]lockState), b.([]lockState), lockState.equal) //nolint:forcetypeassert // as above
		},
	}
}

// token is that of a part's name.
func (p part) token(k int) uint64 {
	switch o := p.hold; {
	case len(o.Tokens) == len(o.Names):
		return o.Tokens[p.first+k]
	case len(o.Tokens) > 0:
		return slices.Max(o.Tokens) // a quorum's
	}
	return 0
}

// operations makes of parts of holds what the model checks. The end of a hold that was not
// confirmed is open: it may come at any time from its first possible moment on.
//
// An acquisition is put at its return, not anywhere since its call. That loses nothing:
// what others did in between they could do beside the hold, so they can do it without it,
// and what excludes the hold did not come in between. It saves the search from trying
// each of a hundred waiting readers first. Two kinds differ. Several acquisitions of one
// owner depend on each other, so theirs count from the call. A hold that may have ended
// before its acquisition returned excludes nobody for certain, and is left out.
func (h *history) operations(parts []part) []porcupine.Operation {
	var ops []porcupine.Operation
	for i, p := range parts {
		o := p.hold
		call, ret := o.lapses(), time.Duration(math.MaxInt64)
		if o.end != nil && o.end.Result == resOK {
			call, ret = o.end.Call, o.end.Ret
		}
		if w := h.forgotten(o); w != nil {
			call, ret = min(call, w.from), math.MaxInt64
		}
		taken := o.Ret
		if o.Owner != o.ID {
			taken = o.Call
		} else if call <= o.Ret {
			continue
		}
		ops = append(ops,
			porcupine.Operation{ClientId: i, Input: step{p, true}, Call: int64(taken), Return: int64(o.Ret)},
			porcupine.Operation{ClientId: i, Input: step{p, false}, Call: int64(max(call, taken)), Return: int64(ret)})
	}
	return ops
}

// components are the names that are taken together, with the parts of holds.
func (h *history) components() map[string][]part {
	parent := map[string]string{}
	var root func(string) string
	root = func(name string) string {
		if up, ok := parent[name]; ok && up != name {
			return root(up)
		}
		return name
	}
	var parts []part
	for _, o := range h.holds {
		parts = append(parts, o.parts()...)
	}
	for _, p := range parts {
		for _, name := range p.names[1:] {
			parent[root(name)] = root(p.names[0])
		}
	}
	all := map[string][]part{}
	for _, p := range parts {
		key := root(p.names[0])
		all[key] = append(all[key], p)
	}
	return all
}

// pieces cuts a history where nobody holds anything, so that the search stays short. Nothing
// is lost by that: the locks are free there, and all that is left of the past is its tokens.
//
// An open release may come at any time, and is taken to come as early as it may: that helps
// everybody else. Only those who share an owner could want it later, for its token; a
// history is not cut while one of theirs is open.
func pieces(ops []porcupine.Operation) [][]porcupine.Operation {
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	shares := map[string]int{}
	for _, op := range ops {
		if in := op.Input.(step); in.acquire { //nolint:forcetypeassert // as operations made it
			shares[in.hold.Owner]++
		}
	}
	var all [][]porcupine.Operation
	var until int64 // when all so far are over
	inside, first := 0, 0
	for i, op := range ops {
		if i > first && inside == 0 && op.Call > until {
			all = append(all, ops[first:i])
			first = i
		}
		in := op.Input.(step) //nolint:forcetypeassert // as above
		if in.acquire {
			inside++
		} else {
			inside--
		}
		if in.acquire || op.Return < math.MaxInt64 || shares[in.hold.Owner] > 1 {
			until = max(until, op.Return)
		}
	}
	return append(all, ops[first:])
}

// linearizable asks porcupine whether the history is one of locks.
func (h *history) linearizable(r *report, limit time.Duration) {
	for _, parts := range h.components() {
		var names []string
		for _, p := range parts {
			for _, name := range p.names {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		tokens := make([]uint64, len(names))
		for _, piece := range pieces(h.operations(parts)) {
			switch porcupine.CheckOperationsTimeout(lockModel(names, tokens), piece, limit) {
			case porcupine.Ok:
			case porcupine.Illegal:
				r.violation("no order of the %d holds of %v is one that a lock allows", len(piece)/2, names)
			case porcupine.Unknown:
				// The search can explode. That nobody was inside beside another one has been
				// looked at all the same, by exclusion.
				r.undecided = append(r.undecided, fmt.Sprintf("%v, %d holds", names, len(piece)/2))
			}
			for _, op := range piece {
				in := op.Input.(step) //nolint:forcetypeassert // as operations made it
				for k, name := range in.names {
					i := slices.Index(names, name)
					tokens[i] = max(tokens[i], in.token(k))
				}
			}
		}
	}
}

// queueModel is a FIFO queue: an acquisition joins it at one moment, and the number of
// its grant says how it left. The state is the last number.
var queueModel = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		n := input.(int) //nolint:forcetypeassert // as given below
		return n == state.(int)+1, n
	},
}

// joins bounds how long an acquisition of a fair lock takes to join the queue, on a
// machine and a server that do nothing else for a moment.
const joins = 500 * time.Millisecond

// fifo checks the order of each fair lock: whoever came later than another one had
// joined is served after it. Those whose joining, or staying, a fault may have
// disturbed are not bound.
func (h *history) fifo(r *report) {
	queues := map[string][]*hold{}
	for _, o := range h.holds {
		if o.Kind == kindFair && !o.Nested && !o.Once && o.Owner == o.ID {
			queues[o.Names[0]] = append(queues[o.Names[0]], o)
		}
	}
	for name, all := range queues {
		var ops []porcupine.Operation
		for i, o := range all {
			joined := min(o.Call+joins, o.Ret)
			if h.during(o.Call, o.Ret, 0, effSilent|effForget|effPause|effDead|effRefuse|effFrozen|effLine, name) != nil {
				joined = o.Ret
			}
			ops = append(ops, porcupine.Operation{ClientId: i, Input: i + 1, Call: int64(o.Call), Return: int64(joined)})
		}
		if porcupine.CheckOperationsTimeout(queueModel, ops, time.Minute) == porcupine.Ok {
			continue
		}
		r.violation("fair lock %s: not served in the order of arrival%s", name, overtaken(all, ops))
	}
}

// overtaken names one of those who were passed over.
func overtaken(all []*hold, ops []porcupine.Operation) string {
	for i := range ops {
		for j := range i {
			if ops[j].Call > ops[i].Return {
				return fmt.Sprintf(":\n  %v\n  came first, and was served after\n  %v", all[i].record, all[j].record)
			}
		}
	}
	return ""
}
