package faults

import (
	"strings"
	"testing"
	"time"
)

// The checker itself: what must not be is found, and what may be is not.

const ms = time.Millisecond

// took is an acquisition by an owner, of names that are separated by spaces.
func took(id, owner, names string, call, ret, valid time.Duration) *record {
	return &record{Op: opHold, ID: id, Kind: kindPlain, Owner: owner, Names: strings.Fields(names), Call: call, Ret: ret, Valid: valid, Proc: 1, Result: resOK}
}

func reads(e *record) *record { e.Read = true; return e }

func token(e *record, n ...uint64) *record { e.Tokens = n; return e }

func fair(e *record) *record { e.Kind = kindFair; return e }

func ended(id, result string, call, ret, valid time.Duration) *record {
	return &record{Op: opEnd, ID: id, Result: result, Call: call, Ret: ret, Valid: valid, Proc: 1}
}

func gaveUp(e *record, result string, until time.Duration) *record {
	e.Op, e.Result, e.Until = opNone, result, until
	return e
}

// late is an attempt that failed since nodes of a quorum did not answer in time, which is 50 ms at
// made's lease.
func late(e *record) *record {
	e.Text = "no answer within the time limit of a node"
	return gaveUp(e, resUnavailable, e.Ret)
}

// sawLate is an attempt that failed since its client has seen the run of a quorum's server for so long only.
func sawLate(e *record, seen string) *record {
	e.Text = "this client has seen the server's present run for " + seen + " only"
	return gaveUp(quorum(e), resUnavailable, e.Ret)
}

func quorum(e *record) *record { e.Kind = kindQuorum; return e }

func mixed(e *record) *record { e.Kind = kindMixed; return e }

// inParts are two holds of one owner. The second one re-enters x while the first is being
// given back, and takes y anew: somebody else had it in between.
func inParts(kind string) *history {
	const much = 5000 * ms
	of := func(e *record) *record { e.Kind = kind; return e }
	return made(
		of(token(took("1", "A", "x y", 1*ms, 2*ms, much), 7, 8)), ended("1", resOK, 5*ms, 9*ms, much),
		token(took("b", "B", "y", 6*ms, 7*ms, much), 9), ended("b", resOK, 10*ms, 11*ms, much),
		of(token(took("2", "A", "x y", 3*ms, 12*ms, much), 7, 10)), ended("2", resOK, 13*ms, 14*ms, much))
}

// out is a fault of one server for 50 ms.
func out(name string, target int, effects effect, from time.Duration) window {
	return window{name: name, target: target, effects: effects, from: from, to: from + 50*ms}
}

// hitch is a moment in which a process stood still, or a server for 0.
func hitch(proc int, from, to time.Duration) window {
	return window{name: "hitch", from: from, to: to, proc: proc, effects: effHitch}
}

// history is made of records and windows of a lease of one second.
func made(parts ...any) *history {
	var records []*record
	var windows []window
	for _, p := range parts {
		switch p := p.(type) {
		case *record:
			records = append(records, p)
		case window:
			windows = append(windows, p)
		}
	}
	return newHistory(time.Second, records, windows)
}

func by(proc int, e *record) *record { e.Proc = proc; return e }

var judge = &profile{fifo: true, idle: time.Second, turns: 2}

// The checker finds each kind of violation.
func TestCheckerFinds(t *testing.T) {
	const much = 5000 * ms
	for name, c := range map[string]struct {
		h    *history
		want string
	}{
		"two inside": {made(
			took("a", "A", "x", 1*ms, 2*ms, much), took("b", "B", "x", 3*ms, 4*ms, much),
			ended("a", resOK, 5*ms, 6*ms, much), ended("b", resOK, 7*ms, 8*ms, much)), "two inside"},
		"a release that frees a re-entered lock": {made(
			took("a", "A", "x", 1*ms, 2*ms, much), took("a2", "A", "x", 3*ms, 4*ms, much), ended("a", resOK, 5*ms, 6*ms, much),
			took("b", "B", "x", 7*ms, 8*ms, much), ended("b", resOK, 9*ms, 10*ms, much), ended("a2", resOK, 11*ms, 12*ms, much)), "no order"},
		"a writer among readers": {made(
			reads(took("a", "A", "x", 1*ms, 2*ms, much)), reads(took("b", "B", "x", 1*ms, 2*ms, much)), ended("a", resOK, 3*ms, 4*ms, much),
			took("c", "C", "x", 5*ms, 6*ms, much), ended("b", resOK, 7*ms, 8*ms, much), ended("c", resOK, 9*ms, 10*ms, much)), "no order"},
		"a part of a group": {made(
			took("g", "A", "x y", 1*ms, 2*ms, much), took("b", "B", "y", 3*ms, 4*ms, much),
			ended("b", resOK, 5*ms, 6*ms, much), ended("g", resOK, 7*ms, 8*ms, much)), "two inside y"},
		"a group that was not taken at once": {inParts(kindGroup), "no order"},
		"a member's token twice": {made(
			mixed(token(took("a", "A", "x y", 1*ms, 2*ms, much), 7, 8)), ended("a", resOK, 3*ms, 4*ms, much),
			mixed(token(took("b", "B", "x y", 5*ms, 6*ms, much), 9, 8)), ended("b", resOK, 7*ms, 8*ms, much)), "no order"},
		"the same token twice": {made(
			token(took("a", "A", "x", 1*ms, 2*ms, much), 7), ended("a", resOK, 3*ms, 4*ms, much),
			token(took("b", "B", "x", 5*ms, 6*ms, much), 7), ended("b", resOK, 7*ms, 8*ms, much)), "no order"},
		"a re-entry with another token": {made(
			token(took("a", "A", "x", 1*ms, 2*ms, much), 7), token(took("a2", "A", "x", 3*ms, 4*ms, much), 8),
			ended("a2", resOK, 5*ms, 6*ms, much), ended("a", resOK, 7*ms, 8*ms, much)), "no order"},
		"another one before a dead holder's lease is over": {made(
			took("a", "A", "x", 1*ms, 2*ms, 900*ms), took("b", "B", "x", 500*ms, 501*ms, much), ended("b", resOK, 502*ms, 503*ms, much),
			window{name: "kill", from: 3 * ms, to: 4 * ms, effects: effDead}), "two inside"},
		"another one before a lost hold's deadline": {made(
			took("a", "A", "x", 1*ms, 2*ms, 900*ms), took("b", "B", "x", 500*ms, 501*ms, much), ended("b", resOK, 502*ms, 503*ms, much),
			ended("a", resLost, 1500*ms, 1500*ms, 900*ms), window{name: "stop", from: 3 * ms, to: 1499 * ms, proc: 1, effects: effPause}), "two inside"},
		"lost without a cause": {made(took("a", "A", "x", 1*ms, 2*ms, 900*ms), ended("a", resLost, 901*ms, 901*ms, 900*ms)), "without a cause"},
		"a quorum that had all copies, and lost one of them": {made(
			quorum(token(took("a", "A", "x", 1*ms, 2*ms, 900*ms), 7, 7, 7)), ended("a", resLost, 500*ms, 500*ms, 900*ms), out("cut", 0, effLine, 0), out("frozen", 2, effMinor, 400*ms)), "without a cause"},
		"a quorum without fence that lost one copy": {made(
			quorum(token(took("a", "A", "x", 2001*ms, 2002*ms, 2900*ms), 0, 0, 0)), ended("a", resLost, 2500*ms, 2500*ms, 2900*ms), out("cut", 0, effLine, 900*ms), out("frozen", 2, effMinor, 2400*ms)), "without a cause"},
		"a quorum without fence that lost no copy": {made(
			quorum(token(took("a", "A", "x", 2001*ms, 2002*ms, 2900*ms), 0, 0, 0)), ended("a", resLost, 2500*ms, 2500*ms, 2900*ms), out("cut", 0, effLine, 1900*ms), out("cut", 1, effLine, 1900*ms)), "without a cause"},
		"told too late": {made(took("a", "A", "x", 1*ms, 2*ms, 900*ms), ended("a", resLost, 2500*ms, 2500*ms, 900*ms),
			window{name: "frozen", from: 3 * ms, to: 2400 * ms, effects: effSilent}), "after its deadline"},
		"told too late of a server that forgot": {made(took("a", "A", "x", 1*ms, 2*ms, much),
			&record{Op: opEnd, ID: "a", Result: resLost, Call: 2001 * ms, Ret: 2001 * ms, Valid: much, Proc: 1, Told: 2000 * ms},
			window{name: "FLUSHALL", from: 50 * ms, to: 51 * ms, effects: effForget}), "told of FLUSHALL"},
		"an unlock that takes long": {made(took("a", "A", "x", 1*ms, 2*ms, much), ended("a", resOK, 3*ms, 1500*ms, much)), "to unlock"},
		"a lost hold called released": {made(took("a", "A", "x", 1*ms, 2*ms, 900*ms),
			&record{Op: opEnd, ID: "a", Result: resOK, Call: 1000 * ms, Ret: 1001 * ms, Valid: 900 * ms, Proc: 1, Told: 900 * ms}), "said nothing of it"},
		"no turn for one of two processes": {made(
			by(2, took("a", "A", "x", 1*ms, 20*ms, much)), by(2, ended("a", resOK, 21*ms, 22*ms, much)),
			took("1", "1", "x", 2*ms, 3*ms, much), ended("1", resOK, 4*ms, 5*ms, much), took("2", "2", "x", 6*ms, 7*ms, much), ended("2", resOK, 8*ms, 9*ms, much),
			took("3", "3", "x", 10*ms, 11*ms, much), ended("3", resOK, 12*ms, 13*ms, much)), "had it while one waited"},
		"given up too early": {made(gaveUp(took("a", "A", "x", 1*ms, 2*ms, 0), resBusy, 500*ms)), "too early"},
		"given up too late":  {made(gaveUp(took("a", "A", "x", 1*ms, 2000*ms, 0), resBusy, 500*ms)), "late"},
		"forgotten":          {made(gaveUp(took("a", "A", "x", 1*ms, 40_001*ms, 0), resBusy, 0)), "forgotten"},
		"a node that was too late, and nothing stood still for long": {made(
			late(took("a", "A", "x", 1*ms, 60*ms, 0)), hitch(0, 5*ms, 25*ms), hitch(2, 30*ms, 60*ms)), "nothing was wrong"},
		"a node that was too late long after a moment": {made(
			late(took("a", "A", "x", 1*ms, 2000*ms, 0)), hitch(1, 100*ms, 150*ms)), "nothing was wrong"},
		"a refusal that is kept back": {made(gaveUp(took("a", "A", "x", 100*ms, 900*ms, 0), resBusy, 900*ms),
			hitch(1, 200*ms, 220*ms), hitch(0, 210*ms, 290*ms), window{name: "no INFO", from: 1 * ms, to: 1000 * ms, effects: effRefuse | effSilent, says: "NOPERM"}), "does not say so"},
		"a restart that its client has seen long ago": {made(
			out("minority restarted empty", 0, effMinor, 100*ms), took("z", "Z", "x", 3000*ms, 3001*ms, much), ended("z", resOK, 3002*ms, 3003*ms, much),
			sawLate(took("a", "A", "x", 6000*ms, 6010*ms, 0), "0s")), "nothing was wrong"},
		"a restart that was none": {made(took("z", "Z", "x", 1*ms, 2*ms, much), ended("z", resOK, 3*ms, 4*ms, much),
			sawLate(took("a", "A", "x", 6000*ms, 6010*ms, 0), "0s")), "nothing was wrong"},
		"an unlock that takes long on a slow line": {made(took("a", "A", "x", 1*ms, 2*ms, much), ended("a", resOK, 3*ms, 1500*ms, much),
			window{name: "latency", from: 3 * ms, to: 1500 * ms, effects: effLine}), "to unlock"},
		"an outage that is none":        {made(gaveUp(took("a", "A", "x", 1*ms, 500*ms, 0), resUnavailable, 500*ms)), "nothing was wrong"},
		"a refusal for no reason":       {made(gaveUp(took("a", "A", "x", 1*ms, 2*ms, 0), resRefused, 500*ms)), "no reason"},
		"a lock that can't be unlocked": {made(took("a", "A", "x", 1*ms, 2*ms, much), ended("a", resUnavailable, 3*ms, 4*ms, much)), "could not be unlocked"},
		"a free lock while somebody waits": {made(took("a", "A", "x", 1*ms, 2*ms, much), ended("a", resOK, 3*ms, 4*ms, much),
			took("b", "B", "x", 2*ms, 2000*ms, much), ended("b", resOK, 2001*ms, 2002*ms, much)), "lay free"},
		"a lock taken away, and nobody told": {made(took("a", "A", "x", 1*ms, 2*ms, much), ended("a", resLost, 4500*ms, 4500*ms, 4000*ms),
			took("b", "B", "x", 2*ms, 4600*ms, much), ended("b", resOK, 4601*ms, 4602*ms, much),
			window{name: "taken", from: 10 * ms, to: 11 * ms, names: []string{"x"}, effects: effForget | effTaken}), "lay free"},
		"an outage called busy": {made(gaveUp(took("a", "A", "x", 100*ms, 2500*ms, 0), resBusy, 2500*ms),
			window{name: "frozen", from: 1 * ms, to: 3000 * ms, effects: effFrozen | effSilent}), "called busy"},
		"overtaken": {made(
			fair(took("0", "0", "x", 1*ms, 2*ms, much)), ended("0", resOK, 1000*ms, 1000*ms, much),
			fair(took("b", "b", "x", 900*ms, 1001*ms, much)), ended("b", resOK, 1002*ms, 1003*ms, much),
			fair(took("a", "a", "x", 3*ms, 1004*ms, much)), ended("a", resOK, 1005*ms, 1006*ms, much)), "order of arrival"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.h.check(judge)
			if !strings.Contains(strings.Join(r.violations, "\n"), c.want) {
				t.Errorf("not found: %q; but %q", c.want, r.violations)
			}
		})
	}
}

// The checker lets pass what the faults explain.
func TestCheckerLetsPass(t *testing.T) {
	const much = 5000 * ms
	forgot := window{name: "FLUSHALL", from: 50 * ms, to: 51 * ms, effects: effForget}
	for name, c := range map[string]struct {
		h        *history
		overlaps int
	}{
		"one after the other": {made(
			token(took("a", "A", "x", 1*ms, 2*ms, much), 7), ended("a", resOK, 3*ms, 10*ms, much),
			token(took("b", "B", "x", 4*ms, 5*ms, much), 9), ended("b", resOK, 6*ms, 7*ms, much)), 0},
		"re-entries in any order": {made(
			token(took("a", "A", "x", 1*ms, 2*ms, much), 7), token(took("a2", "A", "x", 3*ms, 4*ms, much), 7),
			ended("a", resOK, 5*ms, 6*ms, much), ended("a2", resOK, 7*ms, 8*ms, much), took("b", "B", "x", 2*ms, 9*ms, much)), 0},
		"a re-entry that returns after the outer hold's release": {made(
			token(took("a", "A", "x", 1*ms, 2*ms, much), 7), token(took("a2", "A", "x", 3*ms, 9*ms, much), 7),
			ended("a", resOK, 5*ms, 6*ms, much), ended("a2", resOK, 10*ms, 11*ms, much)), 0},
		"readers together, a writer who reads": {made(
			reads(took("a", "A", "x", 1*ms, 2*ms, much)), reads(took("b", "B", "x", 1*ms, 3*ms, much)), ended("a", resOK, 4*ms, 5*ms, much),
			ended("b", resOK, 4*ms, 5*ms, much), took("c", "C", "x", 1*ms, 6*ms, much), reads(took("c2", "C", "x", 7*ms, 8*ms, much)),
			ended("c", resOK, 9*ms, 10*ms, much), reads(took("d", "D", "x", 7*ms, 11*ms, much)), ended("c2", resOK, 12*ms, 13*ms, much)), 0},
		"a dead holder's lease": {made(took("a", "A", "x", 1*ms, 2*ms, 900*ms), took("b", "B", "x", 3*ms, 1000*ms, much), ended("b", resOK, 1001*ms, 1002*ms, much)), 0},
		"a quorum that lost one of two copies": {made(
			quorum(token(took("a", "A", "x", 1*ms, 2*ms, 900*ms), 0, 7, 7)), ended("a", resLost, 500*ms, 500*ms, 900*ms), out("frozen", 2, effMinor, 400*ms)), 0},
		"a quorum without fence that lost one of two copies": {made(
			quorum(token(took("a", "A", "x", 2001*ms, 2002*ms, 2900*ms), 0, 0, 0)), ended("a", resLost, 2500*ms, 2500*ms, 2900*ms), out("cut", 0, effLine, 1900*ms), out("frozen", 2, effMinor, 2400*ms)), 0},
		"a quorum that lost a copy while a restarted server did not count": {made(
			quorum(token(took("a", "A", "x", 3001*ms, 3002*ms, 3900*ms), 0, 0, 0)), ended("a", resLost, 3500*ms, 3500*ms, 3900*ms), out("minority restarted empty", 0, effMinor, 100*ms), out("frozen", 2, effMinor, 3400*ms)), 0},
		"a restart that its client sees late": {made(
			took("z", "Z", "x", 1*ms, 2*ms, much), ended("z", resOK, 3*ms, 4*ms, much), out("minority restarted empty", 0, effMinor, 100*ms),
			sawLate(took("a", "A", "x", 6000*ms, 6010*ms, 0), "1.3ms")), 0},
		"an unlock on a slow line": {made(took("a", "A", "x", 1*ms, 2*ms, much), ended("a", resOK, 3*ms, 1203*ms, much),
			window{name: "latency", from: 3 * ms, to: 1000 * ms, effects: effLine}), 0},
		"members that are taken one after the other": {inParts(kindMixed), 0},
		"a holder that stood still": {made(
			took("a", "A", "x", 1*ms, 2*ms, 900*ms), took("b", "B", "x", 3*ms, 1000*ms, much), ended("b", resOK, 1100*ms, 1101*ms, much),
			ended("a", resLost, 1500*ms, 1500*ms, 900*ms), window{name: "stop", from: 3 * ms, to: 1499 * ms, proc: 1, effects: effPause}), 1},
		"a server that forgot": {made(
			took("a", "A", "x", 1*ms, 2*ms, 900*ms), took("b", "B", "x", 3*ms, 60*ms, much), ended("b", resOK, 100*ms, 101*ms, much),
			ended("a", resLost, 300*ms, 300*ms, 900*ms), forgot), 1},
		"a nested hold that ends with the outer one, whose unlock takes long": {made(
			took("a", "A", "x", 1*ms, 2*ms, much), took("a2", "A", "x", 3*ms, 4*ms, 900*ms), ended("a", resOK, 5*ms, 2000*ms, much),
			&record{Op: opEnd, ID: "a2", Result: resLost, Call: 2001 * ms, Ret: 2001 * ms, Valid: 900 * ms, Proc: 1, Ended: 6 * ms},
			window{name: "frozen", from: 4 * ms, to: 1990 * ms, effects: effSilent}), 0},
		"a node that was too late beside moments that stood still": {made(
			late(took("a", "A", "x", 1*ms, 60*ms, 0)), hitch(0, 5*ms, 18*ms), hitch(1, 40*ms, 60*ms)), 0},
		"a refusal that was not heard of in time": {made(gaveUp(took("a", "A", "x", 100*ms, 900*ms, 0), resBusy, 900*ms),
			window{name: "stall", from: 200 * ms, to: 310 * ms, proc: 1, effects: effPause},
			window{name: "no INFO", from: 1 * ms, to: 1000 * ms, effects: effRefuse | effSilent, says: "NOPERM"}), 0},
		"no answer to the release": {made(
			took("a", "A", "x", 1*ms, 2*ms, much), ended("a", resUnavailable, 3*ms, 100*ms, much), took("b", "B", "x", 4*ms, 50*ms, much),
			ended("b", resOK, 51*ms, 52*ms, much), window{name: "frozen", from: 1 * ms, to: 99 * ms, effects: effSilent}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.h.check(judge)
			if len(r.violations) > 0 || r.overlaps != c.overlaps {
				t.Errorf("%q, %d overlaps, want %d", r.violations, r.overlaps, c.overlaps)
			}
		})
	}
}

// The checker finds a write to the store that no holder made.
func TestCheckerReadsTheStore(t *testing.T) {
	h := made(took("a", "A", "x", 1*ms, 2*ms, 9*ms), ended("a", resOK, 3*ms, 4*ms, 9*ms),
		took("b", "B", "x", 4*ms, 5*ms, 9*ms), ended("b", resOK, 6*ms, 7*ms, 9*ms))
	for name, c := range map[string]struct {
		list []write
		want string
	}{
		"a chain":            {[]write{{"x", "a", "", "", 7}, {"x", "b", "a", "a", 9}}, ""},
		"a lost update":      {[]write{{"x", "a", "", "", 0}, {"x", "b", "", "a", 0}}, "lost update"},
		"an unfenced write":  {[]write{{"x", "a", "", "", 7}, {"x", "b", "", "a", 9}}, "was accepted"},
		"a token that falls": {[]write{{"x", "a", "", "", 9}, {"x", "b", "a", "a", 7}}, "took token"},
	} {
		h.writes = map[string][]write{"x": c.list}
		r := &report{}
		h.fencing(r)
		if got := strings.Join(r.violations, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The checker finds a reader that saw a write under way.
func TestCheckerReadsWhatReadersSaw(t *testing.T) {
	for name, c := range map[string]struct {
		result  string // the writer's, whose lease ends at 9 ms and whose section at 20 ms
		granted time.Duration
		want    bool
	}{
		"of one who went on after its claim": {resLost, 10 * ms, false},
		"of one whose claim lasted":          {resLost, 5 * ms, true},
		"of one who was inside":              {resOK, 10 * ms, true},
	} {
		h := made(took("w", "W", "x", 1*ms, 2*ms, 9*ms), ended("w", c.result, 20*ms, 21*ms, 9*ms),
			reads(took("r", "R", "x", 3*ms, c.granted, 5000*ms)), ended("r", resOK, 30*ms, 31*ms, 5000*ms))
		h.sections["r"].end.Found = []string{"", "w"}
		r := &report{}
		h.fencing(r)
		if found := strings.Contains(strings.Join(r.violations, "\n"), "saw a write"); found != c.want {
			t.Errorf("%s: %q", name, r.violations)
		}
	}
}

// A seed makes the same faults at the same times, and another seed others.
func TestPlanIsAFunctionOfTheSeed(t *testing.T) {
	text := func(seed uint64, p *profile) string {
		var b strings.Builder
		for _, one := range plan(seed, p, p.length(false, false)) {
			b.WriteString(one.String())
		}
		return b.String()
	}
	for i := range profiles {
		p := &profiles[i]
		first, again, other := text(1, p), text(1, p), text(2, p)
		if first != again || first == other || first == "" {
			t.Errorf("%s: %s", p.name, first)
		}
	}
}
