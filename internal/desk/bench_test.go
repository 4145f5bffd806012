package desk

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkPassedOn is an Unlock that passes the lock on, and the wish that takes its place in the line: no review walks
// the line, so 512 waiters cost what 8 do.
func BenchmarkPassedOn(b *testing.B) {
	for _, waiters := range []int{8, 64, 512} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			t := New(Config{Lease: time.Hour, Tenure: time.Hour})
			for n := range waiters {
				t.Arrive(Now{Mono: 1}, "k", Wish{Owner: Owner(n)})
			}
			var holder *Hold
			carry := func(now Now) {
				for _, x := range t.Effects() {
					switch {
					case x.Kind == Send && x.Command.Verb == Acquire:
						t.Sent(now, x.Command)
						defer t.Answered(now.Add(1), x.Command, Answer{Verdict: Done})
					case x.Kind == Grant:
						holder = x.Hold
					}
				}
			}
			carry(Now{Mono: 2})
			carry(Now{Mono: 3})
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				now := Now{Mono: Time(n + 3)}
				owner := holder.session.owner
				t.Unlock(now, holder)
				t.Arrive(now, "k", Wish{Owner: owner})
				carry(now)
			}
		})
	}
}
