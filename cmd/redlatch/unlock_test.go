package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestUnlock(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	h := hold(t, c.RLock("x"))
	owner := h.Owner().String()
	held := func() bool { in := inspect(t, c, "x"); return in.Held() && in.Holders[0].Owner == owner }
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
		if st, _, errs := callWith(t, tc.input, s, append([]string{"unlock", "x"}, tc.args...)...); st != tc.status || !held() {
			t.Errorf("%v: status %d, held %v: %s", tc.args, st, held(), errs)
		}
	}
	st, out, errs := callWith(t, "yes\n", s, "unlock", "x", "--owner", owner[:20])
	if st != 0 || held() {
		t.Errorf("%d %s", st, errs)
	}
	need(t, out, "takes the lock away from "+owner, "shop/1", "wakes", "was taken away from")
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}

	h = hold(t, c.RLock("x"))
	if st, _, errs := call(t, s, "unlock", "x", "--owner", "shop/1", "--yes"); st != 0 {
		t.Errorf("%d %s", st, errs)
	}
	_ = h.Unlock(t.Context())
	if st, out, _ := call(t, s, "unlock", "x", "--owner", "shop/1", "--yes"); st != 0 || !strings.Contains(out, "nothing to do") {
		t.Errorf("%d %s", st, out)
	}
	// Two readers of one process are two owners.
	r1, r2 := hold(t, c.ReadWriteLock("rw").ReadLock()), hold(t, c.ReadWriteLock("rw").ReadLock())
	if st, _, errs := call(t, s, "unlock", "rw", "--owner", "shop/1", "--yes"); st != exitUsage || !strings.Contains(errs, "2 holders") {
		t.Errorf("%d %s", st, errs)
	}
	if st, _, errs := call(t, s, "unlock", "rw", "--any-owner", "--yes"); st != 0 || inspect(t, c, "rw").Held() {
		t.Errorf("%d %s", st, errs)
	}
	_, _ = r1.Unlock(t.Context()), r2.Unlock(t.Context())
}

// A script has nobody to ask.
func TestUnlockAsksNoScript(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.RLock("x"))
	p := begin(t, s, "unlock", "x", "--any-owner")
	if st := p.status(); st != exitUsage || !inspect(t, c, "x").Held() {
		t.Errorf("%d: %s", st, p.text())
	}
	need(t, p.text(), "--yes")
	unlock(t, h)
}

// readers puts a read lock with that many readers, each of its own client, into the server, and returns their owners.
func readers(t *testing.T, s *testbed.Server, key string, n int, leaseMs int) []string {
	t.Helper()
	m := s.Do(t, "TIME")
	now, err := m.AsIntSlice()
	if err != nil {
		t.Fatal(err)
	}
	hash, leases := []string{"HSET", key, "mode", "read"}, []string{"ZADD", "redlatch_rw_leases:{" + key + "}"}
	var owners []string
	for i := range n {
		owner := fmt.Sprintf("%08d-0000-4000-8000-000000000000:g1-mf3k2l9x.1", i)
		owners = append(owners, owner)
		hash = append(hash, owner, "1")
		leases = append(leases, fmt.Sprint(now[0]*1000+int64(leaseMs)), owner)
	}
	s.Do(t, hash...)
	s.Do(t, leases...)
	for _, k := range []string{key, leases[1]} {
		s.Do(t, "PEXPIRE", k, "300000")
		t.Cleanup(func() { s.Do(t, "DEL", k) })
	}
	return owners
}

// nameConnection makes a connection with that name in CLIENT LIST.
func nameConnection(t *testing.T, s *testbed.Server, name string) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, ClientName: name, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
}

// A holder beyond the thousand that an Inspection shows is evicted by its whole owner, and by nothing less.
func TestUnlockFindsEveryHolder(t *testing.T) {
	s := server(t)
	c := client(t, s)
	owners := readers(t, s, "x", 2500, 300_000)
	hidden := func() []string {
		in := inspect(t, c, "x")
		var out []string
		for _, o := range owners {
			if !slices.ContainsFunc(in.Holders, func(h redlatch.Holder) bool { return h.Owner == o }) {
				out = append(out, o)
			}
		}
		return out
	}()
	if len(hidden) < 1000 {
		t.Fatalf("%d of %d holders are not shown", len(hidden), len(owners))
	}
	nameConnection(t, s, "redlatch:shop/9:"+hidden[2][:36])
	st, out, errs := call(t, s, "unlock", "x", "--owner", hidden[0], "--yes")
	if left := s.Do(t, "HEXISTS", "x", hidden[0]); st != 0 || !strings.Contains(out, hidden[0]) {
		t.Errorf("status %d %s", st, errs)
	} else if n, _ := left.AsInt64(); n != 0 {
		t.Errorf("%s is still there", hidden[0])
	}
	// Another text may mean holders that are not shown as well.
	shown := inspect(t, c, "x").Holders[0].Owner
	for wanted, status := range map[string]int{
		hidden[0]: exitOtherOwner, "nobody": exitUsage, "*": exitUsage, "000": exitUsage, hidden[1][:36]: exitUsage, shown[:36]: exitUsage, "shop/9": exitUsage,
	} {
		if st, _, errs := call(t, s, "unlock", "x", "--owner", wanted, "--yes"); st != status {
			t.Errorf("%s: status %d, not %d: %s", wanted, st, status, errs)
		}
	}
	fields := s.Do(t, "HLEN", "x")
	if left, _ := fields.AsInt64(); left != int64(len(owners)-1+1) { // and the mode
		t.Errorf("%d fields are left of %d readers", left, len(owners))
	}
}

// Readers whose leases have ended are none to take the lock from.
func TestUnlockBesideDeadReaders(t *testing.T) {
	s := server(t)
	owners := readers(t, s, "x", 2500, -1000)
	for _, wanted := range []string{"nobody", owners[0], "0000"} {
		if st, out, errs := call(t, s, "unlock", "x", "--owner", wanted, "--yes"); st == exitError {
			t.Errorf("%s: status %d: %s%s", wanted, st, out, errs)
		}
	}
}

// Anybody can name a connection: with two names for one client nobody is evicted by either.
func TestUnlockRefusesTwoNamesForOneClient(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	h := hold(t, c.RLock("x"))
	nameConnection(t, s, "redlatch:shop/2:"+c.ID())
	for _, name := range []string{"shop/1", "shop/2"} {
		if st, _, errs := call(t, s, "unlock", "x", "--owner", name, "--yes"); st != exitUsage || !inspect(t, c, "x").Held() || !strings.Contains(errs, "shop/1, shop/2") {
			t.Errorf("%s: status %d: %s", name, st, errs)
		}
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
	s := server(t)
	old, late := client(t, s, named("shop/1")), client(t, s, named("shop/2"))
	ask := func(name string, between ...func()) (int, string, string) {
		t.Helper()
		var out, errs strings.Builder
		st := execute(t.Context(), []string{"--url", "redis://" + s.Addr(), "unlock", name, "--any-owner"}, streams{&changes{between}, &out, &errs})
		return st, out.String(), errs.String()
	}
	first := hold(t, old.RLock("x"))
	var second redlatch.Hold
	turn := func() {
		unlock(t, first)
		second = hold(t, late.RLock("x"))
	}
	st, out, errs := ask("x", turn) // and no to the second question
	if in := inspect(t, late, "x"); st != exitError || !in.Held() {
		t.Errorf("status %d, held %v: %s%s", st, in.Held(), out, errs)
	}
	need(t, errs, "nothing was changed", late.ID())
	need(t, out, "takes the lock away from "+old.ID(), "takes the lock away from "+late.ID(), "(shop/2 127.0.0.1:")
	st, out, errs = ask("x", func() {})
	if st != 0 || inspect(t, late, "x").Held() {
		t.Errorf("status %d: %s%s", st, out, errs)
	}
	need(t, out, "x was taken away from "+late.ID(), "(shop/2 127.0.0.1:")
	_ = second.Unlock(t.Context())

	// Nobody held it when that was asked.
	st, out, errs = ask("x", func() { second = hold(t, late.RLock("x")) })
	if in := inspect(t, late, "x"); st != exitError || !in.Held() {
		t.Errorf("free when it was asked: status %d, held %v: %s%s", st, in.Held(), out, errs)
	}
	unlock(t, second)

	// Of readers those that were shown, though others came.
	r1 := hold(t, old.ReadWriteLock("rw").ReadLock())
	var r2 redlatch.Hold
	st, out, errs = ask("rw", func() { r2 = hold(t, late.ReadWriteLock("rw").ReadLock()) })
	if in := inspect(t, late, "rw"); st != 0 || in.HolderCount != 1 || in.Holders[0].ClientID != late.ID() {
		t.Errorf("status %d, left %+v: %s%s", st, in.Holders, out, errs)
	}
	_ = r1.Unlock(t.Context())
	unlock(t, r2)
}

// Who may not publish evicts all the same, and is told that nobody was woken.
func TestUnlockSaysThatNobodyWasWoken(t *testing.T) {
	s := server(t)
	s.Do(t, "ACL", "SETUSER", "ops", "reset", "on", ">pw", "~*", "&*", "+@all", "-publish")
	c := client(t, s)
	for _, l := range []redlatch.Locker{c.RLock("x"), c.FairLock("x"), c.ReadWriteLock("x").ReadLock(), c.ReadWriteLock("x").WriteLock()} {
		h := hold(t, l)
		st, out, errs := callWith(t, "", nil, "--url", "redis://ops:pw@"+s.Addr(), "unlock", "x", "--owner", h.Owner().String(), "--yes")
		if st != exitError || inspect(t, c, "x").Held() {
			t.Errorf("%T: status %d, held %t", l, st, inspect(t, c, "x").Held())
		}
		need(t, out, "x was taken away from "+h.Owner().String())
		need(t, errs, "nobody was woken", "doctor --need evict")
		_ = h.Unlock(t.Context())
	}
}

// Whose holders change faster than somebody can agree learns what was done: nothing, or the evictions of earlier rounds.
func TestUnlockSaysWhatItDid(t *testing.T) {
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
		var out, errs strings.Builder
		st := execute(t.Context(), []string{"--url", "redis://" + s.Addr(), "unlock", "x", "--any-owner"}, streams{&changes{between}, &out, &errs})
		if st != exitOtherOwner || strings.Contains(out.String(), "was taken away from") != (n > 1000) {
			t.Errorf("%d holders: status %d: %s", n, st, out.String())
		}
		need(t, errs.String(), said)
		s.Do(t, "DEL", "x")
	}
}

// A holder that was killed is found by its name as long as its lease lasts.
func TestUnlockFindsTheDeadByName(t *testing.T) {
	s := server(t)
	c := client(t, s)
	p := begin(t, s, "run", "x", "--lease-time", "1m", "--client-name", "shop/7", "--", "sleep", "100")
	untilState(t, c, "x", func(in redlatch.Inspection) bool { return in.Held() })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.status()
	until(t, "its connections end", func() bool {
		m := s.Do(t, "CLIENT", "LIST")
		text, _ := m.ToString()
		return !strings.Contains(text, "shop/7")
	}, func() string { return "" })
	if st, out, errs := call(t, s, "unlock", "x", "--owner", "shop/8", "--yes"); st != exitOtherOwner || !inspect(t, c, "x").Held() {
		t.Errorf("another name: status %d: %s%s", st, out, errs)
	}
	st, out, errs := call(t, s, "unlock", "x", "--owner", "shop/7", "--yes")
	if st != 0 || inspect(t, c, "x").Held() {
		t.Errorf("status %d: %s", st, errs)
	}
	need(t, out, "shop/7, not in CLIENT LIST")
}
