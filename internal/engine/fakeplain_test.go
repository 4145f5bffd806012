package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
)

// fakePlain runs the scripts of plain locks, for several clients whose links to it are slow
// and lossy, with the clock of the test's bubble.
type fakePlain struct {
	rough // its mu guards all below

	keys  map[string]*plainKey
	ended map[string]time.Time // when a lease ended that nobody had given back
	void  map[string]time.Time
	token int64
	list  fakeList
	links []*plainLink
}

type plainKey struct {
	field string
	count int
	ends  time.Time
	token int64
}

func newFakePlain(seed uint64) *fakePlain {
	return &fakePlain{
		rough: rough{rand: rand.New(rand.NewPCG(seed, 1))}, //nolint:gosec // a test
		keys:  map[string]*plainKey{},
		ended: map[string]time.Time{}, void: map[string]time.Time{}, list: fakeList{},
	}
}

// plainLink is one client's way to the server. It implements conn.Runner and pubsub.Dialer.
type plainLink struct {
	f    *fakePlain
	subs *plainSubs // guarded by f.mu; of the connection of the moment
}

// plainSubs is a connection for subscriptions. It implements pubsub.Link.
type plainSubs struct {
	f        *fakePlain
	listener pubsub.Handler
	channels map[string]bool // guarded by f.mu
	down     chan error
	over     bool // guarded by f.mu
}

func (f *fakePlain) link() *plainLink {
	l := &plainLink{f: f}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = append(f.links, l)
	return l
}

func (l *plainLink) Topology() conn.Topology { return conn.Topology{} }

func (l *plainLink) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	f := l.f
	// The memory of the command is its caller's, and may be used again after the answer.
	cmd.Keys, cmd.Args = append([]string(nil), cmd.Keys...), append([]string(nil), cmd.Args...)
	time.Sleep(f.lag())
	luck := f.luck()
	switch {
	case luck == 0:
		f.note(cmd, "unsent")
		return conn.Reply{}, errUnsent
	case luck == 1:
		f.note(cmd, "loading")
		return conn.Reply{}, conn.Refusal("LOADING Redis is loading the dataset in memory")
	case luck == 2:
		f.note(cmd, "late")
		late := f.lag()
		go func() { // it runs after its caller was told
			time.Sleep(late)
			f.exec(cmd)
		}()
		return conn.Reply{}, errLost
	case luck == 3 && len(cmd.Keys) > 1:
		f.note(cmd, "tryagain")
		return conn.Reply{}, conn.Refusal("TRYAGAIN Multiple keys request during rehashing of slot")
	}
	r := f.exec(cmd)
	if luck == 4 {
		f.note(cmd, "lost")
		return conn.Reply{}, errLost
	}
	if cmd.Acks > 0 {
		if r.Acked = cmd.Acks; luck == 5 || luck == 6 {
			r.Acked = 0
		}
		if luck == 6 {
			r.Waits = errLost
		}
	}
	time.Sleep(f.lag())
	return r, nil
}

func (l *plainLink) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	return side(ctx, l.Run, cmds)
}

func (l *plainLink) Node(uint16) string { return "" }
func (l *plainLink) Moved(string)       {}
func (l *plainLink) Dial(_ string, h pubsub.Handler) (pubsub.Link, error) {
	time.Sleep(l.f.lag())
	if l.f.luck() == 0 {
		return nil, errUnsent
	}
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.subs = &plainSubs{f: l.f, listener: h, channels: map[string]bool{}, down: make(chan error, 1)}
	return l.subs, nil
}

func (s *plainSubs) Subscribe(_ context.Context, channels []string, _ bool) error {
	time.Sleep(s.f.lag())
	s.f.mu.Lock()
	for _, ch := range channels {
		s.channels[ch] = !s.over
	}
	s.f.mu.Unlock()
	go func() {
		time.Sleep(s.f.lag())
		s.f.mu.Lock()
		over := s.over
		s.f.mu.Unlock()
		for _, ch := range channels {
			if !over {
				s.listener.Confirmed(ch)
			}
		}
	}()
	return nil
}

func (s *plainSubs) Unsubscribe(_ context.Context, channels []string, _ bool) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for _, ch := range channels {
		delete(s.channels, ch)
	}
	return nil
}
func (s *plainSubs) Down() <-chan error { return s.down }
func (s *plainSubs) Close() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.over = true
	clear(s.channels)
}

// cut ends a connection for subscriptions: its client is told later.
func (f *fakePlain) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.links[f.rand.IntN(len(f.links))].subs
	if s == nil || s.over {
		return
	}
	s.over = true
	clear(s.channels)
	lag := time.Duration(f.rand.IntN(200)) * time.Millisecond
	go func() {
		time.Sleep(lag)
		s.down <- errors.New("cut")
	}()
}

// publish sends a message to all who listen. mu is held.
func (f *fakePlain) publish(ch, payload string) (n int64) {
	for _, l := range f.links {
		s := l.subs
		if s == nil || !s.channels[ch] {
			continue
		}
		n++
		lag := time.Duration(f.rand.IntN(2000)) * time.Microsecond
		go func() {
			time.Sleep(lag)
			f.mu.Lock()
			over := s.over
			f.mu.Unlock()
			if !over {
				s.listener.Message(ch, payload)
			}
		}()
	}
	return n
}

// find is the key if its lease has not run out. mu is held.
func (f *fakePlain) find(key string) *plainKey {
	k := f.keys[key]
	if k != nil && !time.Now().Before(k.ends) {
		f.ended[key] = k.ends
		f.freed(key)
		k = nil
	}
	return k
}

// called returns until when somebody who waits may take a free lock for held: nobody is called when a lease ends, and
// whoever waits looks once a second, a quarter more or less.
func (f *fakePlain) called(key string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.find(key)
	return f.ended[key].Add(1250 * time.Millisecond)
}

func (f *fakePlain) freed(key string) {
	delete(f.keys, key)
}

func (k *plainKey) raise(lease string) {
	if ends := time.Now().Add(ms(lease)); ends.After(k.ends) {
		k.ends = ends
	}
}

func (f *fakePlain) voided(key string) bool {
	ends, ok := f.void[key]
	return ok && time.Now().Before(ends)
}

func (f *fakePlain) take(key, field, lease, fence string) (token int64) {
	k := f.keys[key]
	if k == nil {
		k = &plainKey{field: field, count: 1}
		f.keys[key] = k
		if fence != "" {
			f.token++
			k.token = f.token
		}
	}
	k.raise(lease)
	return k.token
}

func (f *fakePlain) exec(cmd conn.Command) conn.Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.run(cmd)
	f.noteLocked(cmd, fmt.Sprint(r.Code, r.Vals))
	return r
}

func (f *fakePlain) run(cmd conn.Command) conn.Reply {
	arg := cmd.Args
	switch cmd.Script {
	case luascript.Acquire:
		k := f.find(cmd.Keys[0])
		code := int64(1)
		switch {
		case k == nil && f.voided(arg[0]+" "+cmd.Keys[0]):
			return conn.Reply{Code: -1, Vals: []conn.Value{{Int: -1}}}
		case k == nil && placeOf(arg) == "s":
			f.list.enlist(cmd.Keys[0], arg[0], placeOf(arg))
			return conn.Reply{Vals: []conn.Value{{}, {Int: -2}, {IsStr: true}, {IsStr: true}, {Int: 250}}}
		case k != nil && k.field != arg[0]:
			f.list.enlist(cmd.Keys[0], arg[0], placeOf(arg))
			return conn.Reply{Vals: []conn.Value{{}, {Int: time.Until(k.ends).Milliseconds()}, {Str: k.field, IsStr: true}, {IsStr: true}}}
		case k != nil:
			code = 2
		}
		if k == nil {
			f.list.granted(cmd.Keys[0], arg[0], placeOf(arg))
		}
		if token := f.take(cmd.Keys[0], arg[0], arg[1], argument(arg, 3, "")); token != 0 {
			return conn.Reply{Code: code, Vals: []conn.Value{{Int: code}, {Int: token}}}
		}
		return code1(code)
	case luascript.GroupAcquire:
		return f.acquireAll(cmd)
	case luascript.Reenter:
		k := f.find(cmd.Keys[0])
		if k == nil || k.field != arg[0] {
			return code1(0)
		}
		k.count, _ = strconv.Atoi(arg[1])
		k.raise(arg[2])
		return code1(1)
	case luascript.Release:
		code, heard := f.release(cmd.Keys[0], arg)
		if heard {
			return f.list.release(cmd.Keys[0], arg, f.publish)
		}
		f.callNext(cmd.Keys[0], arg)
		return code1(code)
	case luascript.WaitLeave:
		delete(f.list[cmd.Keys[0]], arg[0])
		if f.find(cmd.Keys[0]) != nil {
			return code1(0)
		}
		return code1(f.list.call(cmd.Keys[0], f.publish))
	case luascript.GroupRelease:
		var r conn.Reply
		for at := 0; len(arg) > 0; arg = arg[9:] {
			n, _ := strconv.Atoi(arg[0])
			code, heard := f.release(cmd.Keys[at], arg[1:9])
			text := ""
			if heard {
				text = strconv.FormatInt(f.list.release(cmd.Keys[at], arg[1:9], f.publish).Int(1), 10)
			} else {
				f.callNext(cmd.Keys[at], arg[1:9])
			}
			r.Vals = append(r.Vals, conn.Value{Int: code}, conn.Value{Str: text, IsStr: true})
			at += n
		}
		r.Code = r.Vals[0].Int
		return r
	case luascript.Renew:
		var r conn.Reply
		for i, key := range cmd.Keys {
			k := f.find(key)
			held := k != nil && k.field == arg[2*i]
			if held {
				k.raise(arg[2*i+1])
				r.Vals = append(r.Vals, conn.Value{Int: 1})
			} else {
				r.Vals = append(r.Vals, conn.Value{})
			}
		}
		r.Code = r.Vals[0].Int
		return r
	}
	panic("no script " + cmd.Script.Name)
}

func (f *fakePlain) release(key string, arg []string) (code int64, told bool) {
	if void := argument(arg, 5, "0"); void != "0" {
		f.void[arg[0]+" "+key] = time.Now().Add(ms(void))
	}
	k := f.find(key)
	switch {
	case k == nil || k.field != arg[0]:
		return 0, false
	case arg[1] != "0":
		k.count, _ = strconv.Atoi(arg[1])
		return 1, false
	}
	f.freed(key)
	return 1, true
}

// callNext is what a release does that finds the lock free. mu is held.
func (f *fakePlain) callNext(key string, arg []string) {
	if len(arg) > 4 && f.find(key) == nil {
		f.list.call(key, f.publish)
	}
}

func (f *fakePlain) acquireAll(cmd conn.Command) conn.Reply {
	code, at := int64(1), 0
	type one struct{ key, field, count, fence, place string }
	var all []one
	for arg := cmd.Args[1:]; len(arg) > 0; arg = arg[6:] {
		m := one{cmd.Keys[at], arg[1], arg[2], arg[3], arg[5]}
		all = append(all, m)
		part := conn.Value{Int: int64(len(all))}
		n, _ := strconv.Atoi(arg[0])
		at += n
		k := f.find(m.key)
		switch {
		case m.count != "0":
			if k == nil || k.field != m.field {
				return conn.Reply{Code: -2, Vals: []conn.Value{{Int: -2}, part}}
			}
		case k == nil && f.voided(m.field+" "+m.key):
			return conn.Reply{Code: -1, Vals: []conn.Value{{Int: -1}}}
		case k == nil && m.place == "s":
			f.list.enlist(m.key, m.field, m.place)
			return conn.Reply{Vals: []conn.Value{{}, part, {Int: -2}, {IsStr: true}, {IsStr: true}, {Int: 250}}}
		case k != nil && k.field != m.field:
			f.list.enlist(m.key, m.field, m.place)
			return conn.Reply{Vals: []conn.Value{{}, part, {Int: time.Until(k.ends).Milliseconds()}, {Str: k.field, IsStr: true}, {IsStr: true}}}
		case k != nil:
			code = 2
		}
	}
	r := conn.Reply{Code: code, Vals: []conn.Value{{Int: code}}}
	for _, m := range all {
		if f.find(m.key) == nil {
			f.list.granted(m.key, m.field, m.place)
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

// String is what is on the server, and who listens.
func (f *fakePlain) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []string
	for key := range f.keys {
		if k := f.find(key); k != nil {
			left = append(left, fmt.Sprintf("%s held by %s %d times for %v", key, k.field, k.count, time.Until(k.ends)))
		}
	}
	for i, l := range f.links {
		if l.subs != nil && len(l.subs.channels) > 0 {
			left = append(left, fmt.Sprintf("link %d listens to %v", i, l.subs.channels))
		}
	}
	if len(left) == 0 {
		return ""
	}
	return strings.Join(left, ", ") + ", after\n" + strings.Join(f.hist[max(0, len(f.hist)-30):], "\n")
}

// about is what happened last to a lock.
func (f *fakePlain) about(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, h := range f.hist {
		if strings.Contains(h, " ["+key) || strings.Contains(h, " "+key+" ") || strings.Contains(h, " "+key+"]") {
			out = append(out, h)
		}
	}
	return strings.Join(out[max(0, len(out)-15):], "\n")
}

// force takes a lock away from whoever has it.
func (f *fakePlain) force(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.find(key) != nil {
		f.hist = append(f.hist, fmt.Sprintf("%d force [%s]", time.Now().UnixMicro(), key))
		f.freed(key)
		f.publish(luascript.LockChannel(key), "0")
		f.list.call(key, f.publish)
	}
}
