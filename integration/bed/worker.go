package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("bed", work) }

// Setup is what a process of its own is started with.
type Setup struct {
	Addrs []string      // of the servers, one client each
	Lease time.Duration // Config.LeaseTime; 0: the default
}

// Command is one line to a process. Its answers have the same ID.
type Command struct {
	ID int
	// Do is lock (answers: locked, or failed; ended if the hold's context ends before it is unlocked),
	// unlock (unlocked, or failed), loop (looping, looped, or failed), or cancel, of a lock or loop.
	Do         string
	Kind, Name string        // the lock
	Fenced     bool          // an option of it
	Prefer     bool          // so is PreferReaders
	Skip       time.Duration // and WithSkipAfter, unless 0
	Lease      time.Duration // of the hold; 0: the watchdog's

	// Of a loop: how many goroutines take turns, how often each (0: until cancel), and for how long.
	Count, Rounds int
	Hold          time.Duration
	// GiveUp ends the ctx of each acquisition after a random part of it, mostly a small one, unless 0.
	GiveUp time.Duration
	// Counter is a key whose number each section raises by two commands, so that sections that meet lose
	// one. A shared kind only looks whether it stays the same.
	Counter string
	// Notes is a list to which each section adds "CLIENT FROM TO", in µs.
	Notes string
}

// Answer is one line of a process. At is wall-clock time: the processes of a test share one machine.
type Answer struct {
	ID    int
	Got   string
	At    time.Time
	Token uint64
	Count int64 // of a loop: sections
	Gave  int64 // of a loop: acquisitions that ended without the lock
	Text  string
}

func work(ctx context.Context, w *testbed.Worker) error {
	var setup Setup
	if err := w.Args(&setup); err != nil {
		return err
	}
	p := &party{w: w, holds: map[int]redlatch.Hold{}, cancels: map[int]context.CancelFunc{}}
	for _, addr := range setup.Addrs {
		c, err := open(redlatch.Config{
			Redis: rueidis.ClientOption{InitAddress: []string{addr}}, LeaseTime: setup.Lease, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		defer c.Close()
		p.clients = append(p.clients, c)
	}
	var err error
	if p.data, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: setup.Addrs[:1], DisableCache: true}); err != nil {
		return err
	}
	defer p.data.Close()
	p.say(Answer{Got: "ready", Text: p.clients[0].ID()})
	for line := range w.Lines() {
		var cmd Command
		if err := json.Unmarshal([]byte(line), &cmd); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if err := p.do(ctx, cmd); err != nil {
			return err
		}
	}
	p.wg.Wait()
	return nil
}

// party is a process's state.
type party struct {
	w       *testbed.Worker
	clients []*redlatch.Client
	data    rueidis.Client // of the first server
	wg      sync.WaitGroup

	mu      sync.Mutex
	holds   map[int]redlatch.Hold      // guarded by mu
	cancels map[int]context.CancelFunc // guarded by mu
}

func (p *party) say(a Answer) {
	if a.At.IsZero() {
		a.At = time.Now()
	}
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	p.w.Say("%s", line)
}

func (p *party) failed(id int, err error) { p.say(Answer{ID: id, Got: "failed", Text: err.Error()}) }

func (p *party) do(ctx context.Context, cmd Command) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	hold := p.holds[cmd.ID]
	switch cmd.Do {
	case "cancel":
		p.cancels[cmd.ID]()
		return nil
	case "unlock":
		p.wg.Go(func() {
			if err := hold.Unlock(context.Background()); err != nil {
				p.failed(cmd.ID, err)
				return
			}
			p.say(Answer{ID: cmd.ID, Got: "unlocked"})
		})
		return nil
	}
	k, err := KindOf(cmd.Kind)
	if err != nil {
		return err
	}
	var opts []redlatch.Option
	if cmd.Fenced {
		opts = append(opts, redlatch.Fenced())
	}
	if cmd.Prefer {
		opts = append(opts, redlatch.PreferReaders())
	}
	if cmd.Skip > 0 {
		opts = append(opts, redlatch.WithSkipAfter(cmd.Skip))
	}
	l := k.New(p.clients, cmd.Name, opts...)
	ctx, p.cancels[cmd.ID] = context.WithCancel(ctx)
	if cmd.Do == "loop" {
		p.loop(ctx, cmd, k, l)
	} else {
		p.wg.Go(func() { p.lock(ctx, cmd, l) })
	}
	return nil
}

func (p *party) lock(ctx context.Context, cmd Command, l redlatch.Locker) {
	h, err := l.Lock(ctx, redlatch.WithLease(cmd.Lease))
	if err != nil {
		p.failed(cmd.ID, err)
		return
	}
	at := time.Now()
	p.mu.Lock()
	p.holds[cmd.ID] = h
	p.mu.Unlock()
	p.say(Answer{ID: cmd.ID, Got: "locked", At: at, Token: h.Token()})
	p.wg.Go(func() {
		<-h.Context().Done()
		if err := context.Cause(h.Context()); !errors.Is(err, redlatch.ErrUnlocked) {
			p.say(Answer{ID: cmd.ID, Got: "ended", Text: err.Error()})
		}
	})
}

// loop lets goroutines take turns.
func (p *party) loop(ctx context.Context, cmd Command, k Kind, l redlatch.Locker) {
	var inside, done sync.WaitGroup
	var took, gave atomic.Int64
	inside.Add(cmd.Count)
	for range cmd.Count {
		done.Add(1)
		p.wg.Go(func() {
			defer done.Done()
			once := sync.OnceFunc(inside.Done)
			defer once()
			for n := 0; ctx.Err() == nil && (cmd.Rounds == 0 || n < cmd.Rounds); n++ {
				switch had, err := p.turn(ctx, cmd, k, l); {
				case err != nil:
					p.failed(cmd.ID, err)
					return
				case had:
					took.Add(1)
					once()
				default:
					gave.Add(1)
				}
			}
		})
	}
	p.wg.Go(func() {
		inside.Wait()
		p.say(Answer{ID: cmd.ID, Got: "looping"})
		done.Wait()
		p.say(Answer{ID: cmd.ID, Got: "looped", Count: took.Load(), Gave: gave.Load()})
	})
}

// turn is one section of a loop. It reports whether it had the lock.
func (p *party) turn(ctx context.Context, cmd Command, k Kind, l redlatch.Locker) (bool, error) {
	lctx := ctx
	if cmd.GiveUp > 0 {
		var cancel context.CancelFunc
		part := math.Pow(rand.Float64(), 2) // one in ten less than a hundredth: also where no turn lasts some give up
		lctx, cancel = context.WithTimeout(ctx, time.Duration(part*float64(cmd.GiveUp)))
		defer cancel()
	}
	h, err := l.Lock(lctx)
	if _, waited := errors.AsType[*redlatch.NotAcquiredError](err); waited && lctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	from := time.Now()
	if err := p.section(cmd, k.Shared); err != nil {
		return false, err
	}
	if cmd.Notes != "" {
		note := fmt.Sprintf("%s %d %d", p.clients[0].ID(), from.UnixMicro(), time.Now().UnixMicro())
		push := p.data.B().Rpush().Key(cmd.Notes).Element(note).Build()
		if err := p.data.Do(context.Background(), push).Error(); err != nil {
			return false, err
		}
	}
	if err := h.Unlock(lctx); err != nil {
		return false, fmt.Errorf("unlock: %w", err)
	}
	return true, nil
}

func (p *party) section(cmd Command, shared bool) error {
	if cmd.Counter == "" {
		time.Sleep(cmd.Hold)
		return nil
	}
	before, err := p.number(cmd.Counter)
	if err != nil {
		return err
	}
	time.Sleep(cmd.Hold)
	if !shared {
		set := p.data.B().Set().Key(cmd.Counter).Value(strconv.FormatInt(before+1, 10)).Build()
		return p.data.Do(context.Background(), set).Error()
	}
	after, err := p.number(cmd.Counter)
	if err == nil && after != before {
		return fmt.Errorf("the counter went from %d to %d beside a reader", before, after)
	}
	return err
}

func (p *party) number(key string) (int64, error) {
	n, err := p.data.Do(context.Background(), p.data.B().Get().Key(key).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return n, err
}

// Worker is such a process as a test sees it.
type Worker struct {
	*testbed.Process

	ClientID string // of its first client
	next     int
	seen     map[int][]Answer
}

// Spawn starts a process that is connected to the servers.
func Spawn(t *testing.T, setup Setup) *Worker {
	t.Helper()
	w := &Worker{Process: testbed.Spawn(t, "bed", setup), seen: map[int][]Answer{}}
	w.ClientID = w.Await(t, 0, "ready").Text
	return w
}

// Addrs are those of the servers of a site.
func (x *Site) Addrs() []string {
	addrs := make([]string, len(x.Servers))
	for i, s := range x.Servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Start sends a command and returns its id.
func (w *Worker) Start(t *testing.T, cmd Command) int {
	t.Helper()
	if cmd.ID == 0 {
		w.next++
		cmd.ID = w.next
	}
	line, err := json.Marshal(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.Send(t, "%s", line)
	return cmd.ID
}

// Await returns the answer of a command, whatever comes for others meanwhile.
func (w *Worker) Await(t *testing.T, id int, got string) Answer {
	t.Helper()
	for {
		for i, a := range w.seen[id] {
			if a.Got == got {
				w.seen[id] = slices.Delete(w.seen[id], i, i+1)
				return a
			}
			if a.Got == "failed" {
				t.Fatalf("command %d failed: %s", id, a.Text)
			}
		}
		w.note(t, w.Line(t))
	}
}

// Take returns an answer of this kind that has come, to whatever command.
func (w *Worker) Take(t *testing.T, got string) (Answer, bool) {
	t.Helper()
	for more := true; more; {
		select {
		case line, ok := <-w.Lines():
			if more = ok; ok {
				w.note(t, line)
			}
		default:
			more = false
		}
	}
	for id, answers := range w.seen {
		for i, a := range answers {
			if a.Got == got {
				w.seen[id] = slices.Delete(answers, i, i+1)
				return a, true
			}
		}
	}
	return Answer{}, false
}

// note keeps an answer until it is asked for.
func (w *Worker) note(t *testing.T, line string) {
	t.Helper()
	var a Answer
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("%q: %v\n%s", line, err, w.Stderr())
	}
	w.seen[a.ID] = append(w.seen[a.ID], a)
}

// Lock locks, and waits until it has the lock. It returns the command's id.
func (w *Worker) Lock(t *testing.T, cmd Command) int {
	t.Helper()
	cmd.Do = "lock"
	id := w.Start(t, cmd)
	w.Await(t, id, "locked")
	return id
}

// Unlock unlocks what a command has locked.
func (w *Worker) Unlock(t *testing.T, id int) {
	t.Helper()
	w.Start(t, Command{ID: id, Do: "unlock"})
	w.Await(t, id, "unlocked")
}

// End ends processes and waits until they have left.
func End(t *testing.T, workers ...*Worker) {
	t.Helper()
	for _, w := range workers {
		w.CloseInput(t)
	}
	for _, w := range workers {
		if err := w.Wait(t); err != nil {
			t.Errorf("worker: %v\n%s", err, w.Stderr())
		}
	}
}
