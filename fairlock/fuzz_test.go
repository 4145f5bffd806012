package fairlock

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
)

// grantFor is how a grant reads that is for this place: anything without a space, the place, its nonce, a token, for how
// long it waited, and perhaps who had the lock before. It is written down here apart from the code that reads messages.
func grantFor(place int64) *regexp.Regexp {
	return regexp.MustCompile(`(?s)^[^ ]* ` + strconv.FormatInt(place, 10) + ` ` + secret + ` (\d+) (\d+)( .*)?$`)
}

const secret = "N0NCE"

// FuzzGranted: no message crashes a waiter, and none gives it the lock but a grant of the
// very place that it has.
func FuzzGranted(f *testing.F) {
	for _, payload := range []string{
		"", " ", "0", "g1-2", "g1-2 7 N0NCE 99", "g1-2 7 N0NCE", "g1-2 7 N0NCE ", "g1-2 7 N0NCE -1", "g1-2 7 N0NCE 99 1",
		"g1-2  N0NCE 99", " 7 N0NCE 99", "g1-2 07 N0NCE 99", "g1-2 7 N0NCE +99", "g1-2 7 N0NCE 18446744073709551615",
		"g1-2 7 N0NCE 18446744073709551616", "g1-2 7 N0NCE 9e3", "\x00 7 N0NCE 99", "7 N0NCE 99",
		"g1-2 7 99", "g1-2 7  99", "g1-2 7 n0nce 99", "g1-2 7 N0NCE1 99", "g1-2 7 - 99",
	} {
		for _, waited := range []string{"", " 0"} { // only the second may be a grant
			f.Add(payload+waited, int64(7), true)
			f.Add(payload+waited, int64(0), false)
		}
	}
	f.Fuzz(func(t *testing.T, payload string, place int64, waits bool) {
		if place == 0 {
			waits = false // the server gives no such place
		}
		k := &fair{skip: time.Second}
		seen := time.Now()
		a := &kind.Attempt{Lease: 10 * time.Second}
		if waits {
			a.Data = &waiter{place: place, nonce: secret, seen: seen}
		}
		out, ok := k.Granted(a, []string{"0", payload})
		match := grantFor(place).FindStringSubmatch(payload)
		var token uint64
		good := false
		if waits && match != nil {
			var err error
			token, err = strconv.ParseUint(match[1], 10, 64)
			good = err == nil
		}
		if ok && !good {
			t.Errorf("%q is taken for a grant of place %d (waits: %t)", payload, place, waits)
		}
		if ok && (!out.Acquired || out.Token != token || !out.Granted.Equal(seen) || out.Lease != k.skip) {
			t.Errorf("%q gives %+v", payload, out)
		}
		if _, again := k.Granted(a, []string{payload}); ok && again {
			t.Errorf("%q is believed twice", payload)
		}
	})
}

// FuzzReplies: no reply of a script crashes an acquisition or a look, and only the codes 1 and 2 are
// a lock.
func FuzzReplies(f *testing.F) {
	f.Add(int64(1), int64(99), "", "", int64(0), int64(0), int64(0), int64(0), 2)
	f.Add(int64(2), int64(99), "", "", int64(0), int64(0), int64(0), int64(0), 2)
	f.Add(int64(0), int64(3000), "c:g1", "t", int64(7), int64(1), int64(100), int64(1), 8)
	f.Add(int64(0), int64(-1), "c:g1", "", int64(7), int64(-1), int64(-100), int64(0), 8)
	f.Add(int64(-1), int64(0), "", "", int64(0), int64(0), int64(0), int64(0), 0)
	f.Add(int64(3), int64(1<<62), "\x00", "\xff", int64(-1<<63), int64(1<<62), int64(1<<62), int64(1), 5)
	f.Add(int64(3), int64(1), "", "", int64(1<<63-1), int64(1), int64(1), int64(1), 8)
	f.Fuzz(func(t *testing.T, code, ttl int64, holder, trace string, place, position, look, foreign int64, n int) {
		all := []conn.Value{
			{Int: code}, {Int: ttl}, {Str: holder}, {Str: trace}, {Int: place}, {Int: position}, {Int: look}, {Int: foreign},
		}
		k := &fair{skip: time.Second, foreign: "channel:"}
		a := &kind.Attempt{Lease: time.Second, Field: "c:g1-2", Data: &waiter{nonce: secret}}
		out := k.Acquired(a, conn.Reply{Code: code, Vals: all[:min(max(n, 0), len(all))]})
		if out.Acquired != (code == 1 || code == 2 || n <= 0 && code > 1000 && code <= conn.LastToken) {
			t.Errorf("code %d: %+v", code, out)
		}
		if out.Acquired && out.Queued {
			t.Errorf("code %d: both inside and in the queue", code)
		}
		st, err := k.ReadState(conn.Reply{Code: code, Vals: all[:min(max(n, 0), len(all))]})
		if err == nil && (st.Held != (code > 0) || len(st.Queue) > len(all)) {
			t.Errorf("code %d: %+v", code, st)
		}
		wake, next := k.Refreshed(a, all[:3], time.Now())
		if !wake && code != 1 || next < 0 {
			t.Errorf("a refresh answered %d: wake %t, look again after %v", code, wake, next)
		}
	})
}
