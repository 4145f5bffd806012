package work

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// handoverJob passes one lock between two processes. The holder unlocks only when the other one has said that it is
// about to lock and has had time to fall asleep over it, so that each pass is a wake-up in another process and never a
// lock that was free. The pause before is random over more than a poller's interval: a poller is met at any point of
// it.
type handoverJob struct {
	listener net.Listener
	cancel   context.CancelFunc
	done     chan struct{}
	held     Hold
	passes   []Pass
	warm     chan struct{} // closed when both sides have taken the lock several times
}

const (
	minPause = 2 * time.Millisecond
	maxPause = minPause + PollEvery
)

// warmPasses is how many hand-overs come before the second process is ready: connections are open, scripts loaded and
// subscriptions made by then.
const warmPasses = 8

// coldWait is how long a Lock may take before anything is counted.
const coldWait = 2 * time.Second

// What the processes tell each other, one byte each.
const (
	waiting = 'w' // about to lock
	taken   = 't' // Lock has returned
)

func (j *handoverJob) start(ctx context.Context, m *measurement) (Ready, error) {
	ctx, j.cancel = context.WithCancel(ctx)
	j.done, j.warm = make(chan struct{}), make(chan struct{})
	r := Ready{}
	if m.Process == 0 {
		var err error
		if j.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return r, err
		}
		r.Peer = j.listener.Addr().String()
		// Before the other process hears of it, which would take the lock else.
		if j.held, err = m.contender.Locker(m.Key).Lock(ctx); err != nil {
			return r, err
		}
	}
	go func() {
		defer close(j.done)
		err := j.run(ctx, m)
		if errors.Is(err, errOtherSide) && isClosed(j.warm) {
			// The other process has been told to end a moment before this one; if it has failed, it says so itself.
			<-ctx.Done()
			return
		}
		if m.phase.Load() != ended && ctx.Err() == nil {
			m.fail(fmt.Errorf("%s: %w", m.Contender, err))
		}
	}()
	if m.Process == 0 {
		return r, nil // the second process needs its address first
	}
	select {
	case <-j.warm:
		return r, nil
	case <-j.done: // it failed, or the other side did
		return r, errors.Join(context.Cause(ctx), errCold)
	}
}

// errCold says that the hand-overs ended before anything was counted.
var errCold = errors.New("the lock was not handed over often enough to begin")

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// errOtherSide says that the connection to the other process has ended.
var errOtherSide = errors.New("the other process has gone")

// run passes the lock until something ends it, and returns what.
func (j *handoverJob) run(ctx context.Context, m *measurement) error {
	conn, err := j.connect(ctx, m)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := bufio.NewReader(conn)
	l := m.contender.Locker(m.Key)

	held := j.held
	expect := func(what byte) error {
		b, err := in.ReadByte()
		if err != nil {
			return fmt.Errorf("%w: %w", errOtherSide, err)
		}
		if b != what {
			return fmt.Errorf("the other process said %q, not %q", b, what)
		}
		return nil
	}
	say := func(what byte) error {
		if _, err := conn.Write([]byte{what}); err != nil {
			return fmt.Errorf("%w: %w", errOtherSide, err)
		}
		return nil
	}
	for number := 0; ; number++ {
		if number == warmPasses {
			close(j.warm)
		}
		if held != nil {
			if err := expect(waiting); err != nil {
				return err
			}
			time.Sleep(minPause + rand.N(maxPause-minPause))
			at := time.Now().UnixNano()
			if err := held.Unlock(context.Background()); err != nil {
				return err
			}
			held = nil
			if m.phase.Load() == counting {
				j.passes = append(j.passes, Pass{number, true, at})
			}
			if err := expect(taken); err != nil {
				return err
			}
			continue
		}
		if err := say(waiting); err != nil {
			return err
		}
		if held, err = lockWithin(ctx, l, number); err != nil {
			return err
		}
		at := time.Now().UnixNano()
		if m.phase.Load() == counting {
			j.passes = append(j.passes, Pass{number, false, at})
		}
		if err := say(taken); err != nil {
			return err
		}
	}
}

// lockWithin is Lock, again and again until something is counted: a contender may sleep through the first messages for
// ever (rueidislock was seen to), and is not to be left out for that. The ctx of a hold lives on: rueidislock's holds end
// with it, and the first pass that counts would be one of a lock that is free.
func lockWithin(ctx context.Context, l Locker, number int) (Hold, error) {
	for number < warmPasses {
		once, cancel := context.WithCancel(ctx)
		limit := time.AfterFunc(coldWait, cancel)
		h, err := l.Lock(once)
		if limit.Stop() {
			return h, err
		}
		if err == nil { // at the last moment: its ctx is over
			_ = h.Unlock(context.Background())
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return l.Lock(ctx)
}

func (j *handoverJob) connect(ctx context.Context, m *measurement) (net.Conn, error) {
	if j.listener == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", m.Peer)
	}
	// finish closes the listener as well, if nobody ever comes.
	conn, err := j.listener.Accept()
	return conn, errors.Join(err, j.listener.Close())
}

func (j *handoverJob) drain() {}

func (j *handoverJob) finish(r *Result) error {
	j.cancel()
	if j.listener != nil {
		_ = j.listener.Close() // closed already if the other process came
	}
	<-j.done
	r.Passes = j.passes
	return nil
}

// Handovers joins the two sides' passes to the time that each took.
func Handovers(results []Result) *Histogram {
	gave := map[int]int64{}
	for _, r := range results {
		for _, p := range r.Passes {
			if p.Gave {
				gave[p.Number] = p.UnixNs
			}
		}
	}
	h := NewHistogram()
	for _, r := range results {
		for _, p := range r.Passes {
			// One without the other lay across the beginning or the end.
			if at, ok := gave[p.Number]; !p.Gave && ok {
				h.Add(time.Duration(p.UnixNs - at))
			}
		}
	}
	return h
}
