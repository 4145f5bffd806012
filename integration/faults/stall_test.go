package faults

import (
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// How the processes and the servers are watched: they are to say something every beat. Who is
// later than that stood still, on a machine that has other things to do.
const (
	beat = 10 * time.Millisecond
	// hitchAfter is how late counts as a moment, see effHitch. The shortest time limit of a
	// quorum's node is a twentieth of half a second and more: several moments fill it.
	hitchAfter = 10 * time.Millisecond
	// stallAfter is how late counts as standing still.
	stallAfter = 60 * time.Millisecond
	// serverStall is the same for a server, since its last answer.
	serverStall = 60 * time.Millisecond
)

// stood makes a moment of a time that is no longer than limit.
func stood(w window, limit time.Duration) window {
	if w.to-w.from <= limit {
		w.name, w.effects = strings.Replace(w.name, "stall", "hitch", 1), effHitch
	}
	return w
}

// watch asks once a beat until done is closed, and notes the times in which no answer came.
func watch(done <-chan struct{}, answers func() bool, note func(from, to time.Duration)) {
	last := mono()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true // it may be silent just now
		case <-time.After(beat):
			if !answers() {
				continue
			}
		}
		now := mono()
		if now-last > beat+hitchAfter {
			note(last, now)
		}
		last = now
	}
}

// watchServers asks all servers again and again, past all faults on the line, and notes
// when one did not answer for a while: the plan's doing, or the machine's. The function that
// it returns ends that, and returns what was noted.
func (w *world) watchServers() (stop func() []window) {
	done := make(chan struct{})
	var mu sync.Mutex
	var noted []window
	var wg sync.WaitGroup
	effects := effSilent
	if w.p.topology == "masters" {
		effects = effMinor
	}
	for i, s := range w.nodes() {
		answers := func() bool {
			_, err := s.Try("PING")
			_, refused := rueidis.IsRedisErr(err)
			return err == nil || refused
		}
		answers()      // connects
		wg.Go(func() { // until stop
			watch(done, answers, func(from, to time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				noted = append(noted, stood(window{name: "server stall", from: from, to: to, target: i, effects: effects}, serverStall))
			})
		})
	}
	return func() []window {
		close(done)
		wg.Wait()
		return noted
	}
}
