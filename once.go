package redlatch

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/lock"
)

// MinPeriod is the shortest period of a [Once].
const MinPeriod = 10 * time.Millisecond

// Once runs a job at most once per period, however many replicas of a service call it, as long as its
// lock and its record are not lost; fence what must not be written twice.
// It has no state: any number of them may exist for one name. It is safe for concurrent
// use. The zero value is not usable; get one from [Client.Once].
type Once struct {
	client *Client
	lock   *RLock
}

// Once returns the job of this name. Use it for work that one replica must do at each
// tick: send the report, clean the table, rebuild the index. Every replica calls Do at its
// own tick, by its own clock:
//
//	for range time.Tick(time.Minute) {
//		ran, err := client.Once("report").Do(ctx, time.Minute, report)
//		...
//	}
//
// It never fails: a bad name is an error of the first call.
func (c *Client) Once(name string) *Once {
	return &Once{client: c, lock: c.RLock(name)}
}

// Name is the name as the caller gave it.
func (o *Once) Name() string { return o.lock.Name() }

// Do runs fn, unless a run of this name has begun within the last period in any
// process. It reports whether it called fn, and returns fn's error. (false, nil) is
// the normal answer in all replicas but one: this period already has its run, or another
// call has just claimed it and is taking the lock.
//
// # When a run is due
//
// The server's clock alone decides. A period begins with a run; the next run is due
// when the period is over. Since clocks differ and tickers are a little late or early, Do
// also accepts a call in the last tenth of the period: otherwise a tick that comes 80 ms
// early would be skipped. A run that begins early counts from the time at which its period
// would have begun, so earliness never adds up: two runs begin at least 0.9 periods apart,
// and the nth after a run begins at least n - 0.1 periods after it.
//
// A late replica finds that the run has been made, however short it was. Replicas may call
// Do as often as they like. If the only run of a period begins later than usual by more
// than a tenth of the period, the next tick is too early and is skipped. If that must not
// happen, pass a period that is shorter than the tick. All replicas must pass the same
// period; otherwise the shortest one counts.
//
// All this is measured from claim to claim: a call claims its period, takes the lock and calls fn. If the lock is
// granted so late that the next run may be due, Do gives it back and returns [ErrUnavailable], so each run begins in
// its own period. If the server's clock is set forward, the next run comes earlier by as much. If it is set back, or if
// somebody else has overwritten the record of the last run, the next run comes up to one period later.
//
// # While fn runs
//
// Do holds client.RLock(name), kept by the watchdog, and passes the hold's context to
// fn: it ends when ctx ends or the lock is lost. Two runs overlap only if the lock is lost. State
// and ForceUnlock of that lock apply to a run. Holding client.RLock(name) prevents the
// job from running, also for the owner that holds it: a run never re-enters. So a job must not
// call Do of its own name, and calls that share one owner (see [WithOwner]) exclude each
// other, too. fn's context carries the owner of ctx, or else a new one; with it fn may
// re-enter client.RLock(name), and must unlock it again.
//
//   - fn takes longer than the period: ticks in the meantime are skipped. Their calls
//     return an error that matches [ErrNotAcquired] and names the holder. They claim no
//     period: the first call after the end of fn runs.
//   - fn fails or panics: the period is used up, since fn may have done half of its work.
//     Do returns fn's error, joined with that of the unlock, or goes on with the panic. Call Reset to let
//     the next call, of any replica, run again in this period.
//   - The process dies during fn, or just before it: the period is used up, and no replica
//     starts until the lease of the lock has ended (Config.LeaseTime) and the next run is due.
//   - The lock is lost during fn (see [Hold].Context): fn's context ends with cause
//     [ErrLeaseLost], and Do returns it.
//   - A failover that loses the last writes can lose the record of a run, and so can a server
//     that drops keys when its memory is full; the period may then have a second one. Config.ReplicaAcks narrows the
//     window of a failover. Work that must never be done twice needs its own check where it
//     writes.
//
// # Blocking and errors
//
// Do blocks until the server has answered and, if the run is due, until fn has
// returned. While the server can't be reached it tries again until ctx ends
// ([ErrNotAcquired] together with ctx.Err(), or [ErrUnavailable] if a server failed) or
// a period has passed ([ErrUnavailable]), since the next tick is due then. A lost reply
// does not cause a second run. After a claim the lock gets one attempt, as of a TryLock with a
// wait of 0.
//
// If Do returns false, this call has not used up the period. A claim that is granted late, or
// whose run can't begin, is given back. Do waits for that until ctx ends or UnlockTimeout
// has passed. If the server has not answered by then, the giving back goes on in the background,
// until the server answers, the period is over (three of them, while the server is silent and may have a late
// command) or the Client has been closed for UnlockTimeout.
//
// Other errors: [ErrInvalidName], [ErrInvalidOption] (a period below [MinPeriod], no fn),
// [ErrClosed], [ErrReplicaAcks], a [*ServerError].
func (o *Once) Do(ctx context.Context, period time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	if err := engine.Of(o.lock).Err(); err != nil {
		return false, err
	}
	switch {
	case period < MinPeriod:
		return false, &lock.InvalidOptionError{Option: "period", Reason: "it is below " + MinPeriod.String()}
	case fn == nil:
		return false, &lock.InvalidOptionError{Option: "fn", Reason: "it is nil"}
	}
	hold, err := engine.Of(o.lock).Once(ctx, period)
	if hold == nil {
		return false, err
	}
	defer func() {
		if uerr := hold.Unlock(ctx); uerr != nil {
			err = lock.Join(err, uerr)
		}
	}()
	return true, fn(hold.Context())
}

// Reset forgets the last run: the next call of Do, of any replica, runs fn whatever the
// period. It is for repeating a failed run, and for operators. It does not stop a run. It
// reports whether there was a run to forget. A run that begins while Reset blocks may be
// forgotten, too; one that begins later is not, even if a command of Reset comes late.
//
// It blocks until the server answers. If ctx ends first, or the Client's UnlockTimeout
// passes, it returns [ErrUnavailable]; after the end of ctx that matches ctx.Err(), too.
func (o *Once) Reset(ctx context.Context) (bool, error) {
	if err := engine.Of(o.lock).Err(); err != nil {
		return false, err
	}
	return engine.Of(o.lock).Forget(ctx)
}

// Last tells of the last run of this name, by any process: it is for operators. It is known until its period is over.
// A run may be under way, or have failed: State of the lock of this name tells who runs it now.
//
// It blocks and fails as [Client.Inspect] does.
func (o *Once) Last(ctx context.Context) (OnceRun, error) {
	return o.client.inspector.LastRun(ctx, o.Name())
}
