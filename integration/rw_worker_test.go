package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

func init() { testbed.Role("rw", rwWorker) }

// rwArgs are what a worker process of these tests is started with.
type rwArgs struct {
	Addr   string
	Lease  time.Duration // Config.LeaseTime; 0: default
	Skip   time.Duration // 0: default
	Prefer bool
}

// rwCommand is one line to a worker. It answers with rwAnswers of the same ID.
type rwCommand struct {
	ID    int
	Do    string        // read or write; unlock hold ID; cancel the waiting ID; loop or endloop
	Fixed time.Duration // read, write: the lease; 0: the watchdog's
	Count int           // loop: how many readers
	Hold  time.Duration // loop: for how long each holds
}

// rwAnswer is one line of a worker. At is wall-clock time: the processes of a
// test share one machine.
type rwAnswer struct {
	ID    int
	Got   string // locked, failed, unlocked, looping, looped
	At    time.Time
	Token uint64
	Count int64
	Err   string
}

func rwWorker(ctx context.Context, w *testbed.Worker) error {
	var args rwArgs
	if err := w.Args(&args); err != nil {
		return err
	}
	c, err := rwOpen(args.Addr, args.Lease)
	if err != nil {
		return err
	}
	defer c.Close()
	var opts []redlatch.Option
	if args.Skip > 0 {
		opts = append(opts, rwlock.WithSkipAfter(args.Skip))
	}
	if args.Prefer {
		opts = append(opts, redlatch.PreferReaders())
	}
	p := &rwParty{
		w: w, lock: c.ReadWriteLock("n", append(opts, redlatch.Fenced())...),
		holds: map[int]redlatch.Hold{}, cancels: map[int]context.CancelFunc{},
	}
	p.say(rwAnswer{Got: "ready"})
	for line := range w.Lines() {
		var cmd rwCommand
		if err := json.Unmarshal([]byte(line), &cmd); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		p.do(ctx, cmd)
	}
	p.wg.Wait()
	return nil
}

// rwParty is a worker's state.
type rwParty struct {
	w    *testbed.Worker
	lock *rwlock.ReadWriteLock
	wg   sync.WaitGroup
	took atomic.Int64 // read locks taken by loops

	mu      sync.Mutex
	holds   map[int]redlatch.Hold
	cancels map[int]context.CancelFunc
}

func (p *rwParty) say(a rwAnswer) {
	if a.At.IsZero() {
		a.At = time.Now()
	}
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	p.w.Say("%s", line)
}

func (p *rwParty) failed(id int, err error) { p.say(rwAnswer{ID: id, Got: "failed", Err: err.Error()}) }

func (p *rwParty) do(ctx context.Context, cmd rwCommand) {
	p.mu.Lock()
	hold, stop := p.holds[cmd.ID], p.cancels[cmd.ID]
	p.mu.Unlock()
	switch cmd.Do {
	case "read":
		p.wg.Go(func() { p.acquire(p.stoppable(ctx, cmd.ID), p.lock.ReadLock(), cmd) })
	case "write":
		p.wg.Go(func() { p.acquire(p.stoppable(ctx, cmd.ID), p.lock.WriteLock(), cmd) })
	case "loop":
		p.loop(p.stoppable(ctx, cmd.ID), cmd)
	case "cancel", "endloop":
		stop()
	case "unlock":
		p.wg.Go(func() {
			if err := hold.Unlock(context.Background()); err != nil {
				p.failed(cmd.ID, err)
				return
			}
			p.say(rwAnswer{ID: cmd.ID, Got: "unlocked"})
		})
	}
}

func (p *rwParty) stoppable(ctx context.Context, id int) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	p.cancels[id] = cancel
	p.mu.Unlock()
	return ctx
}

func (p *rwParty) acquire(ctx context.Context, l redlatch.Locker, cmd rwCommand) {
	h, err := l.Lock(ctx, redlatch.WithLease(cmd.Fixed))
	if err != nil {
		p.failed(cmd.ID, err)
		return
	}
	at := time.Now()
	p.mu.Lock()
	p.holds[cmd.ID] = h
	p.mu.Unlock()
	p.say(rwAnswer{ID: cmd.ID, Got: "locked", At: at, Token: h.Token()})
}

// loop runs readers that come again without a pause.
func (p *rwParty) loop(ctx context.Context, cmd rwCommand) {
	var inside, done sync.WaitGroup
	inside.Add(cmd.Count)
	for range cmd.Count {
		done.Add(1)
		p.wg.Go(func() {
			defer done.Done()
			first := true
			for ctx.Err() == nil {
				h, err := p.lock.ReadLock().Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						p.failed(cmd.ID, err)
					}
					break
				}
				p.took.Add(1)
				if first {
					first = false
					inside.Done()
				}
				time.Sleep(cmd.Hold)
				if err := h.Unlock(context.Background()); err != nil {
					p.failed(cmd.ID, err)
					break
				}
			}
		})
	}
	p.wg.Go(func() {
		inside.Wait()
		p.say(rwAnswer{ID: cmd.ID, Got: "looping"})
		done.Wait()
		p.say(rwAnswer{ID: cmd.ID, Got: "looped", Count: p.took.Load()})
	})
}

// rwProc is a worker process as a test sees it.
type rwProc struct {
	*testbed.Process
	next int
	seen map[int][]rwAnswer
}

func rwSpawn(t testing.TB, args rwArgs) *rwProc {
	t.Helper()
	p := &rwProc{Process: testbed.Spawn(t, "rw", args), seen: map[int][]rwAnswer{}}
	p.await(t, 0, "ready")
	return p
}

// start sends a command and returns its id.
func (p *rwProc) start(t testing.TB, cmd rwCommand) int {
	t.Helper()
	if cmd.ID == 0 {
		p.next++
		cmd.ID = p.next
	}
	line, err := json.Marshal(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.Send(t, "%s", line)
	return cmd.ID
}

// await returns the answer of a command, whatever comes for others meanwhile.
func (p *rwProc) await(t testing.TB, id int, got string) rwAnswer {
	t.Helper()
	for {
		for i, a := range p.seen[id] {
			if a.Got == got {
				p.seen[id] = append(p.seen[id][:i], p.seen[id][i+1:]...)
				return a
			}
			if a.Got == "failed" {
				t.Fatalf("command %d failed: %s", id, a.Err)
			}
		}
		p.note(t, p.Line(t))
	}
}

// take returns an answer of this kind that was kept, to whatever command.
func (p *rwProc) take(got string) (rwAnswer, bool) {
	for id, answers := range p.seen {
		for i, a := range answers {
			if a.Got == got {
				p.seen[id] = slices.Delete(answers, i, i+1)
				return a, true
			}
		}
	}
	return rwAnswer{}, false
}

// note keeps an answer until it is asked for.
func (p *rwProc) note(t testing.TB, line string) rwAnswer {
	t.Helper()
	var a rwAnswer
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	p.seen[a.ID] = append(p.seen[a.ID], a)
	return a
}

// locked sends a command that must get its lock and waits for it.
func (p *rwProc) locked(t testing.TB, cmd rwCommand) (int, rwAnswer) {
	t.Helper()
	id := p.start(t, cmd)
	return id, p.await(t, id, "locked")
}

func (p *rwProc) unlock(t testing.TB, id int) rwAnswer {
	t.Helper()
	p.start(t, rwCommand{ID: id, Do: "unlock"})
	return p.await(t, id, "unlocked")
}

// rwEnd closes workers and waits until they have left.
func rwEnd(t testing.TB, ps ...*rwProc) {
	t.Helper()
	for _, p := range ps {
		p.CloseInput(t)
	}
	for _, p := range ps {
		if err := p.Wait(t); err != nil {
			t.Errorf("worker: %v", err)
		}
	}
}
