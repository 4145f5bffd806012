package pubsub_test

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/internal/testbed/texts"
)

// What waiters hear stands in the texts in testdata/hub. A line with > has commands; below it stands what comes of them:
// what the server is asked (dial, +channel, -channel, close), what is logged, and the news of each waiter that has a
// signal, in the order of their coming. With REDLATCH_REWRITE=1 the files are written anew: read what has changed.
//
//	join a b TOPIC      waiters of these names. all: messages wake all; called: they call the client, with its place;
//	                    shared, key=K: as such; own=CHANNEL: it listens to that, too;
//	                    carry: TakeHead may have it; memory: in the caller's
//	leave a b, pass a   they leave; the next one is to try; leave a holder=H expect=1m: what it knows
//	expect a 6s H, poke a, look a        it has looked; it is woken; its news without a signal
//	mute a, hear a                       its signals are not taken, until it hears
//	publish TOPIC TEXT, take TOPIC [refuse], forgotten a, wait 1s, nodes
//	asks TOPIC, looked TOPIC, released TOPIC [called] [heard]   what the client does about the lock, and tells of its place
//	late 1s, refuse CHANNEL, home NODE, down, up, hang, go on   what the server does from now on
//	cut, close, drop TOPIC, redial       the connection ends, there or here; a subscription does; they are made anew
//	old confirm TOPIC, old drop TOPIC    what the first connection says, after its end
func TestHub(t *testing.T) {
	texts.Each(t, "testdata/hub/*.txt", 16, func(t *testing.T, text string) string {
		var got string
		synctest.Test(t, func(t *testing.T) { got = play(t, text) })
		return got
	})
}

// scene is a hub on a fake server, and who waits.
type scene struct {
	t       *testing.T
	s       *fakeServer
	h       *pubsub.Hub
	home    string
	names   []string // in the order of their coming
	waiters map[string]*pubsub.Waiter
	mute    map[string]bool

	mu     sync.Mutex
	logged []string // guarded by mu; since the last command: its place among what the server is asked is left to chance
}

func play(t *testing.T, text string) string {
	sc := &scene{t: t, s: newServer(), waiters: map[string]*pubsub.Waiter{}, mute: map[string]bool{}}
	sc.s.where = func(uint16) string { return sc.home } // which only a command changes, when nothing is under way
	sc.h = pubsub.NewHub(sc.s, func(msg string, _ ...any) {
		sc.mu.Lock()
		defer sc.mu.Unlock()
		sc.logged = append(sc.logged, "logged: "+msg)
	})
	defer sc.h.Wait()
	defer sc.h.Close()
	played := texts.Play(text, func(commands []string) (all []string) {
		for _, one := range commands {
			all = append(all, sc.do(strings.Fields(one))...)
		}
		synctest.Wait()
		sc.mu.Lock()
		defer sc.mu.Unlock()
		all = slices.Concat(all, sc.s.noted(), sc.logged, sc.news())
		sc.logged = nil
		return all
	})
	for _, name := range sc.names {
		leave(sc.waiters[name])
	}
	return played
}

// news are those of who has a signal.
func (sc *scene) news() (all []string) {
	for _, name := range sc.names {
		if !sc.mute[name] && signalled(sc.waiters[name]) {
			all = append(all, name+": "+said(sc.waiters[name].Take()))
		}
	}
	return all
}

// said is what a waiter finds, in words.
func said(n pubsub.News) string {
	words := []string{"aside"}
	if n.Line {
		words[0] = map[bool]string{true: "head", false: "behind"}[n.Head]
	}
	for word, is := range map[string]bool{" try": n.Try, " confirmed": n.Confirmed, " missed": n.Missed, " refused": n.Err != nil} {
		if is {
			words = append(words, word[1:])
		}
	}
	slices.Sort(words[1:])
	if n.Holder.Owner != "" {
		words = append(words, "holder="+n.Holder.Owner)
	}
	if !n.Expect.IsZero() {
		words = append(words, "expect="+time.Until(n.Expect).String())
	}
	if left := time.Until(n.Look); left > 0 && left < 10*time.Millisecond { // the next look is left to chance
		words = append(words, "look="+left.String())
	}
	return strings.Join(append(words, n.Payloads...), " ")
}

// settings are the words of a command that have a =, and the others.
func settings(words []string) (set map[string]string, rest []string) {
	set = map[string]string{}
	for _, word := range words {
		if name, value, is := strings.Cut(word, "="); is {
			set[name] = value
		} else {
			rest = append(rest, word)
		}
	}
	return set, rest
}

func (sc *scene) do(words []string) []string {
	set, rest := settings(words[1:])
	about := slices.Concat(rest, []string{"", "", ""})
	switch w := sc.waiters[about[0]]; words[0] {
	case "join":
		sc.join(set, rest)
	case "leave":
		expect := time.Time{}
		if set["expect"] != "" {
			expect = time.Now().Add(sc.length(set["expect"]))
		}
		for _, name := range rest {
			sc.waiters[name].Leave(false, expect, pubsub.Holder{Owner: set["holder"]})
		}
	case "pass":
		w.Leave(true, time.Time{}, pubsub.Holder{})
	case "expect":
		w.Expect(time.Now().Add(sc.length(about[1])), pubsub.Holder{Owner: about[2], Foreign: about[3] == "foreign"})
	case "poke":
		w.Poke()
	case "look":
		return []string{about[0] + ": " + said(w.Take())}
	case "mute", "hear":
		sc.mute[about[0]] = words[0] == "mute"
	case "publish":
		if !sc.s.publish(about[0], about[1]) {
			return []string{"nobody hears"}
		}
	case "take":
		return []string{sc.take(about[0], about[1] != "refuse")}
	case "forgotten":
		return []string{fmt.Sprint(w.Forgotten())}
	case "wait":
		time.Sleep(sc.length(about[0]))
	case "nodes":
		return []string{fmt.Sprintf("%d nodes, %d goroutines", sc.h.Nodes(), nodeGoroutines())}
	case "asks":
		return []string{sc.h.Asks(about[0])}
	case "looked":
		sc.h.HasLooked(about[0])
	case "released":
		sc.h.Released(about[0], pubsub.Release{Called: slices.Contains(rest, "called"), Heard: slices.Contains(rest, "heard")})
	default:
		sc.trouble(words[0], about)
	}
	return nil
}

func (sc *scene) length(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		sc.t.Fatal(err)
	}
	return d
}

// trouble is what server and connection do.
func (sc *scene) trouble(what string, about []string) {
	switch s := sc.s; what {
	case "late":
		s.set(func() { s.confirmLate = sc.length(about[0]) })
	case "refuse":
		s.set(func() { s.refused[about[0]] = true })
	case "home":
		sc.home = about[0]
	case "down", "up":
		s.set(func() { s.down = what == "down" })
	case "hang":
		s.set(func() { s.hang = make(chan struct{}) })
	case "go":
		s.set(func() { close(s.hang); s.hang = nil })
	case "cut":
		s.cut()
	case "close":
		s.ends(&net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed})
	case "redial":
		sc.h.Redial()
	case "drop":
		s.link.h.Dropped(about[0])
	case "old":
		map[string]func(string){"confirm": s.first.h.Confirmed, "drop": s.first.h.Dropped}[about[0]](about[1])
	default:
		sc.t.Fatalf("no command %q", what)
	}
}

// join lets the named ones wait, whose topic stands behind them.
func (sc *scene) join(set map[string]string, rest []string) {
	is := func(option string) bool {
		n := len(rest)
		rest = slices.DeleteFunc(rest, func(word string) bool { return word == option })
		return len(rest) < n
	}
	wakesAll, called := is("all"), is("called")
	shared, carries, memory := is("shared"), is("carry"), is("memory")
	topic := rest[len(rest)-1]
	spec := one(topic)
	if wakesAll {
		spec = all(topic)
	} else if called {
		spec.Unheard = func() { sc.s.set(func() { sc.s.asked = append(sc.s.asked, "unheard") }) }
		spec.Route = func(_, place string) pubsub.Wake { return pubsub.Wake{One: true, Place: place} }
	}
	for _, name := range rest[:len(rest)-1] {
		var opts []pubsub.Option
		if shared {
			opts = append(opts, pubsub.Shared())
		}
		if carries {
			opts = append(opts, pubsub.Carry(name))
		}
		if key := set["key"]; key != "" {
			opts = append(opts, pubsub.Keyed(key))
		}
		if !slices.Contains(sc.names, name) {
			sc.names = append(sc.names, name)
		}
		if !memory {
			sc.waiters[name] = sc.h.Join(spec, opts...)
			sc.waiters[name].Listen(strings.Fields(set["own"]), nil)
			continue
		}
		if sc.waiters[name] == nil {
			sc.waiters[name] = new(pubsub.Waiter)
		}
		sc.h.JoinLine(sc.waiters[name], &spec, member(name), false)
	}
}

// nodeGoroutines counts the goroutines of nodes, of all tests.
func nodeGoroutines() int {
	buf := make([]byte, 8<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "pubsub.(*node).run(")
}

// take offers the head of a line the lock.
func (sc *scene) take(topic string, accepts bool) string {
	offered := "nobody"
	took := sc.h.TakeHead(topic, func(v any) (pubsub.Holder, bool) {
		offered = fmt.Sprint(v)
		return pubsub.Holder{}, accepts
	})
	return fmt.Sprintf("offered to %s, taken: %t", offered, took)
}

type member string

func (m member) Logged() []any          { return []any{"member", string(m)} }
func (m member) Waits() observe.Waiting { return observe.Waiting{Owner: string(m)} }

// A waiter is either taken or leaves, whichever comes first, and nobody is woken
// twice or never.
func TestTakeHeadBesideLeave(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fakeServer, h *pubsub.Hub) {
		for range 500 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			taken := map[int]bool{}
			line := []*pubsub.Waiter{h.Join(one("c"), pubsub.Carry(0)), h.Join(one("c"), pubsub.Carry(1))}
			synctest.Wait()
			wg.Go(func() { line[0].Leave(true, time.Time{}, pubsub.Holder{}) })
			wg.Go(func() {
				h.TakeHead("c", func(v any) (pubsub.Holder, bool) {
					mu.Lock()
					defer mu.Unlock()
					taken[v.(int)] = true
					return pubsub.Holder{}, true
				})
			})
			wg.Wait()
			testbed.Equal(t, len(taken), 1, "who were taken")
			if taken[0] && (!signalled(line[0]) || line[1].Take().Head != true) {
				t.Fatal("the first was taken: it wakes, and the second is the head")
			}
			if taken[1] && (!signalled(line[1]) || h.Waiting("c")) {
				t.Fatal("the first left and the second was taken: nobody waits")
			}
			leave(line...)
		}
	})
}
