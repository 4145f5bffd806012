package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

const historyKey = "redlatch_history:{}"

// logsTo has a Client's log written to out.
func logsTo(out *bytes.Buffer) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.Logger = slog.New(slog.NewJSONHandler(out, nil)) }
}

// evict takes the lock away from a holder of its own, which must succeed.
func evict(t *testing.T, holder, op *redlatch.Client, name string, opts ...redlatch.ForceOption) (owner string) {
	t.Helper()
	h := bed.Lock(t, t.Context(), holder.RLock(name))
	owner = h.Owner().String()
	if was, err := op.ForceUnlock(t.Context(), name, opts...); !was || err != nil {
		t.Fatalf("%v, %v", was, err)
	}
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	return owner
}

func evictions(t *testing.T, c *redlatch.Client, name string, most int) []redlatch.Eviction {
	t.Helper()
	got, err := c.Evictions(t.Context(), name, most)
	testbed.Must(t, err)
	return got
}

// The history says who evicted whom, when and why, the newest first, of one lock or of all; only of evictions that are
// to be recorded, and only of the last ones.
func TestHistory(t *testing.T) {
	s := bed.Server(t, "redlatch_history:")
	shop, op := rlClient(t, s.Addr(), redlatch.WithName("shop/1")), rlClient(t, s.Addr(), redlatch.WithName("ops/7"))
	testbed.Equal(t, len(evictions(t, op, "", 10)), 0, "evictions before the first")
	evict(t, shop, op, "silent")
	if was, err := op.ForceUnlock(t.Context(), "free", redlatch.Recorded("ann", "")); was || err != nil {
		t.Fatalf("of a free lock: %v, %v", was, err)
	}
	testbed.Equal(t, s.Int(t, "EXISTS", historyKey), 0, "records of what nobody asked for, or ended no hold")
	first := evict(t, shop, op, "orders:42", redlatch.Recorded("ann", "pod is gone"))
	evict(t, shop, op, "other", redlatch.Recorded("bob", ""))
	got := evictions(t, op, "", 10)
	if len(got) != 2 || got[0].Name != "other" || got[0].By != "bob" || got[1].Name != "orders:42" {
		t.Fatalf("%+v", got)
	}
	for _, got := range [][]redlatch.Eviction{got[1:], evictions(t, op, "orders:42", 10)} {
		if len(got) != 1 {
			t.Fatalf("%+v", got)
		}
		e := got[0]
		if e.By != "ann" || e.Reason != "pod is gone" || e.Client != "ops/7" || e.Kind != redlatch.KindReentrant || e.Holds != 1 ||
			len(e.Evicted) != 1 || e.Evicted[0].Owner != first || !strings.HasPrefix(e.Evicted[0].Process, "shop/1 127.0.0.1:") ||
			time.Since(e.At).Abs() > time.Minute {
			t.Errorf("%+v, want the eviction of %s", e, first)
		}
	}
	if got := evictions(t, op, "", 1); len(got) != 1 || got[0].Name != "other" {
		t.Errorf("one: %+v", got)
	}
	for _, most := range []int{0, 1001} {
		_, err := op.Evictions(t.Context(), "", most)
		bed.Want(t, err, redlatch.ErrInvalidOption)
	}
	s.Do(t, "XADD", historyKey, "*", "name", "asked for", "name", "shown")
	if got := evictions(t, op, "shown", 10); len(got) != 1 || got[0].Name != "shown" { // one and the same, whatever stands there
		t.Errorf("two names: %+v", got)
	}
	for range 2500 {
		s.Do(t, "XADD", historyKey, "*", "name", "old")
	}
	evict(t, shop, op, "last", redlatch.Recorded("ann", strings.Repeat("x", 5000)))
	testbed.AtMost(t, s.Int(t, "XLEN", historyKey), 1200, "entries that are kept")
	if got := evictions(t, op, "last", 10); len(got) != 1 || len(got[0].Reason) != 512 {
		t.Errorf("%+v", got)
	}
}

// A long history is read in pages, so that no command holds the server up: each entry once, the newest first, and an
// old one is found behind those of other locks.
func TestHistoryIsReadInPages(t *testing.T) {
	s := bed.Server(t, "redlatch_history:")
	op := rlClient(t, s.Addr())
	for i := range 1000 {
		s.Do(t, "XADD", historyKey, strconv.Itoa(i+1), "name", []string{"even", "odd"}[i%2], "reason", strconv.Itoa(i))
	}
	s.Do(t, "XADD", historyKey, "2000", "name", "long", "reason", strings.Repeat("x", 1<<20))
	for name, want := range map[string]struct{ most, first, step int }{"": {1000, 999, 1}, "even": {420, 998, 2}, "odd": {1000, 999, 2}} {
		got := evictions(t, op, name, want.most)
		if name == "" {
			got = got[1:]
		}
		for i, e := range got {
			testbed.Equal(t, e.Reason, strconv.Itoa(want.first-i*want.step), name, "entry", i)
		}
		full := min(1000/want.step, want.most)
		testbed.Between(t, len(got), full-1, full, "entries of", name)
	}
	before, err := s.Stats()
	evictions(t, op, "", 1000)
	after, err2 := s.Stats()
	runs, reads := after.Calls["evalsha"]-before.Calls["evalsha"], after.Calls["xrevrange"]-before.Calls["xrevrange"]
	if err != nil || err2 != nil || reads < 1000 || runs < reads/100 {
		t.Errorf("%d commands look at %d entries; %v, %v", runs, reads, err, err2)
	}
}

// All holders of a read lock are in the record, of many the first ones; the rule for the key is that of the prefix.
func TestHistoryOfReaders(t *testing.T) {
	s := bed.Server(t, "redlatch_history:")
	c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Prefix = "app:" })
	var holds []redlatch.Hold
	for range 20 {
		holds = append(holds, bed.Lock(t, t.Context(), c.ReadWriteLock("rw").ReadLock()))
	}
	if was, err := c.ForceUnlock(t.Context(), "rw", redlatch.Recorded("ann", "")); !was || err != nil {
		t.Fatalf("%v, %v", was, err)
	}
	for _, h := range holds {
		_ = h.Unlock(t.Context())
	}
	got := evictions(t, c, "rw", 10)
	if len(got) != 1 || got[0].Holds != 20 || len(got[0].Evicted) != 16 || got[0].Kind != redlatch.KindReadWrite || got[0].Name != "rw" {
		t.Errorf("%+v", got)
	}
}

// A record that can't be made changes nothing about the eviction: it is done once, no error is returned, and the log
// says that it is not recorded. So it is for a user without the right, for a key of another type, for a server without
// memory, and for an answer that is lost.
func TestHistoryThatCannotBeWritten(t *testing.T) {
	s := bed.Server(t, "redlatch_history:")
	var log bytes.Buffer
	told := func(op *redlatch.Client, why string) {
		t.Helper()
		op.Close() // all is logged
		if got := log.String(); !strings.Contains(got, "redlatch: forced unlock not recorded") || !strings.Contains(got, why) {
			t.Errorf("the log does not say %q:\n%s", why, got)
		}
		testbed.Equal(t, strings.Count(log.String(), "lock taken away by force"), 1, "evictions that are logged in", log.String())
		log.Reset()
	}
	app := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Prefix = "app:" })
	s.SetUser(t, "ops", append([]string{"on", ">secret"}, acl.Rules("evict")...)...)
	op := rlClient(t, s.Addr(), logsTo(&log), func(c *redlatch.Config) {
		c.Redis.Username, c.Redis.Password, c.Prefix = "ops", "secret", "app:"
	})
	evict(t, app, op, "x", redlatch.Recorded("ann", ""))
	if _, err := op.Evictions(t.Context(), "", 10); err == nil {
		t.Error("a user without the right reads the history")
	}
	told(op, "ermission")

	shop := rlClient(t, s.Addr())
	s.Do(t, "SET", historyKey, "no stream")
	op = rlClient(t, s.Addr(), logsTo(&log))
	evict(t, shop, op, "x", redlatch.Recorded("ann", ""))
	_, err := op.Evictions(t.Context(), "", 10)
	_ = bed.As[*redlatch.ServerError](t, err)
	told(op, "WRONGTYPE")
	s.Do(t, "DEL", historyKey)

	op = rlClient(t, s.Addr(), logsTo(&log))
	h := bed.Lock(t, t.Context(), shop.RLock("x"))
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	was, err := op.ForceUnlock(t.Context(), "x", redlatch.Recorded("ann", ""))
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	if !was || err != nil {
		t.Errorf("without memory: %v, %v", was, err)
	}
	_ = h.Unlock(t.Context())
	told(op, "OOM")

	// Whose answer is lost is not noted twice, and nobody else is evicted.
	p := testbed.NewProxy(t, s.Addr())
	op = rlClient(t, p.Addr(), logsTo(&log))
	evict(t, shop, op, "warm", redlatch.Recorded("ann", "")) // the server knows the scripts
	log.Reset()
	trap := p.DropReply(testbed.Contains(luascript.HistoryAdd.SHA))
	evict(t, shop, op, "x", redlatch.Recorded("ann", ""))
	trap.Wait(t)
	next := bed.Lock(t, t.Context(), shop.RLock("x"))
	bed.Unlock(t, next)
	testbed.Equal(t, len(evictions(t, shop, "x", 10)), 1, "entries")
	told(op, "not recorded")
}

// Whatever others have put into the history, reading it has a bound and what it returns can be shown; evictions are
// recorded beside it, or say that they are not.
func TestHistoryIsAnybodys(t *testing.T) {
	s := bed.Server(t, "redlatch_history:")
	c := rlClient(t, s.Addr())
	add := func(words ...string) { s.Do(t, append([]string{"XADD", historyKey}, words...)...) }
	add("1-1", "name", "\xff\x1b[31m", "holds", "-9999999999999999999999", "by", "\x00", "process", "nobody's")
	add("2-1", "other", "thing")
	add("3-1", "name", "big", "reason", strings.Repeat("r", 1<<20))
	many := []string{"4-1", "name", "many"}
	for i := range 5000 {
		many = append(many, "owner", fmt.Sprint(i))
	}
	add(many...)
	add("999999999999999999-1", "name", "when")
	got := evictions(t, c, "", 100)
	if len(got) != 5 {
		t.Fatalf("%d entries", len(got))
	}
	if !got[0].At.IsZero() || len(got[1].Evicted) > 64 || len(got[2].Reason) != 512 || got[3].Name != "" || len(got[4].Evicted) != 0 {
		t.Errorf("%+v", got)
	}
	_, err := json.Marshal(got)
	testbed.Must(t, err)
	for i := range 12 { // newer than all: what is older is read no more
		add(fmt.Sprintf("1999999999999999999-%d", i+1), "name", "big", "reason", strings.Repeat("r", 1<<20))
	}
	testbed.Between(t, len(evictions(t, c, "", 100)), 4, 6, "entries of a megabyte that are read")
	for i := range 3 { // of nothing but empty texts, which cost, too
		add(append([]string{fmt.Sprintf("2999999999999999999-%d", i+1)}, make([]string, 600_000)...)...)
	}
	testbed.Equal(t, len(evictions(t, c, "", 100)), 1, "entries of 300,000 empty fields that are read")
	evict(t, c, c, "x", redlatch.Recorded("ann", ""))
	testbed.Equal(t, len(evictions(t, c, "x", 10)), 1, "entries beside them")
	add("18446744073709551615-18446744073709551615", "name", "the last that there can be")
	evict(t, c, c, "x", redlatch.Recorded("ann", ""))
}
