package testbed

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// leakPatience is how long LeakCheck waits for what is still under way: a
// connection that was closed is in CLIENT LIST until the server has read its end.
const leakPatience = 5 * time.Second

// LeakOption changes what [LeakCheck] takes for left behind.
type LeakOption func(*leakCheck)

type leakCheck struct {
	keys    func(key string) bool
	clients int
}

// AllowKeys lets keys that begin with one of the prefixes stay, for example
// fencing counters, which outlive their locks on purpose.
func AllowKeys(prefixes ...string) LeakOption {
	return func(c *leakCheck) {
		before := c.keys
		c.keys = func(key string) bool {
			return before(key) || slices.ContainsFunc(prefixes, func(prefix string) bool {
				return strings.HasPrefix(key, prefix)
			})
		}
	}
}

// AllowClients lets n client connections stay besides the test bed's own.
func AllowClients(n int) LeakOption {
	return func(c *leakCheck) { c.clients = n }
}

// LeakCheck looks at the end of the test whether anything was left behind on
// the server: keys, channels with subscribers, patterns, client connections.
// Call it before the clients are made: cleanup runs in the reverse order, so
// that it looks after they were closed. A frozen server is thawed for it; one
// that does not run any more can't hold anything and is passed over.
func LeakCheck(tb TB, s *Server, options ...LeakOption) {
	tb.Helper()
	tb.Cleanup(func() {
		tb.Helper()
		if !s.Running() {
			return
		}
		s.Thaw(tb)
		if err := LeftBehind(s, leakPatience, options...); err != nil {
			tb.Errorf("left behind on %s: %v", s.Addr(), err)
		}
	})
}

// LeftBehind waits until nothing is left on the server, for as long as patience, and
// returns what is left then.
func LeftBehind(s *Server, patience time.Duration, options ...LeakOption) error {
	check := &leakCheck{keys: func(string) bool { return false }}
	for _, option := range options {
		option(check)
	}
	return until(time.Now().Add(patience), func() error { return check.look(s) })
}

// look returns an error that names everything that was left behind.
func (c *leakCheck) look(s *Server) error {
	var left []string
	probes := []func(*Server) ([]string, error){c.leftClients}
	if s.conf == "" { // a sentinel has neither data nor PUBSUB
		probes = append(probes, c.leftKeys, leftChannels, leftPatterns)
	}
	for _, probe := range probes {
		found, err := probe(s)
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	if len(left) > 0 {
		return fmt.Errorf("%s", strings.Join(left, "; "))
	}
	return nil
}

func (c *leakCheck) leftKeys(s *Server) ([]string, error) {
	keys, err := s.tryList("KEYS", "*")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, key := range keys {
		if !c.keys(key) {
			left = append(left, fmt.Sprintf("key %q", key))
		}
	}
	return left, nil
}

func leftChannels(s *Server) ([]string, error) {
	var left []string
	for _, list := range []string{"CHANNELS", "SHARDCHANNELS"} {
		channels, err := s.tryList("PUBSUB", list)
		if err != nil {
			// Servers before 7.0 have no sharded channels.
			if list == "SHARDCHANNELS" && strings.Contains(strings.ToLower(err.Error()), "unknown") {
				continue
			}
			return nil, err
		}
		for _, channel := range channels {
			if channel != "__sentinel__:hello" { // sentinels watch every server so
				left = append(left, fmt.Sprintf("channel %q", channel))
			}
		}
	}
	return left, nil
}

func leftPatterns(s *Server) ([]string, error) {
	msg, err := s.Try("PUBSUB", "NUMPAT")
	if err != nil {
		return nil, err
	}
	n, err := msg.AsInt64()
	if err != nil || n == 0 {
		return nil, err
	}
	return []string{fmt.Sprintf("%d pattern(s)", n)}, nil
}

func (c *leakCheck) leftClients(s *Server) ([]string, error) {
	clients, err := s.foreignClients()
	if err != nil || len(clients) <= c.clients {
		return nil, err
	}
	left := make([]string, len(clients))
	for i, line := range clients {
		left[i] = "client " + line
	}
	return left, nil
}

// ForeignClients returns the lines of CLIENT LIST without those of the test
// bed, of sentinels and of replication.
func (s *Server) ForeignClients(tb TB) []string {
	tb.Helper()
	clients, err := s.foreignClients()
	if err != nil {
		tb.Fatalf("testbed: clients of %s: %v", s.Addr(), err)
	}
	return clients
}

func (s *Server) foreignClients() ([]string, error) {
	text, err := s.tryText("CLIENT", "LIST")
	if err != nil && strings.Contains(err.Error(), "unknown subcommand") {
		return nil, nil // the imitation of make quick
	}
	if err != nil {
		return nil, err
	}
	var foreign []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		about := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(word, "=")
			about[name] = value
		}
		name, flags := about["name"], about["flags"]
		if line == "" || name == clientName || strings.HasPrefix(name, "sentinel-") || strings.ContainsAny(flags, "SM") {
			continue
		}
		foreign = append(foreign, line)
	}
	return foreign, nil
}

func (s *Server) tryList(args ...string) ([]string, error) {
	msg, err := s.Try(args...)
	if err != nil {
		return nil, err
	}
	return msg.AsStrSlice()
}

// GoroutinesIn counts the goroutines with a function on their stack, named by the end of its
// whole name.
func GoroutinesIn(function string) int {
	var records []runtime.StackRecord
	n, ok := runtime.GoroutineProfile(nil)
	for !ok {
		records = make([]runtime.StackRecord, n+100)
		n, ok = runtime.GoroutineProfile(records)
	}
	count := 0
	for _, r := range records[:n] {
		frames := runtime.CallersFrames(r.Stack())
		for {
			f, more := frames.Next()
			if len(f.Function) >= len(function) && f.Function[len(f.Function)-len(function):] == function {
				count++
				break
			}
			if !more {
				break
			}
		}
	}
	return count
}
