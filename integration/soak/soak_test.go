package soak

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

const (
	processes = 4
	loops     = 6
	leaseTime = time.Second
	skip      = 500 * time.Millisecond
)

// length is how long the soak runs.
func length(t *testing.T) time.Duration {
	text := os.Getenv("REDLATCH_SOAK")
	if text == "" {
		return 8 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A soak is repeated with the same choices, though not with the same timing, by
// the seed that a failure tells.
func seed(t *testing.T) uint64 {
	n := rand.Uint64()
	if text := os.Getenv("REDLATCH_SOAK_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("REDLATCH_SOAK_SEED=%d", n)
		}
	})
	return n
}

// watched is a worker and what it said.
type watched struct {
	*testbed.Process
	ready, done chan struct{}
	held        int
}

type soak struct {
	t      *testing.T
	server *testbed.Server
	proxy  *testbed.Proxy
	rand   *rand.Rand
	faults chan string
}

// Locks of all kinds exclude, and nobody is stuck, while processes and connections fail at random.
func TestSoak(t *testing.T) {
	s := testbed.Standalone(t)
	n := seed(t)
	k := &soak{
		t: t, server: s, proxy: testbed.NewProxy(t, s.Addr()),
		rand: rand.New(rand.NewPCG(n, n)), faults: make(chan string, 1000), // #nosec G404 -- a test
	}
	workers := make([]*watched, processes)
	for i := range workers {
		workers[i] = k.spawn()
	}
	count := map[string]int{}
	for end := time.Now().Add(length(t)); time.Now().Before(end) && len(k.faults) == 0; {
		time.Sleep(time.Duration(k.rand.Int64N(int64(300 * time.Millisecond)))) // the pace of the faults
		count[k.disturb(workers)]++
	}
	total := 0
	for i, w := range workers {
		w.CloseInput(t)
		select {
		case <-w.done:
		case <-time.After(2 * enough):
			t.Fatalf("worker %d does not end", i)
		}
		if err := w.Wait(t); err != nil {
			t.Errorf("worker %d: %v\n%s", i, err, w.Stderr())
		}
		total += w.held
	}
	k.check(fmt.Sprintf("%d holds of those that lived to tell; %v", total, count))
}

// spawn starts a worker and waits until it works.
func (k *soak) spawn() *watched {
	w := &watched{
		Process: testbed.Spawn(k.t, "soak", workArgs{
			Proxy: k.proxy.Addr(), Server: k.server.Addr(), Lease: leaseTime, Skip: skip, Seed: k.rand.Uint64(), Loops: loops,
		}),
		ready: make(chan struct{}), done: make(chan struct{}),
	}
	go func() { // ends with the process
		defer close(w.done)
		for line := range w.Lines() {
			switch {
			case line == "ready":
				close(w.ready)
			case strings.HasPrefix(line, "done "):
				w.held, _ = strconv.Atoi(line[5:])
			default:
				select {
				case k.faults <- line:
				default:
				}
			}
		}
	}()
	select {
	case <-w.ready:
	case <-time.After(enough):
		k.t.Fatal("a worker does not begin")
	}
	return w
}

// disturb makes one fault and says which.
func (k *soak) disturb(workers []*watched) string {
	i := k.rand.IntN(len(workers))
	w := workers[i]
	switch k.rand.IntN(9) {
	case 0:
		w.Kill(k.t)
		workers[i] = k.spawn()
		return "killed"
	case 1, 2:
		d := time.Duration(k.rand.Int64N(int64(leaseTime * 8 / 10)))
		w.Freeze(k.t)
		time.Sleep(d)
		w.Thaw(k.t)
		return "frozen"
	case 3:
		w.Freeze(k.t)
		time.Sleep(leaseTime + time.Duration(k.rand.Int64N(int64(leaseTime))))
		w.Thaw(k.t)
		return "frozen for longer than the lease"
	case 4:
		k.proxy.Cut()
		return "cut"
	case 5:
		k.proxy.Refuse()
		time.Sleep(time.Duration(k.rand.Int64N(int64(leaseTime / 2))))
		k.proxy.Admit(k.t)
		return "refused"
	case 6:
		k.server.Do(k.t, "CLIENT", "KILL", "TYPE", "pubsub")
		return "subscriptions killed"
	case 7:
		k.server.Do(k.t, "SCRIPT", "FLUSH")
		return "scripts flushed"
	}
	// A reply that is lost though the command ran, of whatever comes next.
	k.proxy.DropReply(testbed.Contains("EVALSHA"))
	return "reply lost"
}

// check reads the record, and looks that every lock can be had and that nothing
// is left then.
func (k *soak) check(told string) {
	t := k.t
	close(k.faults)
	for line := range k.faults {
		t.Error(line)
	}
	direct, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{k.server.Addr()}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	list, sections, err := record{direct}.faults()
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range list {
		t.Error(fault)
	}
	t.Logf("%d sections in order; %s", sections, told)
	if sections < 100 {
		t.Error("too few")
	}

	c, err := redlatch.New(redlatch.Config{
		Redis:  rueidis.ClientOption{InitAddress: []string{k.server.Addr()}, ForceSingleClient: true},
		Logger: slog.New(slog.DiscardHandler), LeaseTime: leaseTime,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := &party{client: c, args: workArgs{Skip: skip}}
	r := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test
	for range 60 {                   // each lock several times
		one := p.pick(r)
		h, err := one.lock.TryLock(context.Background(), 5*leaseTime, 0)
		if err != nil {
			t.Errorf("afterwards: %s %v: %v", one.kind, one.names, err)
			continue
		}
		if err := h.Unlock(context.Background()); err != nil {
			t.Errorf("afterwards: Unlock of %s %v: %v", one.kind, one.names, err)
		}
	}
	deadline := time.Now().Add(6*leaseTime + 5*time.Second) // the void sets live for 5 s
	for {
		var left []string
		for _, key := range k.server.List(t, "KEYS", "*") {
			if !strings.HasPrefix(key, "soak:") && !strings.HasPrefix(key, "redisson_lock_token:") {
				left = append(left, key)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind: %v", left)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
