package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

func init() { testbed.Role("soak", work) }

// workArgs are what a worker process is started with.
type workArgs struct {
	Proxy  string // the server through the faults
	Server string // and without, for the record
	Lease  time.Duration
	Skip   time.Duration
	Seed   uint64
	Loops  int // goroutines
}

// enough is how long a wait that nobody ends may take: whoever waits for longer
// has been forgotten.
const enough = 60 * time.Second

// work runs the loops until the parent closes the input.
func work(ctx context.Context, w *testbed.Worker) error {
	var args workArgs
	if err := w.Args(&args); err != nil {
		return err
	}
	direct, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{args.Server}, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		return err
	}
	defer direct.Close()
	var client *redlatch.Client
	for { // the proxy may refuse just now
		client, err = redlatch.New(redlatch.Config{
			Redis:     rueidis.ClientOption{InitAddress: []string{args.Proxy}, ForceSingleClient: true},
			LeaseTime: args.Lease, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	p := &party{w: w, args: args, client: client, record: record{direct}}
	w.Say("ready")
	var wg sync.WaitGroup
	for i := range args.Loops {
		wg.Go(func() { p.loop(ctx, rand.New(rand.NewPCG(args.Seed, uint64(i)))) }) // #nosec G404 -- a test
	}
	wg.Wait()
	client.Close()
	w.Say("done %d", p.held.Load())
	return nil
}

type party struct {
	w      *testbed.Worker
	args   workArgs
	client *redlatch.Client
	record record
	held   atomic.Int64
	ids    atomic.Int64
}

// names of the locks, of each kind.
const names = 2

// thing is a lock with what its sections are recorded as.
type thing struct {
	lock  redlatch.Locker
	kind  string
	names []string
	mode  string
}

func (p *party) pick(r *rand.Rand) thing {
	i := r.IntN(names)
	name := func(kind string, i int) string { return fmt.Sprintf("{%s}%d", kind, i) }
	switch r.IntN(6) {
	case 0:
		n := name("plain", i)
		return thing{p.client.RLock(n, redlatch.Fenced()), "rlock", []string{n}, "w"}
	case 1:
		n := name("fair*[", i)
		return thing{p.client.FairLock(n, redlatch.Fenced(), fairlock.WithSkipAfter(p.args.Skip)), "fair", []string{n}, "w"}
	case 2:
		n := name("rw", i)
		return thing{p.client.ReadWriteLock(n, redlatch.Fenced(), rwlock.WithSkipAfter(p.args.Skip)).WriteLock(), "write", []string{n}, "w"}
	case 3, 4:
		n := name("rw", i)
		return thing{p.client.ReadWriteLock(n, redlatch.Fenced(), rwlock.WithSkipAfter(p.args.Skip)).ReadLock(), "read", []string{n}, "r"}
	}
	a, b, c := name("plain", i), name("plain", 1-i), name("fair*[", i)
	members := []redlatch.Member{p.client.RLock(a, redlatch.Fenced()), p.client.RLock(b, redlatch.Fenced())}
	all := []string{a, b}
	if r.IntN(3) == 0 {
		members = append(members, p.client.FairLock(c, redlatch.Fenced(), fairlock.WithSkipAfter(p.args.Skip)))
		all = append(all, c)
	}
	return thing{redlatch.MultiLock(members...), "multi", all, "w"}
}

// loop takes one lock after the other.
func (p *party) loop(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		t := p.pick(r)
		id := fmt.Sprintf("%s/%d/%d", t.kind, os.Getpid(), p.ids.Add(1))
		actx, cancel := context.WithTimeout(context.Background(), enough)
		if r.IntN(16) == 0 {
			actx = redlatch.WithOwner(actx, fmt.Sprintf("shared %d", r.IntN(2)))
			id = "" // two of one owner are inside together by right
		}
		hurried := r.IntN(4) == 0
		if hurried {
			time.AfterFunc(time.Duration(r.Int64N(int64(20*time.Millisecond))), cancel)
		}
		var lease time.Duration
		if r.IntN(3) == 0 {
			lease = p.args.Lease/4 + time.Duration(r.Int64N(int64(p.args.Lease)))
		}
		var h redlatch.Hold
		var err error
		switch r.IntN(4) {
		case 0:
			hurried = true
			h, err = t.lock.TryLock(actx, time.Duration(r.IntN(2))*time.Duration(r.Int64N(int64(p.args.Lease))), lease)
		default:
			h, err = t.lock.Lock(actx, redlatch.WithLease(lease))
		}
		switch {
		case err == nil:
			p.held.Add(1)
			p.section(t, id, h, r)
		case id == "" && errors.Is(err, redlatch.ErrUpgrade): // another loop of this owner reads
		case hurried && (errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable)):
		default:
			p.w.Say("fault: %s of %v: %v", t.kind, t.names, err)
		}
		cancel()
	}
}

// section is what happens under the lock.
func (p *party) section(t thing, id string, h redlatch.Hold, r *rand.Rand) {
	tokens := []uint64{h.Token()}
	if m, ok := h.(redlatch.MultiHold); ok {
		tokens = m.Tokens()
	}
	for i, name := range t.names {
		if id != "" {
			p.must(p.record.enter(name, id, t.mode, tokens[i]))
		}
	}
	var inner redlatch.Hold
	switch r.IntN(8) {
	case 0: // re-enter; given back in either order
		if again, err := t.lock.TryLock(h.Context(), 0, 0); err == nil {
			inner = again
		}
	case 1:
		_ = h.Extend(context.Background(), p.args.Lease)
	case 2: // longer than many a lease
		p.pause(h, time.Duration(r.Int64N(int64(p.args.Lease))))
	}
	p.pause(h, time.Duration(r.Int64N(int64(4*time.Millisecond))))
	for _, name := range t.names {
		if id != "" {
			p.must(p.record.leave(name, id))
		}
	}
	innerErr := error(nil)
	if inner != nil && r.IntN(2) == 0 {
		innerErr = inner.Unlock(context.Background())
		inner = nil
	}
	err := h.Unlock(context.Background())
	if inner != nil {
		innerErr = inner.Unlock(context.Background())
	}
	for _, e := range []error{err, innerErr} {
		if e != nil && !errors.Is(e, redlatch.ErrLeaseLost) && !errors.Is(e, redlatch.ErrUnavailable) {
			p.w.Say("fault: Unlock of %s %v: %v", t.kind, t.names, e)
		}
	}
	if err == nil && id != "" {
		p.must(p.record.clean(id))
	}
}

// pause works, until the hold's context says not to.
func (p *party) pause(h redlatch.Hold, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.Context().Done():
	}
}

// must ends the process: without its record the soak says nothing.
func (p *party) must(err error) {
	if err != nil {
		p.w.Say("fault: the record: %v", err)
		os.Exit(1)
	}
}
