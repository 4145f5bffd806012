//go:build unix

package redisson

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// A multi-lock of one side excludes the members taken by the other, and the other way round.
func TestMultiLockAgainstItsMembers(t *testing.T) {
	for _, second := range []string{"rlock", "fair"} {
		t.Run(second, func(t *testing.T) {
			bothSides(t, sharedBed, []string{"rlock/x+" + second + "/y"}, strings.ReplaceAll(`
				1.m lock
				2.a trylock rlock/x -> false
				2.b trylock second/y -> false
				one = 2.a lock rlock/x
				two = 2.b lock second/y
				one waits
				two waits
				1.m unlock
				one enters
				two enters
				2.a unlock rlock/x
				1.m trylock 200ms 5s -> false   # one member is enough to keep it off; what it got is given back
				2.a trylock rlock/x -> true
				2.a unlock rlock/x
				w = 1.m lock
				w waits
				2.b unlock second/y
				w enters
				1.m unlock`, "second", second))
		})
	}
}

// Multi-locks of both sides over the same members in opposite orders make progress.
// (Java ones in opposite orders stop each other for seconds at a time, by themselves.)
func TestMultiLocksInOppositeOrders(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		x, y := Spec("rlock", name(t)), Spec("rlock", name(t))
		sharedBed(t, v).contend(t, 4, Loop{Rounds: 10}, []string{MultiSpec(x, y), x, y}, []string{MultiSpec(y, x), x, y})
	})
}

// What a multi-lock of one side promises, as its members taken by the other side see
// it: re-entry, the end of a fixed lease, the watchdog's renewal, and the end of the
// lease when the process is killed.
func TestMultiLockHoldsItsMembers(t *testing.T) {
	const wait = `
		one = 2.a lock rlock/x
		two = 2.b lock fair/y
		one waits
		two waits`
	entered := func(when string) string {
		return strings.ReplaceAll(`
		one enters WHEN
		two enters WHEN
		2.a unlock rlock/x
		2.b unlock fair/y`, "WHEN", when)
	}
	bothSides(t, shortBed, []string{"rlock/x+fair/y"}, `
		1.m lock
		1.m lock`+wait+`
		1.m unlock
		pass 6s
		ttl x 1ms..3s
		ttl y 1ms..3s
		one waits
		two waits
		1.m unlock`+entered("0s..5s")+`

		1.m trylock 5s 3s -> true`+wait+entered("3s..13s")+`   # Redisson sets the members' leases once all are taken
		1.m unlock -> refused

		start 3 like 1
		3.m lock`+wait+`
		kill 3`+entered("1s..8s"))
}

// A multi-lock of one side over two servers excludes the members taken by the other there.
func TestMultiLockOverTwoServers(t *testing.T) {
	needJava(t)
	servers := testbed.Masters(t, 2)
	o := Options{Addresses: []string{servers[0].Addr(), servers[1].Addr()}}
	b := &bed{version: V4, server: servers[0], java: Start(t, V4, o), golang: startGo(t, o), options: o}
	for _, sides := range [][2]*Driver{{b.java, b.golang}, {b.golang, b.java}} {
		s := b.scene(t, "rlock@0/x+rlock@1/x")
		s.sides["1"], s.sides["2"] = sides[0], sides[1]
		s.run(`
			1.m lock
			2.a trylock rlock@0/x -> false
			2.a trylock rlock@1/x -> false
			1.m unlock
			2.a trylock rlock@1/x -> true
			1.m trylock 200ms 5s -> false
			2.b trylock rlock@0/x -> true
			2.b unlock rlock@0/x
			2.a unlock rlock@1/x`)
	}
}
