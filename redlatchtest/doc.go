// Package redlatchtest helps to test code that uses redlatch, without a Redis.
//
// # A real Client
//
// [New] gives a *redlatch.Client on a server inside the test's process: all kinds of
// locks, scripts, subscriptions and the watchdog work as in production. It needs no port
// and ends with the test. [NewServer] gives the server as well, to
//
//   - take a lock as somebody else ([Server.Take], [Server.Other]),
//   - see what is held ([Server.Held]),
//   - lose a lock ([Server.Lose]),
//   - take the server away, make it stand still, and lose its data ([Server.Down],
//     [Server.Freeze], [Server.Restart]).
//
// # Time
//
// Leases end by the clock. Nothing here turns a clock: a hold's local deadline would not
// follow, and the test would show what can't happen. In a bubble of testing/synctest,
// client and server live by the bubble's clock, both, and an hour passes at once:
//
//	synctest.Test(t, func(t *testing.T) {
//		client := redlatchtest.New(t)
//		hold, err := client.RLock("import").Lock(t.Context(), redlatch.WithLease(time.Hour))
//		...
//		time.Sleep(time.Hour) // hold.Context() has ended, and others can have the lock
//	})
//
// Make the client inside the bubble. Outside of one, use a short lease
// (redlatch.WithLeaseTime) and wait for hold.Context().Done(). Wait for events, never
// for a time that should be enough.
//
// # A lock without a server
//
// [NewLocker] gives a redlatch.Locker that needs nothing at all, and is busy, lost or
// unavailable on demand, with the errors of the real thing. [NewLockers] gives them by
// name.
//
// # What it does not prove
//
// The server is an imitation (miniredis). A test with it shows that your code takes,
// gives back and loses locks as it should. It shows nothing about
//
//   - failovers, replicas, Sentinel, Cluster, persistence, eviction or a full memory,
//   - permissions (ACL), or the versions of real servers,
//   - speed: scripts run many times slower than on a real server,
//   - a network that loses packets or delivers them late, a process that is paused, clocks
//     that differ or jump.
//
// Whether the locks hold through such things is what redlatch's own tests show, on real
// servers. Let at least one test of your deployment use the server that you run.
//
// The package is a module of its own: a program that uses redlatch does not depend on it,
// only its tests do.
package redlatchtest
