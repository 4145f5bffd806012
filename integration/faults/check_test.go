package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// The checker itself: what must not be is found, and what may be is not.

const ms = time.Millisecond

func in(n int) time.Duration { return time.Duration(n) * ms }

// op is an acquisition and, if it gave a hold, how that ended. Times are in ms.
type op struct{ got, end *record }

// took is an acquisition by an owner, of names that are separated by spaces, valid for five seconds.
func took(id, owner, names string, call, ret int) op {
	return op{got: &record{
		Op: opHold, ID: id, Kind: kindPlain, Owner: owner, Names: strings.Fields(names), Call: in(call), Ret: in(ret),
		Valid: 5000 * ms, Proc: 1, Result: resOK,
	}}
}

func (o op) until(valid int) op { o.got.Valid = in(valid); return o }

func (o op) reads() op { o.got.Read = true; return o }

func (o op) tokens(n ...uint64) op { o.got.Tokens = n; return o }

func (o op) of(kind string) op { o.got.Kind = kind; return o }

func (o op) by(proc int) op { o.got.Proc = proc; return o }

// ended is the hold's end; ok is an Unlock that worked.
func (o op) ended(result string, call, ret int) op {
	o.end = &record{Op: opEnd, ID: o.got.ID, Result: result, Call: in(call), Ret: in(ret), Valid: o.got.Valid, Proc: o.got.Proc}
	return o
}

func (o op) ok(call, ret int) op { return o.ended(resOK, call, ret) }

// told is when the hold's context ended for a loss.
func (o op) told(at int) op { o.end.Told = in(at); return o }

// withOuter is when it ended with that of the outer hold.
func (o op) withOuter(at int) op { o.end.Ended = in(at); return o }

// gaveUp is an acquisition without a hold, which was to end at a time; 0: not soon.
func (o op) gaveUp(result string, until int) op {
	o.got.Op, o.got.Result, o.got.Until, o.got.Valid = opNone, result, in(until), 0
	return o
}

// nodes is an attempt that failed since nodes of a quorum did not answer in time, which is 50 ms at made's lease; or
// since the client has seen the run of a quorum's server for so long only.
func (o op) nodes(text string) op {
	o.got.Text = text
	return o.gaveUp(resUnavailable, int(o.got.Ret/ms))
}

const late = "no answer within the time limit of a node"

func sawFor(d string) string {
	return "this client has seen the server's present run for " + d + " only"
}

// on is a fault; those of a process are of the first one.
func on(name string, from, to int, effects effect) window {
	w := window{name: name, from: in(from), to: in(to), effects: effects}
	if effects&effPause != 0 {
		w.proc = 1
	}
	return w
}

// out is a fault of one server for 50 ms.
func out(name string, target int, effects effect, from int) window {
	w := on(name, from, from+50, effects)
	w.target = target
	return w
}

// hitch is a moment in which a process stood still, or a server for 0.
func hitch(proc int, from, to int) window {
	w := on("hitch", from, to, effHitch)
	w.proc = proc
	return w
}

// unasked are the permissions that are missing, which whoever fails must name.
func unasked() window {
	w := on("no INFO", 1, 1000, effRefuse|effSilent)
	w.says = "NOPERM"
	return w
}

// made is a history of a lease of one second.
func made(parts ...any) *history {
	var records []*record
	var faults windows
	var wrote []write
	for _, p := range parts {
		switch p := p.(type) {
		case op:
			records = append(records, p.got)
			if p.end != nil {
				records = append(records, p.end)
			}
		case window:
			faults = append(faults, p)
		case write: // to the store of x
			wrote = append(wrote, p)
		}
	}
	h := newHistory(time.Second, records, faults)
	h.writes = map[string][]write{"x": wrote}
	return h
}

// inParts are two holds of one owner. The second one re-enters x while the first is being
// given back, and takes y anew: somebody else had it in between.
func inParts(kind string) *history {
	return made(took("1", "A", "x y", 1, 2).of(kind).tokens(7, 8).ok(5, 9), took("b", "B", "y", 6, 7).tokens(9).ok(10, 11),
		took("2", "A", "x y", 3, 12).of(kind).tokens(7, 10).ok(13, 14))
}

// twice are two holds, one after the other, and what each wrote.
func twice(a, b write) *history {
	return made(took("a", "A", "x", 1, 2).ok(3, 4), took("b", "B", "x", 4, 5).ok(6, 7), a, b)
}

// copies is a quorum's hold from call on, for 900 ms, that is lost half a second after that.
func copies(call int, tokens ...uint64) op {
	return took("a", "A", "x", call, call+1).of(kindQuorum).tokens(tokens...).until(call+899).ended(resLost, call+499, call+499)
}

var judge = &profile{fifo: true, idle: time.Second, turns: 2}

// The checker finds each kind of violation, a write to the store that no holder made among them.
func TestCheckerFinds(t *testing.T) {
	for name, c := range map[string]struct {
		h    *history
		want string
	}{
		"two inside": {made(took("a", "A", "x", 1, 2).ok(5, 6), took("b", "B", "x", 3, 4).ok(7, 8)), "two inside"},
		"a release that frees a re-entered lock": {made(took("a", "A", "x", 1, 2).ok(5, 6), took("a2", "A", "x", 3, 4).ok(11, 12),
			took("b", "B", "x", 7, 8).ok(9, 10)), "no order"},
		"a writer among readers": {made(took("a", "A", "x", 1, 2).reads().ok(3, 4), took("b", "B", "x", 1, 2).reads().ok(7, 8),
			took("c", "C", "x", 5, 6).ok(9, 10)), "no order"},
		"a part of a group":                  {made(took("g", "A", "x y", 1, 2).ok(7, 8), took("b", "B", "y", 3, 4).ok(5, 6)), "two inside y"},
		"a group that was not taken at once": {inParts(kindGroup), "no order"},
		"a member's token twice": {made(took("a", "A", "x y", 1, 2).of(kindMixed).tokens(7, 8).ok(3, 4),
			took("b", "B", "x y", 5, 6).of(kindMixed).tokens(9, 8).ok(7, 8)), "no order"},
		"the same token twice": {made(took("a", "A", "x", 1, 2).tokens(7).ok(3, 4), took("b", "B", "x", 5, 6).tokens(7).ok(7, 8)), "no order"},
		"a re-entry with another token": {made(took("a", "A", "x", 1, 2).tokens(7).ok(7, 8),
			took("a2", "A", "x", 3, 4).tokens(8).ok(5, 6)), "no order"},
		"another one before a dead holder's lease is over": {made(took("a", "A", "x", 1, 2).until(900),
			took("b", "B", "x", 500, 501).ok(502, 503), on("kill", 3, 4, effDead)), "two inside"},
		"another one before a lost hold's deadline": {made(took("a", "A", "x", 1, 2).until(900).ended(resLost, 1500, 1500),
			took("b", "B", "x", 500, 501).ok(502, 503), on("stop", 3, 1499, effPause)), "two inside"},
		"lost without a cause": {made(took("a", "A", "x", 1, 2).until(900).ended(resLost, 901, 901)), "without a cause"},
		"a quorum that had all copies, and lost one of them": {
			made(copies(1, 7, 7, 7), out("cut", 0, effLine, 0), out("frozen", 2, effMinor, 400)), "without a cause"},
		"a quorum without fence that lost one copy": {
			made(copies(2001, 0, 0, 0), out("cut", 0, effLine, 900), out("frozen", 2, effMinor, 2400)), "without a cause"},
		"a quorum without fence that lost no copy": {
			made(copies(2001, 0, 0, 0), out("cut", 0, effLine, 1900), out("cut", 1, effLine, 1900)), "without a cause"},
		"told too late": {made(took("a", "A", "x", 1, 2).until(900).ended(resLost, 2500, 2500), on("frozen", 3, 2400, effSilent)), "after its deadline"},
		"told too late of a server that forgot": {made(took("a", "A", "x", 1, 2).ended(resLost, 2001, 2001).told(2000),
			on("FLUSHALL", 50, 51, effForget)), "told of FLUSHALL"},
		"an unlock that takes long":     {made(took("a", "A", "x", 1, 2).ok(3, 1500)), "to unlock"},
		"a lost hold called released":   {made(took("a", "A", "x", 1, 2).until(900).ok(1000, 1001).told(900)), "said nothing of it"},
		"a lock that can't be unlocked": {made(took("a", "A", "x", 1, 2).ended(resUnavailable, 3, 4)), "could not be unlocked"},
		"a refusal for no reason":       {made(took("a", "A", "x", 1, 2).gaveUp(resRefused, 500)), "no reason"},
		"an outage that is none":        {made(took("a", "A", "x", 1, 500).gaveUp(resUnavailable, 500)), "nothing was wrong"},
		"given up too early":            {made(took("a", "A", "x", 1, 2).gaveUp(resBusy, 500)), "too early"},
		"given up too late":             {made(took("a", "A", "x", 1, 2000).gaveUp(resBusy, 500)), "late"},
		"forgotten":                     {made(took("a", "A", "x", 1, 40_001).gaveUp(resBusy, 0)), "forgotten"},
		"no turn for one of two processes": {made(took("a", "A", "x", 1, 20).by(2).ok(21, 22), took("1", "1", "x", 2, 3).ok(4, 5),
			took("2", "2", "x", 6, 7).ok(8, 9), took("3", "3", "x", 10, 11).ok(12, 13)), "had it while one waited"},
		"a node that was too late, and nothing stood still for long": {
			made(took("a", "A", "x", 1, 60).nodes(late), hitch(0, 5, 25), hitch(2, 30, 60)), "nothing was wrong"},
		"a node that was too late long after a moment": {made(took("a", "A", "x", 1, 2000).nodes(late), hitch(1, 100, 150)), "nothing was wrong"},
		"a refusal that is kept back": {made(took("a", "A", "x", 100, 900).gaveUp(resBusy, 900),
			hitch(1, 200, 220), hitch(0, 210, 290), unasked()), "does not say so"},
		"a restart that its client has seen long ago": {made(out("minority restarted empty", 0, effMinor, 100),
			took("z", "Z", "x", 3000, 3001).ok(3002, 3003), took("a", "A", "x", 6000, 6010).of(kindQuorum).nodes(sawFor("0s"))), "nothing was wrong"},
		"a restart that was none": {made(took("z", "Z", "x", 1, 2).ok(3, 4),
			took("a", "A", "x", 6000, 6010).of(kindQuorum).nodes(sawFor("0s"))), "nothing was wrong"},
		"an unlock that takes long on a slow line": {made(took("a", "A", "x", 1, 2).ok(3, 1500), on("latency", 3, 1500, effLine)), "to unlock"},
		"a free lock while somebody waits":         {made(took("a", "A", "x", 1, 2).ok(3, 4), took("b", "B", "x", 2, 2000).ok(2001, 2002)), "lay free"},
		"a lock taken away, and nobody told": {made(took("a", "A", "x", 1, 2).until(4000).ended(resLost, 4500, 4500),
			took("b", "B", "x", 2, 4600).ok(4601, 4602), on("taken", 10, 11, effForget|effTaken)), "lay free"},
		"an outage called busy": {made(took("a", "A", "x", 100, 2500).gaveUp(resBusy, 2500), on("frozen", 1, 3000, effFrozen|effSilent)), "called busy"},
		"overtaken": {made(took("0", "0", "x", 1, 2).of(kindFair).ok(1000, 1000), took("b", "b", "x", 900, 1001).of(kindFair).ok(1002, 1003),
			took("a", "a", "x", 3, 1004).of(kindFair).ok(1005, 1006)), "order of arrival"},
		"a lost update":      {twice(write{"a", "", "", 0}, write{"b", "", "a", 0}), "lost update"},
		"an unfenced write":  {twice(write{"a", "", "", 7}, write{"b", "", "a", 9}), "was accepted"},
		"a token that falls": {twice(write{"a", "", "", 9}, write{"b", "a", "a", 7}), "took token"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := c.h.check(judge); !strings.Contains(strings.Join(r.violations, "\n"), c.want) {
				t.Errorf("not found: %q; but %q", c.want, r.violations)
			}
		})
	}
}

// The checker lets pass what the faults explain.
func TestCheckerLetsPass(t *testing.T) {
	for name, c := range map[string]struct {
		h        *history
		overlaps int
	}{
		"one after the other":                        {made(took("a", "A", "x", 1, 2).tokens(7).ok(3, 10), took("b", "B", "x", 4, 5).tokens(9).ok(6, 7)), 0},
		"writes of which each rests on the last one": {twice(write{"a", "", "", 7}, write{"b", "a", "a", 9}), 0},
		"re-entries in any order": {made(took("a", "A", "x", 1, 2).tokens(7).ok(5, 6), took("a2", "A", "x", 3, 4).tokens(7).ok(7, 8),
			took("b", "B", "x", 2, 9)), 0},
		"a re-entry that returns after the outer hold's release": {made(took("a", "A", "x", 1, 2).tokens(7).ok(5, 6),
			took("a2", "A", "x", 3, 9).tokens(7).ok(10, 11)), 0},
		"readers together, a writer who reads": {made(took("a", "A", "x", 1, 2).reads().ok(4, 5), took("b", "B", "x", 1, 3).reads().ok(4, 5),
			took("c", "C", "x", 1, 6).ok(9, 10), took("c2", "C", "x", 7, 8).reads().ok(12, 13), took("d", "D", "x", 7, 11).reads()), 0},
		"a dead holder's lease":                {made(took("a", "A", "x", 1, 2).until(900), took("b", "B", "x", 3, 1000).ok(1001, 1002)), 0},
		"a quorum that lost one of two copies": {made(copies(1, 0, 7, 7), out("frozen", 2, effMinor, 400)), 0},
		"a quorum without fence that lost one of two copies": {
			made(copies(2001, 0, 0, 0), out("cut", 0, effLine, 1900), out("frozen", 2, effMinor, 2400)), 0},
		"a quorum that lost a copy while a restarted server did not count": {
			made(copies(3001, 0, 0, 0), out("minority restarted empty", 0, effMinor, 100), out("frozen", 2, effMinor, 3400)), 0},
		"a restart that its client sees late": {made(took("z", "Z", "x", 1, 2).ok(3, 4), out("minority restarted empty", 0, effMinor, 100),
			took("a", "A", "x", 6000, 6010).of(kindQuorum).nodes(sawFor("1.3ms"))), 0},
		"an unlock on a slow line":                   {made(took("a", "A", "x", 1, 2).ok(3, 1203), on("latency", 3, 1000, effLine)), 0},
		"members that are taken one after the other": {inParts(kindMixed), 0},
		"a holder that stood still": {made(took("a", "A", "x", 1, 2).until(900).ended(resLost, 1500, 1500),
			took("b", "B", "x", 3, 1000).ok(1100, 1101), on("stop", 3, 1499, effPause)), 1},
		"a server that forgot": {made(took("a", "A", "x", 1, 2).until(900).ended(resLost, 300, 300), took("b", "B", "x", 3, 60).ok(100, 101),
			on("FLUSHALL", 50, 51, effForget)), 1},
		"a nested hold that ends with the outer one, whose unlock takes long": {made(took("a", "A", "x", 1, 2).ok(5, 2000),
			took("a2", "A", "x", 3, 4).until(900).ended(resLost, 2001, 2001).withOuter(6), on("frozen", 4, 1990, effSilent)), 0},
		"a node that was too late beside moments that stood still": {
			made(took("a", "A", "x", 1, 60).nodes(late), hitch(0, 5, 18), hitch(1, 40, 60)), 0},
		"a refusal that was not heard of in time": {made(took("a", "A", "x", 100, 900).gaveUp(resBusy, 900), on("stall", 200, 310, effPause), unasked()), 0},
		"no answer to the release": {made(took("a", "A", "x", 1, 2).ended(resUnavailable, 3, 100), took("b", "B", "x", 4, 50).ok(51, 52),
			on("frozen", 1, 99, effSilent)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if r := c.h.check(judge); len(r.violations) > 0 || r.overlaps != c.overlaps {
				t.Errorf("%q, %d overlaps, want %d", r.violations, r.overlaps, c.overlaps)
			}
		})
	}
}

// The checker finds a reader that saw a write under way.
func TestCheckerReadsWhatReadersSaw(t *testing.T) {
	for name, c := range map[string]struct {
		result  string // the writer's, whose lease ends at 9 ms and whose section at 20 ms
		granted int
		want    bool
	}{
		"of one who went on after its claim": {resLost, 10, false},
		"of one whose claim lasted":          {resLost, 5, true},
		"of one who was inside":              {resOK, 10, true},
	} {
		reader := took("r", "R", "x", 3, c.granted).reads().ok(30, 31)
		reader.end.Found = []string{"", "w"}
		h, r := made(took("w", "W", "x", 1, 2).until(9).ended(c.result, 20, 21), reader), &report{}
		h.fencing(r)
		testbed.Equal(t, strings.Contains(strings.Join(r.violations, "\n"), "saw a write"), c.want, name, r.violations)
	}
}

// A seed makes the same faults at the same times, and another seed others.
func TestPlanIsAFunctionOfTheSeed(t *testing.T) {
	text := func(seed uint64, p *profile) (text string) {
		for _, one := range plan(seed, p, p.length(false, false)) {
			text += one.String()
		}
		return text
	}
	for i := range profiles {
		p := &profiles[i]
		first, again, other := text(1, p), text(1, p), text(2, p)
		if first != again || first == other || first == "" {
			t.Errorf("%s: %s", p.name, first)
		}
	}
}
