package rlock

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/lock"
)

// codes are how the replies begin that the scripts give, and some that none gives.
var codes = []int64{1, 2, 0, -1, -2, -3, 3, -4, 1 << 62, -1 << 63}

// FuzzReplies: no reply of a script crashes an acquisition, of one lock or of several, and
// only the codes 1 and 2 are a lock.
func FuzzReplies(f *testing.F) {
	for _, code := range codes {
		f.Add(code, int64(99), int64(3000), "c:g1", "t", 4, 2)
		f.Add(code, int64(-1), int64(-2), "", "\x00", 0, 1)
		f.Add(code, int64(1<<62), int64(-1<<63), "\xff", "", 2, 3)
	}
	f.Fuzz(func(t *testing.T, code, first, second int64, holder, trace string, n, locks int) {
		k := &reentrant{traits: &plainTraits}
		a := &kind.Attempt{Lease: time.Second, Field: "c:g1-2"}
		one := []conn.Value{{Int: code}, {Int: first}, {Str: holder}, {Str: trace}, {Int: second}}
		out := k.Acquired(a, conn.Reply{Code: code, Vals: one[:min(max(n, 0), len(one))]})
		judge(t, code, n <= 0 && code > 1000 && code <= conn.LastToken, out) // a token alone
		if out.Acquired && n > 1 && out.Token != uint64(first) {             // #nosec G115 -- as the scripts mean it
			t.Errorf("the token is %d, not %d", out.Token, first)
		}

		parts := make([]kind.Part, 1+min(max(locks, 0), 8))
		for i := range parts {
			parts[i] = kind.Part{Kind: k, Attempt: a, Count: i % 2}
		}
		all := []conn.Value{{Int: code}, {Int: first}, {Int: second}, {Str: holder}, {Str: trace}}
		out, part, tokens := k.AcquiredAll(parts, conn.Reply{Code: code, Vals: all[:min(max(n, 0), len(all))]})
		judge(t, code, false, out)
		if part < 0 || part >= len(parts) {
			t.Errorf("part %d of %d", part, len(parts))
		}
		if tokens != nil && (!out.Acquired || len(tokens) != len(parts)) {
			t.Errorf("%d tokens for %d parts: %+v", len(tokens), len(parts), out)
		}
		if out.Gone != (code == -2 && parts[part].Count > 0) {
			t.Errorf("code %d of part %d, not asked for or lost: %+v", code, part, out)
		}
	})
}

func judge(t *testing.T, code int64, alone bool, out kind.Outcome) {
	t.Helper()
	if out.Acquired != (code == 1 || code == 2 || alone) || out.Renewed != (code == 2) || out.Void != (code == -1) || out.NoLock != (code == -3) {
		t.Errorf("code %d: %+v", code, out)
	}
	if !out.Acquired && out.Token != 0 {
		t.Errorf("a token without a lock: %+v", out)
	}
	if out.Remaining < 0 {
		t.Errorf("code %d: a remaining lease of %v", code, out.Remaining)
	}
}

// FuzzState: no reply crashes a look at a lock, and a key that is none is said to be none.
func FuzzState(f *testing.F) {
	for _, code := range codes {
		f.Add(code, int64(3000), int64(99), "c:g1-2", "1", 5)
		f.Add(code, int64(-1), int64(0), "", "x", 4)
		f.Add(code, int64(1<<62), int64(-1), "\x00", "-1", 0)
	}
	f.Fuzz(func(t *testing.T, code, ttl, token int64, owner, count string, n int) {
		all := []conn.Value{{Int: code}, {Int: ttl}, {Int: token}, {Str: owner}, {Str: count}}
		st, err := (&reentrant{}).ReadState(conn.Reply{Code: code, Vals: all[:min(max(n, 0), len(all))]})
		if code < 0 && err == nil {
			t.Errorf("code %d: %+v", code, st)
		}
		if err == nil && st.Held != (code > 0) || err != nil && st.Held {
			t.Errorf("code %d: %+v, %v", code, st, err)
		}
		if st.Held && (st.Mode != lock.ModeLock || st.Remaining < 0) {
			t.Errorf("code %d: %+v", code, st)
		}
	})
}
