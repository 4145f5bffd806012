package multilock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// hold is the whole's hold: the members' holds and one context.
type hold struct {
	m      *MultiLock
	parent context.Context // what the acquisition was made with, and the owner
	ctx    context.Context
	cancel context.CancelCauseFunc // calls no code of the user's
	forget func()                  // lets go of parent, which may be a type of the user's; after cancel
	need   int                     // so many leaves must be held

	unlocking held.Gate // one Unlock at a time: who comes second hears how the first ended

	mu       sync.Mutex
	parts    []*part // guarded by mu
	alive    int     // guarded by mu; leaves that are held
	why      error   // guarded by mu; why it ended; nil: it has not
	onEnd    func()  // guarded by mu; of the whole that it is a member of
	released bool    // guarded by mu
	freed    int     // guarded by mu; of a quorum: copies freed so far
	pending  []*part // guarded by mu; an Unlock gave up waiting for them

	token uint64 // of a quorum: what it was granted

	// for the observer
	began   time.Time
	counted bool
	link    any  // guarded by mu
	told    bool // guarded by mu
}

func newHold(ctx context.Context, m *MultiLock, parts []*part, need int) *hold {
	h := &hold{m: m, parent: ctx, need: need, began: time.Now()}
	if o := m.observer(); o != nil {
		h.counted = o.Counting()
	}
	made := false
	defer func() {
		if !made { // a panic in code of the user's: nobody gets the hold
			drop(parts)
		}
	}()
	below, forget := context.WithCancel(context.WithValue(ctx, holdKey{}, h))
	h.forget = forget
	h.ctx, h.cancel = context.WithCancelCause(below)
	// All of them, also those that ended already, and before the first end is heard
	// of: what is not the hold's would be kept by the watchdog for ever.
	h.take(parts, func() bool { return true })
	made = true
	return h
}

// holdKey is the key of the innermost MultiLock's hold in the contexts of its sections.
type holdKey struct{}

// endsWithHold reports whether ctx has ended, or is about to, with the hold that it comes
// from; see ends.
func endsWithHold(ctx context.Context) bool {
	h, ok := ctx.Value(holdKey{}).(*hold)
	return ok && h.ends(ctx)
}

// ends reports whether ctx, which comes from the hold, has ended, or is about to with it: a
// member was found lost just now, and whoever found that is about to say so. It waits for that.
func (h *hold) ends(ctx context.Context) bool {
	_, holds := h.members()
	alive := 0
	for _, m := range holds {
		if endOf(m) == nil {
			alive++
		}
	}
	if alive >= h.need || ctx.Done() == nil {
		return ctx.Err() != nil
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	for over := h.ctx.Done(); ; {
		select {
		case <-ctx.Done():
			return true
		case <-over: // so what it has of the hold are values, if it does not end in a moment, too
			over = nil
			t.Reset(50 * time.Millisecond)
		case <-t.C: // a member's own context does not end the whole
			return false
		}
	}
}

// adopt makes a part one of the hold's. It reports false when the hold is over;
// that the caller's own context has ended does not make it so.
func (h *hold) adopt(p *part) bool {
	return h.take([]*part{p}, func() bool { return !h.released && h.alive >= h.need })
}

// take makes parts the hold's if it may, which is asked under the mutex.
func (h *hold) take(parts []*part, may func() bool) bool {
	h.mu.Lock()
	if !may() {
		h.mu.Unlock()
		return false
	}
	for _, p := range parts {
		h.parts = append(h.parts, p)
		h.alive += len(p.leaves)
	}
	h.mu.Unlock()
	for _, p := range parts {
		for _, member := range p.holds() {
			h.watch(member)
		}
	}
	return true
}

// Name implements lock.Hold.
func (h *hold) Name() string { return h.m.name }

// Context implements lock.Hold.
func (h *hold) Context() context.Context { return h.ctx }

// members are the holds of all leaves, with the leaves.
func (h *hold) members() ([]leaf, []lock.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var leaves []leaf
	var holds []lock.Hold
	for _, p := range h.parts {
		leaves = append(leaves, p.leaves...)
		holds = append(holds, p.holds()...)
	}
	return leaves, holds
}

// Tokens implements lock.MultiHold.
func (h *hold) Tokens() []uint64 {
	leaves, holds := h.members()
	byLeaf := map[int]uint64{}
	for i, l := range leaves {
		byLeaf[l.index] = holds[i].Token()
	}
	out := make([]uint64, len(h.m.members))
	for i, idx := range h.m.tokens {
		for _, l := range idx {
			out[i] = max(out[i], byLeaf[l])
		}
	}
	return out
}

// Token implements lock.Hold: the largest of the members'. It increases over the
// holders of one composition, since each member's does.
func (h *hold) Token() uint64 {
	if h.m.quorum {
		return h.token
	}
	_, holds := h.members()
	var token uint64
	for _, m := range holds {
		token = max(token, m.Token())
	}
	return token
}

// Fenced reports whether the copies of a quorum are.
func (h *hold) Fenced() bool {
	_, holds := h.members()
	return slices.ContainsFunc(holds, func(m lock.Hold) bool {
		one, ok := m.(interface{ Fenced() bool })
		return ok && one.Fenced()
	})
}

// Tokenless is the first member without a token, if there is one. A quorum has one token for all copies.
func (h *hold) Tokenless() lock.Hold {
	_, holds := h.members()
	if i := slices.IndexFunc(holds, func(m lock.Hold) bool { return m.Token() == 0 }); i >= 0 && !h.m.quorum {
		return holds[i]
	}
	return nil
}

// Owner implements lock.Hold: the first member's, in the order of the arguments.
func (h *hold) Owner() lock.OwnerID {
	leaves, holds := h.members()
	first := 0
	for i, l := range leaves {
		if l.index < leaves[first].index {
			first = i
		}
	}
	return holds[first].Owner()
}

// ValidUntil implements lock.Hold: until then as many members are held as are needed. Of a
// hold that was lost it is what it was, as of a single one.
func (h *hold) ValidUntil() time.Time {
	_, holds := h.members()
	ends := make([]time.Time, 0, len(holds))
	var lost []time.Time
	for _, m := range holds {
		if end := m.ValidUntil(); errors.Is(endOf(m), lock.ErrLeaseLost) {
			lost = append(lost, end)
		} else {
			ends = append(ends, end)
		}
	}
	if len(ends) < h.need {
		ends = append(ends, lost...)
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[h.need-1]
}

// Unlock implements lock.Hold: all members are freed, whatever comes back for
// each, and the errors joined.
func (h *hold) Unlock(ctx context.Context) error {
	defer h.forget()
	first, end, err := h.unlock(ctx)
	if first {
		h.ended("released")
	}
	end(err)
	return err
}

// unlock is Unlock without what is told of its end. The section is over before an observer's
// code is called; if that panics, what is left goes on in the background.
func (h *hold) unlock(ctx context.Context) (first bool, end observe.End, err error) {
	began := time.Now()
	h.unlocking.Enter(context.Background(), nil)
	defer h.unlocking.Leave()
	parts, first := h.over()
	left, over := parts, false
	defer func() {
		if drop(left); over {
			return
		}
		if first { // a panic in the user's code
			h.endWith(lock.ErrUnlocked, "released", nil)
		}
		if end != nil {
			end(observe.ErrPanic)
		}
	}()
	ctx, end = h.operation(ctx, observe.Release)
	begun := func() { left = left[1:] }
	switch {
	case len(parts) == 0:
		err = lock.ErrNotHeld
	case h.m.quorum:
		err = h.unlockQuorum(ctx, parts, began, begun)
	default:
		err = h.unlockAll(ctx, parts, began, begun)
	}
	over = true
	return first, end, err
}

// over ends the section, and returns what is to be given back: for a second Unlock what the
// first one gave up waiting for.
func (h *hold) over() (parts []*part, first bool) {
	h.mu.Lock()
	first, h.released = !h.released, true
	if parts = h.parts; !first {
		parts, h.pending = h.pending, nil
	}
	if h.why == nil {
		h.why = lock.ErrUnlocked
	}
	h.mu.Unlock()
	h.cancel(lock.ErrUnlocked)
	return parts, first
}

// drop unlocks in the background, for one who can't: an observer hears only that the hold has ended.
func (h *hold) drop() {
	parts, first := h.over()
	if !first {
		return
	}
	defer h.forget()
	drop(parts)
	h.endWith(lock.ErrUnlocked, "released", nil)
}

func (h *hold) unlockAll(ctx context.Context, parts []*part, began time.Time, begun func()) error {
	waits := make([]func() []error, 0, len(parts))
	called := 0
	defer func() { // after a panic: the others are told of what they are to be told, too
		for _, wait := range waits[called:] {
			go func() { _ = caught(func() { wait() }) }() // ends with the answer, which is bounded
		}
	}()
	for _, p := range parts {
		waits = append(waits, p.unlock(ctx, began))
		begun()
	}
	var errs []error
	for i, wait := range waits {
		called++
		got := wait()
		if slices.ContainsFunc(got, func(err error) bool { return errors.Is(err, lock.ErrUnavailable) }) {
			h.mu.Lock()
			h.pending = append(h.pending, parts[i])
			h.mu.Unlock()
		}
		errs = append(errs, got...)
	}
	return lock.Join(errs...)
}

// Extend implements lock.Hold, on all members at once. After an error some may
// have the new lease. Of a quorum it returns when a majority has it and the others have had
// some time more; for those it goes on in the background. No copy of a quorum is asked for more
// than LeaseTime: a longer lease is renewed up to its end.
func (h *hold) Extend(ctx context.Context, lease time.Duration) (err error) {
	ctx, end := h.operation(ctx, observe.Extend)
	err = observe.ErrPanic
	defer func() { end(err, observe.Note{Lease: lease}) }()
	return h.extend(ctx, lease)
}

// extendMember extends one member, or copy.
func (h *hold) extendMember(ctx context.Context, m lock.Hold, lease time.Duration) error {
	if one, ok := m.(*held.Hold); ok && h.m.quorum {
		return one.Prolong(ctx, lease)
	}
	return m.Extend(ctx, lease)
}

// extendable says why the hold can't be extended; nil: it can.
func (h *hold) extendable(ctx context.Context, length time.Duration) error {
	if length <= 0 {
		return &lock.InvalidOptionError{Option: "lease", Reason: "it is not positive"}
	}
	if err := lease.Check(length); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // else the members may be faster than what ends theirs
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return lock.ErrNotHeld
	}
	return h.why // what is left of a lost one is kept no longer
}

func (h *hold) extend(ctx context.Context, length time.Duration) error {
	if err := h.extendable(ctx, length); err != nil {
		return err
	}
	// The caller's ctx ends the call, but not what goes on behind it: a copy that is late is
	// extended, too, since the hold may lose another one.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	_, holds := h.members()
	results := atOnce(len(holds), func(i int) (_ struct{}, err error) { // each is bounded
		return struct{}{}, h.extendMember(inner, holds[i], length)
	})
	began := time.Now()
	var grace <-chan time.Time
	var errs []error
	for ok, answered := 0, 0; answered < len(holds); {
		select {
		case r := <-results:
			err := r.err
			answered++
			if r.broke != nil {
				stop()
				cancel()
				panic(r.broke)
			}
			if errors.Is(err, context.Canceled) && ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil {
				errs = append(errs, err)
			} else if ok++; ok == h.need && ok < len(holds) {
				t := time.NewTimer(max(2*time.Since(began), 5*time.Millisecond))
				defer t.Stop()
				grace = t.C
			}
			continue
		case <-grace:
		}
		stop()
		go func() { // ends with the last Extend
			for range len(holds) - answered {
				<-results
			}
			cancel()
		}()
		return nil
	}
	stop()
	cancel()
	if len(holds)-len(errs) >= h.need {
		return nil
	}
	err := lock.Join(errs...)
	if errors.Is(err, lock.ErrLeaseLost) {
		h.ends(h.ctx) // who is told that it is lost finds it ended
	}
	return err
}
