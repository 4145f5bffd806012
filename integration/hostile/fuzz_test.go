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
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// kinds are what is locked while the neighbour writes.
var kinds = []string{"plain", "fair", "read", "write", "multi", "quorum", "once"}

// What a neighbour may write: anything to any key, what has the key's own type, or anything to
// those keys that are not the hold itself. In each case it publishes, too.
const (
	anything = iota
	rightType
	sideKeys
	allRights
)

// key is one key of a lock with the type that it has there; hold: it says who holds the lock.
type key struct {
	name string
	of   string
	hold bool
}

// keysOf are all keys of a lock but the timeout keys of its readers.
func keysOf(l string, rw bool) []key {
	return []key{
		{l, "hash", true},
		{luascript.RWLeasesKey(l), "zset", rw},
		{luascript.VoidKey(l), "set", false},
		{luascript.TokenKey(l), "string", false},
		{luascript.TraceKey(l), "string", false},
		{luascript.OnceKey(l), "string", false},
		{luascript.FairQueueKey(l), "list", false},
		{luascript.FairTimeoutKey(l), "zset", false},
		{luascript.FairWantsKey(l), "hash", false},
		{luascript.RWWritersKey(l), "zset", false},
		{luascript.RWMarksKey(l), "zset", false},
		{luascript.RWReadersKey(l), "zset", false},
		{luascript.RWTurnKey(l), "zset", false},
		{luascript.Derive("redlatch_wait", l), "zset", false},
	}
}

// neighbour writes what its dice say.
type neighbour struct {
	s      *testbed.Server
	dice   *rand.Rand
	rights int
	keys   []key
	words  []string // what it has seen at the keys, and what it makes up
}

func (n *neighbour) pick(of int) int { return n.dice.IntN(of) }

func (n *neighbour) word() string { return n.words[n.pick(len(n.words))] }

// madeUp are the words that it knows.
func madeUp() []string {
	return append([]string{
		"0", "1", "-1", "mode", "read", "write", "inf", "-inf", "nan", "1e300", "9007199254740992", "9223372036854775807",
		"99999999999999999999999999999999", java + "1", java + "g1-zzzzzzzz.1", java + "g1-zzzzzzzz.1:write", java + "g=x-1.1",
		"9999999999999 1 5000 30000 - ", "1000000000000 1 1 1 - ", "9999999999999 300000000000000000 5000 30000 -1 x",
		"1 x 0", "4000000000000 x 0", "zzzzzzzz.1 1 1", java + strings.Repeat("x", 2000), strings.Repeat("9", 500),
	}, testbed.Hostile[:31]...)
}

// look learns the words that stand at the keys: fields, members, counts.
func (n *neighbour) look() {
	for _, k := range n.keys {
		for _, command := range [][]string{{"HGETALL", k.name}, {"ZRANGE", k.name, "0", "10"}, {"LRANGE", k.name, "0", "10"}} {
			msg, err := n.s.Try(command...)
			if err != nil {
				continue
			}
			some, _ := msg.AsStrSlice()
			if m, err := msg.AsStrMap(); err == nil {
				for f, v := range m {
					some = append(some, f, v)
				}
			}
			n.words = append(n.words, some[:min(len(some), 8)]...)
		}
	}
}

// step does one thing.
func (n *neighbour) step() {
	k := n.keys[n.pick(len(n.keys))]
	if n.rights == sideKeys && k.hold {
		k = key{luascript.RWTimeoutKey("l", n.word()), "string", false}
		if strings.HasPrefix(k.name, "{l}:"+java) { // of nobody who is here
			n.do("SET", k.name, n.word())
		}
		return
	}
	of := k.of
	if n.rights != rightType {
		of = []string{"hash", "zset", "set", "string", "list"}[n.pick(5)]
	}
	switch n.pick(8) {
	case 0:
		n.do("DEL", k.name)
	case 1:
		n.do("PERSIST", k.name)
	case 2:
		n.do("PEXPIRE", k.name, []string{"1", "50", "100000000000"}[n.pick(3)])
	case 3:
		n.publish()
		return
	case 4:
		n.look()
		return
	default:
		if n.pick(3) == 0 {
			n.do("DEL", k.name)
		}
	}
	for range 1 + n.pick(4) {
		switch of {
		case "hash":
			n.do("HSET", k.name, n.word(), n.word())
		case "zset":
			n.do("ZADD", k.name, n.word(), n.word())
		case "set":
			n.do("SADD", k.name, n.word())
		case "list":
			n.do([]string{"RPUSH", "LPUSH"}[n.pick(2)], k.name, n.word())
		default:
			n.do("SET", k.name, n.word())
		}
	}
}

func (n *neighbour) publish() {
	if n.pick(2) == 0 {
		n.forge()
		return
	}
	client, _, _ := strings.Cut(n.word(), ":")
	channels := []string{
		luascript.LockChannel("l"), luascript.RWChannel("l"), luascript.GrantChannel("l") + client, luascript.LockChannel("l") + ":" + n.word(),
		luascript.Derive("redlatch_wake", "l") + ":" + client,
	}
	n.do("PUBLISH", channels[n.pick(len(channels))], n.word())
}

// forge publishes the grant of a waiter's place, as somebody who may not read the queue guesses it:
// ids and places are times and counters.
func (n *neighbour) forge() {
	msg, err := n.s.Try("HGETALL", luascript.FairWantsKey("l"))
	if err != nil {
		return
	}
	wants, _ := msg.AsStrMap()
	for field, want := range wants {
		client, rest, _ := strings.Cut(field, ":")
		place := strings.Fields(want + " x x")[1]
		n.do("PUBLISH", luascript.GrantChannel("l")+client, rest[strings.LastIndexByte(rest, '-')+1:]+" "+place+" "+strconv.Itoa(1+n.pick(9)))
	}
}

// do ignores what the server refuses: a score that is no number.
func (n *neighbour) do(args ...string) { _, _ = n.s.Try(args...) }

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
		if other.ctx.Err() == nil && s.ctx.Err() == nil && !(s.reads && other.reads) && in.broken == "" {
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
			w.clients[p] = append(w.clients[p], dial(f, s.Addr(), func(c *redlatch.Config) { c.UnlockTimeout = time.Second }))
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
