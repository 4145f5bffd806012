package rwlock

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
)

// codes are how the replies begin that the scripts give, and some that none gives.
var codes = []int64{1, 2, 0, -1, -2, -3, 3, -4, 1 << 62, -1 << 63}

// far is more milliseconds than any server waits for.
const far = 1 << 40

// FuzzReplies: no reply of a script crashes a reader or a writer, only the codes 1 and 2 are
// a lock (for a reader 3 and 4, too), and no refresh keeps a waiter asleep whose place is gone.
func FuzzReplies(f *testing.F) {
	for _, code := range codes {
		f.Add(code, int64(3000), "c:g1", "t", int64(100), int64(1795311371126996), int64(1), int64(2000), 6, true)
		f.Add(code, int64(-1), "", "\x00", int64(-1), int64(0), int64(0), int64(-2), 0, false)
		f.Add(code, int64(-2), "\xff", "", int64(1<<62), int64(-1<<63), int64(3), int64(-1), 4, true)
	}
	f.Fuzz(func(t *testing.T, code, ttl int64, holder, trace string, look, came, state, pttl int64, n int, waits bool) {
		all := []conn.Value{{Int: code}, {Int: ttl}, {Str: holder}, {Str: trace}, {Int: look}, {Int: came}}
		reply := conn.Reply{Code: code, Vals: all[:min(max(n, 0), len(all))]}
		k := &keys{lock: "a", skip: time.Second}
		for _, one := range []kind.Queuer{readKind{k}, writeKind{k}} {
			a := &kind.Attempt{Lease: time.Second, Field: "c:g1-2"}
			if waits {
				a.Wait = -1
			}
			out := one.Acquired(a, reply)
			granted := code == 1 || code == 2 || n <= 0 && code > 1000 && code <= conn.LastToken // a token alone
			if _, reads := one.(readKind); reads {
				granted = granted || code == inTurn || code == pastLater
			}
			if out.Acquired != granted || out.Void != (code == -1) || out.NoLock != (code == -3) {
				t.Errorf("%s: code %d: %+v", one.Traits().Type, code, out)
			}
			if out.Acquired && out.Queued || !out.Acquired && out.Token != 0 {
				t.Errorf("%s: code %d: %+v", one.Traits().Type, code, out)
			}
			if refused := !out.Acquired && !out.Void && !out.NoLock; refused && out.Queued != waits {
				t.Errorf("%s: code %d: in the queue: %t, waits: %t", one.Traits().Type, code, out.Queued, waits)
			}
			if out.Remaining < 0 {
				t.Errorf("%s: a remaining lease of %v", one.Traits().Type, out.Remaining)
			}
			if ttl < far && look < far && out.LookIn > far*time.Millisecond {
				t.Errorf("%s: look again after %v", one.Traits().Type, out.LookIn)
			}
			// What the engine does with it next must not crash either.
			_ = one.Acquire(a)
			wake, next := one.Refreshed(a, []conn.Value{{Int: state}, {Int: pttl}}, time.Now())
			if state == 0 && !wake || next != 0 {
				t.Errorf("%s: a refresh answered %d: wake %t, look again after %v", one.Traits().Type, state, wake, next)
			}
			if out, ok := one.Granted(a, []string{holder, trace}); ok {
				t.Errorf("%s: %q and %q are taken for a grant: %+v", one.Traits().Type, holder, trace, out)
			}
		}
	})
}

// FuzzMessages: no message crashes the waiters of a lock, and none but the two that are
// known wakes them.
func FuzzMessages(f *testing.F) {
	for _, payload := range []string{"", "0", "1", "2", "00", "0 ", "\x00", "write"} {
		f.Add("channel", payload)
	}
	f.Fuzz(func(t *testing.T, _, payload string) {
		wake := route(payload)
		if wake.One != (payload == "0" || payload == "1") || wake.All != (payload == "1") {
			t.Errorf("%q: %+v", payload, wake)
		}
	})
}

// FuzzState: no reply crashes a look at a lock, and nobody holds one without an owner.
func FuzzState(f *testing.F) {
	for _, code := range codes {
		f.Add(code, int64(99), "read", int64(5), int64(1), "c:g1-2", int64(1), int64(3000), "c:g1-3", 10)
		f.Add(code, int64(0), "write", int64(0), int64(2), "c:g1-2:write", int64(-1), int64(-1), "", 7)
		f.Add(code, int64(-1), "", int64(-1<<63), int64(-5), "", int64(0), int64(1<<62), "\xff", 0)
	}
	f.Fuzz(func(t *testing.T, code, token int64, mode string, waiters, owners int64, owner string, count, ttl int64, waiter string, n int) {
		owners = min(owners, 8) // the script counts what it lists
		all := []conn.Value{
			{Int: code}, {Int: token}, {Str: mode}, {Int: waiters}, {Int: owners}, {Str: owner}, {Int: count}, {Int: ttl}, {Str: waiter}, {Int: 0},
		}
		st, err := readState(conn.Reply{Code: code, Vals: all[:min(max(n, 0), len(all))]})
		if (code == -3) != (err != nil) {
			t.Errorf("code %d: %+v, %v", code, st, err)
		}
		if st.Held != (len(st.Holders) > 0) || st.QueueLength < len(st.Queue) || st.Remaining < 0 {
			t.Errorf("code %d: %+v", code, st)
		}
		if err == nil && n > 3 && int64(st.QueueLength) < waiters {
			t.Errorf("%d waiters: %+v", waiters, st)
		}
	})
}
