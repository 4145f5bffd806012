package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// Bid is attempts at one lock whose times another one decides: at a copy of a quorum's lock, which is
// asked for in rounds. Between two attempts it keeps the acquisition that was refused, with its place among
// the waiters on the server (a writer's mark, a reader's turn), which is kept alive. An attempt that is under
// way when its time is over is not undone: a refusal is kept, a grant given back. Of a kind without places
// nothing is kept.
//
// Its methods may be called by several goroutines.
//
// Invariant: whoever has turn has all else. Only Drop's mark is set without it.
type Bid struct {
	lock *Lock
	once bool          // the other one does not wait: it stands on no list; set once
	from time.Time     // when the other one began; set once
	turn chan struct{} // of capacity 1
	over atomic.Bool   // it was dropped: nothing is kept from now on
	// listed: a refusal has put the client on the list of those that wait; cleared by a grant, and by Drop
	listed atomic.Bool
	kept   *acquisition // refused, or its answer is somebody else's (left.away); nil: none
	news   atomic.Pointer[Watch]
}

// Bid makes one, for another one that began then, and waits or tries once. Drop ends it.
func (l *Lock) Bid(once bool, began time.Time) *Bid {
	return &Bid{lock: l, once: once, from: began, turn: make(chan struct{}, 1)}
}

// Pokes says who tries again when a refresh of the place finds a reason.
func (b *Bid) Pokes(w *Watch) { b.news.Store(w) }

func (b *Bid) poke() {
	if w := b.news.Load(); w != nil {
		w.w.Poke()
	}
}

// Try makes one attempt that ends after limit at the latest, and asks who the server is, in the same
// round trip. A lease beyond the client's LeaseTime is asked for by renewals, so that nothing that a server
// forgets lasts longer.
func (b *Bid) Try(ctx context.Context, limit, lease time.Duration) Attempted {
	l, until := b.lock, time.Now().Add(limit)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return Attempted{Err: &lock.NotAcquiredError{Name: l.of.Name, Err: CtxError(ctx)}}
	case <-t.C:
		return Attempted{Err: &lock.NotAcquiredError{Name: l.of.Name}}
	}
	defer b.leave()
	if b.kept != nil && b.kept.leftover.handedOver {
		select {
		case <-b.kept.undone:
			b.settle()
		case <-ctx.Done():
			return Attempted{Err: &lock.NotAcquiredError{Name: l.of.Name, Err: CtxError(ctx)}}
		case <-t.C:
			return Attempted{Err: &lock.NotAcquiredError{Name: l.of.Name}}
		}
	}
	a := b.kept
	if b.kept = nil; a == nil {
		a = &acquisition{
			request: request{began: b.from}, progress: progress{waited: true}, bidding: bidding{bid: b, asksServer: true},
		}
		a.members = a.one[:]
		a.members[0].lock = l
		if err := a.open(ctx, 0, lease); err != nil {
			return Attempted{Err: l.refused(ctx, 0, lease, err)}
		}
	} else {
		a.renew(ctx)
	}
	a.until = until
	open := true
	defer func() {
		if open { // else it is kept
			a.close()
		}
	}()
	err := a.finish()
	out := a.attempted(err)
	if out.Hold != nil {
		b.listed.Store(false)
	}
	if a.parked {
		b.kept, open = a, false
		a.keepPlace()
	}
	return out
}

// leave gives the turn to the next.
func (b *Bid) leave() {
	<-b.turn
	if b.over.Load() {
		b.Drop() // which came meanwhile
	}
}

// settle takes what became of an attempt whose answer was somebody else's.
func (b *Bid) settle() {
	a := b.kept
	if a.keepsPlace {
		a.leftover = leftover{queued: true}
		return
	}
	b.kept = nil
	a.close()
}

// Drop ends the bid. What it keeps on the server is taken back in the background; so is the client's place on the
// list, if nobody watches for whom it is.
func (b *Bid) Drop() {
	b.over.Store(true)
	l := b.lock
	if caller, ok := l.of.Kind.(kind.Caller); ok && b.listed.Swap(false) && !l.core.hub.Wanted(l.of.Calls) {
		l.core.Leave(caller.Leave(), l.of.Calls)
	}
	select {
	case b.turn <- struct{}{}:
		b.end()
		<-b.turn
	default: // see leave
	}
}

// end gives up what is kept. The turn is the caller's.
func (b *Bid) end() {
	a := b.kept
	if b.kept = nil; a == nil {
		return
	}
	if a.leftover.handedOver {
		go func() { // ends with the answer
			<-a.undone
			if a.keepsPlace {
				a.leftover = leftover{queued: true}
				a.giveUp()
			}
			a.close()
		}()
		return
	}
	a.giveUp()
	a.close()
}

// attempted is what an attempt came to.
func (a *acquisition) attempted(err error) Attempted {
	out := Attempted{Hold: a.members[0].hold, Err: err}
	if a.serverAnswered {
		out.Server, out.Known = a.serverReply.Server, a.serverReply.ServerErr == nil && a.serverReply.Server.RunID != ""
		if out.ServerErr = a.serverReply.ServerErr; conn.IsPermanent(out.ServerErr) {
			out.ServerErr = &lock.ServerError{Name: a.about().lock.of.Name, Op: "ask for the server", Err: out.ServerErr}
		}
	}
	return out
}

// renew makes the acquisition ready for another attempt under its id.
func (a *acquisition) renew(ctx context.Context) {
	a.ctx, a.values, a.obs = ctx, ctx, nil
	a.asked, a.acquires, a.serverAnswered, a.serverReply, a.lastErr, a.reenters = false, 0, false, conn.Reply{}, nil, false
	a.busy, a.undone, a.keepsPlace, a.parked = kind.Outcome{}, nil, false, false
	a.patient = a.core.patience()
}

// park reports whether the acquisition, whose attempt ended with err, stays with its bid: since it has a
// place and nothing else is left of it, or since its answer is still to come.
func (a *acquisition) park(err error) bool {
	a.parked = a.bid != nil && (a.leftover.handedOver || a.leftover == leftover{queued: true} && a.about().lock.queue != nil &&
		observe.Waited(err) && !errors.Is(err, lock.ErrReplicaAcks))
	return a.parked
}

// keepPlace keeps the place alive between attempts.
func (a *acquisition) keepPlace() {
	if !a.leftover.handedOver && a.place == nil && a.leftover.queued { // away: whoever takes the answer keeps it; see keepLate
		a.place = a.core.places.add(a, a.about().lock.queue, a.busy.RefreshIn)
	}
}

// keepLate is keepPlace for whoever takes the answer of an attempt whose caller has gone. It reports
// false if the answer was no refusal that leaves a place.
func (a *acquisition) keepLate(out *kind.Outcome) bool {
	if a.bid == nil {
		return false
	}
	a.keepsPlace = !a.panicked && !a.bid.over.Load() && a.about().lock.queue != nil && !out.Acquired && !out.Void && !out.NoLock && out.Queued
	if !a.keepsPlace {
		return false
	}
	if a.place == nil {
		a.place = a.core.places.add(a, a.about().lock.queue, out.RefreshIn)
	}
	return true
}
