package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("rwmodel", rwModelWorker) }

// rwModelArgs start a process that locks and unlocks at random.
type rwModelArgs struct {
	Addr       string
	Lease      time.Duration
	Goroutines int
	Seed       uint64
}

// rwEvent is one thing that a worker did; times are wall-clock ns: all
// processes share one machine.
type rwEvent struct {
	Client    int
	Op        string // lock, unlock; value: what a section found (and, as a writer, left)
	Write     bool
	Call, Ret int64
	Found     string // in the register
	Again     string // at the section's end: readers only
	Left      string // by a writer; an event without Ret announces it
}

const rwRegister = "register"

func rwModelWorker(ctx context.Context, w *testbed.Worker) error {
	var args rwModelArgs
	if err := w.Args(&args); err != nil {
		return err
	}
	c, err := rwOpen(args.Addr, args.Lease)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := rwRaw(args.Addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	errs := make(chan error, args.Goroutines)
	for g := range args.Goroutines {
		p := &rwModelParty{w: w, c: c, raw: raw, client: int(args.Seed)*100 + g}
		go func() { errs <- p.run(ctx, rand.New(rand.NewPCG(args.Seed, uint64(g)))) }() // #nosec G404 -- a test
	}
	w.Say(`{"Op":"ready"}`)
	for range args.Goroutines {
		err = errors.Join(err, <-errs)
	}
	return err
}

type rwModelParty struct {
	w      *testbed.Worker
	c      *redlatch.Client
	raw    rwRegisterClient
	client int
	n      int
}

func (p *rwModelParty) say(e rwEvent) {
	e.Client = p.client
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	p.w.Say("%s", line)
}

func (p *rwModelParty) run(ctx context.Context, r *rand.Rand) error {
	var opts []redlatch.Option
	if p.client/100%2 == 1 { // every other process
		opts = append(opts, redlatch.ShareReads())
	}
	l := p.c.ReadWriteLock("n", opts...)
	for ctx.Err() == nil {
		write := r.IntN(4) == 0
		locker := redlatch.Locker(l.ReadLock())
		if write {
			locker = l.WriteLock()
		}
		e := rwEvent{Op: "lock", Write: write, Call: time.Now().UnixNano()}
		lctx, cancel := ctx, context.CancelFunc(func() {})
		if r.IntN(3) == 0 {
			lctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(20))*time.Millisecond)
		}
		h, err := locker.Lock(lctx)
		cancel()
		if waited(err) {
			continue
		}
		if err != nil {
			return err
		}
		e.Ret = time.Now().UnixNano()
		p.say(e)
		if err := p.section(write, e.Call, time.Duration(r.IntN(3000))*time.Microsecond); err != nil {
			return err
		}
		e = rwEvent{Op: "unlock", Write: write, Call: time.Now().UnixNano()}
		if err := h.Unlock(context.Background()); err != nil {
			return err
		}
		e.Ret = time.Now().UnixNano()
		p.say(e)
	}
	return nil
}

// section looks at the register, and as a writer changes it, in separate steps.
func (p *rwModelParty) section(write bool, call int64, work time.Duration) error {
	e := rwEvent{Op: "value", Write: write, Call: call}
	var err error
	if e.Found, err = p.raw.get(); err != nil {
		return err
	}
	if write {
		p.n++
		e.Left = fmt.Sprintf("%d-%d", p.client, p.n)
		p.say(e)
	}
	time.Sleep(work)
	if write {
		err = p.raw.set(e.Left)
	} else {
		e.Again, err = p.raw.get()
	}
	e.Ret = time.Now().UnixNano()
	if err == nil {
		p.say(e)
	}
	return err
}

// rwLockModel is a read-write lock: the state is the number of readers, -1 for a
// writer.
var rwLockModel = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		n := state.(int)      //nolint:forcetypeassert // as Init made it
		e := input.(*rwEvent) //nolint:forcetypeassert // as given below
		switch lock := e.Op == "lock"; {
		case lock && e.Write:
			return n == 0, -1
		case lock:
			return n >= 0, n + 1
		case e.Write:
			return n == -1, 0
		}
		return n > 0, n - 1
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", *input.(*rwEvent)) }, //nolint:forcetypeassert // as above
}

// rwRegisterModel is a register whose writers say what they found.
var rwRegisterModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		e := input.(*rwEvent) //nolint:forcetypeassert // as given below
		if e.Found != state {
			return false, state
		}
		if e.Write {
			return true, e.Left
		}
		return e.Again == e.Found, state
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", *input.(*rwEvent)) }, //nolint:forcetypeassert // as above
}

// rwHistories makes of events what the models check. An operation without an end
// may have happened at any time after its begin.
func rwHistories(events []rwEvent) (locks, values []porcupine.Operation) {
	open := map[int]*rwEvent{}    // locks without an unlock
	writing := map[int]*rwEvent{} // announced writes without an end
	seen := map[string]bool{}
	for i := range events {
		e := &events[i]
		op := porcupine.Operation{ClientId: e.Client, Input: e, Call: e.Call, Return: e.Ret}
		switch {
		case e.Op == "lock":
			open[e.Client] = e
			locks = append(locks, op)
		case e.Op == "unlock":
			delete(open, e.Client)
			locks = append(locks, op)
		case e.Ret == 0:
			writing[e.Client] = e
		default:
			delete(writing, e.Client)
			seen[e.Found] = true
			values = append(values, op)
		}
	}
	for client, e := range open {
		locks = append(locks, porcupine.Operation{
			ClientId: client, Input: &rwEvent{Op: "unlock", Write: e.Write, Client: client}, Call: e.Ret, Return: math.MaxInt64,
		})
	}
	for client, e := range writing {
		if seen[e.Left] {
			values = append(values, porcupine.Operation{ClientId: client, Input: e, Call: e.Call, Return: math.MaxInt64})
		}
	}
	return locks, values
}

// TestRWHistoryIsLinearizable: processes lock, unlock and give up at random, one
// of them is killed; what they saw is a history of a read-write lock, and what
// their sections found one of a register that only writers change.
func TestRWHistoryIsLinearizable(t *testing.T) {
	s := rwServer(t)
	var ps []*testbed.Process
	for i := range 4 {
		// The one that is killed leaves a lease that ends meanwhile; the others lose none by a stall.
		lease := 10 * time.Second
		if i == 3 {
			lease = 2 * time.Second
		}
		ps = append(ps, testbed.Spawn(t, "rwmodel", rwModelArgs{
			Addr: s.Addr(), Lease: lease, Goroutines: 3, Seed: uint64(i + 1),
		}))
	}
	var events []rwEvent
	read := func(p *testbed.Process, line string) {
		var e rwEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("process %d: %q: %v", p.Pid(), line, err)
		}
		if e.Op != "ready" {
			events = append(events, e)
		}
	}
	// Three seconds, or as long as it takes on a slow machine to see enough.
	const enough = 400
	begin, look := time.Now(), time.NewTicker(50*time.Millisecond)
	defer look.Stop()
	kill, fourth := time.After(time.Second), ps[3].Lines()
	for running := true; running; {
		select {
		case line := <-ps[0].Lines():
			read(ps[0], line)
		case line := <-ps[1].Lines():
			read(ps[1], line)
		case line := <-ps[2].Lines():
			read(ps[2], line)
		case line, ok := <-fourth:
			if !ok { // it was killed
				fourth = nil
				continue
			}
			read(ps[3], line)
		case <-kill:
			ps[3].Kill(t)
		case <-look.C:
			sections := 0
			for i := range events {
				if events[i].Op != "lock" && events[i].Op != "unlock" && events[i].Ret != 0 {
					sections++
				}
			}
			took := time.Since(begin)
			running = took < 3*time.Second || sections < enough && took < 30*time.Second
		}
	}
	for _, p := range ps[:3] {
		p.CloseInput(t)
	}
	for _, p := range ps {
		for line := range p.Lines() {
			read(p, line)
		}
	}
	for _, p := range ps[:3] {
		if err := p.Wait(t); err != nil {
			t.Errorf("worker: %v\n%s", err, p.Stderr())
		}
	}
	locks, values := rwHistories(events)
	s.Do(t, "DEL", rwRegister)
	t.Logf("%d lock operations, %d sections", len(locks), len(values))
	if len(values) < enough {
		t.Error("too few sections to show anything")
	}
	for name, check := range map[string]struct {
		model porcupine.Model
		ops   []porcupine.Operation
	}{"lock": {rwLockModel, locks}, "register": {rwRegisterModel, values}} {
		if got := porcupine.CheckOperationsTimeout(check.model, check.ops, time.Minute); got != porcupine.Ok {
			t.Errorf("the history of the %s: %s", name, got)
		}
	}
}

// The check of the histories finds violations.
func TestRWModelsFindViolations(t *testing.T) {
	at := func(e rwEvent, call, ret int64) porcupine.Operation {
		e.Call, e.Ret = call, ret
		return porcupine.Operation{ClientId: e.Client, Input: &e, Call: call, Return: ret}
	}
	lock := func(client int, write bool, call, ret int64) porcupine.Operation {
		return at(rwEvent{Client: client, Op: "lock", Write: write}, call, ret)
	}
	unlock := func(client int, write bool, call, ret int64) porcupine.Operation {
		return at(rwEvent{Client: client, Op: "unlock", Write: write}, call, ret)
	}
	for name, bad := range map[string][]porcupine.Operation{
		"two writers":            {lock(1, true, 1, 2), lock(2, true, 3, 4), unlock(1, true, 5, 6), unlock(2, true, 7, 8)},
		"a reader in a write":    {lock(1, true, 1, 2), lock(2, false, 3, 4), unlock(1, true, 5, 6), unlock(2, false, 7, 8)},
		"a writer among readers": {lock(1, false, 1, 2), lock(2, true, 3, 4), unlock(1, false, 5, 6), unlock(2, true, 7, 8)},
	} {
		if porcupine.CheckOperations(rwLockModel, bad) {
			t.Errorf("%s passed", name)
		}
	}
	if !porcupine.CheckOperations(rwLockModel, []porcupine.Operation{
		lock(1, false, 1, 2), lock(2, false, 3, 4), lock(3, true, 5, 20), unlock(1, false, 6, 7), unlock(2, false, 8, 9), unlock(3, true, 21, 22),
	}) {
		t.Error("a good history did not pass")
	}
	value := func(client int, write bool, found, again, left string, call, ret int64) porcupine.Operation {
		return at(rwEvent{Client: client, Op: "value", Write: write, Found: found, Again: again, Left: left}, call, ret)
	}
	for name, bad := range map[string][]porcupine.Operation{
		"a lost update":         {value(1, true, "", "", "a", 1, 5), value(2, true, "", "", "b", 2, 6)},
		"a change under a read": {value(1, true, "", "", "a", 1, 5), value(2, false, "", "a", "", 2, 6)},
		"a stale read":          {value(1, true, "", "", "a", 1, 2), value(2, false, "", "", "", 3, 4)},
	} {
		if porcupine.CheckOperations(rwRegisterModel, bad) {
			t.Errorf("%s passed", name)
		}
	}
}
