package faults

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
)

// effect is what a fault may do to locks that are in order.
type effect int

// The effects.
const (
	effSilent effect = 1 << iota // commands are not answered, or writes are refused for a while
	effForget                    // a server may lose what it has written
	effPause                     // the process stands still
	effDead                      // the process is gone
	effRefuse                    // permanent errors are right
	effFrozen                    // nobody answers anything, from the first to the last moment
	effLine                      // answers are lost or late; what is retried goes through
	effMinor                     // one of a quorum's servers is out
	effSplit                     // a slot's keys are on two servers
	effTaken                     // whoever holds it is thrown out
	effAgain                     // what was answered runs again: a lock is taken, or a place in line, for nobody
	effReload                    // scripts have to be sent again: a round trip more for all that travelled together
	effHitch                     // a process or a server did not run for a moment, too short to count but where moments do

	anyEffect = 1<<iota - 1 - effReload - effHitch
)

// window is a time in which a fault was under way.
type window struct {
	name     string
	from, to time.Duration
	proc     int      // the process that it concerns; all for 0
	target   int      // the server, where there are several
	names    []string // what it concerns; nil: everything
	effects  effect
	says     string // what a failure of a new client must name that lasted for a while; "": nothing
}

// concerns tells whether the window is about any of the names.
func (w *window) concerns(names []string) bool {
	return len(w.names) == 0 || len(names) == 0 ||
		slices.ContainsFunc(names, func(n string) bool { return slices.Contains(w.names, n) })
}

func (w window) String() string {
	return fmt.Sprintf("%s [%v %v] proc %d target %d", w.name, w.from, w.to, w.proc, w.target)
}

// windows are in the order in which they began.
type windows []window

// met are the windows with any of the effects that touch [from, to] and concern the process (0: any) and one
// of the names.
func (all windows) met(from, to time.Duration, proc int, effects effect, names ...string) iter.Seq[*window] {
	return func(yield func(*window) bool) {
		for i := range all {
			w := &all[i]
			if w.effects&effects != 0 && w.from <= to && w.to >= from && (w.proc == 0 || proc == 0 || w.proc == proc) &&
				w.concerns(names) && !yield(w) {
				return
			}
		}
	}
}

// hold is one acquisition with its end.
type hold struct {
	*record
	end   *record       // nil if the process did not live to tell
	leave time.Duration // when its release began; 0 if it did not
}

// history is what all processes of an episode recorded, and what was done to them.
type history struct {
	windows                // stalls among them
	lease    time.Duration // LeaseTime
	holds    []*hold
	none     []*record // acquisitions without a hold
	notes    []*record // of opLeft
	moments  windows   // of effHitch
	writes   map[string][]write
	ops      int
	sections map[string]*hold
	clients  map[string]time.Duration // when each was used first
}

// newHistory puts records together. The windows are those of the plan's faults.
func newHistory(lease time.Duration, records []*record, faults windows) *history {
	h := &history{lease: lease, sections: map[string]*hold{}, clients: map[string]time.Duration{}}
	all := slices.Clone(faults)
	for _, e := range records {
		if first, ok := h.clients[e.Client]; !ok || e.Call < first {
			h.clients[e.Client] = e.Call
		}
		one := h.sections[e.ID]
		switch e.Op {
		case opHold:
			one = &hold{record: e}
			h.holds = append(h.holds, one)
			h.sections[e.ID] = one
		case opLeave:
			if one != nil {
				one.leave = e.Call
			}
		case opEnd:
			if one != nil {
				one.end = e
			}
		case opNone:
			h.none = append(h.none, e)
		case opStall:
			all = append(all, stood(window{name: "stall", from: e.Call, to: e.Ret, proc: e.Proc, effects: effPause}, beat+stallAfter))
		case opLeft:
			h.notes = append(h.notes, e)
		}
		if e.Op == opHold || e.Op == opEnd || e.Op == opNone {
			h.ops++
		}
	}
	slices.SortFunc(h.holds, func(a, b *hold) int { return cmp.Compare(a.Ret, b.Ret) })
	slices.SortStableFunc(all, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	for _, w := range all {
		if w.effects == effHitch {
			h.moments = append(h.moments, w)
		} else {
			h.windows = append(h.windows, w)
		}
	}
	return h
}

// still is for how long of [from, to] the process, or a server, stood still.
func (h *history) still(from, to time.Duration, proc int) time.Duration {
	var all []span
	for w := range slices.Concat(h.windows, h.moments).met(from, to, proc, effHitch|effPause|effMinor|effFrozen) {
		all = append(all, span{max(w.from, from), min(w.to, to)})
	}
	return length(all)
}

// during returns a window as met has it; nil if there is none.
func (h *history) during(from, to time.Duration, proc int, effects effect, names ...string) *window {
	for w := range h.met(from, to, proc, effects, names...) {
		return w
	}
	return nil
}

const forever = time.Duration(1<<63 - 1)

// claims is until when a hold says that nobody else is inside: until its release begins,
// or for as long as it was told to be valid.
func (o *hold) claims() time.Duration { return max(o.lapses(), o.Ret) }

// lapses is when the claim ends; that may be before the return of a process that was stopped.
func (o *hold) lapses() time.Duration {
	end := o.end
	if end == nil {
		if o.leave > 0 {
			return min(o.Valid, o.leave) // its release may have run
		}
		return o.Valid // the lease outlives the process
	}
	until := end.Call
	if end.Result == resLost || end.Result == resClosed {
		until = min(until, end.Valid)
		if end.Told > 0 {
			until = min(until, end.Told)
		}
	}
	return until
}

// works is until when the section went on, claim or not.
func (o *hold) works() time.Duration {
	if o.end == nil {
		return o.claims()
	}
	return o.end.Call
}

// forgotten returns the first fault by which the server may have lost the hold.
func (h *history) forgotten(o *hold) *window {
	return h.during(o.Call, o.works(), 0, effForget, o.Names...)
}

// excludes tells whether two holds of one name must not be inside together.
func excludes(a, b *hold) bool { return a.Owner != b.Owner && (!a.Read || !b.Read) }

// byName returns the holds of each name in the order of their grants.
func (h *history) byName() map[string][]*hold {
	all := map[string][]*hold{}
	for _, o := range h.holds {
		for _, name := range o.Names {
			all[name] = append(all[name], o)
		}
	}
	return all
}

// report is what an episode came to.
type report struct {
	line
	violations []string
	undecided  []string       // histories for which the model's search took too long
	turns      int            // the most others that one had to wait for
	times      map[string]int // of each fault
}

func (r *report) violation(format string, args ...any) {
	r.wrong++
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

func (r *report) overlap(d time.Duration) {
	r.overlaps++
	r.longest = max(r.longest, d)
}

// short shows an operation in a message.
func (e *record) String() string {
	if e == nil {
		return "(no record)"
	}
	mode := e.Kind
	if e.Nested {
		mode += " nested"
	}
	s := fmt.Sprintf("%s %s %s%v [%v %v]", e.Op, e.ID, mode, e.Names, e.Call, e.Ret)
	for i, d := range []time.Duration{e.Valid, e.Lease, e.Told} {
		if d > 0 {
			s += fmt.Sprintf(" %s %v", []string{"valid", "lease", "told"}[i], d)
		}
	}
	if e.Result != "" {
		s += " " + e.Result
	}
	if len(e.Tokens) > 0 {
		s += fmt.Sprintf(" tokens %v", e.Tokens)
	}
	if e.Text != "" {
		s += fmt.Sprintf(" (%s)", e.Text)
	}
	return s
}

func (o *hold) String() string { return o.record.String() + "; " + o.end.String() }
