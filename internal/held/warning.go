package held

import (
	"math"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A hold that lives for longer than Config.Warn is told of, once: most often somebody
// forgot to unlock it. The watchdog looks when the time comes; no hold has a timer or a
// goroutine of its own. While Config.Warn is 0 a hold keeps nothing of this.

// ageing is what a hold keeps when its age is watched. A hold that is passed on inside
// the process is a new one, with an age of its own.
type ageing struct {
	hold  *Hold
	place Place  // guarded by reg.mu; who acquired it; nil: not noted
	whole *Whole // guarded by reg.mu; that it is part of; nil: none
	index int32  // guarded by reg.mu; in the registry's heap; -1: told, or over
}

// Whole is a hold that is made of several, of one client or of several: it is told of once.
type Whole struct {
	Name, Type string
	Place      Place

	told atomic.Bool
}

// Spot implements Timed.
func (a *ageing) Spot() *int32 { return &a.index }

// watchAgeLocked makes a new hold one whose age is watched, if the client wants that.
func (h *Hold) watchAgeLocked() {
	r := h.s.reg
	if r.cfg.Warn <= 0 {
		return
	}
	due := r.epoch.Add(h.began + min(r.cfg.Warn, math.MaxInt64/2)) // the longest durations are for ever
	h.age = &ageing{hold: h, index: -1}
	r.ages.Set(h.age, due)
	r.dog.wakeLocked(due)
}

// unwatchAgeLocked ends it with the hold.
func (h *Hold) unwatchAgeLocked() {
	if h.age != nil {
		h.s.reg.ages.Remove(h.age)
	}
}

// Place is where in the program a lock was acquired: program counters, the innermost
// first.
type Place []uintptr

// Here is the place of the caller, for [Hold.AcquiredAt]; nil where the hold's age is
// not watched: then it costs nothing.
func (h *Hold) Here() Place {
	if h.age == nil {
		return nil
	}
	var pcs [32]uintptr
	return append(Place(nil), pcs[:runtime.Callers(2, pcs[:])]...)
}

// AcquiredAt notes where the hold was acquired.
func (h *Hold) AcquiredAt(p Place) {
	if h.age == nil || p == nil {
		return
	}
	r := h.s.reg
	r.mu.Lock()
	h.age.place = p
	r.mu.Unlock()
}

// PartOf notes what the hold is a part of, with where that was acquired; nil: nobody wants to
// know.
func (h *Hold) PartOf(w *Whole) {
	if h.age == nil || w == nil {
		return
	}
	r := h.s.reg
	r.mu.Lock()
	h.age.place, h.age.whole = w.Place, w
	r.mu.Unlock()
}

// placeLocked is where the hold was acquired, nil if that is not known.
func (h *Hold) placeLocked() Place {
	if h.age == nil {
		return nil
	}
	return h.age.place
}

// library is what the import paths of this module's packages begin with.
var library = strings.TrimSuffix(reflect.TypeFor[Hold]().PkgPath(), "/internal/held")

// ours are the packages whose frames say nothing to a user, besides those of the
// runtime. Programs may lie below the module's path, too.
var ours = []string{"", "/internal", "/lock", "/rlock", "/fairlock", "/rwlock", "/multilock"}

// shownFrames is how many frames are told.
const shownFrames = 8

// String lists the frames outside of this library: function file:line; …
func (p Place) String() string {
	if len(p) == 0 {
		return ""
	}
	var b strings.Builder
	frames := runtime.CallersFrames(p)
	for shown, more := 0, true; more && shown < shownFrames; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == "" || ofLibrary(f.Function) {
			continue
		}
		if shown++; shown > 1 {
			b.WriteString("; ")
		}
		b.WriteString(f.Function + " " + f.File + ":" + strconv.Itoa(f.Line))
	}
	return b.String()
}

// ofLibrary reports whether a function is one of ours or of the runtime.
func ofLibrary(function string) bool {
	slash := strings.LastIndexByte(function, '/') + 1
	dot := strings.IndexByte(function[slash:], '.')
	if dot < 0 {
		return false
	}
	path := function[:slash+dot]
	rest, ok := strings.CutPrefix(path, library)
	if !ok {
		return path == "runtime"
	}
	for _, own := range ours {
		if rest == own || own != "" && strings.HasPrefix(rest, own+"/") {
			return true
		}
	}
	return false
}

// old is a hold to tell of.
type old struct {
	hold  *Hold
	place Place
	whole *Whole
}

// agedLocked takes the holds that are to be told of now. Those that are being released
// are not told of.
func (r *Registry) agedLocked(now time.Time) []old {
	var aged []old
	for {
		a, due, ok := r.ages.First()
		if !ok || now.Before(due) {
			return aged
		}
		r.ages.Remove(a)
		if a.hold.state == stateHeld && (a.whole == nil || a.whole.told.CompareAndSwap(false, true)) {
			aged = append(aged, old{a.hold, a.place, a.whole})
		}
	}
}

// logOld tells of them.
func (r *Registry) logOld(holds []old, now time.Time) {
	for _, o := range holds {
		h := o.hold
		name, typ := h.s.Lock.Name, h.s.Lock.Kind.Traits().Type
		if o.whole != nil {
			name, typ = o.whole.Name, o.whole.Type
		}
		args := r.TracedArgs(h.parent, h.link, "lock", name, "owner", h.s.Name,
			"type", typ, "since", h.since(now), "held", now.Sub(r.epoch)-h.began)
		if at := o.place.String(); at != "" {
			args = append(args, "acquired_at", at)
		}
		r.cfg.Log.WarnContext(h.parent, "redlatch: held for long", args...)
	}
}
