package testbed

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// clientName marks the test bed's own connections, so that LeakCheck and
// whoever reads CLIENT LIST can tell them from the tested ones.
const clientName = "redlatch-testbed"

// Client returns the test bed's own client of this server, made when it is
// first asked for and closed with the server. Tests use it to look and to
// interfere; what is tested should have clients of its own.
func (s *Server) Client() (rueidis.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{s.Addr()},
		ForceSingleClient: true, // this server, not its cluster or its master
		DisableCache:      true,
		ClientName:        clientName,
		PipelineMultiplex: -1,   // one connection: commands stay in order
		AlwaysPipelining:  true, // a deadline must not close it for others
		ConnWriteTimeout:  patience,
	})
	if err != nil {
		return nil, fmt.Errorf("testbed: connect to %s: %w", s.Addr(), err)
	}
	s.client = client
	return client, nil
}

// Do runs a command on this very server and returns its reply; a null reply
// is a message for which IsNil is true. An error, also one of the server's,
// ends the test.
func (s *Server) Do(tb TB, args ...string) rueidis.RedisMessage {
	tb.Helper()
	msg, err := s.Try(args...)
	if err != nil && !rueidis.IsRedisNil(err) {
		tb.Fatalf("testbed: %s on %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return msg
}

// Try is Do for commands that may fail.
func (s *Server) Try(args ...string) (rueidis.RedisMessage, error) {
	client, err := s.Client()
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.Do(ctx, client.B().Arbitrary(args...).Build()).ToMessage()
}

// Int runs a command whose reply is a number, or text that reads as one.
func (s *Server) Int(tb TB, args ...string) int64 {
	tb.Helper()
	msg := s.Do(tb, args...)
	n, err := msg.AsInt64()
	if err != nil {
		tb.Fatalf("testbed: %s on %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return n
}

// Text runs a command whose reply is a string; a null reply is "".
func (s *Server) Text(tb TB, args ...string) string {
	tb.Helper()
	text, err := s.tryText(args...)
	if err != nil {
		tb.Fatalf("testbed: %s on %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return text
}

func (s *Server) tryText(args ...string) (string, error) {
	msg, err := s.Try(args...)
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, err := msg.ToString()
	// INFO and CLIENT LIST are verbatim strings, which begin with their kind.
	return strings.TrimPrefix(text, "txt:"), err
}

// List runs a command whose reply is a list of strings.
func (s *Server) List(tb TB, args ...string) []string {
	tb.Helper()
	msg := s.Do(tb, args...)
	if msg.IsNil() {
		return nil
	}
	list, err := msg.AsStrSlice()
	if err != nil {
		tb.Fatalf("testbed: %s on %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return list
}

// Hash runs a command whose reply is a map of strings (HGETALL, CONFIG GET).
func (s *Server) Hash(tb TB, args ...string) map[string]string {
	tb.Helper()
	msg := s.Do(tb, args...)
	hash, err := msg.AsStrMap()
	if err != nil {
		tb.Fatalf("testbed: %s on %s: %v", strings.Join(args, " "), s.Addr(), err)
	}
	return hash
}

// Info returns one section of INFO as a map.
func (s *Server) Info(tb TB, section string) map[string]string {
	tb.Helper()
	return fields(s.Text(tb, "INFO", section))
}

func (s *Server) tryInfo(section string) (map[string]string, error) {
	text, err := s.tryText("INFO", section)
	return fields(text), err
}

func fields(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

// Stats are the server's own counts at one moment. Names are in lower case, as
// INFO commandstats has them: "evalsha", "config|get". Commands that a script
// calls count as well.
type Stats struct {
	Calls  map[string]int64         // how often each command ran
	Failed map[string]int64         // how often with an error, NOSCRIPT say; not known before 6.2
	Time   map[string]time.Duration // server time that each command took
	CPU    time.Duration            // user and system time of the whole process
}

// Stats reads the counts, without those of INFO, by which it reads them.
func (s *Server) Stats() (Stats, error) {
	stats := Stats{Calls: map[string]int64{}, Failed: map[string]int64{}, Time: map[string]time.Duration{}}
	for _, section := range []string{"commandstats", "cpu"} {
		text, err := s.tryText("INFO", section)
		if err != nil {
			return Stats{}, fmt.Errorf("testbed: statistics of %s: %w", s.Addr(), err)
		}
		for name, value := range fields(text) {
			switch command, ok := strings.CutPrefix(name, "cmdstat_"); {
			case command == "info":
			case ok:
				err = stats.add(command, value)
			case name == "used_cpu_sys" || name == "used_cpu_user":
				var seconds float64
				seconds, err = strconv.ParseFloat(value, 64)
				stats.CPU += time.Duration(seconds * float64(time.Second))
			}
			if err != nil {
				return Stats{}, fmt.Errorf("testbed: statistics of %s: %s: %w", s.Addr(), name, err)
			}
		}
	}
	return stats, nil
}

func (st Stats) add(command, value string) error {
	for pair := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(pair, "=")
		if name != "calls" && name != "failed_calls" && name != "usec" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		switch name {
		case "calls":
			st.Calls[command] = n
		case "failed_calls":
			st.Failed[command] = n
		default:
			st.Time[command] = time.Duration(n) * time.Microsecond
		}
	}
	return nil
}

// Sub returns what happened since before was read. Commands that did not run
// in between are left out.
func (st Stats) Sub(before Stats) Stats {
	diff := Stats{
		Calls: map[string]int64{}, Failed: map[string]int64{}, Time: map[string]time.Duration{}, CPU: st.CPU - before.CPU,
	}
	for name, calls := range st.Calls {
		if calls -= before.Calls[name]; calls != 0 {
			diff.Calls[name] = calls
			diff.Failed[name] = st.Failed[name] - before.Failed[name]
			diff.Time[name] = st.Time[name] - before.Time[name]
		}
	}
	return diff
}

// CommandStats reads the statistics and ends the test when they can't be had.
func (s *Server) CommandStats(tb TB) Stats {
	tb.Helper()
	stats, err := s.Stats()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return stats
}

// AwaitQuiet returns once no script has run for a while: in many looks one after another, since a
// pause of this process's own says nothing.
func (s *Server) AwaitQuiet(tb TB) {
	tb.Helper()
	last, since, looks := int64(-1), time.Now(), 0
	eventually(tb, "quiet", func() error {
		looks++
		if n := s.CommandStats(tb).Calls["evalsha"]; n != last {
			last, since, looks = n, time.Now(), 0
		}
		if looks < 60 || time.Since(since) < 250*time.Millisecond {
			return fmt.Errorf("%d scripts, the last %v ago", last, time.Since(since))
		}
		return nil
	})
}

// SetUser makes an ACL user anew, with these rules and no other. A server before 6.2
// has no rules about channels: there they are left out.
func (s *Server) SetUser(tb TB, name string, rules ...string) {
	tb.Helper()
	command := []string{"ACL", "SETUSER", name, "reset"}
	channels := ServerVersion(tb).AtLeast(6, 2)
	if channels {
		command = append(command, "resetchannels") // before 7.0 a new user has all of them
	}
	for _, rule := range rules {
		if channels || !strings.HasPrefix(rule, "&") {
			command = append(command, rule)
		}
	}
	s.Do(tb, command...)
}

// LockChannels returns the channels on which clients of a cluster's node listen:
// sharded ones, or plain ones before 7.0, where there are no others.
func (s *Server) LockChannels(tb TB, pattern ...string) []string {
	tb.Helper()
	command := []string{"PUBSUB", "CHANNELS"}
	if ServerVersion(tb).AtLeast(7, 0) {
		command[1] = "SHARDCHANNELS"
	}
	return s.List(tb, append(command, pattern...)...)
}

// DeniedCommands returns the refusals of the ACL since it was last asked, as "reason
// object (context)", without what a client only tries while it connects: to name
// itself, and to ask for a cluster and, before 6.2, for the server's version.
func (s *Server) DeniedCommands(tb TB) []string {
	tb.Helper()
	msg := s.Do(tb, "ACL", "LOG")
	entries, err := msg.ToArray()
	if err != nil {
		tb.Fatalf("testbed: ACL LOG of %s: %v", s.Addr(), err)
	}
	s.Do(tb, "ACL", "LOG", "RESET")
	version := ServerVersion(tb)
	var denied []string
	for _, entry := range entries {
		about, err := entry.AsStrMap()
		if err != nil {
			// Newer servers add fields that are no strings.
			about = map[string]string{"object": fmt.Sprint(&entry)}
		}
		object := about["object"]
		switch {
		case strings.Contains(object, "client|"), strings.Contains(object, "cluster|slots"), strings.Contains(object, "cluster|shards"):
		case !version.AtLeast(7, 0) && named(object, "client", "cluster"):
		case !version.AtLeast(6, 2) && named(object, "info"):
		default:
			denied = append(denied, fmt.Sprintf("%s %s (%s)", about["reason"], object, about["context"]))
		}
	}
	return denied
}

// named reports whether object is one of the names, or a dump of a log's entry that has it.
func named(object string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return object == name || strings.Contains(object, `"object"`) && strings.Contains(object, `"`+name+`"`)
	})
}
