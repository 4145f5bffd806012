package fair

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/testbed"
)

// recordKey is the list to which every section adds the field that holds the
// lock: the order as it was.
const recordKey = "record"

// workerArgs is what a process of the tests is told.
type workerArgs struct {
	Addr  string
	Lease time.Duration
	Skip  time.Duration
	Pulse bool // it measures when it was kept from running
}

func init() { testbed.Role("fair", work) }

// work is a process that locks as it is told, line by line:
//
//	lock ID [LEASE_MS]  acquires and keeps it: "got ID US" or "err ID TEXT"
//	run ID MS           acquires, keeps it for so long and unlocks: "done ID" or "err ID TEXT"
//	unlock ID           "unlocked ID" or "err ID TEXT"
//	cancel ID           ends the ctx of a lock or run
//	close               closes the client: "closed"
//	pauses ID SINCE_US  when it was kept from running since then: "pauses ID FROM-TO,…", in µs
func work(ctx context.Context, w *testbed.Worker) error {
	var args workerArgs
	if err := w.Args(&args); err != nil {
		return err
	}
	c, err := redlatch.New(redlatch.Config{
		Redis: rueidis.ClientOption{
			InitAddress: []string{args.Addr},
			// By the short lease it would be half a second, within which a busy machine may not connect.
			Dialer: net.Dialer{Timeout: time.Minute},
		},
		LeaseTime: args.Lease, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	raw, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{args.Addr}, DisableCache: true})
	if err != nil {
		return err
	}
	defer raw.Close()
	defer c.Close()
	l := c.FairLock(name, fairlock.WithSkipAfter(args.Skip))
	p := &worker{w: w, raw: raw, lock: l, holds: map[string]redlatch.Hold{}, cancels: map[string]context.CancelFunc{}}
	if args.Pulse {
		ctx, stop := context.WithCancel(ctx)
		var beating sync.WaitGroup
		defer beating.Wait()
		defer stop()
		beating.Go(func() { p.pulse.beat(ctx, raw) })
	}
	w.Say("ready")
	for line := range w.Lines() {
		words := append(strings.Fields(line), "", "", "")
		switch id := words[1]; words[0] {
		case "lock", "run":
			lctx, cancel := context.WithCancel(ctx)
			p.mu.Lock()
			p.cancels[id] = cancel
			p.mu.Unlock()
			ms, _ := strconv.Atoi(words[2])
			go p.lockIt(lctx, id, words[0] == "run", time.Duration(ms)*time.Millisecond)
		case "unlock":
			p.mu.Lock()
			h := p.holds[id]
			p.mu.Unlock()
			if err := h.Unlock(ctx); err != nil {
				w.Say("err %s %v", id, err)
			} else {
				w.Say("unlocked %s", id)
			}
		case "cancel":
			p.mu.Lock()
			p.cancels[id]()
			p.mu.Unlock()
		case "pauses":
			since, _ := strconv.ParseInt(words[2], 10, 64)
			w.Say("pauses %s %s", id, p.pulse.tell(since))
		case "close":
			c.Close()
			w.Say("closed")
		}
	}
	return nil
}

type worker struct {
	w    *testbed.Worker
	raw  rueidis.Client
	lock *fairlock.FairLock

	pulse pulse

	mu      sync.Mutex
	holds   map[string]redlatch.Hold
	cancels map[string]context.CancelFunc
}

func (p *worker) lockIt(ctx context.Context, id string, run bool, d time.Duration) {
	var opts []redlatch.AcquireOption
	if !run && d > 0 {
		opts = append(opts, redlatch.WithLease(d))
	}
	h, err := p.lock.Lock(ctx, opts...)
	if err == nil {
		at := time.Now()
		err = p.record(h)
		if err == nil && !run {
			p.mu.Lock()
			p.holds[id] = h
			p.mu.Unlock()
			p.w.Say("got %s %d", id, at.UnixMicro())
			return
		}
		if err == nil {
			time.Sleep(d)
			if err = h.Unlock(ctx); err == nil {
				p.w.Say("done %s", id)
				return
			}
		}
	}
	p.w.Say("err %s %s", id, strings.ReplaceAll(err.Error(), "\n", " "))
}

// record writes down, inside the section, who holds the lock.
func (p *worker) record(h redlatch.Hold) error {
	ctx := context.WithoutCancel(h.Context())
	fields, err := p.raw.Do(ctx, p.raw.B().Hkeys().Key(name).Build()).AsStrSlice()
	if err != nil {
		return err
	}
	if len(fields) != 1 {
		return fmt.Errorf("held by %v", fields)
	}
	return p.raw.Do(ctx, p.raw.B().Rpush().Key(recordKey).Element(fields[0]).Build()).Error()
}

// spawn starts a process and waits until it is connected.
func spawn(t *testing.T, s *testbed.Server, lease, skip time.Duration) *testbed.Process {
	t.Helper()
	p := testbed.Spawn(t, "fair", workerArgs{Addr: s.Addr(), Lease: lease, Skip: skip})
	p.Expect(t, "ready")
	return p
}
