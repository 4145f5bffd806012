package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestUnlock(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	h := hold(t, c.RLock("x"))
	owner := h.Owner().String()
	for _, tc := range []struct {
		status int
		input  string
		args   []string
	}{
		{exitUsage, "", nil},
		{exitUsage, "", []string{"--owner", owner, "--any-owner"}},
		{exitOtherOwner, "yes\n", []string{"--owner", owner + "x"}},
		{exitOtherOwner, "", []string{"--owner", "shop/2", "--yes"}},
		{exitError, "no\n", []string{"--owner", owner}},
		{exitError, "", []string{"--owner", owner}},
	} {
		answering(t, s, strings.NewReader(tc.input), append([]string{"x"}, tc.args...)...).ends(tc.status)
		if in := inspect(t, c, "x"); !in.Held() || in.Holders[0].Owner != owner {
			t.Errorf("%v: %+v", tc.args, in)
		}
	}
	begin(t, s, "unlock", "x", "--any-owner").ends(exitUsage, "--yes") // a script has nobody to ask
	answering(t, s, strings.NewReader("yes\n"), "x", "--owner", owner[:20]).
		ends(exitOK, "takes the lock away from "+owner, "shop/1", "wakes", "was taken away from")
	taken(t, h)

	h = hold(t, c.RLock("x"))
	call(t, s, "unlock", "x", "--owner", "shop/1", "--yes").ends(exitOK)
	taken(t, h)
	call(t, s, "unlock", "x", "--owner", "shop/1", "--yes").ends(exitOK, "nothing to do")
	call(t, s, "unlock", "nobody's", "--any-owner", "--yes").ends(exitOK, "no key and no queue of this name")
	listener, err := net.Dial("tcp", s.Addr())
	testbed.Must(t, err)
	defer listener.Close()
	fmt.Fprint(listener, "SUBSCRIBE redisson_lock__channel:{alone}\r\n")
	_, err = bufio.NewReader(listener).ReadString('\n')
	testbed.Must(t, err)
	call(t, s, "unlock", "alone", "--any-owner", "--yes").ends(exitOK, "alone was free; waiters were woken")
	// Two readers of one process are two owners.
	r1, r2 := hold(t, c.ReadWriteLock("rw").ReadLock()), hold(t, c.ReadWriteLock("rw").ReadLock())
	call(t, s, "unlock", "rw", "--owner", "shop/1", "--yes").fails(exitUsage, "2 holders")
	call(t, s, "unlock", "rw", "--any-owner", "--yes").ends(exitOK)
	taken(t, r1)
	taken(t, r2)
}

// answering runs unlock with what answers its questions.
func answering(t *testing.T, s *testbed.Server, answers io.Reader, args ...string) outcome {
	t.Helper()
	return callWith(t, answers, append([]string{"--url", "redis://" + s.Addr(), "unlock"}, args...)...)
}

// readers puts a read lock with that many readers, each of its own client, into the server, and returns their owners.
func readers(t *testing.T, s *testbed.Server, key string, n int, leaseMs int) []string {
	t.Helper()
	m := s.Do(t, "TIME")
	now, err := m.AsIntSlice()
	testbed.Must(t, err)
	zset := "redlatch_rw_leases:{" + key + "}"
	hash, leases := []string{"HSET", key, "mode", "read"}, []string{"ZADD", zset}
	var owners []string
	for i := range n {
		owner := fmt.Sprintf("%08d-0000-4000-8000-000000000000:g1-mf3k2l9x.1", i)
		owners = append(owners, owner)
		hash = append(hash, owner, "1")
		leases = append(leases, fmt.Sprint(now[0]*1000+int64(leaseMs)), owner)
	}
	s.Do(t, hash...)
	s.Do(t, leases...)
	for _, k := range []string{key, zset} {
		s.Do(t, "PEXPIRE", k, "300000")
		t.Cleanup(func() { s.Do(t, "DEL", k) })
	}
	return owners
}

// nameConnection makes a connection with that name in CLIENT LIST.
func nameConnection(t *testing.T, s *testbed.Server, name string) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, ClientName: name, ForceSingleClient: true})
	testbed.Must(t, err)
	t.Cleanup(c.Close)
}

// A holder beyond the thousand that an Inspection shows is evicted by its whole owner, and by nothing less.
func TestUnlockFindsEveryHolder(t *testing.T) {
	t.Parallel()
	s := server(t)
	owners := readers(t, s, "x", 2500, 300_000)
	shown := inspect(t, client(t, s), "x").Holders
	hidden := slices.DeleteFunc(slices.Clone(owners), func(o string) bool {
		return slices.ContainsFunc(shown, func(h redlatch.Holder) bool { return h.Owner == o })
	})
	if len(hidden) < 1000 {
		t.Fatalf("%d of %d holders are not shown", len(hidden), len(owners))
	}
	nameConnection(t, s, "redlatch:shop/9:"+hidden[2][:36])
	call(t, s, "unlock", "x", "--owner", hidden[0], "--yes").ends(exitOK, hidden[0])
	testbed.Equal(t, s.Int(t, "HEXISTS", "x", hidden[0]), 0, hidden[0])
	// Another text may mean holders that are not shown as well.
	call(t, s, "unlock", "x", "--owner", hidden[0], "--yes").ends(exitOtherOwner)
	for _, wanted := range []string{"nobody", "*", "000", hidden[1][:36], shown[0].Owner[:36], "shop/9"} {
		call(t, s, "unlock", "x", "--owner", wanted, "--yes").ends(exitUsage)
	}
	testbed.Equal(t, s.Int(t, "HLEN", "x"), int64(len(owners)-1+1), "fields that are left, with the mode")
}

// Readers whose leases have ended are none to take the lock from.
func TestUnlockBesideDeadReaders(t *testing.T) {
	t.Parallel()
	s := server(t)
	owners := readers(t, s, "x", 2500, -1000)
	for _, wanted := range []string{"nobody", owners[0], "0000"} {
		if got := call(t, s, "unlock", "x", "--owner", wanted, "--yes"); got.status == exitError {
			t.Errorf("%s: %s%s", wanted, got.out, got.errs)
		}
	}
}

// Anybody can name a connection: with two names for one client nobody is evicted by either.
func TestUnlockRefusesTwoNamesForOneClient(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	h := hold(t, c.RLock("x"))
	nameConnection(t, s, "redlatch:shop/2:"+c.ID())
	for _, name := range []string{"shop/1", "shop/2"} {
		call(t, s, "unlock", "x", "--owner", name, "--yes").fails(exitUsage, "shop/1, shop/2")
		isHeld(t, c, "x", true)
	}
	unlock(t, h)
}

// changes is an answer to a question: what happens between the question and the answer, and then "yes".
type changes struct{ between []func() }

func (c *changes) Read(p []byte) (int, error) {
	if len(c.between) == 0 {
		return copy(p, "no\n"), nil
	}
	c.between[0]()
	c.between = c.between[1:]
	return copy(p, "yes\n"), nil
}

// An eviction ends the holds that were shown, and no other: who came since then is shown, and asked about, first.
func TestUnlockEndsWhatItHasShown(t *testing.T) {
	s, old := beside(t, named("shop/1"))
	late := client(t, s, named("shop/2"))
	ask := func(name string, between func()) outcome {
		t.Helper()
		return answering(t, s, &changes{[]func(){between}}, name, "--any-owner")
	}
	first := hold(t, old.RLock("x"))
	var second redlatch.Hold
	got := ask("x", func() { // and no to the second question
		unlock(t, first)
		second = hold(t, late.RLock("x"))
	}).ends(exitError, "takes the lock away from "+old.ID(), "takes the lock away from "+late.ID(), "(shop/2 127.0.0.1:")
	got.warns("nothing was changed", late.ID())
	isHeld(t, late, "x", true)
	ask("x", func() {}).ends(exitOK, "x was taken away from "+late.ID(), "(shop/2 127.0.0.1:")
	taken(t, second)

	// Nobody held it when that was asked.
	ask("x", func() { second = hold(t, late.RLock("x")) }).ends(exitError)
	unlock(t, second)

	// Of readers those that were shown, though others came.
	r1 := hold(t, old.ReadWriteLock("rw").ReadLock())
	var r2 redlatch.Hold
	ask("rw", func() { r2 = hold(t, late.ReadWriteLock("rw").ReadLock()) }).ends(exitOK)
	if in := inspect(t, late, "rw"); in.HolderCount != 1 || in.Holders[0].ClientID != late.ID() {
		t.Errorf("left: %+v", in.Holders)
	}
	taken(t, r1)
	unlock(t, r2)
}

// Who may not publish evicts all the same, and is told that nobody was woken.
func TestUnlockSaysThatNobodyWasWoken(t *testing.T) {
	s, c := beside(t)
	s.SetUser(t, "ops", "on", ">pw", "~*", "&*", "+@all", "-publish")
	for _, l := range []redlatch.Locker{c.RLock("x"), c.FairLock("x"), c.ReadWriteLock("x").ReadLock(), c.ReadWriteLock("x").WriteLock()} {
		h := hold(t, l)
		call(t, nil, "--url", "redis://ops:pw@"+s.Addr(), "unlock", "x", "--owner", h.Owner().String(), "--yes").
			ends(exitError, "x was taken away from "+h.Owner().String()).warns("nobody was woken", "doctor --need evict")
		taken(t, h)
	}
}

// Whose holders change faster than somebody can agree learns what was done: nothing, or the evictions of earlier rounds.
func TestUnlockSaysWhatItDid(t *testing.T) {
	t.Parallel()
	s := server(t)
	for n, said := range map[int]string{1: "too fast: nothing was changed", 1500: "too fast: nothing more was changed; the evictions before stand"} {
		readers(t, s, "x", n, 300_000)
		var between []func()
		if n > 1000 {
			between = append(between, func() {}) // these are evicted, as many as are shown
		}
		for i := range maxRounds {
			between = append(between, func() {
				s.Do(t, "DEL", "x", "redlatch_rw_leases:{x}")
				s.Do(t, "HSET", "x", fmt.Sprintf("99999999-0000-4000-8000-000000000000:g%d-mf3k2l9x.1", i), "1")
			})
		}
		got := answering(t, s, &changes{between}, "x", "--any-owner").ends(exitOtherOwner)
		got.warns(said)
		testbed.Equal(t, strings.Contains(got.out, "was taken away from"), n > 1000, "holders:", n, got.out)
		s.Do(t, "DEL", "x")
	}
}

// A holder that was killed is found by its name as long as its lease lasts.
func TestUnlockFindsTheDeadByName(t *testing.T) {
	s, c := beside(t)
	p := begin(t, s, "run", "x", "--lease-time", "1m", "--client-name", "shop/7", "--", "sleep", "100")
	untilState(t, c, "x", redlatch.Inspection.Held)
	page := serving(t, s).events("x")
	page.next("lock", `"shop/7"`)
	p.signal(os.Kill)
	p.ends(-1)
	until(t, "its connections end", func() bool { return !strings.Contains(s.Text(t, "CLIENT", "LIST"), "shop/7") })
	if rows := call(t, s, "ls", "--process", "shop/7").rows(); len(rows) != 1 || !strings.Contains(rows[0], " (gone?) ") {
		t.Errorf("%q", rows)
	}
	page.next("lock", `:"shop/7 (gone?) g`) // who saw it before
	call(t, s, "ls", "--process", "shop/8").fails(exitOK, "no locks")
	call(t, s, "unlock", "x", "--owner", "shop/8", "--yes").ends(exitOtherOwner)
	isHeld(t, c, "x", true)
	call(t, s, "unlock", "x", "--owner", "shop/7", "--yes").ends(exitOK, "shop/7, not in CLIENT LIST")
	isHeld(t, c, "x", false)
}
