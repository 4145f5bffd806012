package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// kinds are what is locked while the neighbour writes.
var kinds = []string{"plain", "fair", "read", "write", "multi", "quorum", "once"}

// inside is who is in the section.
type inside struct {
	mu     sync.Mutex
	live   map[int]section // guarded by mu
	broken string          // guarded by mu: the first two that were inside at once
}

type section struct {
	ctx   context.Context
	reads bool
	of    string
}

// enter notes one, and sees whether another one is there whose context has not ended.
func (in *inside) enter(id int, s section) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, other := range in.live {
		if other.ctx.Err() == nil && s.ctx.Err() == nil && (!s.reads || !other.reads) && in.broken == "" {
			in.broken = fmt.Sprintf("%s is inside together with %s", s.of, other.of)
		}
	}
	in.live[id] = s
}

func (in *inside) leave(id int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.live, id)
}

// world is what the runs of one process share.
type world struct {
	servers []*testbed.Server
	clients [2][]*redlatch.Client // of two processes, one per server
}

func newWorld(f *testing.F) *world {
	w := &world{servers: testbed.Masters(f, 3)}
	for p := range w.clients {
		for _, s := range w.servers {
			w.clients[p] = append(w.clients[p], bed.Client(f, s.Addr(), func(c *redlatch.Config) { c.UnlockTimeout = time.Second }))
		}
	}
	return w
}

// locker is what one of four callers locks.
func (w *world) locker(kind string, caller int) (l redlatch.Locker, reads bool) {
	c := w.clients[caller%2]
	switch kind {
	case "fair":
		return c[0].FairLock("l", redlatch.Fenced()), false
	case "read", "write":
		rw := c[0].ReadWriteLock("l", redlatch.Fenced())
		if (kind == "read") != (caller == 0) {
			return rw.ReadLock(), true
		}
		return rw.WriteLock(), false
	case "multi":
		return redlatch.MultiLock(c[0].RLock("l", redlatch.Fenced()), c[0].RLock("m"), c[0].FairLock("n")), false
	case "quorum":
		return redlatch.QuorumLock(c[0].RLock("l"), c[1].RLock("l"), c[2].RLock("l")), false
	}
	return c[0].RLock("l", redlatch.Fenced()), false
}

// late is how long after its deadline a call may come back, on a machine that has other work.
const late = 15 * time.Second

// FuzzNeighbour: whatever a neighbour writes to the keys of a lock and publishes, there is no panic, no
// call outlasts its deadline, nothing that is said fills a terminal or fails to be said, and never two
// are inside while the hold itself is left alone.
func FuzzNeighbour(f *testing.F) {
	for kind := range kinds {
		for rights := range allRights {
			for seed := range uint64(3) {
				f.Add(byte(kind), byte(rights), seed)
			}
		}
	}
	w := newWorld(f)
	f.Fuzz(func(t *testing.T, kind, rights byte, seed uint64) {
		w.run(t, kinds[int(kind)%len(kinds)], int(rights)%allRights, seed)
	})
}

func (w *world) run(t *testing.T, kind string, rights int, seed uint64) {
	servers := w.servers[:1]
	if kind == "quorum" {
		servers = w.servers
	}
	for _, s := range servers {
		s.Do(t, "FLUSHALL")
	}
	in := &inside{live: map[int]section{}}
	var callers sync.WaitGroup
	for id := range 4 {
		callers.Go(func() { w.call(t, kind, id, in) })
	}
	callers.Go(func() { w.look(t) })
	n := &neighbour{dice: rand.New(rand.NewPCG(seed, seed)), rights: rights, words: madeUp(), keys: keysOf("l", kind == "read" || kind == "write")}
	done := make(chan struct{})
	go func() { // ends with the callers; a call that never ends is what is looked for
		defer close(done)
		callers.Wait()
	}()
	limit := time.After(late)
	for ended := false; !ended; {
		n.s = servers[n.pick(len(servers))]
		n.step()
		select {
		case <-done:
			ended = true
		case <-limit:
			var stacks bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Fatalf("%s: a call outlasts its deadline:\n%s", kind, &stacks)
		default:
		}
	}
	if in.broken != "" && rights == sideKeys {
		t.Errorf("%s: %s", kind, in.broken)
	}
}

// call is one caller: it locks twice, and is inside for a moment.
func (w *world) call(t *testing.T, kind string, id int, in *inside) {
	l, reads := w.locker(kind, id)
	section := func(ctx context.Context) error {
		in.enter(id, section{ctx, reads, "caller " + strconv.Itoa(id)})
		defer in.leave(id)
		if id%2 == 0 {
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
		var err error
		if kind == "once" {
			_, err = w.clients[id%2][0].Once("l").Do(ctx, redlatch.MinPeriod, section)
		} else {
			err = redlatch.Do(ctx, l, section)
		}
		cancel()
		if err != nil {
			sayable(t, err.Error())
		}
	}
}

// look is an operator who looks at all meanwhile.
func (w *world) look(t *testing.T) {
	c := w.clients[1][0]
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	in, err := c.Inspect(ctx, "l")
	all := []redlatch.Inspection{in}
	for in, lerr := range c.Locks(ctx, "") {
		all = append(all, in)
		if lerr != nil && ctx.Err() == nil {
			t.Errorf("Locks: %v", lerr)
		}
	}
	if _, jerr := json.Marshal(all); jerr != nil {
		t.Error(jerr)
	}
	states := []func(context.Context) (redlatch.State, error){
		c.RLock("l", redlatch.Fenced()).State, c.FairLock("l").State, c.ReadWriteLock("l").ReadLock().State,
	}
	errs := []error{err}
	for _, state := range states {
		st, err := state(ctx)
		if _, jerr := json.Marshal(st); jerr != nil {
			t.Error(jerr)
		}
		errs = append(errs, err)
	}
	for _, err := range slices.DeleteFunc(errs, func(err error) bool { return err == nil }) {
		sayable(t, err.Error())
	}
}

// sayable fails for a text that may not stand in a log.
func sayable(t *testing.T, text string) {
	if len(text) > 20_000 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("an error of %d bytes: %.1000q", len(text), text)
	}
}
