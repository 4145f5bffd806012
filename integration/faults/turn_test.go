package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// longest is the longest lease that is asked for; the shortest is a third of it.
func longest(lease time.Duration) time.Duration { return lease + lease/2 }

// result names how an operation ended.
func result(err error) string {
	var refused *redlatch.ServerError
	switch {
	case err == nil:
		return resOK
	case errors.Is(err, redlatch.ErrLeaseLost):
		return resLost
	case errors.Is(err, redlatch.ErrUnavailable): // it names what a node has said, a refusal, too: to those before it in the line
		return resUnavailable
	case errors.As(err, &refused):
		return resRefused
	case errors.Is(err, redlatch.ErrClosed):
		return resClosed
	case errors.Is(err, redlatch.ErrUpgrade):
		return resUpgrade
	case errors.Is(err, redlatch.ErrNotAcquired):
		return resBusy
	}
	return resOther
}

// turn is one acquisition, its section and its release.
func (p *party) turn(g *generation, r *rand.Rand) {
	t := p.pick(g, r)
	e := &record{Op: opNone, ID: p.id(), Kind: t.kind, Names: t.names, Read: t.read, Client: g.clients[0].ID()}
	e.Owner = e.ID
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	shared := r.IntN(16) == 0 && !p.args.Work.Single
	if shared {
		e.Owner = fmt.Sprintf("%s shared %d", e.Client, r.IntN(2))
		ctx = redlatch.WithOwner(ctx, e.Owner)
	}
	if r.IntN(3) == 0 && !p.args.Work.Watched {
		e.Lease = p.args.Lease/2 + time.Duration(r.Int64N(int64(p.args.Lease)))
	}
	if e.Lease > 0 && p.args.Work.Long {
		e.Lease *= 2
	}
	h := p.acquire(ctx, cancel, t.lock, e, r)
	if h == nil {
		if e.Result == resOther || e.Result == resUpgrade && !shared {
			p.wrong("%s of %v: %s", t.kind, t.names, e.Text)
		}
		if e.Result != resOK && e.Result != resBusy { // a server that refuses is not asked in a loop
			time.Sleep(time.Duration(r.Int64N(int64(10 * time.Millisecond))))
		}
		return
	}
	p.section(g, t, e, h, shared, r)
}

func (p *party) id() string { return fmt.Sprintf("%d/%d", p.args.Proc, p.ids.Add(1)) }

// acquire takes the lock in one of the ways there are, and records it.
func (p *party) acquire(ctx context.Context, cancel context.CancelFunc, l redlatch.Locker, e *record, r *rand.Rand) redlatch.Hold {
	var h redlatch.Hold
	var err error
	way := r.IntN(20)
	if p.args.Work.Patient {
		way = 19
	}
	cancelled := time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	if way%2 == 0 {
		cancelled = time.Duration(r.Int64N(int64(p.args.Lease)))
	}
	wait := time.Duration(r.Int64N(int64(p.args.Lease)))
	if way == 17 {
		wait = time.Millisecond
	}
	e.Call = mono()
	switch {
	case way < 4: // given up at some time
		e.Until = e.Call + cancelled
		timer := time.AfterFunc(cancelled, cancel)
		h, err = l.Lock(ctx, redlatch.WithLease(e.Lease))
		timer.Stop()
	case way < 6:
		e.Once, e.Until = true, e.Call
		h, err = l.TryLock(ctx, 0, e.Lease)
	case way < 9, way == 17:
		e.Until = e.Call + wait
		h, err = l.TryLock(ctx, wait, e.Lease)
	default:
		h, err = l.Lock(ctx, redlatch.WithLease(e.Lease))
	}
	e.Ret = mono()
	p.acquired(e, h, err)
	return h
}

// acquired records how an acquisition ended.
func (p *party) acquired(e *record, h redlatch.Hold, err error) {
	e.Result = result(err)
	if err != nil {
		e.Text = err.Error()
		if strings.ContainsAny(e.Text, "\n\r") {
			p.wrong("an error of more than one line: %q", e.Text)
		}
		p.rec.write(e)
		return
	}
	e.Op, e.Valid, e.Tokens = opHold, deadline(h), tokens(h)
	p.rec.write(e)
}

func tokens(h redlatch.Hold) []uint64 {
	if m, ok := h.(redlatch.MultiHold); ok {
		return m.Tokens()
	}
	return []uint64{h.Token()}
}

// deadline is the hold's, on the clock of the records.
func deadline(h redlatch.Hold) time.Duration {
	at := h.ValidUntil()
	return mono() + time.Until(at)
}

// section is what happens under the lock: e is its record.
func (p *party) section(g *generation, t thing, e *record, h redlatch.Hold, shared bool, r *rand.Rand) {
	end := &record{Op: opEnd, ID: e.ID, Names: t.names}
	told := newTold(h)
	// A quorum's hold has the tokens of its members; the one that counts is the largest.
	fence := func(i int) uint64 {
		if t.read {
			return 0 // of the last writer: it says what was read
		}
		if len(e.Tokens) != len(t.names) {
			return h.Token()
		}
		return e.Tokens[i]
	}
	base := make([]string, len(t.names))
	use := !shared // two of one owner are inside together by right
	touchAll := func(mode string) {
		for i, name := range t.names {
			if !use || mode == "w" && h.Context().Err() != nil && fence(i) == 0 {
				continue // without a token only the context can stop a late write
			}
			found, ok, err := p.store.touch(name, e.ID, fence(i), mode, base[i])
			switch {
			case err != nil:
				p.wrong("%v", err)
			case !ok:
				end.Refused, use = mono(), false
			case mode == "":
				base[i] = found
			}
		}
	}
	touchAll("")
	inner := p.work(g, t, e, h, end, r)
	if t.read {
		if h.Context().Err() == nil && use {
			touched, _, err := p.store.touch(t.names[0], e.ID, 0, "", "")
			if err != nil {
				p.wrong("%v", err)
			}
			end.Found = []string{base[0], touched}
		}
	} else {
		touchAll("w")
	}
	first := r.IntN(2) == 0
	if inner != nil && first {
		p.leave(inner)
	}
	if !p.forgets(h, end, told) {
		p.release(h, end, told)
	}
	if inner != nil && !first {
		p.leave(inner)
	}
}

// again is a nested hold.
type again struct {
	hold redlatch.Hold
	end  *record
	told *told
	free context.CancelFunc // of its context
}

func (p *party) leave(a *again) {
	p.release(a.hold, a.end, a.told)
	a.free()
}

// work spends the time of the section. It returns the nested hold, if one is left.
func (p *party) work(g *generation, t thing, e *record, h redlatch.Hold, end *record, r *rand.Rand) *again {
	lease, w := p.args.Lease, p.args.Work
	var inner *again
	if r.IntN(4) == 0 && !w.Single {
		inner = p.nested(g, t, e, h, r)
	}
	if r.IntN(12) == 0 {
		_ = h.Extend(context.Background(), lease) // what it is worth shows in the deadline
	}
	if r.IntN(10) == 0 {
		p.probe(t, h, end)
	}
	often := max(w.Pause, 1)
	switch n := r.IntN(2 * often); {
	case w.Pause > 0 && n == 0:
		pause(h, time.Duration(r.Int64N(int64(lease))))
	case w.Pause > 0 && n == often:
		pause(h, 2*lease+e.Lease) // a fixed lease to its end
	default:
		pause(h, time.Duration(r.Int64N(int64(max(w.Stay, 2*time.Millisecond)))))
	}
	if inner != nil && r.IntN(2) == 0 { // a partial release, and work after it
		p.leave(inner)
		inner = nil
		p.probe(t, h, end)
		if w.Pause > 0 && r.IntN(w.Pause) == 0 {
			pause(h, 2*lease+e.Lease*2)
		}
	}
	if r.IntN(10) == 0 {
		p.probe(t, h, end)
	}
	return inner
}

// nested re-enters. Some ask for an hour and give up at once.
func (p *party) nested(g *generation, t thing, outer *record, h redlatch.Hold, r *rand.Rand) *again {
	e := &record{
		Op: opNone, ID: p.id(), Kind: t.kind, Names: t.names, Read: t.read || t.innerRead, Owner: outer.Owner,
		Client: g.clients[0].ID(), Nested: true,
	}
	ctx, cancel := context.WithTimeout(h.Context(), patient)
	if r.IntN(2) == 0 {
		e.Lease = p.args.Lease/2 + time.Duration(r.Int64N(int64(p.args.Lease)))
	}
	e.Call = mono()
	var nested redlatch.Hold
	var err error
	if p.args.Work.Hour && r.IntN(2) == 0 {
		e.Lease = time.Hour
		d := time.Duration(r.Int64N(int64(2 * time.Millisecond)))
		e.Until = e.Call + d
		timer := time.AfterFunc(d, cancel)
		nested, err = t.inner.Lock(ctx, redlatch.WithLease(e.Lease))
		timer.Stop()
	} else {
		e.Once, e.Until = true, e.Call
		nested, err = t.inner.TryLock(ctx, 0, e.Lease)
	}
	e.Ret = mono()
	p.acquired(e, nested, err)
	if nested == nil {
		cancel()
		return nil
	}
	return &again{nested, &record{Op: opEnd, ID: e.ID, Names: t.names}, newTold(nested), cancel}
}

// hammer takes a lock that nobody else wants, and re-enters or extends it from eight goroutines
// without a pause for longer than a lease. The watchdog must keep it all the same.
func (p *party) hammer(r *rand.Rand) {
	g := p.gen.Load()
	kinds := []string{kindPlain, kindFair, kindRead, kindWrite, kindGroup}
	t := p.thing(g, kinds[r.IntN(len(kinds))], own+p.args.Proc)
	e := &record{Op: opNone, ID: p.id(), Kind: t.kind, Names: t.names, Read: t.read, Client: g.clients[0].ID()}
	e.Owner = e.ID
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	e.Call = mono()
	h, err := t.lock.Lock(ctx)
	e.Ret = mono()
	if p.acquired(e, h, err); err != nil {
		return
	}
	end, told := &record{Op: opEnd, ID: e.ID, Names: t.names}, newTold(h)
	inside, cancel := context.WithTimeout(h.Context(), p.args.Lease*13/10)
	defer cancel()
	var lease time.Duration // which raises the lock's lease, or does not
	switch r.IntN(4) {
	case 0:
		lease = p.args.Lease / 4
	case 1, 2:
		lease = p.args.Lease / 100
	}
	stay := time.Duration(min(r.IntN(4), 1)) * time.Millisecond
	extend := r.IntN(2) == 0 // by less than there is: the watchdog alone keeps the lock
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for inside.Err() == nil {
				p.extra.Add(1)
				if extend {
					if h.Extend(context.Background(), time.Millisecond) != nil {
						return
					}
					continue
				}
				again, err := t.lock.TryLock(h.Context(), 0, lease)
				if err != nil {
					return // what became of the hold says the rest
				}
				time.Sleep(stay)
				_ = again.Unlock(context.Background())
			}
		})
	}
	wg.Wait()
	p.probe(t, h, end)
	p.release(h, end, told)
}

// lonely takes a lock that nobody else wants, and is in no hurry: it must get it.
func (p *party) lonely(r *rand.Rand) {
	g := p.gen.Load()
	kinds := []string{kindPlain, kindFair, kindRead, kindWrite}
	t := p.thing(g, kinds[r.IntN(len(kinds))], own+p.args.Proc)
	e := &record{Op: opNone, ID: p.id(), Kind: t.kind, Names: t.names, Read: t.read, Client: g.clients[0].ID()}
	e.Owner = e.ID
	const wait = slack // less says nothing on a busy machine
	e.Call = mono()
	e.Until = e.Call + wait
	h, err := t.lock.TryLock(context.Background(), wait, 0)
	e.Ret = mono()
	if p.acquired(e, h, err); err == nil {
		p.release(h, &record{Op: opEnd, ID: e.ID, Names: t.names}, newTold(h))
	}
}

// release unlocks, again if the server did not answer, and records it.
func (p *party) release(h redlatch.Hold, end *record, told *told) {
	p.rec.write(&record{Op: opLeave, ID: end.ID, Call: mono()})
	end.Call = mono()
	err := h.Unlock(context.Background())
	end.Ret = mono()
	end.Result, end.Valid = result(err), deadline(h)
	if err != nil {
		end.Text = err.Error()
	}
	var lost *redlatch.LeaseLostError
	if errors.As(err, &lost) {
		end.Reason = string(lost.Reason)
	}
	end.Told, end.Ended = told.at()
	p.rec.write(end)
	if end.Result == resOther {
		p.wrong("Unlock of %v: %s", end.Names, end.Text)
	}
	for range 3 {
		if end.Result != resUnavailable && end.Result != resRefused {
			return
		}
		time.Sleep(50 * time.Millisecond)
		if result(h.Unlock(context.Background())) == resOK {
			return
		}
	}
}

// forgets leaves a lost hold without an Unlock, as a program does that returns early, and records that. What is left
// of it must not be kept: whoever waits for the lock would be forgotten.
func (p *party) forgets(h redlatch.Hold, end *record, told *told) bool {
	if !p.args.Work.Forget || !errors.Is(context.Cause(h.Context()), redlatch.ErrLeaseLost) {
		return false
	}
	p.rec.write(&record{Op: opLeave, ID: end.ID, Call: mono()})
	end.Call = mono()
	end.Ret, end.Result, end.Valid = end.Call, resLost, deadline(h)
	end.Told, end.Ended = told.at()
	p.rec.write(end)
	return true
}

// told notes when a hold's context ends, unless its Unlock or its caller's ctx ended it.
type told struct {
	done chan struct{}
	stop func() bool
	when time.Duration
	why  error
}

func newTold(h redlatch.Hold) *told {
	n := &told{done: make(chan struct{})}
	n.stop = context.AfterFunc(h.Context(), func() {
		n.when, n.why = mono(), context.Cause(h.Context())
		close(n.done)
	})
	return n
}

// at is called after Unlock, which ends the context. It returns when the hold was told that
// it is lost, or when its context ended for another reason.
func (n *told) at() (lost, ended time.Duration) {
	if n.stop() {
		return 0, 0
	}
	<-n.done
	if errors.Is(n.why, redlatch.ErrLeaseLost) || errors.Is(n.why, redlatch.ErrClosed) {
		return n.when, 0
	}
	return 0, n.when
}

// pause works, until the hold's context says not to.
func pause(h redlatch.Hold, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.Context().Done():
	}
}

// probe asks the server itself, past all faults, whether the hold's local deadline lies
// before the end of its key.
func (p *party) probe(t thing, h redlatch.Hold, end *record) {
	if len(p.direct) == 0 || !t.probe || end.Bad != "" || h.Context().Err() != nil {
		return
	}
	valid := deadline(h)
	for _, key := range t.names {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		left, err := p.direct[0].Do(ctx, p.direct[0].B().Pttl().Key(key).Build()).AsInt64()
		cancel()
		now := mono()
		if err != nil || h.Context().Err() != nil {
			return // a fault of the server; or the hold was told
		}
		ends := now + time.Duration(max(left, 0)+1)*time.Millisecond
		switch {
		case left == -1:
			end.Bad, end.BadAt = key+" has no lease", now
		case valid > ends && valid > now:
			end.Bad = fmt.Sprintf("the deadline lies %v behind the end of %s (%d ms)", valid-ends, key, left)
			end.BadAt = now
		}
	}
}
