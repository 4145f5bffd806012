package batch

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/internal/testbed"
)

// server answers each key with the number in its name.
type server struct {
	cluster bool
	short   bool   // an answer too few
	proxied bool   // a cluster that looks like a single server
	denied  string // the user may not touch this key

	mu   sync.Mutex
	cmds []conn.Command
}

func (s *server) Topology() conn.Topology { return conn.Topology{Cluster: s.cluster} }

func (s *server) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	s.mu.Lock()
	s.cmds = append(s.cmds, cmd)
	s.mu.Unlock()
	var r conn.Reply
	for _, key := range cmd.Keys {
		if s.proxied && luascript.Slot(key) != luascript.Slot(cmd.Keys[0]) {
			return r, conn.Refusal("CROSSSLOT Keys in request don't hash to the same slot")
		}
		if key == s.denied {
			return r, conn.Refusal("NOPERM this user has no permissions to access one of the keys used as arguments")
		}
		n, err := strconv.Atoi(key[strings.LastIndex(key, "l")+1:])
		if err != nil {
			return r, err
		}
		r.Vals = append(r.Vals, conn.Value{Int: int64(n)})
	}
	if s.short {
		r.Vals = r.Vals[1:]
	}
	return r, nil
}

func (s *server) RunMulti(ctx context.Context, cmds []conn.Command, out []conn.Result) []conn.Result {
	out = out[:0]
	for _, cmd := range cmds {
		r, err := s.Run(ctx, cmd)
		out = append(out, conn.Result{Reply: r, Err: err})
	}
	return out
}

// work is items of which each third has two keys, and each fifth another script.
type work struct {
	slots int // 0: no cluster

	mu   sync.Mutex
	got  []Answer
	ran  int
	ends chan int // how many answers there were
}

const items = 1000

func (w *work) Len() int { return items }

func (w *work) Item(i int) kind.Item {
	key := "l" + strconv.Itoa(i)
	if w.slots > 0 {
		key = "{" + strconv.Itoa(i%w.slots) + "}" + key
	}
	it := kind.Item{Script: luascript.Renew, Keys: []string{key}, Args: []string{key, "1"}, Replies: 1}
	if i%5 == 0 {
		it.Script = luascript.RWRenew
	}
	if i%3 == 0 {
		it.Keys, it.Args, it.Replies = []string{key, key}, []string{key, "1", "", "1"}, 2
	}
	return it
}

func (w *work) Answered(_ *sender.Call, as []Answer) {
	w.mu.Lock()
	w.ran++
	w.got = append(w.got, as...)
	w.mu.Unlock()
}

func (w *work) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends <- len(w.got)
}

func send(t *testing.T, srv *server, slots int) *work {
	t.Helper()
	s := sender.New(srv, sender.Config{Slow: time.Second})
	w := &work{slots: slots, ends: make(chan int, 2)}
	Send(s, srv.cluster, w)
	testbed.Equal(t, <-w.ends, items, "answers at the end")
	s.Stop()
	s.Wait()
	if len(w.ends) > 0 {
		t.Error("ended twice")
	}
	return w
}

// Each item gets the part of the reply that is its own, and few commands carry all: each
// of one script and slot, within the bound.
func TestItemsTravelTogether(t *testing.T) {
	for slots, most := range map[int]int{0: 14, 7: 30} {
		srv := &server{cluster: slots > 0}
		w := send(t, srv, slots)
		seen := map[int]bool{}
		for _, a := range w.got {
			if a.Err != nil || a.Sent.IsZero() || seen[a.Item] {
				t.Fatalf("item %d: %+v, a second time: %v", a.Item, a, seen[a.Item])
			}
			seen[a.Item] = true
			if want := w.Item(a.Item).Replies; len(a.Vals) != want {
				t.Errorf("item %d got %d values, want %d", a.Item, len(a.Vals), want)
			}
			for _, v := range a.Vals {
				testbed.Equal(t, v.Int, int64(a.Item), "of whom the answer is that this item got:", a.Item)
			}
		}
		if len(srv.cmds) > most || w.ran != len(srv.cmds) {
			t.Errorf("%d slots: %d commands, of which %d were told; want at most %d", slots, len(srv.cmds), w.ran, most)
		}
		for _, cmd := range srv.cmds {
			if len(cmd.Keys) > MaxKeys || len(cmd.Args) != 2*len(cmd.Keys) {
				t.Errorf("a command of %d keys and %d arguments", len(cmd.Keys), len(cmd.Args))
			}
			for _, key := range cmd.Keys {
				if srv.cluster && luascript.Slot(key) != luascript.Slot(cmd.Keys[0]) {
					t.Error("a command across slots")
				}
			}
		}
	}
}

// A cluster that looks like a single server refuses what concerns several slots: each item goes
// on its own then.
func TestItemsOfSeveralSlots(t *testing.T) {
	w := send(t, &server{proxied: true}, 7)
	for _, a := range w.got {
		if a.Err != nil || len(a.Vals) != w.Item(a.Item).Replies || a.Vals[0].Int != int64(a.Item) {
			t.Fatalf("item %d: %+v", a.Item, a)
		}
	}
}

// What is refused for the sake of one item costs no other.
func TestOneItemIsRefused(t *testing.T) {
	for _, a := range send(t, &server{denied: "l700"}, 0).got {
		if refused := a.Item == 700; (a.Err != nil) != refused || conn.IsPermanent(a.Err) != refused {
			t.Errorf("item %d: %+v", a.Item, a)
		}
	}
}

// A reply that is too short for all is an error of those without an answer.
func TestShortReply(t *testing.T) {
	srv := &server{short: true}
	w := send(t, srv, 0)
	failed := 0
	for _, a := range w.got {
		if a.Err != nil {
			failed++
			if !errors.Is(a.Err, conn.ErrShortReply) {
				t.Error(a.Err)
			}
		}
	}
	testbed.Equal(t, failed, len(srv.cmds), "items without an answer in commands that lack one each")
}
