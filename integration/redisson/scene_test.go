//go:build unix

package redisson

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// A scene is what both sides do to a lock, one step a line; what follows a # is a comment. Who acts is SIDE.OWNER. The
// sides 1 and 2 swap their roles, java and go do not. A lock is the scene's, or KIND/NAME, or several with + between;
// the names are the scene's own.
//
//	1.a lock 20s            an owner locks and has the lock, by a lease (without a time: by the watchdog)
//	2.b trylock 1s -> false what the answer must be (see fits); a wait, and a lease behind it, or neither
//	w = 2.b lock fair/x     a call that is not waited for, and its name
//	w waits                 its lock is listened to, its side sleeps, and it has no answer
//	w enters                it has the lock soon after the last step (that is no look) began; w enters 1s..8s: so long after it
//	w ends refused          another answer or exception
//	start 3 like 1          one more process; kill 3, freeze 3, thaw 3
//	redis GET $x -> 1       a command to the server, where $x is a lock's name, ${1.a} an owner's field;
//	                        soon redis …: until it says so; listen CHANNEL, heard 0, heard nothing: of messages
//	ttl x 15s..20s          what is left of a key; queue x 3: how many wait for a fair lock; pass 6s: time
//	[java-go write] stop    a step, or the scene's end, for these roles, kinds or versions only; [not …]: for all others
//	* = 2.* lock */*        a step for each exclusive kind; those that stand together are taken kind by kind
//
// Of each lock nothing may be left in the end.
type scene struct {
	*bed

	t      *testing.T
	lock   string             // of steps that name none
	facts  []string           // what [...] before a step asks for
	sides  map[string]*Driver // by what the scene calls them
	names  map[string]string  // so are the names of locks
	fields map[string]string  // owners' fields
	calls  map[string]*call   // and those
	heard  chan string        // what was published since "listen"
	now    string             // the step
	since  time.Time          // when the last one began
	token  uint64             // the last one that somebody had
	dying  []string           // keys that may stay for their time: who is killed is on the list of those who wait
	took   []time.Duration    // from a step until a waiter had entered
}

// call is a command of a scene on its way, with the names of its locks.
type call struct {
	*Call

	verb  string
	names []string
}

func (b *bed) scene(t *testing.T, lock string, facts ...string) *scene {
	t.Helper()
	s := &scene{
		bed: b, t: t, lock: lock, facts: append(facts, string(b.version)), sides: map[string]*Driver{"java": b.java, "go": b.golang},
		names: map[string]string{}, fields: map[string]string{}, calls: map[string]*call{},
	}
	t.Cleanup(func() {
		for _, n := range s.names {
			if !t.Failed() {
				b.nothingLeft(t, n, s.dying...)
			}
		}
		slices.Sort(s.took)
		if n := len(s.took); n > 0 {
			t.Logf("waiters entered after %v to %v, median %v", s.took[0], s.took[n-1], s.took[n/2])
		}
	})
	return s
}

// bothSides plays a scene with both versions, with each of the locks, and with each side in each role.
func bothSides(t *testing.T, beds func(t *testing.T, v Version) *bed, locks []string, steps string) {
	t.Helper()
	eachVersion(t, func(t *testing.T, v Version) {
		b := beds(t, v)
		for _, lock := range locks {
			for _, roles := range []string{"java-go", "go-java"} {
				t.Run(strings.TrimPrefix(lock+"/"+roles, "/"), func(t *testing.T) {
					s := b.scene(t, lock, lock, roles)
					one, two, _ := strings.Cut(roles, "-")
					s.sides["1"], s.sides["2"] = s.sides[one], s.sides[two]
					s.run(steps)
				})
			}
		}
	})
}

// exclusive are the kinds that exclude everybody else.
var exclusive = []string{"rlock", "fenced", "fair", "write"}

// eachPair plays a scene for each exclusive kind.
func eachPair(t *testing.T, beds func(t *testing.T, v Version) *bed, steps string) {
	t.Helper()
	bothSides(t, beds, exclusive, steps)
}

// plays plays a scene of a lock with both versions.
func plays(t *testing.T, lock, steps string) {
	t.Helper()
	eachVersion(t, func(t *testing.T, v Version) { sharedBed(t, v).scene(t, lock).run(steps) })
}

// times is a step n times, with # for 0, 1, …
func times(n int, step string) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(strings.ReplaceAll(step, "#", strconv.Itoa(i)) + "\n")
	}
	return all.String()
}

func (s *scene) run(steps string) {
	s.t.Helper()
	var each []string
	for line := range strings.Lines(steps + "\n\n") { // the empty line takes what is left of each
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if facts, step, only := strings.Cut(line, "] "); only {
			if !s.holds(strings.TrimPrefix(facts, "[")) {
				continue
			}
			line = step
		}
		if strings.Contains(line, "*") && !strings.Contains(line, "redis") {
			each = append(each, line)
			continue
		}
		for i := range len(exclusive) * len(each) {
			s.step(strings.ReplaceAll(each[i%len(each)], "*", exclusive[i/len(each)]))
		}
		each = nil
		if line == "stop" {
			return
		}
		if line != "" {
			s.step(line)
		}
	}
}

func (s *scene) holds(facts string) bool {
	facts, not := strings.CutPrefix(facts, "not ")
	for fact := range strings.FieldsSeq(facts) {
		if !slices.Contains(s.facts, fact) {
			return not
		}
	}
	return !not
}

func (s *scene) step(step string) {
	s.t.Helper()
	s.now = step
	does, want, _ := strings.Cut(step, " -> ")
	want = s.expand(want)
	if label, command, later := strings.Cut(does, " = "); later {
		s.calls[label] = s.send(strings.Fields(command))
		return
	}
	f := strings.Fields(does)
	if c := s.calls[f[0]]; c != nil {
		s.await(c, f[1:], want)
		return
	}
	side, _, acts := strings.Cut(f[0], ".")
	if !acts {
		s.world(f, want)
		return
	}
	if f[1] == "busy" && s.sides[side] == s.java {
		return // only ours says who has the lock
	}
	a, err := s.send(f).Result()
	s.expect(a, err, want)
	if err == nil && !slices.Contains([]string{"state", "busy", "lasttoken"}, f[1]) {
		s.since = a.At.Add(-a.Took)
	}
}

// send sends a command: SIDE.OWNER VERB, a lock, and times.
func (s *scene) send(f []string) *call {
	s.t.Helper()
	side, owner, _ := strings.Cut(f[0], ".")
	verb, args := f[1], f[2:]
	lock, words := s.lock, []string{verb, owner}
	if len(args) > 0 && args[0][0] > '9' {
		lock, args = args[0], args[1:]
	}
	c := &call{verb: verb}
	if verb != "interrupt" {
		words = append(words, s.spec(lock, c))
	}
	for i, d := range map[string][]string{"lock": {"0s"}, "token": {"0s"}, "trylock": {"-1s", "0s"}, "trytoken": {"0s", "0s"}}[verb] {
		if i < len(args) {
			d = args[i]
		}
		words = append(words, millis(s.time(d)))
	}
	if s.sides[side] == nil {
		s.t.Fatalf("%s: who?", s.now)
	}
	c.Call = s.sides[side].Go(words...)
	return c
}

// spec writes a lock as the drivers do.
func (s *scene) spec(lock string, c *call) string {
	var specs []string
	for part := range strings.SplitSeq(lock, "+") {
		kind, of, _ := strings.Cut(part, "/")
		n := s.name(cmp.Or(of, "n"))
		c.names, specs = append(c.names, n), append(specs, Spec(kind, n))
	}
	if len(specs) == 1 {
		return specs[0]
	}
	return MultiSpec(specs...)
}

// name is the name of a lock, which no other scene has.
func (s *scene) name(of string) string {
	if s.names[of] == "" {
		s.names[of] = name(s.t)
	}
	return s.names[of]
}

// expand puts in names and fields. Whoever waits can't say his field, but is known if he was asked before.
func (s *scene) expand(text string) string {
	return os.Expand(text, func(of string) string {
		side, owner, is := strings.Cut(of, ".")
		if !is {
			return s.name(of)
		}
		if s.fields[of] == "" {
			s.fields[of] = s.sides[side].Field(s.t, owner)
		}
		return s.fields[of]
	})
}

func (s *scene) time(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatalf("%s: %v", s.now, err)
	}
	return d
}

// span reads 15s..20s.
func (s *scene) span(text string) (low, high time.Duration, is bool) {
	from, to, is := strings.Cut(text, "..")
	if !is {
		return 0, 0, false
	}
	return s.time(from), s.time(to), true
}

// expect compares an answer with all words of want, and ends the test if one is not right.
func (s *scene) expect(a Answer, err error, want string) {
	s.t.Helper()
	if java, is := errors.AsType[*Error](err); is && want == strings.ReplaceAll(java.Exception, NotHeld, "refused") {
		return
	}
	if err != nil {
		s.t.Fatalf("%s: %v", s.now, err)
	}
	for word := range strings.FieldsSeq(want) {
		if !s.fits(a, word) {
			s.t.Fatalf("%s: the answer is %s, after %v", s.now, a.Value, a.Took)
		}
	}
}

// fits compares an answer with one word: key=value or key=15s..20s of a state; 1s..2s of how long it took; more, same
// and next of a token, compared with the one before; else it is the answer itself.
func (s *scene) fits(a Answer, word string) bool {
	if key, want, is := strings.Cut(word, "="); is {
		for field := range strings.SplitSeq(a.Value, ",") {
			if got, of := strings.CutPrefix(field, key+"="); of {
				low, high, is := s.span(want)
				return got == want || is && low <= goMillis(got) && goMillis(got) <= high
			}
		}
		return false
	}
	if low, high, is := s.span(word); is {
		return low <= a.Took && a.Took <= high
	}
	last := s.token
	n, err := strconv.ParseUint(a.Value, 10, 64)
	if err == nil {
		s.token = max(n, last)
	}
	switch word {
	case "more":
		return n > last
	case "same":
		return n == last
	case "next":
		return n == last+1
	}
	return a.Value == word
}

// await is a step of a call that was made before.
func (s *scene) await(c *call, f []string, want string) {
	s.t.Helper()
	switch f[0] {
	case "waits":
		s.asleep(c)
	case "ends":
		a, err := c.Result()
		s.expect(a, err, strings.Join(f[1:], " "))
	case "enters":
		a, err := c.Result()
		s.expect(a, err, want)
		low, high := time.Duration(0), soon
		if len(f) > 1 {
			low, high, _ = s.span(f[1])
		}
		took := a.At.Sub(s.since)
		if a.Value == "false" || a.Value == "null" {
			s.t.Fatalf("%s: it has not got the lock", s.now)
		}
		between(s.t, s.now, took, low, high)
		s.took = append(s.took, took)
	default:
		s.t.Fatalf("%s: what is that?", s.now)
	}
}

// asleep waits until a call waits on its lock's channel and does nothing more. Redisson's own waiters must have got as
// far as their semaphore: the message that lets readers in wakes those that stand there, and one that comes later
// sleeps on until the lease ends.
func (s *scene) asleep(c *call) {
	s.t.Helper()
	eventually(s.t, s.now, func() bool {
		return !c.Pending() || slices.ContainsFunc(c.names, func(n string) bool { return len(s.channels(s.t, n)) > 0 })
	})
	for _, n := range c.names {
		s.settle(s.t, n)
	}
	eventually(s.t, "Redisson's waiters sleep", func() bool {
		return c.verb == "token" || s.java.Asleep(s.t) // it waits for a token by a future
	})
	if !c.Pending() {
		a, err := c.Result()
		s.t.Fatalf("%s: it has the answer %s (%v)", s.now, a.Value, err)
	}
}

// world is a step that no owner takes.
func (s *scene) world(f []string, want string) {
	s.t.Helper()
	switch f[0] {
	case "start":
		s.sides[f[1]] = s.another(s.t, s.sides[f[3]] == s.java)
	case "kill":
		s.since, s.dying = time.Now(), []string{"redlatch_wait:"}
		s.sides[f[1]].Kill(s.t)
	case "freeze":
		s.since = time.Now()
		s.sides[f[1]].Freeze(s.t)
	case "thaw":
		s.sides[f[1]].Thaw(s.t)
	case "pass":
		time.Sleep(s.time(f[1])) // for what needs time: a lease that ends or is renewed
	case "ttl":
		low, high, _ := s.span(f[2])
		between(s.t, s.now, s.pttl(s.t, s.name(f[1])), low, high)
	case "queue":
		eventually(s.t, s.now, func() bool { return strconv.Itoa(len(s.queue(s.t, s.name(f[1])))) == f[2] })
	case "listen":
		s.heard = make(chan string, 100)
		s.listen(s.t, s.expand(f[1]), func(_, m string) { s.heard <- m })
	case "heard": // "nothing": within a second
		got, limit := "nothing", soon
		if f[1] == got {
			limit = time.Second
		}
		select {
		case got = <-s.heard:
		case <-time.After(limit):
		}
		if got != f[1] {
			s.t.Fatalf("%s: %q", s.now, got)
		}
	case "soon":
		eventually(s.t, s.now, func() bool { return s.says(f[2:], want) })
	case "redis":
		if want == "" {
			s.since = time.Now()
		}
		if !s.says(f[1:], want) {
			s.t.Fatalf("%s: %q", s.now, s.reply(f[1:]))
		}
	default:
		s.t.Fatalf("%s: what is that?", s.now)
	}
}

// says compares a reply of the server with a text, with one that it may not be, after a "!", or with 15s..20s.
func (s *scene) says(args []string, want string) bool {
	s.t.Helper()
	got := s.reply(args)
	if low, high, is := s.span(want); is {
		ms := goMillis(got)
		return low <= ms && ms <= high
	}
	other, not := strings.CutPrefix(want, "!")
	return want == "" || (got == other) != not
}

// reply is a reply of the server as fmt prints it: map[a:1 b:2], [a b], nil.
func (s *scene) reply(args []string) string {
	s.t.Helper()
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = s.expand(arg)
	}
	m := s.server.Do(s.t, words...)
	v, err := m.ToAny()
	if rueidis.IsRedisNil(err) {
		return "nil"
	}
	if err != nil {
		s.t.Fatalf("%s: %v", s.now, err)
	}
	return fmt.Sprint(v)
}
