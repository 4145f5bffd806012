package desk

import (
	"fmt"
	"strings"
	"time"
)

// Names of what a table says, for scenarios and traces.

var (
	verbs    = [...]string{"acquire", "reenter", "count", "release", "renew", "leave"}
	verdicts = [...]string{"failed", "notrun", "refused", "done", "gone", "busy", "void", "noacks"}
	whys     = [...]string{
		"ok", "unlocked", "lost: gone", "lost: expired", "closed", "busy", "left", "unavailable", "refused", "too few acks", "not held", "invalid",
	}
	kinds    = [...]string{"send", "cancel", "listen", "unlisten", "end", "grant", "reject", "unlocked", "extended", "drained", "arm"}
	phases   = [...]string{"asking", "held", "ending", "gone"}
	listings = [...]string{"", " off the list", " behind"}
)

func (c *Command) String() string {
	var b strings.Builder
	b.WriteString(verbs[c.Verb])
	if c.Session != nil {
		fmt.Fprintf(&b, " s%d", c.Field)
	}
	switch c.Verb {
	case Acquire:
		fmt.Fprintf(&b, " lease=%v", c.Lease)
		if c.Fenced {
			b.WriteString(" fenced")
		}
		switch c.Place {
		case NoPlace:
			b.WriteString(" once")
		case StandsBack:
			b.WriteString(" stands back")
		case NewPlace:
		case Listed:
			b.WriteString(" listed")
		default:
			fmt.Fprintf(&b, " place=%d", c.Place)
		}
	case Reenter:
		fmt.Fprintf(&b, " count=%d lease=%v", c.Count, c.Lease)
	case SetCount:
		fmt.Fprintf(&b, " %d", c.Count)
	case Release:
		if c.Void {
			b.WriteString(" void")
		}
		b.WriteString(listings[c.Listing])
	case Renew:
		fmt.Fprintf(&b, " lease=%v", c.Lease)
	case Leave:
	}
	return b.String()
}

func (x Effect) String() string {
	s := kinds[x.Kind]
	switch x.Kind {
	case Send, Cancel:
		return fmt.Sprintf("%s %v", s, x.Command)
	case Listen, Unlisten:
		if x.Others {
			return s + " others"
		}
		return s
	case End, Unlocked:
		return fmt.Sprintf("%s h%d %s", s, x.Hold.id, whys[x.Why])
	case Grant:
		return fmt.Sprintf("grant r%d h%d of s%d until %v", x.Request.id, x.Hold.id, x.Hold.session.field, x.Hold.Deadline().Mono.Round(time.Millisecond))
	case Reject:
		return fmt.Sprintf("reject r%d %s", x.Request.id, whys[x.Why])
	case Extended:
		return fmt.Sprintf("extended h%d %s", x.Extension.Hold.id, whys[x.Why])
	case Drained:
	case Arm:
		if x.At == never {
			return "arm never"
		}
		return "arm " + x.At.Round(time.Millisecond).String()
	}
	return s
}

func at(t Time) string {
	if t == never {
		return "never"
	}
	return t.Round(time.Millisecond).String()
}

// String is the entry's state: what a newcomer asks of it, and what a search compares.
func (e *Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "line")
	for r := range e.line.all {
		fmt.Fprintf(&b, " r%d", r.id)
	}
	fmt.Fprintf(&b, "; due %s", at(e.dueAt()))
	if e.listens != silent {
		fmt.Fprintf(&b, "; %s", [...]string{"", "listens soon", "listens"}[e.listens])
	}
	if e.calls.listed {
		b.WriteString("; listed")
	}
	for _, s := range e.sessions {
		fmt.Fprintf(&b, "\ns%d %s", s.field, phases[s.phase])
		if s.server.unsure {
			b.WriteString(" unsure")
		}
		if s.server.flight != nil {
			fmt.Fprintf(&b, " (%s)", verbs[s.server.flight.Verb])
		}
		if s.phase == held {
			fmt.Fprintf(&b, " count %d:", s.server.count)
			for _, h := range s.holds {
				fmt.Fprintf(&b, " h%d", h.id)
			}
		}
	}
	return b.String()
}

// all yields the requests in their order.
func (l *line) all(yield func(*Request) bool) {
	for r := l.first(); r != nil && r != &l.ring && yield(r); {
		r = r.next
	}
}
