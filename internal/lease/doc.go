// Package lease is how long a lease lasts: its local deadline, which clock passes it
// first, and when it is renewed. It is pure: no clock, no timer, no goroutine, no random
// number is in it. Every function is told the time, so every order of clocks can be tried.
//
// # The local deadline
//
//	deadline = instant before the command was sent + lease - Drift(lease)
//
// where the command is the last acquisition, re-entry or renewal that the server
// confirmed. The server sets the lease later than that instant, so it can't run
// out before, on clocks that run at the same rate to within the drift.
//
// # Two clocks
//
// A [time.Time] from [time.Now] has a monotonic reading and a wall reading. The monotonic
// clock stands still while a machine sleeps, the wall clock may be set. So a deadline has
// passed when it has on either ([Passed]): a wall clock that is set back moves no
// deadline, one that is set forward ends holds early, which is the safe side. Timers run by
// the monotonic clock alone. So the clocks are compared now and then ([Clocks]), and after a
// sleep deadlines are brought forward on the monotonic clock ([OnBoth]). After the wall clock was set back they follow
// it ([Anew]), so that the next sleep is seen in full.
package lease
