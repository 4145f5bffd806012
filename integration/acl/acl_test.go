// Package acl tests that whoever has the rights of docs/ACL.md can do what they are for, and that each of them is needed.
package acl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

const lease = 10 * time.Second

// walk is one use of locks by a user with given rights.
type walk struct {
	t            *testing.T
	ctx          context.Context
	s            *testbed.Server
	nodes        []*testbed.Server // of a cluster, or sentinels: where else the user is
	proxy        *testbed.Proxy    // of a
	user, prefix string
	without      string // the right that the user lacks, "" = none
	a, b         *redlatch.Client

	mu   sync.Mutex
	said []string // errors, and what the log warns of
}

// note keeps what an operation said, and tells whether that was an error.
func (w *walk) note(err error) bool {
	if err != nil {
		w.say(err.Error())
	}
	if refused := (*redlatch.ServerError)(nil); errors.As(err, &refused) {
		for _, other := range []error{redlatch.ErrNotAcquired, redlatch.ErrUnavailable, redlatch.ErrLeaseLost, context.DeadlineExceeded} {
			testbed.Equal(w.t, errors.Is(err, other), false, err, "matches", other)
		}
	}
	return err != nil
}

func (w *walk) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *walk) warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.said)
}

// Write takes a line of the clients' logs.
func (w *walk) Write(line []byte) (int, error) {
	// That is its purpose; and a machine that stood still lacks no right.
	if text := string(line); !strings.Contains(text, "lock taken away by force") && !strings.Contains(text, "i/o timeout") {
		w.say(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// prepare makes a walk of a user of its own, who has no rights yet.
func prepare(t *testing.T, s *testbed.Server, number int, without string) *walk {
	t.Helper()
	w := &walk{t: t, s: s, without: without, prefix: fmt.Sprintf("w%d:", number), user: fmt.Sprintf("user%d", number)}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return w
}

// but are these rights without the one.
func (w *walk) but(rules []string) []string {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == w.without })
	return append([]string{"on", ">secret"}, acl.For(w.prefix, rules)...)
}

// over tells that the right which is missing has been named: nothing else is to be seen then.
func (w *walk) over() bool {
	return w.without != "" && w.named(w.without, strings.Join(w.warnings(), "\n"))
}

// config is that of the user's clients, who leave traces.
func (w *walk) config(c *redlatch.Config) {
	c.Redis.Username, c.Redis.Password, c.Prefix, c.LeaseTime, c.UnlockTimeout = w.user, "secret", w.prefix, lease, 10*time.Second
	c.Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c.TracerProvider = sdktrace.NewTracerProvider()
}

// start connects a user in two processes, who has the rights of a use without one.
func start(t *testing.T, s *testbed.Server, number int, need, without string) *walk {
	t.Helper()
	w := prepare(t, s, number, without)
	w.proxy = testbed.NewProxy(t, s.Addr())
	rules := acl.Rules(need)
	switch acl.Root(need) { // with what everybody uses if it is there
	case "reentrant":
		rules = acl.Rules(need, "links", "state")
	case "operators":
		rules = acl.Rules(need, "numbers", "names")
	}
	s.SetUser(t, w.user, w.but(rules)...)
	acks := func(c *redlatch.Config) {
		if need == "acks" {
			c.ReplicaAcks, c.ReplicaAckTimeout = 1, 10*time.Millisecond
		}
	}
	w.a, w.b = bed.Client(t, w.proxy.Addr(), w.config, acks), bed.Client(t, s.Addr(), w.config, acks)
	return w
}

// connecting are what the client library may be refused when it connects: to name itself, and to ask for a cluster.
// Servers before 7.0 name no subcommand.
var connecting = []string{"client|setinfo", "client|setname", "cluster|slots", "cluster|shards", "client", "cluster"}

// lacks tells whether a command is the one that the user was not given.
func (w *walk) lacks(command string) bool {
	whole, _, _ := strings.Cut(w.without, "|")
	return w.without == "+"+command || whole == "+"+command
}

// denied are the rights whose lack the server has noted.
func (w *walk) denied() []string {
	var out []string
	for _, s := range append([]*testbed.Server{w.s}, w.nodes...) {
		msg := s.Do(w.t, "ACL", "LOG", "100000")
		entries, err := msg.ToArray()
		testbed.Must(w.t, err)
		for i := range entries {
			about, err := entries[i].ToMap()
			testbed.Must(w.t, err)
			text := func(field string) string { v := about[field]; s, _ := v.ToString(); return s }
			if text("username") == w.user && (!slices.Contains(connecting, text("object")) || w.lacks(text("object"))) {
				out = append(out, map[string]string{"command": "+", "key": "~", "channel": "&"}[text("reason")]+text("object"))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// named reports whether a text names a right, or a key or channel that it stands for, or the server's words do.
func (w *walk) named(rule, text string) bool {
	stem := strings.TrimSuffix(strings.Replace(rule, acl.Prefix, w.prefix, 1), "*")
	stem, _, _ = strings.Cut(stem, "*") // redlatch_rw_*
	switch rule[0] {
	case '+':
		whole, _, _ := strings.Cut(stem[1:], "|")
		if strings.Contains(text, "'"+whole+"' command or its subcommand") { // before 7.0
			return true
		}
		return regexp.MustCompile(regexp.QuoteMeta(stem)+`($|[^a-z|])`).MatchString(text) || strings.Contains(text, "'"+stem[1:]+"'")
	case '&':
		return strings.Contains(text, stem) || strings.Contains(text, "channel="+stem[1:])
	}
	return strings.Contains(text, stem)
}

// quiet are the rights whose lack need not be named, and what it does.
var quiet = map[string]string{
	"reentrant +hello":        "servers from 7.0 on let everybody say HELLO",
	"reentrant +ping":         "a refusal tells the client library as well that the connection lives; it fills ACL LOG",
	"reentrant +sadd":         "a command that comes late is not known to be given up",
	"reentrant +unsubscribe":  "a channel of no use is listened to; the log says so if somebody waits on that connection",
	"reentrant +zrem":         "who waits no more stays on the list for up to a minute, and is called in vain",
	"links +get":              "no link",
	"links +set":              "no link",
	"links +del":              "the link of a hold that has ended stays until its lease would have ended",
	"read-write +rename":      "the readers that waited have no turn before the next writer",
	"redisson &*":             "its turn is learned up to a fifth of the skip time late",
	"redisson +psubscribe":    "the same",
	"redisson +punsubscribe":  "a pattern of no use is listened to",
	"numbers +zcard":          "the number is not known",
	"numbers +pubsub|numsub":  "the same",
	"names +client|list":      "names are not known",
	"operators +hello":        "as above",
	"operators +ping":         "as above",
	"operators +get":          "tokens and traces are not known",
	"evict +rename":           "the readers that waited have no turn before the next writer",
	"evict +zadd":             "the others wait longer than a quarter of a second for the writer that was called",
	"sentinels +hello":        "as above",
	"sentinels +ping":         "as above",
	"sentinels +subscribe":    "another master is found only when the connection to the old one has ended",
	"sentinels &":             "the same",
	"sentinels +unsubscribe":  "nothing: a precaution of the client library",
	"cluster +cluster|slots":  "from 8.0 on as without +asking, with pauses; before, nobody can connect",
	"cluster +cluster|shards": "servers before 8.0 are asked with CLUSTER SLOTS",
	"cluster +sunsubscribe":   "the client listens to a channel of no use until it ends",
	"cluster +asking":         "a lock whose slot is half-way is unavailable, and the client library asks for it without a pause",
	"cluster +cluster|nodes":  "who waits while a slot moves is not called, and looks once a second",
}

// Whoever has the rights of a use can do all of it, and is refused nothing; each right is needed: without it an error
// or the log names it, or what is said of it here happens.
func TestEachRightIsEnoughAndNeeded(t *testing.T) {
	s := testbed.Standalone(t)
	s.Do(t, "CONFIG", "SET", "acllog-max-len", "100000")
	number := 0
	var all sync.WaitGroup
	turns := make(chan struct{}, 10) // they wait, for the most part
	for _, u := range acl.Uses {
		if walks[u.Need] == nil {
			// of the tests beside, and of redlatch top, which cmd/redlatch tests
			if !slices.Contains([]string{"sentinel", "sentinels", "cluster", "listen"}, u.Need) {
				t.Errorf("nobody uses %s", u.Need)
			}
			continue
		}
		for _, without := range append([]string{""}, strings.Fields(u.Rules)...) {
			number++
			at := number
			turns <- struct{}{}
			all.Go(func() {
				defer func() { <-turns }()
				t.Run(u.Need+" without "+without, func(t *testing.T) {
					on := s
					if without == "+eval" { // for scripts that the server does not know
						on = testbed.Standalone(t)
					}
					w := start(t, on, at, u.Need, without)
					walks[u.Need](w)
					w.judge(u.Need)
				})
			})
		}
	}
	all.Wait()
}

// judge looks at what came of a use without one of the rights.
func (w *walk) judge(need string) {
	w.t.Helper()
	without := w.without
	said, denied := strings.Join(w.warnings(), "\n"), w.denied()
	if without == "" {
		if said != "" || len(denied) > 0 {
			w.t.Errorf("with all rights: %s\ndenied: %q", said, denied)
		}
		return
	}
	for _, key := range w.s.List(w.t, "KEYS", w.prefix+"*") {
		if w.s.Int(w.t, "PTTL", key) == -1 {
			w.t.Errorf("%s stays for ever", key)
		}
	}
	switch {
	case w.named(without, said):
	case quiet[need+" "+without] == "" && quiet[need+" "+without[:1]] == "":
		w.t.Errorf("%s is not named: %s\ndenied: %q", without, said, denied)
	case !slices.Contains([]string{"+hello", "+ping", "+cluster|shards"}, without) &&
		!w.named(without, strings.Join(denied, "\n")) && !slices.ContainsFunc(denied, func(d string) bool { return w.lacks(d[1:]) }):
		w.t.Errorf("%s is not needed: %s\ndenied: %q", without, said, denied)
	}
}
