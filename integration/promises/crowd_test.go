package promises

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

const (
	// atOnce is how long it takes at most to be called, on a busy machine: less than until anybody looks.
	atOnce = 600 * time.Millisecond
	// looks is how long a free lock is left lying at most while somebody waits: a look, and what a busy machine adds.
	looks = 1250*time.Millisecond + atOnce
)

// crowd is a kind of lock whose waiters of many processes stand on a list, of whom a release calls one.
type crowd struct {
	name        string
	holds, lock func(c *redlatch.Client) redlatch.Locker
	// list has who waits, by their places; lives, if there is one, until when they count.
	list, lives string
	// stranger is the entry of a client that is nobody's, other one of a client that waits.
	stranger string
	other    func(client string, i int) string
	ending   string  // of the channel where a client is called
	turn     float64 // how many commands a turn costs at most: three, and looks and refreshes on a busy machine
	// calls is how many calls on the server a command makes at most, unless 0: 9.3 in a write turn that nothing
	// disturbs, or 10 with a token.
	calls float64
}

func crowds() []crowd {
	plain := func(opts ...redlatch.Option) func(c *redlatch.Client) redlatch.Locker {
		return func(c *redlatch.Client) redlatch.Locker { return c.RLock("l", opts...) }
	}
	write := func(opts ...redlatch.Option) func(c *redlatch.Client) redlatch.Locker {
		return func(c *redlatch.Client) redlatch.Locker {
			return c.ReadWriteLock("l", append(opts, redlatch.WithSkipAfter(10*time.Minute))...).WriteLock()
		}
	}
	read := func(c *redlatch.Client) redlatch.Locker { return c.ReadWriteLock("l").ReadLock() }
	const nobody = "00000000-0000-4000-8000-000000000001"
	list := crowd{
		name: "plain", holds: plain(), lock: plain(), list: luascript.WaitKey("l"), stranger: nobody, turn: 4,
		other: func(_ string, i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) },
	}
	fenced := list
	fenced.name, fenced.holds, fenced.lock = "fenced", plain(redlatch.Fenced()), plain(redlatch.Fenced())
	marks := crowd{
		name: "write", holds: write(), lock: write(), list: luascript.RWWritersKey("l"), lives: luascript.RWMarksKey("l"),
		stranger: nobody + ":g1-x.1", ending: ":write", turn: 6, calls: 11,
		other: func(client string, i int) string { return fmt.Sprintf("%s:g99-x.%d", client, i) },
	}
	fencedWrite, behind := marks, marks
	fencedWrite.name, fencedWrite.holds, fencedWrite.lock = "fenced write", write(redlatch.Fenced()), write(redlatch.Fenced())
	behind.name, behind.holds = "write behind a reader", read
	return []crowd{list, fenced, marks, fencedWrite, behind}
}

// overCrowds runs a case for each kind, on a server of its own.
func overCrowds(t *testing.T, run func(t *testing.T, s *testbed.Server, k crowd)) {
	t.Helper()
	for _, k := range crowds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			for _, l := range []redlatch.Locker{k.lock(bed.Client(t, s.Addr())), k.holds(bed.Client(t, s.Addr()))} {
				bed.Unlock(t, bed.Lock(t, t.Context(), l)) // its scripts are known then
			}
			run(t, s, k)
		})
	}
}

// waits waits until n clients are on the list and hear when they are called, and nothing is under way.
func (k crowd) waits(t *testing.T, s *testbed.Server, n int) {
	t.Helper()
	bed.Eventually(t, fmt.Sprintf("%d wait", n), func() bool {
		return s.Int(t, "ZCARD", k.list) == int64(n) && len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel("l")+"*")) == n
	})
	s.AwaitQuiet(t)
}

// add puts an entry on the list that was there first.
func (k crowd) add(t *testing.T, s *testbed.Server, place, entry string) {
	t.Helper()
	s.Do(t, "ZADD", k.list, place, entry)
	if k.lives != "" {
		s.Do(t, "ZADD", k.lives, "99999999999999", entry)
	}
}

// standsStill makes the stranger hear that he is called, and do nothing.
func (k crowd) standsStill(t *testing.T, s *testbed.Server) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	testbed.Must(t, err)
	dc, release := c.Dedicate()
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	id, _, _ := strings.Cut(k.stranger, ":")
	testbed.Must(t, dc.Do(t.Context(), dc.B().Subscribe().Channel(luascript.CallChannel("l")+id+k.ending).Build()).Error())
	t.Cleanup(func() { dc.Close(); release(); c.Close() })
}

// Many processes wait with one waiter each: a release costs about three commands, whatever their number, which of write
// locks make 28 calls on the server, or 30 with a token. It would cost a command of each process if all were woken.
func TestAReleaseCallsOneClient(t *testing.T) {
	overCrowds(t, func(t *testing.T, s *testbed.Server, k crowd) {
		const clients, turns = 20, 10
		h := bed.Lock(t, t.Context(), k.holds(bed.Client(t, s.Addr())))
		var all sync.WaitGroup
		inside := 0 // by the lock
		for range clients {
			l := k.lock(bed.Client(t, s.Addr()))
			all.Go(func() {
				for range turns {
					h, err := l.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					inside++
					bed.Want(t, h.Unlock(t.Context()), nil)
				}
			})
		}
		bed.Eventually(t, "all wait", func() bool { return s.Int(t, "ZCARD", k.list) == clients })
		before := s.CommandStats(t)
		bed.Unlock(t, h)
		all.Wait()
		testbed.Equal(t, inside, clients*turns, "turns")
		calls := s.CommandStats(t).Sub(before).Calls
		testbed.AtMost(t, float64(calls["evalsha"])/(clients*turns), k.turn, "commands a turn, with", clients, "clients")
		inScripts := 0.0
		for cmd, n := range calls {
			if !slices.Contains([]string{"evalsha", "info", "ping", "subscribe", "unsubscribe"}, cmd) {
				inScripts += float64(n) / float64(calls["evalsha"])
			}
		}
		if k.calls > 0 && inScripts > k.calls {
			t.Errorf("a command makes %.2f calls: %v", inScripts, calls)
		}
	})
}

// Nobody waits: what the list costs an acquisition and its release is one read, and no write. (The server counts the
// commands of scripts, too.)
func TestNobodyWaitsAndNothingIsWritten(t *testing.T) {
	overCrowds(t, func(t *testing.T, s *testbed.Server, k crowd) {
		want := map[string]int64{"evalsha": 2, "exists": 2, "hset": 1, "pexpire": 1, "hdel": 1, "publish": 1}
		if k.lives != "" {
			return // it has more to look after
		} else if k.name == "fenced" {
			want["get"], want["time"], want["set"] = 1, 1, 1
		}
		l := k.lock(bed.Client(t, s.Addr()))
		before := s.CommandStats(t)
		bed.Unlock(t, bed.Lock(t, t.Context(), l))
		calls := s.CommandStats(t).Sub(before).Calls
		maps.DeleteFunc(calls, func(_ string, n int64) bool { return n == 0 })
		if !maps.Equal(calls, want) {
			t.Errorf("%v, not %v", calls, want)
		}
	})
}

// trouble makes what stands between a release and the one who waits, or takes the place of the release.
type trouble func(t *testing.T, s *testbed.Server, k crowd, waiter *redlatch.Client)

// command is the trouble that one makes to which LIST, LIVES and LEASES are keys.
func command(args ...string) trouble {
	return func(t *testing.T, s *testbed.Server, k crowd, _ *redlatch.Client) {
		keys := strings.NewReplacer("LIST", k.list, "LIVES", k.lives, "LEASES", luascript.RWLeasesKey("l"))
		s.Do(t, strings.Split(keys.Replace(strings.Join(args, " ")), " ")...)
	}
}

// stillAt puts somebody on the list who hears that he is called, and does nothing.
func stillAt(place string) trouble {
	return func(t *testing.T, s *testbed.Server, k crowd, _ *redlatch.Client) {
		k.standsStill(t, s)
		k.add(t, s, place, k.stranger)
	}
}

var troubles = []struct {
	name string
	make trouble
	soon bool // it is called all the same
	ends bool // the lock is free by that
}{
	{"nothing", command("PING"), true, false},
	{"the first is dead", func(t *testing.T, s *testbed.Server, k crowd, _ *redlatch.Client) { k.add(t, s, "1", k.stranger) }, true, false},
	{"40 are dead", func(t *testing.T, s *testbed.Server, k crowd, _ *redlatch.Client) {
		for i := range 40 {
			k.add(t, s, strconv.Itoa(i), strings.Replace(k.stranger, "000001", fmt.Sprintf("%06d", i), 1))
		}
	}, true, false},
	{"others of its process are on the list", func(t *testing.T, s *testbed.Server, k crowd, waiter *redlatch.Client) {
		for i := range 8 {
			k.add(t, s, "1000000", k.other(waiter.ID(), i))
		}
	}, true, false},
	{"the first stands still", stillAt("1"), false, false},
	{"one that had lost stands still", stillAt("-2000000000000000"), false, false},
	{"subscriptions end", command("CLIENT", "KILL", "TYPE", "pubsub"), false, false},
	{"the list is gone", command("DEL", "LIST", "LIVES"), false, false},
	{"the list is something else", command("SET", "LIST", "x"), false, false},
	{"the lives are something else", command("SET", "LIVES", "x"), false, false},
	{"a million others are on the list", func(t *testing.T, s *testbed.Server, k crowd, _ *redlatch.Client) {
		for i := range 100 {
			s.Do(t, "EVAL", "for i = 1, 10000 do redis.call('ZADD', KEYS[1], i, ARGV[1] .. i) end", "1", k.list, strconv.Itoa(i)+":")
		}
	}, false, false},
	{"a long name and an endless place stand in front", func(t *testing.T, s *testbed.Server, k crowd, _ *redlatch.Client) {
		k.add(t, s, "-inf", strings.Repeat("x", 1<<20))
	}, true, false},
	{"it is forced open", func(t *testing.T, s *testbed.Server, _ crowd, _ *redlatch.Client) {
		if was, err := bed.Client(t, s.Addr()).ForceUnlock(t.Context(), "l"); err != nil || !was {
			t.Fatal(was, err)
		}
	}, true, true},
	{"its lease ends", command("PEXPIRE", "l", "1"), false, true},
	{"lock and list are deleted", command("DEL", "l", "LEASES", "LIST", "LIVES"), false, true},
	{"the server forgets all", command("FLUSHALL"), false, true},
	{"the server starts again, empty", func(t *testing.T, s *testbed.Server, _ crowd, _ *redlatch.Client) {
		s.Restart(t, testbed.Empty)
	}, false, true},
}

// Whatever is wrong with the list or with whom it names, and whatever frees the lock, it is not left lying for more
// than a second while somebody waits, and at once it is taken by whoever can be called.
func TestAFreeLockIsNotLeftLying(t *testing.T) {
	t.Parallel()
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			overCrowds(t, func(t *testing.T, s *testbed.Server, k crowd) {
				if k.lives == "" && (strings.Contains(trouble.name, "lives") || strings.Contains(trouble.name, "of its process")) {
					return
				}
				h := bed.Lock(t, t.Context(), k.holds(bed.Client(t, s.Addr())))
				waiter := bed.Client(t, s.Addr())
				got := bed.Async(t.Context(), k.lock(waiter))
				k.waits(t, s, 1)
				began := time.Now()
				trouble.make(t, s, k, waiter)
				if !trouble.ends {
					began = time.Now()
					bed.Unlock(t, h)
					testbed.AtMost(t, time.Since(began), atOnce, "Unlock took")
				}
				next := entered(t, got)
				if took := next.At.Sub(began); took > looks || trouble.soon && took > atOnce {
					t.Errorf("it got the lock after %v", took)
				}
				bed.Unlock(t, next.Hold)
				_ = h.Unlock(t.Context()) // it is lost, or is unlocked
				s.Do(t, "FLUSHALL")       // what does not belong there
			})
		})
	}
}

// The first on the list leaves just when it is called, or is closed: the next one gets the lock.
func TestTheFirstLeavesWhenItIsCalled(t *testing.T) {
	for name, leave := range map[string]func(cancel func(), c *redlatch.Client){
		"its wait ends": func(cancel func(), _ *redlatch.Client) { cancel() },
		"it is closed":  func(_ func(), c *redlatch.Client) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			overCrowds(t, func(t *testing.T, s *testbed.Server, k crowd) {
				holder, next := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
				for i := range 15 {
					h := bed.Lock(t, t.Context(), k.holds(holder))
					c := bed.Client(t, s.Addr())
					ctx, cancel := context.WithCancel(t.Context())
					first := bed.Async(ctx, k.lock(c))
					k.waits(t, s, 1)
					second := bed.Async(t.Context(), k.lock(next))
					k.waits(t, s, 2)
					var both sync.WaitGroup
					both.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Microsecond)
						leave(cancel, c)
					})
					bed.Unlock(t, h)
					began := time.Now()
					both.Wait()
					if a := bed.Get(t, first); a.Err == nil && a.Hold.Unlock(t.Context()) != nil {
						// What is closed leaves its key to the lease; so it is freed here.
						if _, err := holder.ForceUnlock(t.Context(), "l"); err != nil {
							t.Error(err)
						}
					}
					a := entered(t, second)
					testbed.AtMost(t, a.At.Sub(began), atOnce, "turn", i, "the second got the lock after")
					bed.Unlock(t, a.Hold)
					c.Close()
					cancel()
				}
				bed.Eventually(t, "nobody is on the list", func() bool { return s.Int(t, "EXISTS", k.list) == 0 })
			})
		})
	}
}

// Who has the right to publish can make a client ask, once for each message, and no more.
func TestAForgedCall(t *testing.T) {
	overCrowds(t, func(t *testing.T, s *testbed.Server, k crowd) {
		h := bed.Lock(t, t.Context(), k.holds(bed.Client(t, s.Addr())))
		waiter := bed.Client(t, s.Addr())
		got := bed.Async(t.Context(), k.lock(waiter))
		k.waits(t, s, 1)
		before := s.CommandStats(t)
		forged := []string{"0", "1", "x", "-1", "1700000000000000", "99999999999999999999", "", "nan", "1e3", "s"}
		for _, place := range forged {
			s.Do(t, "PUBLISH", luascript.CallChannel("l")+waiter.ID()+k.ending, place)
			time.Sleep(20 * time.Millisecond)
		}
		if len(got) > 0 {
			t.Error("it got a lock that is held")
		}
		testbed.AtMost(t, s.CommandStats(t).Sub(before).Calls["evalsha"], int64(len(forged))+3, "commands for", len(forged), "forged calls")
		bed.Unlock(t, h)
		bed.Unlock(t, bed.Hold(t, got))
	})
}

// The others go on when the process that stands first on the list, a real one, is stopped or killed
// as it is about to be called: who is stopped costs a look at most, and when it runs again it takes
// turns as before.
func TestTheFirstProcessDiesOrStandsStill(t *testing.T) {
	freeze, thaw, kill := (*bed.Worker).Freeze, (*bed.Worker).Thaw, (*bed.Worker).Kill
	for _, tc := range []struct {
		name       string
		stop, then func(p *bed.Worker, tb testbed.TB)
		lives      bool
		stands     time.Duration // how long nobody has the lock at most
	}{
		{"is stopped", freeze, thaw, true, looks},
		{"is killed", kill, func(*bed.Worker, testbed.TB) {}, false, atOnce},
		{"is stopped, then killed", freeze, kill, false, looks},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			k, s := crowds()[0], bed.Server(t)
			holder := bed.Lock(t, t.Context(), k.lock(bed.Client(t, s.Addr())))
			members := map[string]*bed.Worker{}
			for range 5 {
				p := bed.Spawn(t, bed.Setup{Addrs: []string{s.Addr()}, Lease: 30 * time.Second})
				members[p.ClientID] = p
				p.Start(t, bed.Command{
					ID: 1, Do: "loop", Kind: "plain", Name: "l", Count: 1, Hold: time.Millisecond, Counter: "counter", Notes: "sections",
				})
			}
			k.waits(t, s, len(members))
			first := s.List(t, "ZRANGE", k.list, "0", "0")[0]
			tc.stop(members[first], t)
			last := time.Now().UnixMicro()
			bed.Unlock(t, holder)
			turns := func(n int64) func() bool { return func() bool { return s.Int(t, "LLEN", "sections") > n } }
			bed.Eventually(t, "the others take turns", turns(50))
			resumed := time.Now().UnixMicro()
			tc.then(members[first], t)
			bed.Eventually(t, "they go on", turns(s.Int(t, "LLEN", "sections")+200))
			others := slices.Collect(maps.Values(members))
			if !tc.lives {
				others = slices.DeleteFunc(others, func(p *bed.Worker) bool { return p.ClientID == first })
			}
			for _, p := range others {
				p.Start(t, bed.Command{ID: 1, Do: "cancel"})
			}
			bed.End(t, others...)

			notes := s.List(t, "LRANGE", "sections", "0", "-1")
			took, again := map[string]int{}, int64(0) // its first turn
			for _, note := range notes {
				var client string
				var from, to int64
				if _, err := fmt.Sscan(note, &client, &from, &to); err != nil {
					t.Fatalf("note %q: %v", note, err)
				}
				if gap := time.Duration(from-last) * time.Microsecond; gap < 0 {
					t.Errorf("two inside: %s, %v", note, gap)
				} else if gap > tc.stands {
					t.Errorf("nobody had the lock for %v", gap)
				}
				last = to
				if took[client]++; client == first && again == 0 {
					again = from
				}
			}
			if n := s.Int(t, "GET", "counter"); int(n) != len(notes) {
				t.Errorf("%d sections, and the counter says %d", len(notes), n)
			}
			if took[first] > 0 != tc.lives || tc.lives && (again < resumed || again-resumed > looks.Microseconds()) {
				t.Errorf("%d turns of the first, from %d µs after it ran again", took[first], again-resumed)
			}
			for _, p := range others {
				if took[p.ClientID] == 0 {
					t.Errorf("%s took no turn", p.ClientID)
				}
			}
			bed.Eventually(t, "nobody is on the list", func() bool { return s.Int(t, "EXISTS", k.list) == 0 })
			s.Do(t, "DEL", "counter", "sections")
		})
	}
}
