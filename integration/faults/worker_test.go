package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("faults", work) }

// workArgs are what a worker process is started with.
type workArgs struct {
	Proc    int
	History string // the file of its records
	Store   string // address of the store
	// Sets are what its clients connect to: one set of addresses, or one per
	// independent master.
	Sets     [][]string
	Direct   string // the address of the same server without the faults, for probes; "": no probes
	Sentinel bool
	User     string
	Lease    time.Duration
	Skip     time.Duration
	Seed     uint64
	Loops    int
	Work     workload
}

// workload is what a profile's workers do, besides locking and unlocking.
type workload struct {
	Kinds    []string
	Names    int           // how many locks of each kind; 0: names
	Hammer   bool          // one loop more re-enters without a pause for longer than a lease
	Lonely   bool          // one loop more takes locks that nobody else wants
	Watched  bool          // no outer hold has a fixed lease
	Single   bool          // there are neither re-entries nor shared owners
	Unfenced bool          // no lock has tokens
	Patient  bool          // nobody gives up, or tries only once
	Hour     bool          // some re-entries ask for an hour and are given up
	Long     bool          // fixed leases of outer holds last for up to three times LeaseTime
	Forget   bool          // lost holds are not unlocked, if that is known by then
	Pause    int           // one section of so many lasts for up to a lease; 0: none
	Idle     time.Duration // the longest pause between two turns
	Stay     time.Duration // the longest section, as a rule; 0: 2 ms
}

// patient is how long a wait that nobody ends may take: whoever waits for longer
// has been forgotten.
const patient = 40 * time.Second

// generation is a worker's clients, until it is told to close them: one per set.
type generation struct{ clients []*redlatch.Client }

type party struct {
	args   workArgs
	rec    *recorder
	store  store
	direct []rueidis.Client
	gen    atomic.Pointer[generation]
	ids    atomic.Int64
	extra  atomic.Int64 // re-entries that left no record
	herds  sync.WaitGroup
}

// work runs the loops until the parent closes the input, then closes everything and
// says what was left.
func work(ctx context.Context, w *testbed.Worker) error {
	p := &party{}
	err := w.Args(&p.args)
	if err != nil {
		return err
	}
	if p.rec, err = newRecorder(p.args.History, p.args.Proc); err != nil {
		return err
	}
	watched := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { // when this process did not get to run
		watch(watched, func() bool { return true }, func(from, to time.Duration) {
			p.rec.write(&record{Op: opStall, Call: from, Ret: to})
		})
	})
	before, base := goleak.IgnoreCurrent(), descriptors()
	if p.store, err = openStore(p.args.Store); err != nil {
		return err
	}
	if p.args.Direct != "" {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.args.Direct}, DisableCache: true})
		if err != nil {
			return err
		}
		p.direct = append(p.direct, c)
	}
	gen, err := p.open(ctx)
	if err != nil {
		return err
	}
	p.gen.Store(gen)
	w.Say("ready")
	var loops sync.WaitGroup
	loop := func(stream uint64, turn func(r *rand.Rand)) {
		loops.Go(func() {
			for r := seeded(p.args.Seed, stream); ctx.Err() == nil; {
				turn(r)
			}
		})
	}
	p.loops(loop)
	for line := range w.Lines() {
		if err := p.command(ctx, line); err != nil {
			return err
		}
	}
	loops.Wait()
	p.herds.Wait()
	p.end(p.gen.Load(), "close")
	p.store.c.Close()
	for _, c := range p.direct {
		c.Close()
	}
	close(watched)
	watching.Wait()
	p.left(before, base)
	w.Say("done %d", p.extra.Load())
	return nil
}

// loops starts what the workload consists of, each with random numbers of its own.
func (p *party) loops(start func(stream uint64, turn func(r *rand.Rand))) {
	w := p.args.Work
	for i := range p.args.Loops {
		start(uint64(i), func(r *rand.Rand) {
			p.turn(p.gen.Load(), r)
			if w.Idle > 0 {
				time.Sleep(upTo(r, w.Idle))
			}
		})
	}
	if w.Hammer {
		start(1<<32, p.hammer)
	}
	if w.Lonely {
		start(1<<33, func(r *rand.Rand) {
			// Less than slack says nothing on a busy machine.
			_, h := p.lonely(r, slack, kindPlain, kindFair, kindRead, kindWrite)
			p.release(h)
			time.Sleep(10 * ms)
		})
	}
}

// command does what the parent asks for: a word, and for many how many, of what kind, and a seed.
func (p *party) command(ctx context.Context, line string) error {
	var word, tag string
	var n int
	var seed uint64
	_, err := fmt.Sscan(line, &word, &n, &tag, &seed)
	switch {
	case word == "close", word == "shutdown":
		next, err := p.open(ctx)
		if err != nil {
			return err
		}
		old := p.gen.Swap(next)
		p.herds.Go(func() { p.end(old, word) })
	case err != nil:
		return fmt.Errorf("no such command: %q", line)
	case word == "herd":
		p.herd(n, seed)
	default:
		p.crowd(n, tag, seed)
	}
	return nil
}

// open makes a generation; while the servers can't be reached it tries again, until the parent ends the episode.
func (p *party) open(ctx context.Context) (*generation, error) {
	gen := &generation{}
	for _, set := range p.args.Sets {
		c, err := redlatch.New(p.config(set))
		for err != nil && !errors.Is(err, redlatch.ErrInvalidOption) && ctx.Err() == nil {
			time.Sleep(20 * ms)
			c, err = redlatch.New(p.config(set))
		}
		if err != nil {
			return nil, fmt.Errorf("no client: %w", err)
		}
		gen.clients = append(gen.clients, c)
	}
	return gen, nil
}

func (p *party) config(set []string) redlatch.Config {
	opt := rueidis.ClientOption{InitAddress: set, Username: p.args.User, Password: p.args.User}
	if p.args.Sentinel {
		opt.Sentinel.MasterSet = testbed.MasterName
	} else {
		opt.ForceSingleClient = len(set) == 1
	}
	return redlatch.Config{
		Redis: opt, LeaseTime: p.args.Lease, Logger: slog.New(slog.DiscardHandler), UnlockTimeout: unlockTimeout,
	}
}

// unlockTimeout is that of all workers.
const unlockTimeout = 3 * time.Second

// closeLimit is how long Close may take, without the time in which the process or a server stood still.
const closeLimit = unlockTimeout + 2*time.Second

// end closes a generation, or shuts it down and closes it when that takes too long.
func (p *party) end(gen *generation, how string) {
	for _, c := range gen.clients {
		if how == "shutdown" {
			ctx, cancel := context.WithTimeout(context.Background(), p.args.Lease)
			if err := c.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				p.wrong("Shutdown: %v", err)
			}
			cancel()
		}
		begin := mono()
		c.Close()
		if took := mono() - begin; took > closeLimit {
			p.rec.write(&record{Op: opLeft, Call: begin, Ret: begin + took, Text: fmt.Sprintf("Close took %v", took)})
		}
	}
}

// wrong records something that must not be, whatever the faults.
func (p *party) wrong(format string, args ...any) {
	now := mono()
	p.rec.write(&record{Op: opLeft, Call: now, Ret: now, Text: fmt.Sprintf(format, args...)})
}

// left records goroutines and descriptors that are still there after all is closed.
func (p *party) left(before goleak.Option, base int) {
	// The client library closes a connection that a cluster has redirected away from five
	// seconds later, in a goroutine that sleeps.
	deadline := time.Now().Add(8 * time.Second)
	err := goleak.Find(before)
	for err != nil && time.Now().Before(deadline) {
		err = goleak.Find(before)
	}
	if err != nil {
		p.wrong("%v", err)
	}
	for descriptors() > base && time.Now().Before(deadline) {
		time.Sleep(5 * ms)
	}
	if n := descriptors(); n > base {
		p.wrong("%d descriptors, %d before the clients were made", n, base)
	}
}

// descriptors counts this process's; 0 where that can't be known.
func descriptors() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}
