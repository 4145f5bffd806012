package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
)

// heard notes what a subscription connection reads.
type heard struct {
	mu    sync.Mutex
	stand map[string]bool // guarded by mu
}

func (h *heard) Message(string, string) {}

func (h *heard) Confirmed(channel string) { h.mu.Lock(); h.stand[channel] = true; h.mu.Unlock() }

func (h *heard) Dropped(channel string) { h.mu.Lock(); delete(h.stand, channel); h.mu.Unlock() }

func (h *heard) is(channels ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := map[string]bool{}
	for _, ch := range channels {
		want[ch] = true
	}
	if !maps.Equal(h.stand, want) {
		return fmt.Errorf("%d channels stand, not these %d", len(h.stand), len(want))
	}
	return nil
}

// TestPlainChannelsThatAreRefused: what a server says of one in a command of many concerns that one, and the others stand.
func TestPlainChannelsThatAreRefused(t *testing.T) {
	t.Parallel()
	server := testbed.Standalone(t)
	server.SetUser(t, "few", "on", ">secret", "~*", "+@all", "resetchannels", "&ours*")
	for _, resp2 := range []bool{false, true} {
		t.Run(fmt.Sprint("RESP2=", resp2), func(t *testing.T) {
			client, err := rueidis.NewClient(rueidis.ClientOption{
				InitAddress: []string{server.Addr()}, Username: "few", Password: "secret", DisableCache: true, AlwaysRESP2: resp2,
			})
			testbed.Must(t, err)
			t.Cleanup(client.Close)
			h := &heard{stand: map[string]bool{}}
			link, err := pubsub.NewDialer(pubsub.Redis{
				Client: client, Permanent: conn.IsPermanent, Clean: func(err error) error { return err }, Unsubscribes: func() bool { return true },
			}).Dial("", h)
			testbed.Must(t, err)
			t.Cleanup(link.Close)
			var names, all []string
			for i := range 300 { // more than go together
				names, all = append(names, fmt.Sprint("ours", i)), append(all, fmt.Sprint("ours", i))
				if i%100 == 50 {
					all = append(all, fmt.Sprint("others", i))
				}
			}
			ctx := bed.Within(t, time.Minute)
			var refused pubsub.RefusedError
			if err := link.Subscribe(ctx, all, false); !errors.As(err, &refused) || len(refused) != 3 || refused["others150"] == nil ||
				!strings.Contains(refused["others150"].Error(), "NOPERM") {
				t.Fatalf("subscribed with %v", err)
			}
			bed.Eventually(t, "the others stand", func() bool { return h.is(names...) == nil })
			testbed.Must(t, link.Unsubscribe(ctx, names, false))
			bed.Eventually(t, "none stands", func() bool { return h.is() == nil })
		})
	}
}

// TestShardedChannelsGoTogether: a node is not asked for one channel after the other, and what it
// says of each concerns that one.
func TestShardedChannelsGoTogether(t *testing.T) {
	t.Parallel() // it waits, for the most part
	testbed.Needs(t, 7, 0, "sharded channels")
	set := clustered(t)
	master := set.Masters(t)[0]
	proxy := testbed.NewProxy(t, master.Addr())
	for _, node := range set.Nodes() {
		node.SetUser(t, "few", "on", ">secret", "~*", "+@all", "&ours*")
	}
	// dial connects to master, and names as many channels of it.
	dial := func(t *testing.T, resp2 bool, user, prefix string, n int) (pubsub.Link, *heard, []string) {
		t.Helper()
		opt := rueidis.ClientOption{
			InitAddress: set.Addrs(), DisableCache: true, DisableRetry: true, AlwaysRESP2: resp2,
			DialCtxFn: testbed.Dialer(proxy),
		}
		if user != "" {
			opt.Username, opt.Password = user, "secret"
		}
		client, err := rueidis.NewClient(opt)
		testbed.Must(t, err)
		t.Cleanup(client.Close)
		dialer := pubsub.NewDialer(pubsub.Redis{
			Client: client, Sharded: true, Permanent: conn.IsPermanent, Clean: func(err error) error { return err }, Unsubscribes: func() bool { return true },
		})
		dialer.Moved("") // asks where the slots are
		h := &heard{stand: map[string]bool{}}
		link, err := dialer.Dial(master.Addr(), h)
		testbed.Must(t, err)
		t.Cleanup(link.Close)
		var names []string
		for i := 0; len(names) < n; i++ {
			name := fmt.Sprint(prefix, i)
			if dialer.Node(uint16(testbed.Slot(name))) == master.Addr() {
				names = append(names, name)
			}
		}
		return link, h, names
	}
	var foreign string // a channel of another master
	for i := 0; foreign == "" || set.NodeOfKey(t, foreign) == master; i++ {
		foreign = fmt.Sprint("ours", i)
	}
	for _, resp2 := range []bool{false, true} {
		t.Run(fmt.Sprint("RESP2=", resp2), func(t *testing.T) {
			t.Run("many", func(t *testing.T) {
				const many, pause = 300, 200 * time.Millisecond
				link, h, names := dial(t, resp2, "", "many", many)
				proxy.Delay(testbed.Replies, pause)
				defer proxy.Delay(testbed.Replies, 0)
				ctx := bed.Within(t, time.Minute)
				began := time.Now()
				bed.Want(t, errors.Join(link.Subscribe(ctx, names, false), h.is(names...)), nil)
				if err := errors.Join(link.Unsubscribe(ctx, names, false), h.is()); err != nil {
					t.Error(err)
				}
				testbed.AtMost(t, time.Since(began), many*pause/10, many, "channels, at", pause, "for an answer, took")
			})
			t.Run("moved", func(t *testing.T) {
				link, h, names := dial(t, resp2, "", "moved", 6)
				var refused pubsub.RefusedError
				ctx := bed.Within(t, time.Minute)
				some := slices.Insert(slices.Clone(names), 3, foreign)
				if err := link.Subscribe(ctx, some, false); err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "MOVED") {
					t.Errorf("subscribed with %v", err)
				}
				// Newer servers let everything be unsubscribed.
				if err := link.Unsubscribe(ctx, some, false); err != nil && (errors.As(err, &refused) || !strings.Contains(err.Error(), "MOVED")) {
					t.Errorf("unsubscribed with %v", err)
				}
				// Each answer belonged to its own command: the connection goes on.
				bed.Want(t, errors.Join(h.is(), link.Subscribe(ctx, names, false), h.is(names...)), nil)
			})
			t.Run("refused", func(t *testing.T) {
				link, h, names := dial(t, resp2, "few", "ours", 6)
				_, _, others := dial(t, resp2, "few", "others", 2)
				err := link.Subscribe(bed.Within(t, time.Minute), slices.Insert(slices.Clone(names), 3, others...), false)
				var refused pubsub.RefusedError
				if !errors.As(err, &refused) || len(refused) != len(others) {
					t.Fatalf("subscribed with %v", err)
				}
				for _, ch := range others {
					if refused[ch] == nil || !strings.Contains(refused[ch].Error(), "NOPERM") {
						t.Errorf("%s: %v", ch, refused[ch])
					}
				}
				bed.Want(t, h.is(names...), nil)
			})
		})
	}
}

// oldServer makes the test's servers ones without sharded channels, if one was fetched.
func oldServer(t *testing.T) {
	t.Helper()
	if testbed.ServerVersion(t).AtLeast(7, 0) {
		fetched, err := testbed.FetchedServers()
		testbed.Must(t, err)
		fetched = slices.DeleteFunc(fetched, func(f testbed.Fetched) bool { return f.AtLeast(7, 0) })
		if len(fetched) == 0 {
			testbed.Skip(t, "a cluster without sharded channels (scripts/ensure-servers.sh has fetched no server before 7.0)")
		}
		testbed.UseServer(t, fetched[len(fetched)-1].Program)
	}
}

// TestPlainChannelsStayInTheCluster: where there are no sharded channels, a client listens on a
// master, and on another one when that one is a master no more. A node that has left keeps its
// connections, and hears nothing.
func TestPlainChannelsStayInTheCluster(t *testing.T) {
	t.Parallel() // it waits, for the most part
	oldServer(t)
	set := testbed.Cluster(t)
	long := func(cfg *redlatch.Config) { cfg.LeaseTime = 30 * time.Second }
	holder := open(t, cluster(set), long)
	// listener is where somebody listens for this lock; nil: nowhere.
	listener := func(key string) *testbed.Server {
		for _, node := range set.Nodes() {
			if len(node.LockChannels(t, luascript.CallChannel(key)+"*")) > 0 {
				return node
			}
		}
		return nil
	}
	var first *redlatch.Client
	var got <-chan bed.Attempt
	var hold redlatch.Hold
	for i := range 5 { // the client library takes any node
		key := fmt.Sprint("plain", i)
		c := open(t, cluster(set), long)
		h := take(t, t.Context(), holder.RLock(key))
		next := waiting(t, c.RLock(key), func() bool { return listener(key) != nil })
		if at := listener(key); !slices.Contains(set.Masters(t), at) {
			t.Errorf("client %d listens on %s, which is no master", i, at.Addr())
		}
		if i == 0 {
			first, hold, got = c, h, next
			continue
		}
		bed.Unlock(t, h)
		bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, next))
	}

	leaves := listener("plain0")
	set.Failover(t, leaves)
	id := leaves.Text(t, "CLUSTER", "MYID")
	for _, node := range set.Nodes() {
		if node != leaves {
			node.Do(t, "CLUSTER", "FORGET", id)
		}
	}
	leaves.Do(t, "CLUSTER", "RESET")
	// The cluster is looked at when commands are sent.
	at, end := listener("plain0"), time.Now().Add(time.Minute)
	for ; at == nil || at == leaves; at = listener("plain0") {
		if h, err := first.RLock("other").TryLock(t.Context(), 0, 0); err == nil {
			bed.Unlock(t, h)
		}
		if time.Now().After(end) {
			t.Fatal("still on the node that has left")
		}
	}
	bed.Unlock(t, hold)
	bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, got))
}
