package desk

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed/texts"
)

// A table does what the scenarios in testdata tell, one case a file: a command, "----", what comes of it.
// With REDLATCH_REWRITE=1 the files are written anew: read what has changed.
func TestScenarios(t *testing.T) {
	texts.Each(t, "testdata/*.txt", 12, func(t *testing.T, text string) string {
		s := &scenario{
			t: New(Config{Lease: 30 * time.Second, Tenure: 6 * ms}), now: Now{Wall: time.Hour}, requests: map[string]*Request{}, holds: map[string]*Hold{},
			sessions: map[string]*Session{},
		}
		var out strings.Builder
		for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
			command, _, told := strings.Cut(block, "\n----")
			if !told {
				fmt.Fprintf(&out, "%s\n\n", block) // prose
				continue
			}
			fmt.Fprintf(&out, "%s\n----\n%s\n", command, s.play(t, command))
		}
		return strings.TrimSpace(out.String()) + "\n"
	})
}

// scenario plays the commands of a file on a table with one key, "k".
type scenario struct {
	t        *Table
	now      Now
	stopped  bool // no carrier takes a command
	commands []*Command
	requests map[string]*Request
	holds    map[string]*Hold
	sessions map[string]*Session
}

// words are a command's: its name, what it is about, and settings.
type words struct {
	test *testing.T
	all  []string
	set  map[string]string
}

func (w words) about() string {
	if len(w.all) < 2 {
		return ""
	}
	return w.all[1]
}

func (w words) duration(name string, given time.Duration) time.Duration {
	text, ok := w.set[name]
	if !ok {
		return given
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		w.test.Fatalf("%v: %v", w.all, err)
	}
	return d
}

func (w words) number(name string, given int) int {
	text, ok := w.set[name]
	if !ok {
		return given
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		w.test.Fatalf("%v: %v", w.all, err)
	}
	return n
}

func (w words) has(word string) bool {
	for _, x := range w.all {
		if x == word {
			return true
		}
	}
	return false
}

// play carries out the lines of a command, and returns what came of it.
func (s *scenario) play(t *testing.T, command string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(command) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		w := words{test: t, all: strings.Fields(line), set: map[string]string{}}
		if after, ok := strings.CutPrefix(w.all[0], "+"); ok {
			d, err := time.ParseDuration(after)
			if err != nil {
				t.Fatal(err)
			}
			s.now, w.all = s.now.Add(d), w.all[1:]
		}
		for _, word := range w.all {
			if name, value, ok := strings.Cut(word, "="); ok {
				w.set[name] = value
			}
		}
		handle := handlers[w.all[0]]
		if handle == nil {
			t.Fatalf("no command %q", w.all[0])
		}
		out.WriteString(handle(s, w))
		out.WriteString(s.effects(w.has("timer")))
	}
	return out.String()
}

// effects are what the table wants done. A carrier takes each command at once.
func (s *scenario) effects(timer bool) string {
	var out strings.Builder
	for _, x := range s.t.Effects() {
		if x.Kind != Arm || timer {
			fmt.Fprintln(&out, x)
		}
		switch x.Kind {
		case Send:
			s.commands = append(s.commands, x.Command)
			if x.Command.Session != nil {
				s.sessions[fmt.Sprintf("s%d", x.Command.Field)] = x.Command.Session
			}
			if !s.stopped {
				s.t.Sent(s.now, x.Command)
			}
		case Grant:
			s.holds[fmt.Sprintf("h%d", x.Hold.id)] = x.Hold
		case Cancel, Listen, Unlisten, End, Reject, Unlocked, Extended, Drained, Arm:
		}
	}
	return out.String()
}

// handlers are the commands of scenarios, one small function each.
var handlers = map[string]func(s *scenario, w words) string{
	"arrive": func(s *scenario, w words) string {
		r := s.t.Arrive(s.now, "k", Wish{
			Owner: Owner(w.number("owner", 1)), Lease: w.duration("lease", 0), Fenced: w.has("fenced"), Once: w.has("once"),
		})
		s.requests[fmt.Sprintf("r%d", r.id)] = r
		return fmt.Sprintf("r%d\n", r.id)
	},
	"leave":      func(s *scenario, w words) string { s.t.Leave(s.now, s.requests[w.about()]); return "" },
	"answer":     func(s *scenario, w words) string { return s.answer(w) },
	"message":    func(s *scenario, w words) string { s.t.Message(s.now, "k", Place(w.number("place", 1005))); return "" },
	"others":     func(s *scenario, _ words) string { s.t.Others(s.now, "k"); return "" },
	"subscribed": func(s *scenario, w words) string { s.t.Subscribed(s.now, "k", w.has("others")); return "" },
	"deaf":       func(s *scenario, _ words) string { s.t.Deaf(s.now, "k"); return "" },
	"broke":      func(s *scenario, _ words) string { s.t.Broke(s.now); return "" },
	"moved":      func(s *scenario, _ words) string { s.t.Moved(s.now); return "" },
	"doubt":      func(s *scenario, w words) string { s.t.Doubt(s.now, "k", w.about() == "begins"); return "" },
	"unlock":     func(s *scenario, w words) string { s.t.Unlock(s.now, s.holds[w.about()]); return "" },
	"extend": func(s *scenario, w words) string {
		s.t.Extend(s.now, &Extension{Hold: s.holds[w.about()], Lease: w.duration("lease", 0)})
		return ""
	},
	"drain": func(s *scenario, _ words) string { s.t.Drain(s.now); return "" },
	"close": func(s *scenario, _ words) string { s.t.Close(s.now); return "" },
	"lane":  func(s *scenario, w words) string { s.stopped = w.about() == "stops"; return "" },
	"sleep": func(s *scenario, w words) string { s.now.Wall += w.duration("for", 0); return "" },
	"tick": func(s *scenario, _ words) string {
		if s.t.armed != never && s.t.armed > s.now.Mono {
			s.now = s.now.Add(s.t.armed - s.now.Mono)
		}
		s.t.Tick(s.now)
		return fmt.Sprintf("at %v\n", s.now.Mono.Round(ms))
	},
	"state": func(s *scenario, _ words) string {
		if e := s.t.entries["k"]; e != nil {
			return e.String() + "\n"
		}
		return "no entry\n"
	},
}

// answer hands in the answer to the oldest command of a session, or the one of the verb that is named.
func (s *scenario) answer(w words) string {
	var a Answer
	for n, name := range verdicts {
		if w.has(name) {
			a.Verdict = Verdict(n)
		}
	}
	a.TTL, a.Look, a.Pause, a.Token = w.duration("ttl", -1), w.duration("look", 0), w.duration("pause", 0), uint64(w.number("token", 0))
	a.Called, a.Loser, a.Heard = w.has("called"), w.has("loser"), w.has("heard")
	a.Holder = Holder{Field: uint64(w.number("holder", 0)), Foreign: w.has("foreign")}
	for i, c := range s.commands {
		if c.Session != s.sessions[w.about()] || w.has("renew") != (c.Verb == Renew) {
			continue
		}
		s.commands = append(s.commands[:i:i], s.commands[i+1:]...)
		s.t.Answered(s.now, c, a)
		return ""
	}
	w.test.Fatalf("%v: nothing of it is in flight", w.all)
	return ""
}
