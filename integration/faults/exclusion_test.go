package faults

import (
	"slices"
	"time"
)

// exclusion checks that claims that exclude each other don't overlap, whatever was paused;
// where a server forgot, and after the deadlines, it counts.
func (h *history) exclusion(r *report) {
	for name, all := range h.byName() {
		var open []*hold
		for _, b := range all { // by the time of their grants
			open = slices.DeleteFunc(open, func(a *hold) bool { return a.works() <= b.Ret })
			for _, a := range open {
				if !excludes(a, b) {
					continue
				}
				switch together := min(a.claims(), b.claims()) - b.Ret; {
				case together <= 0:
					r.overlap(min(a.works(), b.works()) - b.Ret)
				case h.forgotten(a) != nil || h.forgotten(b) != nil:
					r.overlap(together)
				default:
					r.violation("two inside %s for %v:\n  %v\n  %v", name, together, a, b)
				}
			}
			open = append(open, b)
		}
	}
}

// fencing checks what the store saw.
func (h *history) fencing(r *report) {
	for name, all := range h.writes {
		last := ""
		var tokens uint64
		for _, w := range all {
			o := h.sections[w.Section]
			switch broken := w.Base != w.Found || w.Found != last; {
			case w.Token < tokens:
				r.violation("the store of %s took token %d after %d: %v", name, w.Token, tokens, o)
			case !broken:
			case w.Token > 0:
				r.violation("%s: a write with token %d was accepted, though it rests on %q and found %q: %v", name, w.Token, w.Base, w.Found, o)
			case h.late(o), h.late(h.sections[w.Found]):
				r.overlap(0) // without a token nobody stops it
			default:
				r.violation("%s: a lost update: a write rests on %q and found %q: %v", name, w.Base, w.Found, o)
			}
			last, tokens = w.Section, max(tokens, w.Token)
		}
	}
	for _, o := range h.holds {
		if o.end == nil {
			continue
		}
		if o.end.Refused > 0 {
			r.refused++
			if o.end.Refused < o.claims() && h.forgotten(o) == nil {
				r.violation("the store refused the token of a hold in order: %v", o)
			}
		}
		if o.end.Bad != "" && h.during(o.Call, o.end.BadAt, 0, effForget, o.Names...) == nil {
			r.violation("%s, at %v: %v", o.end.Bad, o.end.BadAt, o)
		}
		if found := o.end.Found; o.Read && len(found) == 2 && found[0] != found[1] && o.end.Result == resOK &&
			!h.late(o) && !h.late(h.sections[found[1]]) && !h.over(h.sections[found[1]], o.Ret) {
			r.violation("a reader saw a write, %q and then %q: %v", found[0], found[1], o)
		}
	}
}

// late tells whether a section may have gone on beside another one: its server forgot it, or its
// process stood still.
func (h *history) late(o *hold) bool {
	return o != nil && (h.forgotten(o) != nil || h.during(o.Ret, o.works(), o.Proc, effPause) != nil)
}

// over tells whether a section went on after its claim, which was lost, had ended before that. What
// it writes then without a token newer than the reader's nobody stops; exclusion counts it.
func (h *history) over(o *hold, before time.Duration) bool {
	return o != nil && o.end != nil && o.claims() < o.works() && o.claims() <= before
}
