package engine_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
)

// fakeKey is a plain lock that is held.
type fakeKey struct {
	field string
	count int
	ends  time.Time
	token int64
}

func (k *fakeKey) raise(lease string) {
	if ends := time.Now().Add(ms(lease)); ends.After(k.ends) {
		k.ends = ends
	}
}

// find is the key if its lease has not run out. mu is held, as in all that follows.
func (f *fakeRedis) find(key string) *fakeKey {
	k := f.keys[key]
	if k != nil && !time.Now().Before(k.ends) {
		f.ended[key] = k.ends
		delete(f.keys, key)
		k = nil
	}
	return k
}

func (f *fakeRedis) voided(field, key string) bool { return time.Now().Before(f.void[field+" "+key]) }

// refuse voids an acquisition for as long as its release says.
func (f *fakeRedis) refuse(field, key, void string) {
	if void != "0" {
		f.void[field+" "+key] = time.Now().Add(ms(void))
	}
}

func (f *fakeRedis) take(key, field, lease, fence string) (token int64) {
	k := f.keys[key]
	if k == nil {
		k = &fakeKey{field: field, count: 1}
		f.keys[key] = k
		if fence != "" {
			f.token++
			k.token = f.token
		}
	}
	k.raise(lease)
	return k.token
}

// member is one lock of an acquisition.
type member struct{ key, field, count, fence, place string }

// keepsOut is what an attempt is told that can't have the lock: of one of several, after which of them it is.
func (f *fakeRedis) keepsOut(m member, part ...conn.Value) (r conn.Reply, out bool) {
	k := f.find(m.key)
	busy := func(vals ...conn.Value) (conn.Reply, bool) {
		f.list.enlist(m.key, m.field, m.place)
		return conn.Reply{Vals: append(append([]conn.Value{{}}, part...), vals...)}, true
	}
	switch {
	case k == nil && f.voided(m.field, m.key):
		return conn.Reply{Code: -1, Vals: []conn.Value{{Int: -1}}}, true
	case k == nil && m.place == "s": // it stands back
		return busy(conn.Value{Int: -2}, conn.Value{}, conn.Value{}, conn.Value{Int: 250})
	case k != nil && k.field != m.field:
		return busy(conn.Value{Int: time.Until(k.ends).Milliseconds()}, conn.Value{Str: k.field}, conn.Value{})
	}
	return r, false
}

func (f *fakeRedis) run(cmd conn.Command) conn.Reply {
	key, arg := cmd.Keys[0], cmd.Args
	switch cmd.Script {
	case luascript.Acquire:
		return f.acquire(cmd)
	case luascript.GroupAcquire:
		return f.acquireAll(cmd)
	case luascript.Reenter:
		k := f.find(key)
		if k == nil || k.field != arg[0] {
			return code1(0)
		}
		k.count, _ = strconv.Atoi(arg[1])
		k.raise(arg[2])
		return code1(1)
	case luascript.Release:
		if _, held := f.rw.fields[arg[0]]; held {
			return code1(1) // the count of a hold
		}
		return f.release(key, arg)
	case luascript.WaitLeave:
		delete(f.list[key], arg[0])
		if f.find(key) != nil {
			return code1(0)
		}
		return code1(f.list.call(key, f.publish))
	case luascript.GroupRelease:
		return f.releaseAll(cmd)
	case luascript.Renew:
		return renewed(len(cmd.Keys), func(i int) bool {
			k := f.find(cmd.Keys[i])
			if k == nil || k.field != arg[2*i] {
				return false
			}
			k.raise(arg[2*i+1])
			return true
		})
	}
	return f.runRW(cmd)
}

// renewed answers n renewals.
func renewed(n int, held func(i int) bool) (r conn.Reply) {
	for i := range n {
		var v conn.Value
		if held(i) {
			v.Int = 1
		}
		r.Vals = append(r.Vals, v)
	}
	r.Code = r.Vals[0].Int
	return r
}

func (f *fakeRedis) acquire(cmd conn.Command) conn.Reply {
	arg := cmd.Args
	m := member{key: cmd.Keys[0], field: arg[0], fence: argument(arg, 3, ""), place: "0"}
	if len(arg) > 2 {
		m.place = arg[2]
	}
	if r, out := f.keepsOut(m); out {
		return r
	}
	code := int64(2)
	if f.keys[m.key] == nil {
		f.list.granted(m)
		code = 1
	}
	if token := f.take(m.key, m.field, arg[1], m.fence); token != 0 {
		return conn.Reply{Code: code, Vals: []conn.Value{{Int: code}, {Int: token}}}
	}
	return code1(code)
}

func (f *fakeRedis) acquireAll(cmd conn.Command) conn.Reply {
	code, at := int64(1), 0
	var all []member
	for arg := cmd.Args[1:]; len(arg) > 0; arg = arg[6:] {
		m := member{cmd.Keys[at], arg[1], arg[2], arg[3], arg[5]}
		all = append(all, m)
		part := conn.Value{Int: int64(len(all))}
		n, _ := strconv.Atoi(arg[0])
		at += n
		if k := f.find(m.key); m.count != "0" {
			if k == nil || k.field != m.field {
				return conn.Reply{Code: -2, Vals: []conn.Value{{Int: -2}, part}}
			}
			continue
		}
		if r, out := f.keepsOut(m, part); out {
			return r
		}
		if f.keys[m.key] != nil {
			code = 2
		}
	}
	r := conn.Reply{Code: code, Vals: []conn.Value{{Int: code}}}
	for _, m := range all {
		if f.find(m.key) == nil {
			f.list.granted(m)
		}
		token := f.take(m.key, m.field, cmd.Args[0], m.fence)
		if m.count != "0" {
			f.keys[m.key].count, _ = strconv.Atoi(m.count)
			token = 0
		}
		r.Vals = append(r.Vals, conn.Value{Int: token})
	}
	return r
}

func (f *fakeRedis) release(key string, arg []string) conn.Reply {
	f.refuse(arg[0], key, argument(arg, 5, "0"))
	k := f.find(key)
	switch {
	case k == nil || k.field != arg[0]:
		if len(arg) > 4 && k == nil {
			f.list.call(key, f.publish)
		}
		return code1(0)
	case arg[1] != "0":
		k.count, _ = strconv.Atoi(arg[1])
		return code1(1)
	}
	delete(f.keys, key)
	return f.list.release(key, arg, f.publish)
}

func (f *fakeRedis) releaseAll(cmd conn.Command) (r conn.Reply) {
	at := 0
	for arg := cmd.Args; len(arg) > 0; arg = arg[9:] {
		n, _ := strconv.Atoi(arg[0])
		one := f.release(cmd.Keys[at], arg[1:9])
		called := conn.Value{}
		if one.Code == 1 && arg[2] == "0" {
			called.Str = strconv.FormatInt(one.Int(1), 10)
		}
		r.Vals = append(r.Vals, conn.Value{Int: one.Code}, called)
		at += n
	}
	r.Code = r.Vals[0].Int
	return r
}

// called returns until when somebody who waits may take a free lock for held: nobody is called when a lease ends, and
// whoever waits looks once a second, a quarter more or less.
func (f *fakeRedis) called(key string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.find(key)
	return f.ended[key].Add(1250 * time.Millisecond)
}

// force takes a lock away from whoever has it.
func (f *fakeRedis) force(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.find(key) != nil {
		delete(f.keys, key)
		f.publish(luascript.LockChannel(key), "0")
		f.list.call(key, f.publish)
	}
}

// fakeList is what the scripts of plain locks do with the lists of waiting clients: by lock, the
// place of each.
type fakeList map[string]map[string]int64

const fakeLost = int64(4e15)

// argument is one of a script's, or what it takes as given: in a group "" stands for that.
func argument(arg []string, i int, given string) string {
	if i < len(arg) && arg[i] != "" {
		return arg[i]
	}
	return given
}

// enlist is enlist.lua.
func (l fakeList) enlist(key, field, place string) {
	if place == "" {
		return
	}
	client, _, _ := strings.Cut(field, ":")
	if l[key] == nil {
		l[key] = map[string]int64{}
	}
	if came, _ := strconv.ParseInt(place, 10, 64); came > 1 {
		l[key][client] = came - fakeLost
	} else if _, in := l[key][client]; !in {
		l[key][client] = time.Now().UnixMicro()
	}
}

// granted is what a grant does.
func (l fakeList) granted(m member) {
	if m.place != "" && m.place != "0" {
		client, _, _ := strings.Cut(m.field, ":")
		delete(l[m.key], client)
	}
}

// call is wake.lua: publish returns how many have got the message.
func (l fakeList) call(key string, publish func(channel, payload string) int64) int64 {
	for len(l[key]) > 0 {
		first, place := "", int64(0)
		for client, at := range l[key] {
			if first == "" || at < place || at == place && client < first {
				first, place = client, at
			}
		}
		delete(l[key], first)
		came, code := place, int64(1)
		if place < 0 {
			came, code = place+fakeLost, 2
		}
		if publish(luascript.CallChannel(key)+first, strconv.FormatInt(came, 10)) > 0 {
			return code
		}
	}
	return 0
}

// release is the end of release.lua: what it answers once the lock is free.
func (l fakeList) release(key string, arg []string, publish func(channel, payload string) int64) conn.Reply {
	heard, called := publish(arg[2], "0"), int64(0)
	if len(arg) > 4 {
		if arg[4] != "" {
			client, _, _ := strings.Cut(arg[0], ":")
			delete(l[key], client)
		}
		if called = l.call(key, publish); called > 0 && arg[4] == "1" {
			l.enlist(key, arg[0], "0")
		}
	}
	if called == 2 && heard > 0 {
		called = 1
	}
	if called == 0 && heard == 0 {
		return code1(1)
	}
	return conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {Int: called}, {Int: heard}}}
}
