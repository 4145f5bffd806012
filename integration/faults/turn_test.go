package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// longest is the longest lease that is asked for; the shortest is a third of it.
func longest(lease time.Duration) time.Duration { return lease + lease/2 }

func seeded(a, b uint64) *rand.Rand { return rand.New(rand.NewPCG(a, b)) } // #nosec G404 -- a test

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

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

func (p *party) id() string { return fmt.Sprintf("%d/%d", p.args.Proc, p.ids.Add(1)) }

// attempt begins the record of an acquisition by an owner of its own.
func (p *party) attempt(g *generation, t thing) *record {
	id := p.id()
	return &record{Op: opNone, ID: id, Owner: id, Kind: t.kind, Names: t.names, Read: t.read, Client: g.clients[0].ID()}
}

// taken is a hold with its records.
type taken struct {
	redlatch.Hold

	got, end *record
	ended    chan time.Duration // when the hold's context ended
	free     context.CancelFunc // of the caller's ctx
}

// take acquires and records what came of it; nil: no hold. An acquisition that is to give up does so within
// that time; others are below 0. free is called when nothing is held any more.
func (p *party) take(e *record, within time.Duration, free context.CancelFunc, acquire func() (redlatch.Hold, error)) *taken {
	e.Call = mono()
	if within >= 0 {
		e.Until = e.Call + within
	}
	h, err := acquire()
	e.Ret, e.Result = mono(), result(err)
	if err == nil {
		e.Op, e.Valid, e.Tokens = opHold, deadline(h), tokens(h)
		p.rec.write(e)
		ended := make(chan time.Duration, 1)
		context.AfterFunc(h.Context(), func() { ended <- mono() })
		return &taken{h, e, &record{Op: opEnd, ID: e.ID, Names: e.Names}, ended, free}
	}
	free()
	e.Text = err.Error()
	if strings.ContainsAny(e.Text, "\n\r") {
		p.wrong("an error of more than one line: %q", e.Text)
	}
	p.rec.write(e)
	return nil
}

// givenUp is an acquisition whose ctx is cancelled after a time.
func givenUp(ctx context.Context, cancel context.CancelFunc, after time.Duration, l redlatch.Locker, lease time.Duration) (redlatch.Hold, error) {
	defer time.AfterFunc(after, cancel).Stop()
	return l.Lock(ctx, redlatch.WithLease(lease))
}

// turn is one acquisition, its section and its release.
func (p *party) turn(g *generation, r *rand.Rand) {
	t := p.pick(g, r)
	e := p.attempt(g, t)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	shared := r.IntN(16) == 0 && !p.args.Work.Single
	if shared {
		e.Owner = fmt.Sprintf("%s shared %d", e.Client, r.IntN(2))
		ctx = redlatch.WithOwner(ctx, e.Owner)
	}
	if r.IntN(3) == 0 && !p.args.Work.Watched {
		e.Lease = p.args.Lease/2 + upTo(r, p.args.Lease)
	}
	if p.args.Work.Long {
		e.Lease *= 2
	}
	if h := p.acquire(ctx, cancel, t.lock, e, r); h != nil {
		p.section(g, t, h, shared, r)
		return
	}
	if e.Result == resOther || e.Result == resUpgrade && !shared {
		p.wrong("%s of %v: %s", t.kind, t.names, e.Text)
	}
	if e.Result != resBusy { // a server that refuses is not asked in a loop
		time.Sleep(upTo(r, 10*ms))
	}
}

// acquire takes the lock in one of the ways there are.
func (p *party) acquire(ctx context.Context, cancel context.CancelFunc, l redlatch.Locker, e *record, r *rand.Rand) *taken {
	way, cancelled := r.IntN(20), upTo(r, 20*ms)
	if way%2 == 0 {
		cancelled = upTo(r, p.args.Lease)
	}
	wait := upTo(r, p.args.Lease)
	if way == 17 {
		wait = ms
	}
	switch {
	case p.args.Work.Patient:
	case way < 4: // given up at some time
		return p.take(e, cancelled, cancel, func() (redlatch.Hold, error) { return givenUp(ctx, cancel, cancelled, l, e.Lease) })
	case way < 6:
		e.Once = true
		return p.take(e, 0, cancel, func() (redlatch.Hold, error) { return l.TryLock(ctx, 0, e.Lease) })
	case way < 9, way == 17:
		return p.take(e, wait, cancel, func() (redlatch.Hold, error) { return l.TryLock(ctx, wait, e.Lease) })
	}
	return p.take(e, -1, cancel, func() (redlatch.Hold, error) { return l.Lock(ctx, redlatch.WithLease(e.Lease)) })
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

// fence is the token by which a section guards its i-th register. A quorum's hold has the tokens of its
// members; the one that counts is the largest. A reader's is of the last writer: it says what was read.
func (h *taken) fence(i int) uint64 {
	switch {
	case h.got.Read:
		return 0
	case len(h.got.Tokens) != len(h.got.Names):
		return h.Token()
	}
	return h.got.Tokens[i]
}

// section is what happens under the lock.
func (p *party) section(g *generation, t thing, h *taken, shared bool, r *rand.Rand) {
	base := make([]string, len(t.names))
	use := !shared // two of one owner are inside together by right
	touch := func(mode string) (found []string) {
		for i, name := range t.names {
			if !use || mode == "w" && h.Context().Err() != nil && h.fence(i) == 0 {
				continue // without a token only the context can stop a late write
			}
			value, ok, err := p.store.touch(name, h.got.ID, h.fence(i), mode, base[i])
			switch {
			case err != nil:
				p.wrong("%v", err)
			case !ok:
				h.end.Refused, use = mono(), false
			}
			found = append(found, value)
		}
		return found
	}
	copy(base, touch(""))
	inner := p.work(g, t, h, r)
	switch {
	case !t.read:
		touch("w")
	case h.Context().Err() == nil && use:
		h.end.Found = slices.Concat(base, touch(""))
	}
	first := r.IntN(2) == 0
	if first {
		p.release(inner)
	}
	p.release(h)
	if !first {
		p.release(inner)
	}
}

// work spends the time of the section. It returns the nested hold, if one is left.
func (p *party) work(g *generation, t thing, h *taken, r *rand.Rand) (inner *taken) {
	lease, w := p.args.Lease, p.args.Work
	if r.IntN(4) == 0 && !w.Single {
		inner = p.nested(g, t, h, r)
	}
	if r.IntN(12) == 0 {
		_ = h.Extend(context.Background(), lease) // what it is worth shows in the deadline
	}
	if r.IntN(10) == 0 {
		p.probe(t, h)
	}
	often := max(w.Pause, 1)
	switch n := r.IntN(2 * often); {
	case w.Pause > 0 && n == 0:
		pause(h, upTo(r, lease))
	case w.Pause > 0 && n == often:
		pause(h, 2*lease+h.got.Lease) // a fixed lease to its end
	default:
		pause(h, upTo(r, max(w.Stay, 2*ms)))
	}
	if inner != nil && r.IntN(2) == 0 { // a partial release, and work after it
		p.release(inner)
		inner = nil
		p.probe(t, h)
		if w.Pause > 0 && r.IntN(w.Pause) == 0 {
			pause(h, 2*lease+h.got.Lease*2)
		}
	}
	if r.IntN(10) == 0 {
		p.probe(t, h)
	}
	return inner
}

// nested re-enters. Some ask for an hour and give up at once.
func (p *party) nested(g *generation, t thing, outer *taken, r *rand.Rand) *taken {
	e := p.attempt(g, t)
	e.Owner, e.Nested, e.Read = outer.got.Owner, true, t.read || t.innerRead
	ctx, cancel := context.WithTimeout(outer.Context(), patient)
	if r.IntN(2) == 0 {
		e.Lease = p.args.Lease/2 + upTo(r, p.args.Lease)
	}
	if p.args.Work.Hour && r.IntN(2) == 0 {
		e.Lease = time.Hour
		d := upTo(r, 2*ms)
		return p.take(e, d, cancel, func() (redlatch.Hold, error) { return givenUp(ctx, cancel, d, t.inner, e.Lease) })
	}
	e.Once = true
	return p.take(e, 0, cancel, func() (redlatch.Hold, error) { return t.inner.TryLock(ctx, 0, e.Lease) })
}

// hammer takes a lock that nobody else wants, and re-enters or extends it from eight goroutines
// without a pause for longer than a lease. The watchdog must keep it all the same.
func (p *party) hammer(r *rand.Rand) {
	t, h := p.lonely(r, -1, kindPlain, kindFair, kindRead, kindWrite, kindGroup)
	if h == nil {
		return
	}
	inside, cancel := context.WithTimeout(h.Context(), p.args.Lease*13/10)
	defer cancel()
	var lease time.Duration // which raises the lock's lease, or does not
	switch r.IntN(4) {
	case 0:
		lease = p.args.Lease / 4
	case 1, 2:
		lease = p.args.Lease / 100
	}
	stay := time.Duration(min(r.IntN(4), 1)) * ms
	extend := r.IntN(2) == 0 // by less than there is: the watchdog alone keeps the lock
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for inside.Err() == nil {
				p.extra.Add(1)
				if extend {
					if h.Extend(context.Background(), ms) != nil {
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
	p.probe(t, h)
	p.release(h)
}

// lonely takes a lock of one of the kinds that nobody else wants: it must get it, also if it does not wait for
// longer than within, which is below 0 if it does.
func (p *party) lonely(r *rand.Rand, within time.Duration, kinds ...string) (thing, *taken) {
	g := p.gen.Load()
	t := p.thing(g, kinds[r.IntN(len(kinds))], own+p.args.Proc)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	return t, p.take(p.attempt(g, t), within, cancel, func() (redlatch.Hold, error) {
		if within < 0 {
			return t.lock.Lock(ctx)
		}
		return t.lock.TryLock(ctx, within, 0)
	})
}

// release unlocks, again if the server did not answer, and records it.
//
// Where lost holds are forgotten it leaves them without an Unlock, as a program does that returns early. What is
// left of them must not be kept: whoever waits for the lock would be forgotten.
func (p *party) release(h *taken) {
	if h == nil {
		return
	}
	defer h.free()
	end := h.end
	p.rec.write(&record{Op: opLeave, ID: end.ID, Call: mono()})
	end.Call = mono()
	err := context.Cause(h.Context())
	if !p.args.Work.Forget || h.got.Nested || !errors.Is(err, redlatch.ErrLeaseLost) {
		err = h.Unlock(context.Background())
	}
	end.Ret = mono()
	end.Result, end.Valid = result(err), deadline(h)
	if err != nil {
		end.Text = err.Error()
	}
	switch cause := context.Cause(h.Context()); {
	case cause == nil:
	case errors.Is(cause, redlatch.ErrLeaseLost), errors.Is(cause, redlatch.ErrClosed):
		end.Told = <-h.ended
	default:
		end.Ended = <-h.ended
	}
	p.rec.write(end)
	if end.Result == resOther {
		p.wrong("Unlock of %v: %s", end.Names, end.Text)
	}
	for n := 0; n < 3 && (result(err) == resUnavailable || result(err) == resRefused); n++ {
		time.Sleep(50 * ms)
		err = h.Unlock(context.Background())
	}
}

// pause works, until the hold's context says not to.
func pause(h redlatch.Hold, d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.Context().Done():
	}
}

// probe asks the server itself, past all faults, whether the hold's local deadline lies
// before the end of its key.
func (p *party) probe(t thing, h *taken) {
	if len(p.direct) == 0 || !t.probe || h.end.Bad != "" || h.Context().Err() != nil {
		return
	}
	valid := deadline(h)
	for _, key := range t.names {
		ctx, cancel := context.WithTimeout(context.Background(), 200*ms)
		left, err := p.direct[0].Do(ctx, p.direct[0].B().Pttl().Key(key).Build()).AsInt64()
		cancel()
		now := mono()
		if err != nil || h.Context().Err() != nil {
			return // a fault of the server; or the hold was told
		}
		ends := now + time.Duration(max(left, 0)+1)*ms
		switch {
		case left == -1:
			h.end.Bad, h.end.BadAt = key+" has no lease", now
		case valid > ends && valid > now:
			h.end.Bad = fmt.Sprintf("the deadline lies %v behind the end of %s (%d ms)", valid-ends, key, left)
			h.end.BadAt = now
		}
	}
}
