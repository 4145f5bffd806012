package multi

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
)

// last is the largest fencing token, 2^53-1.
const last = 1<<53 - 1

// fencedKinds are locks of all kinds with one name. A reader's token is the last writer's.
func fencedKinds(c *redlatch.Client, name string) map[string]redlatch.Member {
	rw := c.ReadWriteLock(name, redlatch.Fenced())
	return map[string]redlatch.Member{
		"plain": c.RLock(name, redlatch.Fenced()), "fair": c.FairLock(name, redlatch.Fenced()),
		"write": rw.WriteLock(), "read": rw.ReadLock(),
		"group": redlatch.MultiLock(c.RLock(name, redlatch.Fenced()), c.RLock(name+"2", redlatch.Fenced())),
	}
}

// TestCounterThatIsNoToken: a counter that is no number, or one that doubles can't count on from, gives no
// token, of any kind: it would be the same one for ever. The error is typed, and nothing is held.
func TestCounterThatIsNoToken(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	for i, bad := range []string{"inf", "nan", "-inf", "9007199254740992", "9007199254740991", "1e300", "1e3", "-5", "0", "0x10", "12.5", "x", " 7", "", strings.Repeat("9", 400)} {
		for kind, l := range fencedKinds(c, "l"+strconv.Itoa(i)) {
			if kind == "read" && bad == strconv.Itoa(last) {
				continue // a writer had it
			}
			name := "l" + strconv.Itoa(i)
			s.Do(t, "SET", luascript.TokenKey(name), bad)
			h, err := l.TryLock(t.Context(), 0, 0)
			var refused *redlatch.ServerError
			if err == nil {
				t.Errorf("%s: counter %.20q: token %d", kind, bad, h.Token())
				bed.Unlock(t, h)
			} else if !errors.As(err, &refused) || !strings.Contains(err.Error(), "fencing counter") {
				t.Errorf("%s: counter %.20q: %v", kind, bad, err)
			}
			becomesFree(t, s, name, name+"2")
			if got := s.Text(t, "GET", luascript.TokenKey(name)); got != bad {
				t.Errorf("%s: the counter was %.20q, and is %.20q", kind, bad, got)
			}
			s.Do(t, "DEL", luascript.TokenKey(name))
		}
	}
	// What is left is given out to the last.
	s.Do(t, "SET", luascript.TokenKey("end"), strconv.Itoa(last-1))
	h := bed.Lock(t, t.Context(), c.RLock("end", redlatch.Fenced()))
	if h.Token() != last {
		t.Errorf("token %d, want %d", h.Token(), last)
	}
	bed.Unlock(t, h)
	if _, err := c.RLock("end", redlatch.Fenced()).TryLock(t.Context(), 0, 0); err == nil {
		t.Error("a token after the last")
	}
}

// TestQuorumTakesNoMembersWord: a counter of one member that is wrong is not written to the others, whose
// tokens would be used up with it; and two of them leave no majority, which is said.
func TestQuorumTakesNoMembersWord(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	q := redlatch.QuorumLock(copies(clients(t, addrs(list)), "q", redlatch.Fenced())...)
	h := bed.Lock(t, t.Context(), q)
	token := h.Token()
	bed.Unlock(t, h)
	for _, bad := range []string{strconv.Itoa(last - 1), strconv.Itoa(last), "inf"} {
		list[0].Do(t, "SET", luascript.TokenKey("q"), bad)
		h = bed.Lock(t, t.Context(), q)
		if h.Token() <= token || h.Token() > token+1e15 {
			t.Errorf("counter %s on one server: token %d after %d", bad, h.Token(), token)
		}
		token = h.Token()
		bed.Unlock(t, h)
		for _, s := range list[1:] {
			if n := s.Int(t, "GET", luascript.TokenKey("q")); n > 1<<52 {
				t.Errorf("counter %s on one server: %d on another", bad, n)
			}
		}
		for _, s := range list {
			becomesFree(t, s, "q")
		}
	}
	list[1].Do(t, "SET", luascript.TokenKey("q"), strconv.Itoa(last-1))
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
	defer cancel()
	_, err := q.Lock(ctx)
	var refused *redlatch.ServerError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "fencing counter") {
		t.Errorf("two wrong counters: %v", err)
	}
	for _, s := range list {
		becomesFree(t, s, "q")
	}
}
