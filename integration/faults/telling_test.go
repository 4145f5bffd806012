package faults

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"
)

// slack is what a busy machine may add to anything that is to happen at once.
const slack = 700 * time.Millisecond

// losses checks that whoever lost a hold was told in time, and why it was lost.
func (h *history) losses(r *report) {
	for _, o := range h.holds {
		end := o.end
		if end == nil {
			continue
		}
		h.tooLate(r, o)
		if end.Result == resOK && end.Told > 0 && !o.Nested { // a nested one's context ends with the outer hold's
			r.violation("told that it is lost, and Unlock said nothing of it: %v", o)
		}
		if end.Result != resLost {
			continue
		}
		r.lost++
		at := cmp.Or(end.Told, end.Ret)
		if o.Lease > 0 && at >= o.Call+o.Lease-drift(o.Lease) {
			continue // as planned
		}
		if !h.explained(o, at) {
			r.violation("lost without a cause: %v", o)
		}
		var last *window
		for w := range h.met(o.Call, at, 0, effForget, o.Names...) {
			last = w
		}
		if last != nil && o.Ret < last.from {
			limit := last.to + h.lease/3 + slack
			if end.Told > limit && h.during(last.from, end.Told, o.Proc, effSilent|effPause|effFrozen|effLine, o.Names...) == nil {
				r.violation("told of %s %v too late: %v", last.name, end.Told-limit, o)
			}
		}
	}
}

// explained tells whether faults on the record are enough for the loss of a hold: a
// server that forgot, a process or servers that stood still for a good part of the lease,
// or two of a quorum's.
func (h *history) explained(o *hold, at time.Duration) bool {
	lease, from := h.lease, at-h.lease-slack
	if o.Valid > o.Call { // a fair grant lasts for the skip time only, until it is confirmed
		lease = min(lease, o.Valid-o.Call)
	}
	var still []span
	minor := map[int]bool{}
	for w := range h.met(from, at, o.Proc, anyEffect, o.Names...) {
		switch {
		case w.effects&effForget != 0:
			return true
		case w.effects&(effSilent|effFrozen|effPause) != 0:
			still = append(still, span{max(w.from, from), min(w.to+slack/2, at)})
		case w.effects&effMinor != 0:
			minor[w.target] = true
		}
	}
	if length(still) > lease/4 {
		return true
	}
	missing := h.missing(o) // one at most: there was a majority
	for server := range minor {
		delete(missing, server)
	}
	return o.Kind == kindQuorum && (len(minor) > 1 || len(minor) == 1 && len(missing) > 0)
}

// missing are the servers of which a quorum's hold may have no copy: it was granted with a
// majority, and what came too late was given back. Of a fenced one the tokens tell.
func (h *history) missing(o *hold) map[int]bool {
	missing := map[int]bool{}
	for i, token := range o.Tokens {
		if token == 0 {
			missing[i] = true
		}
	}
	if len(missing) < len(o.Tokens) {
		return missing
	}
	clear(missing)
	// A restarted server counts again when it has been seen for LeaseTime.
	for w := range slices.Concat(h.windows, h.moments).met(o.Ret-longest(h.lease)-2*time.Second, o.Ret, o.Proc, effMinor|effLine|effHitch) {
		switch {
		case w.to < o.Ret-time.Second && !strings.Contains(w.name, "restarted"):
		case w.proc != 0:
			missing[-1] = true // any
		default:
			missing[w.target] = true
		}
	}
	return missing
}

// drift is the margin by which a local deadline lies before the lease's end.
func drift(lease time.Duration) time.Duration { return lease/100 + 3*time.Millisecond }

// tooLate checks that no hold's context outlived its deadline while its process ran.
func (h *history) tooLate(r *report, o *hold) {
	end := o.end
	if end.Valid == 0 || o.Until > 0 && !o.Once { // a context that ended for another reason tells nothing
		return
	}
	told := end.Call // only Unlock ended it
	switch {
	case end.Told > 0:
		told = end.Told
	case end.Ended > 0: // with the outer hold, whose Unlock may have taken long
		told = min(told, end.Ended)
	}
	if told > end.Valid+slack && h.during(end.Valid-slack, told, o.Proc, effPause) == nil {
		r.violation("told %v after its deadline: %v", told-end.Valid, o)
	}
}

// waits checks that every acquisition ended when it had to, and with the right word.
func (h *history) waits(r *report) {
	check := func(e *record) {
		limit := e.Until
		switch {
		case limit == 0:
			limit = e.Call + patient
		case e.Once:
			limit += unlockTimeout
		}
		if e.Ret > limit+slack && h.during(limit, e.Ret, e.Proc, effPause) == nil {
			r.violation("returned %v late: %v", e.Ret-limit, e)
		}
	}
	for _, o := range h.holds {
		check(o.record)
		end := o.end
		if end == nil || h.during(end.Call-slack, end.Ret, o.Proc, effSilent|effFrozen|effRefuse|effForget|effPause|effMinor, o.Names...) != nil {
			continue
		}
		if end.Result == resUnavailable {
			r.violation("could not be unlocked: %v", o)
		}
		if end.Ret-end.Call > slack+slack/2+h.trips(end.Call, end.Ret) {
			r.violation("took %v to unlock: %v", end.Ret-end.Call, o)
		}
	}
	wanted := h.wanted()
	for _, e := range h.none {
		check(e)
		h.words(r, e)
		if e.Result == resBusy && (e.Once || e.Until-e.Call >= slack) && !wanted(e) &&
			h.during(e.Call-slack, e.Ret, e.Proc, anyEffect, e.Names...) == nil {
			r.violation("not given, and nobody else wanted it: %v", e)
		}
	}
}

// wanted returns a function that tells whether anybody else had, or tried to have, one of the
// names of an acquisition at that time.
func (h *history) wanted() func(e *record) bool {
	type want struct {
		*record
		until time.Duration
	}
	all := map[string][]want{}
	add := func(e *record, until time.Duration) {
		for _, name := range e.Names {
			all[name] = append(all[name], want{e, until})
		}
	}
	for _, o := range h.holds {
		until := max(o.works(), o.lapses()) + h.lease
		if o.end != nil && o.end.Result == resOK {
			until = min(until, o.end.Ret)
		}
		add(o.record, until)
	}
	for _, e := range h.none {
		add(e, e.Ret+slack)
	}
	return func(e *record) bool {
		return slices.ContainsFunc(e.Names, func(name string) bool {
			return slices.ContainsFunc(all[name], func(o want) bool { return o.record != e && o.Call <= e.Ret && o.until >= e.Call })
		})
	}
}

// words checks what a failed acquisition says.
func (h *history) words(r *report, e *record) {
	switch e.Result {
	case resBusy, resUnavailable:
		if e.Until == 0 {
			r.violation("forgotten for %v: %v", e.Ret-e.Call, e)
		} else if e.Result == resBusy && !e.Once && e.Ret < e.Until-10*time.Millisecond {
			r.violation("gave up %v too early: %v", e.Until-e.Ret, e)
		}
	case resRefused:
		if h.during(e.Call, e.Ret, e.Proc, effRefuse, e.Names...) == nil {
			r.violation("refused for no reason: %v", e)
		}
	case resLost, resClosed, resUpgrade:
		// a nested one whose outer hold was lost
	case resOther:
		r.violation("an error of no known kind: %v", e)
	}
	wrong := anyEffect
	if strings.Contains(e.Text, "no answer for") {
		wrong |= effReload
	}
	if e.Result == resUnavailable && h.during(e.Call-2*time.Second, e.Ret, e.Proc, wrong, e.Names...) == nil && !h.slowed(e) && !h.young(e) {
		r.violation("called unavailable, and nothing was wrong: %v", e)
	}
	if e.Result != resBusy && e.Result != resUnavailable {
		return
	}
	silent := min(time.Second, h.lease/3) + slack
	for w := range h.met(e.Call, e.Ret, e.Proc, anyEffect, e.Names...) {
		switch {
		case e.Ret >= w.to:
		case w.says != "" && h.clients[e.Client] > w.from && e.Ret-e.Call-h.still(e.Call, e.Ret, e.Proc) > slack &&
			!strings.Contains(e.Text, w.says) && !strings.Contains(e.Text, "no answer"):
			r.violation("%s, and it does not say so: %v", w.name, e)
		case e.Result == resBusy && w.effects&effFrozen != 0 && w.proc == 0 && e.Call > w.from && e.Ret-e.Call > silent && len(e.Names) == 1:
			r.violation("called busy, and the server (%s) was silent: %v", w.name, e)
		}
	}
}

// trips is what an unlock takes longer where each message is late: over a line that was cut, it is eight on
// the way to a server and back (dial, greeting, a script that the server forgot, the script itself).
func (h *history) trips(from, to time.Duration) time.Duration {
	for w := range h.met(from, to, 0, effLine) {
		if w.name == "latency" {
			return 8 * leases(h.lease, latest)
		}
	}
	return 0
}

var seenFor = regexp.MustCompile(`has seen the server's present run for (\S+) only`)

// young tells whether a client of a quorum says that it can't count a server without all the others, and
// why that may be: the client began so lately, or a server restarted and the client, which did not use it
// since, saw so just now.
func (h *history) young(e *record) bool {
	said := seenFor.FindAllStringSubmatch(e.Text, -1)
	if len(said) == 0 {
		return false
	}
	if e.Ret-h.clients[e.Client] <= h.lease+drift(h.lease)+slack {
		return true
	}
	restarted := time.Duration(-1)
	for _, w := range h.windows {
		if strings.Contains(w.name, "restarted") && w.to <= e.Ret {
			restarted = max(restarted, w.to)
		}
	}
	for _, words := range said {
		seen, err := time.ParseDuration(words[1])
		if err != nil || seen > h.lease+drift(h.lease) || restarted < 0 || h.asked(e, restarted, e.Ret-seen-slack) {
			return false
		}
	}
	return true
}

// asked tells whether the client of e got an answer to an acquisition that it began after from, until to.
func (h *history) asked(e *record, from, to time.Duration) bool {
	answered := func(o *record) bool { return o.Client == e.Client && o.Call >= from && o.Ret <= to }
	return slices.ContainsFunc(h.holds, func(o *hold) bool { return answered(o.record) }) ||
		slices.ContainsFunc(h.none, func(o *record) bool { return o.Result == resBusy && answered(o) })
}

// slowed tells whether a quorum's nodes can have been too late for their time limit, which is
// far shorter than a stall: moments in which the process or a server did not run make up half
// of it, in the last second of the acquisition. What is left may lie in moments too short to be
// noted, several of which follow each other on the way to a server and back.
func (h *history) slowed(e *record) bool {
	if !strings.Contains(e.Text, "no answer within the time limit of a node") {
		return false
	}
	limit := min(max(cmp.Or(e.Lease, h.lease)/20, 10*ms), 500*ms)
	return h.still(max(e.Call, e.Ret-time.Second), e.Ret, e.Proc) >= limit/2
}

// turns checks that nobody who wants a plain lock is passed over for ever.
func (h *history) turns(r *report, bound int) {
	for name, all := range h.byName() { // by the time of their grants
		for i, o := range all {
			if o.Kind != kindPlain || o.Nested {
				continue
			}
			first, _ := slices.BinarySearchFunc(all, o.Call, func(x *hold, at time.Duration) int { return cmp.Compare(x.Ret, at) })
			n := 0
			for _, x := range all[first:i] {
				if x.Proc != o.Proc && !x.Nested {
					n++
				}
			}
			r.turns = max(r.turns, n)
			if n > bound && h.during(o.Call, o.Ret, o.Proc, anyEffect, name) == nil {
				r.violation("%s: %d of another process had it while one waited: %v", name, n, o)
			}
		}
	}
}

// span is a time in which a lock was, or may have been, somebody's.
type span struct{ from, to time.Duration }

// excused are the times in which a fault explains a free lock, by name; of all locks by "".
func (h *history) excused() map[string][]span {
	excused := map[string][]span{}
	for _, w := range h.windows {
		grace := 1500 * ms
		switch {
		case strings.HasSuffix(w.name, "stall"):
			grace = 200 * ms
		case w.effects&effDead != 0:
			grace += h.lease
		case w.effects&(effForget|effSilent|effFrozen|effLine|effPause|effRefuse) == 0:
			continue
		}
		names := w.names
		if len(names) == 0 {
			names = []string{""}
		}
		for _, name := range names {
			excused[name] = append(excused[name], span{w.from, w.to + grace})
		}
	}
	return excused
}

// idle checks that no lock lies free for longer than bound while somebody waits for it
// who could have it.
func (h *history) idle(r *report, bound time.Duration) {
	taken := h.excused()
	always := taken[""]
	for _, o := range h.holds {
		to := o.claims()
		if o.end != nil {
			to = max(to, o.end.Ret)
			if o.end.Result != resOK {
				to = max(to, min(o.end.Valid+drift(h.lease), o.end.Ret+2*h.lease))
			}
		}
		for _, name := range o.Names {
			to := to
			for w := range h.met(o.Ret, to, 0, effTaken, name) { // it is free, whatever its holder thinks
				if w.from > o.Ret && w.to < to {
					to = w.to
				}
			}
			taken[name] = append(taken[name], span{o.Ret, to})
		}
	}
	for name := range taken {
		taken[name] = union(slices.Concat(taken[name], always))
	}
	waited := func(e *record) {
		if e.Once || len(e.Names) > 1 || e.Nested {
			return
		}
		from, all := e.Call, taken[e.Names[0]]
		first, _ := slices.BinarySearchFunc(all, from, func(s span, at time.Duration) int { return cmp.Compare(s.to, at) })
		for _, s := range append(slices.Clone(all[first:]), span{e.Ret, forever}) {
			if free := min(s.from, e.Ret) - from; free > bound {
				r.violation("%s lay free for %v while one waited: %v", e.Names[0], free, e)
				return
			}
			if s.from >= e.Ret {
				return
			}
			from = max(from, s.to)
		}
	}
	for _, o := range h.holds {
		waited(o.record)
	}
	for _, e := range h.none {
		waited(e)
	}
}

// union merges spans that touch.
func union(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var merged []span
	for _, s := range all {
		if n := len(merged); n > 0 && s.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// length is that of all spans together.
func length(all []span) (total time.Duration) {
	for _, s := range union(all) {
		total += s.to - s.from
	}
	return total
}
