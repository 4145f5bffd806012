package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/internal/testbed/texts"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rwlock"
)

// What callers do and a server answers stands in the texts in testdata/scenes. A line with > has commands; below it
// stands what comes of them: who is in, refused or has unlocked, whose context has ended, and what a server is asked that
// answers by hand. With REDLATCH_REWRITE=1 the files are written anew: read what has changed.
//
//	by hand              the server answers what it is told to, and locks are passed on; it stands in front
//	a = plain l          a locks: plain NAME, read NAME, write NAME (share, prefer: such a lock) or group NAME NAME;
//	                     within=1s (TryLock), lease=1s, ctx=1s (which ends then), in=b (the context of that hold),
//	                         owner=x (by hand everybody has a name, its own), elsewhere (of another client)
//	leave a              its ctx ends
//	u = unlock a, e = extend a 1h, f = force NAME, c = close
//	answer SCRIPT WHO CODE    by hand, to the one that waits: a code, busy, granted, or an error's name; each: to all
//	fault ERROR, fault SCRIPT pause=2s once, fault none   before a command runs; several: one of more than a key;
//	                         after=SCRIPT: of its answer; forget=l: the server does, at that moment
//	latency 5ms, forget l, server l 10s (its lease ends then), deaf (messages are lost, for good), moved
//	d = doubt l, over d, over d unanswered   a forced unlock begins, and is over
//	count l, left l, valid a [at least], ran SCRIPT [at most], holds   what is there; covers a 1m: the server has the lock
//	                         for as long as the hold is valid, and no more than that longer
//	passing                  locks are passed on; it stands in front
//	wait 1s, until a         a call is over
func TestEngine(t *testing.T) {
	texts.Each(t, "testdata/scenes/*.txt", 10, func(t *testing.T, text string) string {
		var got string
		synctest.Test(t, func(t *testing.T) { got = play(t, text) })
		return got
	})
}

// scene is a client, its server, and what became of calls.
type scene struct {
	t     *testing.T
	b     *byHand // nil: f answers
	f     *fakeRedis
	core  *engine.Core
	other *engine.Core
	calls []*sceneCall // in the order of their beginnings
	asked []*question  // that have been told of
	overs map[string]func(answered bool)
}

type sceneCall struct {
	name  string
	leave context.CancelFunc
	got   *got
	holds []*held.Hold // of a group
	told  bool
	ended bool // its hold's context, as has been told
}

func play(t *testing.T, text string) string {
	sc := &scene{t: t, overs: map[string]func(bool){}}
	if strings.Contains(text, "\n> by hand\n") {
		sc.b, sc.core = newByHand(t, nil)
	} else {
		sc.f, sc.core = newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
			if strings.Contains(text, "\n> passing\n") {
				cfg.Tenure = tenure
			}
		})
		sc.other = second(t, sc.f)
	}
	played := texts.Play(text, func(commands []string) (all []string) {
		for _, one := range commands {
			if said := sc.do(strings.Fields(one)); said != "" {
				all = append(all, said)
			}
		}
		return append(all, sc.news()...)
	})
	if sc.f != nil {
		sc.f.onBefore(nil)
	}
	for _, c := range sc.calls { // whatever is left
		c.leave()
	}
	return played
}

// news are what has become of calls and holds, and what the server is asked.
func (sc *scene) news() (all []string) {
	synctest.Wait()
	for _, c := range sc.calls {
		select {
		case <-c.got.done:
		default:
			continue
		}
		if !c.told {
			c.told = true
			all = append(all, c.name+": "+outcome(c.got))
		}
		if h := c.got.h; h != nil && !c.ended && h.Context().Err() != nil {
			c.ended = true
			all = append(all, c.name+": its context ends: "+words(context.Cause(h.Context())))
		}
	}
	if sc.b != nil {
		asked := sc.b.all()
		var fresh []string
		for _, q := range asked {
			if !slices.Contains(sc.asked, q) {
				fresh = append(fresh, "asked: "+sc.label(q.cmd))
			}
		}
		sc.asked = asked
		slices.Sort(fresh) // those that come at one moment
		all = append(all, fresh...)
	}
	return all
}

func outcome(g *got) string {
	switch {
	case g.err != nil:
		return words(g.err)
	case g.h != nil:
		return "in"
	}
	return "done"
}

// words are what an error matches.
func words(err error) string {
	var all []string
	for _, e := range []error{
		lock.ErrNotAcquired, lock.ErrUnavailable, lock.ErrLeaseLost, lock.ErrNotHeld, lock.ErrClosed, lock.ErrUpgrade, lock.ErrUnlocked,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			all = append(all, strings.TrimPrefix(e.Error(), "redlatch: "))
		}
	}
	if lost, is := errors.AsType[*lock.LeaseLostError](err); is {
		all = append(all, "because it is "+string(lost.Reason))
	}
	if tooLate(err) {
		all = append(all, "granted too late")
	}
	return strings.Join(all, ", ")
}

var owners = regexp.MustCompile(`:g=([^-]+)-`)

// label is a command's script, and for whom it asks or about which key. Of one that has several locks it says which one,
// and alone: it is the only key.
func (sc *scene) label(cmd conn.Command) string {
	found := owners.FindStringSubmatch(strings.Join(cmd.Args, " "))
	if found == nil {
		return cmd.Script.Name + " " + cmd.Keys[0]
	}
	text := cmd.Script.Name + " " + found[1]
	if several := func(c *sceneCall) bool { return c.name == found[1] && len(c.holds) > 0 }; !slices.ContainsFunc(sc.calls, several) {
		return text
	}
	if text += " " + cmd.Keys[0]; len(cmd.Keys) == 1 {
		text += " alone"
	}
	return text
}

// sceneArgs are the words of a command: those with a =, by what stands before it, and the others.
func sceneArgs(all []string) (set map[string]string, rest []string) {
	set = map[string]string{}
	for _, word := range all {
		if name, value, is := strings.Cut(word, "="); is && name != "" && value != "" {
			set[name] = value
		} else {
			rest = append(rest, word)
		}
	}
	return set, rest
}

func (sc *scene) length(text string) time.Duration {
	sc.t.Helper()
	d, err := time.ParseDuration(text)
	testbed.Must(sc.t, err)
	return d
}

func (sc *scene) call(name string) *sceneCall {
	sc.t.Helper()
	i := slices.IndexFunc(sc.calls, func(c *sceneCall) bool { return c.name == name })
	if i < 0 {
		sc.t.Fatalf("nobody is called %q", name)
	}
	return sc.calls[i]
}

// hold is what a call got.
func (sc *scene) hold(name string) lock.Hold {
	sc.t.Helper()
	h := sc.call(name).got.h
	if h == nil {
		sc.t.Fatalf("%s is not in", name)
	}
	return h
}

func (sc *scene) do(all []string) string {
	if len(all) > 2 && all[1] == "=" {
		sc.begin(all[0], all[2:])
		return ""
	}
	set, rest := sceneArgs(all[1:])
	about := append(slices.Clone(rest), "", "")
	switch all[0] {
	case "by", "passing": // see play
	case "leave":
		sc.call(about[0]).leave()
	case "wait":
		time.Sleep(sc.length(about[0]))
	case "until": // it is over
		<-sc.call(about[0]).got.done
	case "moved":
		sc.core.Moved()
	case "over":
		sc.overs[about[0]](about[1] != "unanswered")
	case "answer":
		sc.answer(rest)
	case "holds":
		return fmt.Sprint(len(sc.core.Held()), " holds, ", sc.core.Scheduled(), " looked after")
	case "valid":
		if left := time.Until(sc.hold(about[0]).ValidUntil()); about[1] == "" || left < sc.length(about[1]) {
			return fmt.Sprint("valid for ", left)
		}
		return "valid for so long, and more"
	default:
		return sc.server(all[0], set, about)
	}
	return ""
}

// server does something to the server, or looks at it.
func (sc *scene) server(what string, set map[string]string, about []string) string {
	switch what {
	case "fault":
		sc.fault(set, about)
	case "latency":
		sc.f.latency = sc.length(about[0])
	case "forget":
		sc.f.forget(about[0])
	case "server":
		sc.f.sets(about[0], time.Now().Add(sc.length(about[1])))
	case "count":
		return fmt.Sprint("counts ", sc.f.count(about[0]))
	case "left":
		left := ""
		sc.f.locked(func() { left = fmt.Sprint("lasts for ", time.Until(sc.f.keys[about[0]].ends)) })
		return left
	case "covers":
		h := sc.hold(about[0])
		sc.f.covers(sc.t, h)
		sc.f.locked(func() {
			late := sc.f.keys[h.Name()].ends.Sub(h.ValidUntil())
			testbed.AtMost(sc.t, late, sc.length(about[1]), "how long after its holder's deadline lasts", h.Name())
		})
	case "ran":
		n := len(sc.f.scripts(about[0]))
		if most, _ := strconv.Atoi(about[1]); n > most || about[1] == "" {
			return fmt.Sprint(n, " times")
		}
		return "no more"
	case "deaf":
		sc.f.loses(sc.f.links[0])
	default:
		sc.t.Fatalf("no command %q", what)
	}
	return ""
}

// begin starts a call by that name.
func (sc *scene) begin(name string, all []string) {
	set, rest := sceneArgs(all[1:])
	about := append(slices.Clone(rest), "", "")
	c := &sceneCall{name: name}
	ctx := context.Background()
	if in := set["in"]; in != "" {
		ctx = sc.hold(in).Context()
	} else if owner := cmp.Or(set["owner"], map[bool]string{true: name}[sc.b != nil]); owner != "" {
		ctx = held.WithOwner(ctx, owner)
	}
	if limit := set["ctx"]; limit != "" {
		ctx, c.leave = context.WithTimeout(ctx, sc.length(limit))
	} else {
		ctx, c.leave = context.WithCancel(ctx)
	}
	var run func() (lock.Hold, error)
	switch all[0] {
	case "unlock":
		of := sc.call(about[0])
		run = func() (lock.Hold, error) { return nil, unlockAll(of) }
	case "extend":
		h, by := sc.hold(about[0]), sc.length(about[1])
		run = func() (lock.Hold, error) { return nil, h.Extend(ctx, by) }
	case "force":
		l := openRW(sc.core, about[0]).ReadLock()
		run = func() (lock.Hold, error) { _, err := l.ForceUnlock(ctx); return nil, err }
	case "close":
		run = func() (lock.Hold, error) { sc.core.Close(); return nil, nil }
	case "doubt":
		sc.doubt(name, about[0])
		return
	case "group":
		run = func() (_ lock.Hold, err error) {
			c.holds, err = group(ctx, sc.core, -1, rest...)
			return nil, err
		}
	default:
		run = sc.acquires(ctx, all[0], rest, set)
	}
	sc.calls = append(sc.calls, c)
	c.got = start(run)
}

// doubt begins to take a lock away by force, from whoever has it now.
func (sc *scene) doubt(name, key string) {
	over, was := sc.core.Doubt(key), inspect.Evicted{}
	if sc.f != nil && sc.f.count(key) > 0 {
		was = inspect.Evicted{Count: 1, Owners: []string{sc.f.field(key)}}
	}
	sc.overs[name] = func(answered bool) { over(answered, was) }
}

func unlockAll(c *sceneCall) error {
	if c.got.h != nil {
		return c.got.h.Unlock(context.Background())
	}
	done := make(chan *held.Releasing, 1)
	held.Release(context.Background(), c.holds, done)
	return errors.Join((<-done).Errs()...)
}

func (sc *scene) acquires(ctx context.Context, kind string, rest []string, set map[string]string) func() (lock.Hold, error) {
	core := sc.core
	if slices.Contains(rest, "elsewhere") {
		core = sc.other
	}
	var opts []lock.Option
	if slices.Contains(rest, "share") {
		opts = append(opts, rwlock.ShareReads())
	}
	if slices.Contains(rest, "prefer") {
		opts = append(opts, rwlock.PreferReaders())
	}
	var l lock.Locker = plain(core, rest[0])
	switch kind {
	case "read":
		l = openRW(core, rest[0], opts...).ReadLock()
	case "write":
		l = openRW(core, rest[0], opts...).WriteLock()
	}
	lease := time.Duration(0)
	if set["lease"] != "" {
		lease = sc.length(set["lease"])
	}
	if within := set["within"]; within != "" {
		wait := sc.length(within)
		return func() (lock.Hold, error) { return l.TryLock(ctx, wait, lease) }
	}
	return func() (lock.Hold, error) {
		if lease > 0 {
			return l.Lock(ctx, lock.WithLease(lease))
		}
		return l.Lock(ctx)
	}
}

var sceneErrors = map[string]error{"lost": errLost, "unsent": errUnsent, "loading": errLoading, "tryagain": errTryAgain}

// fault sets what happens to commands from now on.
func (sc *scene) fault(set map[string]string, about []string) {
	x := fault{once: slices.Contains(about, "once")}
	script := set["after"]
	for _, word := range about {
		if err := sceneErrors[word]; err != nil {
			x.err = err
		} else if !slices.Contains([]string{"", "once", "none", "several"}, word) {
			script = word
		}
	}
	if set["forget"] != "" {
		x.do = func() { sc.f.forget(set["forget"]) }
	}
	for _, s := range []*luascript.Script{luascript.Acquire, luascript.Renew, luascript.Reenter, luascript.Release, luascript.GroupAcquire} {
		if s.Name == script {
			x.script = s
		}
	}
	if set["pause"] != "" {
		x.pause = sc.length(set["pause"])
	}
	hook := x.hook()
	switch {
	case set["after"] != "":
		sc.f.onAfter(hook)
	case slices.Contains(about, "several"):
		sc.f.onBefore(func(cmd conn.Command) error {
			if len(cmd.Keys) > 1 {
				return hook(cmd)
			}
			return nil
		})
	default:
		sc.f.onBefore(hook)
	}
}

// answer answers the command that has this label, or each.
func (sc *scene) answer(all []string) {
	each := all[0] == "each"
	if each {
		all = all[1:]
	}
	of, n := strings.Join(all[:len(all)-1], " "), 0
	for {
		at := slices.IndexFunc(sc.b.all(), func(q *question) bool { return sc.label(q.cmd) == of })
		if at < 0 {
			break
		}
		var r conn.Reply
		switch what := all[len(all)-1]; {
		case what == "busy":
			r = busyRW(0)
		case what == "granted":
			r = grantedTwo()
		case sceneErrors[what] == nil:
			code, err := strconv.Atoi(what)
			testbed.Must(sc.t, err)
			r = code1(int64(code))
		}
		sc.b.tell(sc.b.all()[at], r, sceneErrors[all[len(all)-1]])
		if n++; !each {
			break
		}
	}
	if n == 0 {
		sc.t.Errorf("no command %s waits for an answer", of)
	}
}
