package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/internal/testbed/texts"
)

// TestScenes: what spans, metrics and log say of a scene is what stands in its file in testdata, line by line.
//
// A file begins with its promise. Lines with > are commands, what stands below is what came of them: the type of the
// error of a call, the answer of Redis, what the client told since it was last asked.
func TestScenes(t *testing.T) {
	texts.Each(t, "testdata/*.txt", 25, func(t *testing.T, text string) string {
		t.Parallel()
		return play(t, text)
	})
}

// scene is a rig that a text plays on. Every server is behind a proxy.
type scene struct {
	*rig
	proxies []*testbed.Proxy
	calls   map[string]*acquiring
	around  map[string]trace.Span
	trap    *testbed.Trap
	dials   atomic.Int64
	draw    *drawing
	spoken  int                   // lines of the log that were shown
	shown   map[trace.SpanID]bool // spans that were
}

// acquiring is a call of Lock or TryLock.
type acquiring struct {
	ctx    context.Context
	cancel context.CancelFunc
	got    <-chan bed.Attempt
	hold   redlatch.Hold
}

func play(t *testing.T, text string) string {
	t.Helper()
	s := &scene{rig: bare(t), calls: map[string]*acquiring{}, around: map[string]trace.Span{}, shown: map[trace.SpanID]bool{}}
	s.draw = newDrawing(s.rig)
	s.behind(s.server)
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		do, is := strings.CutPrefix(line, "> ")
		if is || line == "" || strings.HasPrefix(line, "#") {
			out.WriteString(line + "\n")
		}
		if is {
			out.WriteString(s.run(do))
		}
		if t.Failed() {
			t.Fatalf("%s\n%s", line, &out)
		}
	}
	return out.String()
}

func (s *scene) behind(server *testbed.Server) {
	p := testbed.NewProxy(s.t, server.Addr())
	s.proxies = append(s.proxies, p)
	_, port, _ := net.SplitHostPort(p.Addr())
	s.ports = append(s.ports, port)
}

// command is a line of a scene.
type command struct {
	args []string
	opts map[string]string // args with =
}

func (c command) duration(key string) time.Duration {
	if c.opts[key] == "" {
		return 0
	}
	return must(time.ParseDuration(c.opts[key]))
}

// must stops at a scene that can't be read.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (s *scene) run(line string) string {
	s.t.Helper()
	words := strings.Fields(line)
	c := command{opts: map[string]string{}}
	for _, word := range words[1:] {
		if key, value, is := strings.Cut(word, "="); is && !strings.Contains(key, ".") {
			c.opts[key] = value
		} else {
			c.args = append(c.args, word)
		}
	}
	do := verbs[words[0]]
	if do == nil {
		s.t.Fatalf("no command %q", line)
	}
	if out := do(s, c); out != "" {
		return strings.TrimSuffix(out, "\n") + "\n"
	}
	return ""
}

// verbs are the commands. A is a call of Lock or TryLock; LOCK is kind/name, with @2 of the second client, and several
// with + a MultiLock, with & a QuorumLock.
var verbs map[string]func(s *scene, c command) string

func init() {
	verbs = map[string]func(s *scene, c command) string{
		"server": func(s *scene, _ command) string { s.behind(testbed.Standalone(s.t)); return "" }, // one more
		"client": (*scene).clientVerb,                                                               // one more; flags, and server=2 lease= tenure= name=
		"span":   (*scene).spanVerb,                                                                 // NAME: begins one of the program's, or ends it

		"start": (*scene).startVerb, // A LOCK: calls; wait= lease= of TryLock, lease=, by=A owner, ctx=A, in=span, for= limits ctx
		"join":  (*scene).joinVerb,  // A: waits for what came of it
		"lock": func(s *scene, c command) string { // both
			s.startVerb(c)
			return s.joinVerb(c)
		},
		"cancel": func(s *scene, c command) string { s.calls[c.args[0]].cancel(); return "" },
		"unlock": func(s *scene, c command) string { return typeOf(s.calls[c.args[0]].hold.Unlock(s.t.Context())) },
		"extend": func(s *scene, c command) string {
			return typeOf(s.calls[c.args[0]].hold.Extend(s.t.Context(), must(time.ParseDuration(c.args[1]))))
		},
		"lost": (*scene).lostVerb, // A: waits for it
		"state": func(s *scene, c command) string { // LOCK
			_, err := s.lockOf(c.args[0]).(operated).State(s.t.Context())
			return typeOf(err)
		},
		"force": (*scene).forceVerb, // LOCK, or any/NAME of the Client's; with owner=A, or another word
		"close": func(s *scene, c command) string { s.clientOf(strings.Join(c.args, "")).Close(); return "" },

		"redis": (*scene).redisVerb,
		"ttl": func(s *scene, c command) string { // KEY: rounded up to 5 s
			return fmt.Sprint("at most ", (s.server.Int(s.t, "PTTL", c.args[0])+4999)/5000*5, "s")
		},
		"cut": func(s *scene, _ command) string {
			s.proxies[0].Refuse()
			s.proxies[0].Cut()
			s.dials.Store(0)
			return ""
		},
		"admit": func(s *scene, _ command) string { s.proxies[0].Admit(s.t); return "" },
		"stall": func(s *scene, c command) string { // the next answer about a name
			s.trap = s.proxies[0].StallReply(testbed.Contains("EVALSHA", c.args[0]))
			return ""
		},
		"stalled": func(s *scene, _ command) string { s.trap.Wait(s.t); return "" },
		"deliver": func(s *scene, _ command) string { s.trap.Release(); return "" },

		"begun": func(s *scene, c command) string { s.begun(c.args[0], must(strconv.Atoi(c.args[1]))); return "" },
		"ended": func(s *scene, c command) string { s.ended(c.args[0], must(strconv.Atoi(c.args[1]))); return "" },
		"until": (*scene).untilVerb,

		"spans":   (*scene).spansVerb,   // those that nobody has seen; flags brief, whole; NAMES alone; without=NAME
		"metrics": (*scene).metricsVerb, // NAMES
		"log":     (*scene).logVerb,     // what is new; with WORDS: all lines with them
	}
}

// flags of a client.
var flags = map[string]setting{
	"off":       off,
	"renewals":  func(c *redlatch.Config) { c.Telemetry.RenewalSpans = true },
	"silent":    func(c *redlatch.Config) { c.Telemetry.NoCommandSpans = true },
	"unlinked":  func(c *redlatch.Config) { c.Telemetry.NoLinks = true },
	"unsampled": neverSampled,
	"template": func(c *redlatch.Config) {
		c.Telemetry.LockName = func(name string) string { return strings.ReplaceAll(name, "42", "*") }
	},
}

func (s *scene) clientVerb(c command) string {
	settings := []setting{through(s.proxies[0])}
	if n := c.opts["server"]; n != "" {
		settings[0] = through(s.proxies[must(strconv.Atoi(n))-1])
	}
	settings = append(settings, func(cfg *redlatch.Config) {
		cfg.LeaseTime, cfg.Tenure, cfg.Name = c.duration("lease"), c.duration("tenure"), c.opts["name"]
		cfg.Redis.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			s.dials.Add(1)
			return d.DialContext(ctx, "tcp", addr)
		}
	})
	for _, flag := range c.args {
		settings = append(settings, flags[flag])
	}
	s.draw.ids = append(s.draw.ids, s.open(settings...).ID())
	return ""
}

func (s *scene) clientOf(n string) *redlatch.Client {
	if n == "" {
		return s.client
	}
	return s.clients[must(strconv.Atoi(n))-1]
}

func (s *scene) spanVerb(c command) string {
	name := c.args[0]
	if open := s.around[name]; open != nil {
		open.End()
		return ""
	}
	_, s.around[name] = s.tracing.Tracer("test").Start(s.t.Context(), name)
	return ""
}

// lockOf makes the lock of a word.
func (s *scene) lockOf(word string) redlatch.Locker {
	members := func(sep string) (all []redlatch.Member) {
		for part := range strings.SplitSeq(word, sep) {
			m, _ := s.lockOf(part).(redlatch.Member)
			all = append(all, m)
		}
		return all
	}
	switch {
	case strings.Contains(word, "+"):
		return redlatch.MultiLock(members("+")...)
	case strings.Contains(word, "&"):
		return redlatch.QuorumLock(members("&")...)
	}
	kind, name, _ := strings.Cut(word, "/")
	name, n, _ := strings.Cut(name, "@")
	client := s.clientOf(n)
	switch kind {
	case "plain":
		return client.RLock(name)
	case "fenced":
		return client.RLock(name, redlatch.Fenced())
	case "fair":
		return client.FairLock(name)
	case "read":
		return client.ReadWriteLock(name).ReadLock()
	case "write":
		return client.ReadWriteLock(name).WriteLock()
	}
	return nil
}

func (s *scene) startVerb(c command) string {
	a := &acquiring{ctx: s.t.Context()}
	if by := s.calls[c.opts["by"]]; by != nil {
		a.ctx = by.hold.Context()
	}
	if of := s.calls[c.opts["ctx"]]; of != nil {
		a.ctx = of.ctx
	}
	if in := s.around[c.opts["in"]]; in != nil {
		a.ctx = trace.ContextWithSpan(a.ctx, in)
	}
	if limit := c.duration("for"); limit > 0 {
		a.ctx, a.cancel = context.WithTimeout(a.ctx, limit)
	} else {
		a.ctx, a.cancel = context.WithCancel(a.ctx)
	}
	l := s.lockOf(c.args[1])
	lease := c.duration("lease")
	a.got = bed.Run(func() (redlatch.Hold, error) {
		if c.opts["wait"] != "" {
			return l.TryLock(a.ctx, c.duration("wait"), lease)
		}
		return l.Lock(a.ctx, redlatch.WithLease(lease))
	})
	s.calls[c.args[0]] = a
	return ""
}

func (s *scene) joinVerb(c command) string {
	a := s.calls[c.args[0]]
	got := bed.Get(s.t, a.got)
	a.hold = got.Hold
	return typeOf(got.Err)
}

func typeOf(err error) string {
	if err == nil {
		return ""
	}
	typed, _ := errors.AsType[interface {
		error
		ErrorType() string
	}](err)
	if typed == nil {
		return err.Error()
	}
	return typed.ErrorType()
}

func (s *scene) lostVerb(c command) string {
	ctx := s.calls[c.args[0]].hold.Context()
	select {
	case <-ctx.Done():
		return typeOf(context.Cause(ctx))
	case <-time.After(bed.Patience):
		return "it is not"
	}
}

// operated is what operators ask of every lock.
type operated interface {
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

func (s *scene) forceVerb(c command) (out string) {
	var was bool
	var err error
	name, clients := strings.CutPrefix(c.args[0], "any/")
	owner, only := c.opts["owner"]
	switch call := s.calls[owner]; {
	case !clients:
		was, err = s.lockOf(c.args[0]).(operated).ForceUnlock(s.t.Context())
	case !only:
		was, err = s.client.ForceUnlock(s.t.Context(), name)
	case call != nil:
		was, err = s.client.ForceUnlock(s.t.Context(), name, redlatch.IfOwner(call.hold.Owner().String()))
	default:
		was, err = s.client.ForceUnlock(s.t.Context(), name, redlatch.IfOwner(owner))
	}
	if err == nil && !was {
		return "nothing was held"
	}
	return typeOf(err)
}

func (s *scene) redisVerb(c command) string {
	msg := s.server.Do(s.t, c.args...)
	if n, err := msg.AsInt64(); err == nil {
		return fmt.Sprint(n)
	}
	text, _ := msg.ToString()
	return text
}

// untilVerb waits: dialled N, called COMMAND N, logged N, METRIC LABELS N.
func (s *scene) untilVerb(c command) string {
	last := len(c.args) - 1
	want := int64(must(strconv.Atoi(c.args[last])))
	bed.Eventually(s.t, strings.Join(c.args, " "), func() bool {
		switch c.args[0] {
		case "dialled": // since it was cut
			return s.dials.Load() >= want
		case "called":
			return s.server.CommandStats(s.t).Calls[c.args[1]] >= want
		case "logged":
			return int64(len(s.log.lines(s.t, ""))) >= want
		}
		got := s.point(c.args[0], c.args[1])
		return got == want || want > 0 && got > want
	})
	return ""
}

func (s *scene) spansVerb(c command) string {
	d := *s.draw
	d.spans = s.spans()
	d.brief, d.whole = slices.Contains(c.args, "brief"), slices.Contains(c.args, "whole")
	names := slices.DeleteFunc(slices.Clone(c.args), func(w string) bool { return w == "brief" || w == "whole" })
	spans := slices.DeleteFunc(s.spans(names...), func(sp tracetest.SpanStub) bool {
		return s.shown[sp.SpanContext.SpanID()] || sp.Name == c.opts["without"]
	})
	for _, sp := range spans {
		s.shown[sp.SpanContext.SpanID()] = true
		if sp.InstrumentationScope.Name != "test" && sp.InstrumentationScope.SchemaURL != schema {
			s.t.Errorf("%s: schema %q", sp.Name, sp.InstrumentationScope.SchemaURL)
		}
	}
	return strings.Join(d.tree(spans), "")
}

func (s *scene) metricsVerb(c command) string {
	var out []string
	all := s.collect()
	for _, name := range c.args {
		m := all[name]
		for labels, n := range points(m) {
			out = append(out, fmt.Sprintf("%s{%s} %d\n", name, strings.ReplaceAll(labels, "lock.", ""), n))
		}
	}
	if len(c.args) == 0 { // what there is
		for name, m := range all {
			line := name + " in " + m.Unit
			if h, is := m.Data.(metricdata.Histogram[float64]); is {
				bounds := h.DataPoints[0].Bounds
				line += fmt.Sprint(" from ", bounds[0], " to ", bounds[len(bounds)-1])
			}
			out = append(out, line+": "+m.Description+"\n")
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func (s *scene) logVerb(c command) string {
	lines := s.log.lines(s.t, strings.Join(c.args, " "))
	fresh := lines
	if len(c.args) == 0 {
		fresh = lines[s.spoken:]
		s.spoken = len(lines)
	}
	var out []string
	for _, rec := range fresh {
		out = append(out, s.draw.logLine(rec))
	}
	slices.Sort(out) // some are told in the background
	return strings.Join(out, "")
}
