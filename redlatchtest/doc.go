// Package redlatchtest helps to test code that uses redlatch, without Redis.
//
// # A real Client
//
// [New] returns a *redlatch.Client on a server inside the test's process. All kinds of
// locks, scripts, subscriptions and the watchdog work as in production. It needs no port
// and ends with the test. [NewServer] returns the server as well, so that a test can
//
//   - take a lock as another process ([Server.Take], [Server.Other]),
//   - see which locks are held ([Server.Held]),
//   - lose a lock ([Server.Lose]),
//   - stop the server, freeze it, or lose its data ([Server.Down], [Server.Freeze],
//     [Server.Restart]).
//
// # Time
//
// Leases end by the clock. This package does not change any clock: a hold's local
// deadline would not follow, and the test would show what can't happen. In a bubble of
// testing/synctest, client and server share the bubble's clock, and an hour passes at
// once:
//
//	synctest.Test(t, func(t *testing.T) {
//		client := redlatchtest.New(t)
//		hold, err := client.RLock("import").Lock(t.Context(), redlatch.WithLease(time.Hour))
//		...
//		time.Sleep(time.Hour) // hold.Context() has ended, and others can have the lock
//	})
//
// Make the client inside the bubble. Outside of a bubble, use a short lease
// (redlatch.WithLeaseTime) and wait for hold.Context().Done(). Wait for events, not for
// a time that should be enough.
//
// # A lock without a server
//
// [NewLocker] returns a redlatch.Locker that needs no server, and is busy, lost or
// unavailable on demand, with the same errors as a real lock. [NewLockers] returns a set
// of them, by name.
//
// # What it does not prove
//
// The server is an imitation (miniredis). A test with it shows that your code acquires,
// releases and loses locks correctly. It shows nothing about
//
//   - failovers, replicas, Sentinel, Cluster, persistence, or a full memory,
//   - permissions (ACL), or the versions of real servers,
//   - speed: scripts run many times slower than on a real server,
//   - a network that loses packets or delivers them late, a process that is paused, clocks
//     that differ or jump.
//
// The tests of redlatch itself cover those, on real servers. Let at least one test of your
// deployment use the server that you run.
//
// The package is a module of its own: only the tests of a program depend on it, not the
// program.
package redlatchtest
