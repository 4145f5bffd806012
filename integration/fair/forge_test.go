package fair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// outsider is a client of somebody who may publish anywhere and has no right to any key.
func outsider(t *testing.T, s *testbed.Server) rueidis.Client {
	t.Helper()
	testbed.Needs(t, 6, 2, "users with channels")
	s.SetUser(t, "outsider", "on", ">pw", "resetkeys", "&*", "+hello", "+ping", "+publish")
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, Username: "outsider", Password: "pw", DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// No message that can be made of known ids and places is a grant, on the channel of the grants or
// on Redisson's: whoever may publish can guess them, since they are times and counters. Each wakes
// the waiter, which asks.
func TestAForgedMessageIsNoGrant(t *testing.T) {
	for _, holder := range []string{"of redlatch", "of Redisson"} {
		t.Run(holder, func(t *testing.T) {
			t.Parallel() // it waits, for the most part
			s := testbed.Standalone(t)
			from := outsider(t, s)
			c := dial(t, s.Addr())
			owner := java(1)
			if holder == "of redlatch" {
				owner = "11111111-89ab-cdef-0123-456789abcdef:gx-1.1"
			}
			s.Do(t, "HSET", name, owner, "1")
			s.Do(t, "PEXPIRE", name, "60000")
			got := inLine(t, s, 1, c.FairLock(name))
			calm(t, s)
			field := s.Text(t, "LINDEX", queueKey, "0")
			id := field[strings.LastIndexByte(field, '-')+1:]
			want := strings.Fields(s.Text(t, "HGET", wantsKey, field))
			if holder == "of Redisson" {
				eventually(t, 5*time.Second, "the pattern", func() bool { return s.Int(t, "PUBSUB", "NUMPAT") == 1 })
			}
			asked := s.CommandStats(t).Calls["evalsha"]
			channels := []string{"redlatch_grant:{" + name + "}:" + c.ID(), "redisson_lock__channel:{" + name + "}:" + field}
			heard := int64(0)
			for _, nonce := range []string{"", "- ", "0 ", strings.Repeat("A", 26) + " ", " ", want[1] + " "} {
				for _, channel := range channels {
					message := fmt.Sprintf("%s %s %s9007199254740991", id, want[1], nonce)
					n, err := from.Do(t.Context(), from.B().Publish().Channel(channel).Message(message).Build()).AsInt64()
					if err != nil {
						t.Fatal(err)
					}
					heard += n
				}
			}
			if heard < 6 {
				t.Fatalf("%d messages were heard: this test tells nothing", heard)
			}
			eventually(t, 5*time.Second, "the waiter asks", func() bool { return s.CommandStats(t).Calls["evalsha"] > asked })
			calm(t, s)
			select {
			case r := <-got:
				t.Fatalf("a forged message was taken for the lock: token %d, %v", r.hold.Token(), r.err)
			default:
			}
			s.Do(t, "DEL", name)
			bed.Unlock(t, entered(t, got, 5*time.Second).hold)
			nothingLeft(t, s)
		})
	}
}

// What docs/ACL.md says of whoever may publish and read the wants, too: the grant is believed, until the first renewal
// finds nothing held.
func TestAGrantForgedByAReaderOfTheWants(t *testing.T) {
	s := testbed.Standalone(t)
	c := dial(t, s.Addr(), redlatch.WithLeaseTime(3*time.Second))
	s.Do(t, "HSET", name, java(1), "1")
	s.Do(t, "PEXPIRE", name, "60000")
	got := inLine(t, s, 1, c.FairLock(name))
	calm(t, s) // it listens
	field := s.Text(t, "LINDEX", queueKey, "0")
	want := strings.Fields(s.Text(t, "HGET", wantsKey, field))
	message := fmt.Sprintf("%s %s %s 0 0", field[strings.LastIndexByte(field, '-')+1:], want[1], want[5])
	if s.Int(t, "PUBLISH", "redlatch_grant:{"+name+"}:"+c.ID(), message) != 1 {
		t.Fatal("it is not heard")
	}
	h := entered(t, got, 5*time.Second).hold
	<-h.Context().Done()
	if err := context.Cause(h.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
}
