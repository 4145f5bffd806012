//go:build unix

package redisson

import (
	"strings"
	"testing"
)

// What all exclusive kinds promise, with one side in each role.

// Each side sees that the other holds the lock, and for how long; ours names the holder.
func TestBusyIsSeenWithTheRemainingTime(t *testing.T) {
	eachPair(t, sharedBed, `
		1.a lock 20s
		2.b trylock -> false
		2.b state -> locked=true count=0 ttl=15s..20s
		[java-go] 2.b busy -> holder=${1.a} left=15s..20s
		1.a lock 40s
		2.b trylock -> false
		[not write java-go] 2.b state -> locked=true count=0 ttl=35s..40s
		[not write java-go] 2.b busy -> left=35s..40s
		[write java-go] 2.b state -> ttl=55s..60s   # Redisson adds up
		[write java-go] 2.b busy -> holder=${1.a} left=55s..60s
		1.a unlock
		2.b trylock -> false
		1.a unlock
		2.b trylock -> true
		2.b unlock`)
}

// An unlock of one side wakes a waiter of the other at once.
func TestUnlockWakesTheOtherSideAtOnce(t *testing.T) {
	eachPair(t, sharedBed, strings.Repeat(`
		1.a lock
		w = 2.b lock
		w waits
		1.a unlock
		w enters
		2.b unlock`, 10))
}

// The other side enters after the last of the nested unlocks, not before.
func TestReentryHoldsTheOtherSideOff(t *testing.T) {
	eachPair(t, sharedBed, `
		1.a lock
		1.a lock
		1.a state -> count=2
		w = 2.b lock
		w waits
		1.a unlock
		w waits
		1.a state -> count=1 ttl=25s..30s
		1.a unlock
		w enters
		1.a unlock -> refused
		2.b state -> count=1
		2.b unlock`)
}

// The other side enters when a fixed lease ends, and the late unlock leaves it alone.
func TestFixedLeaseEndsForTheOtherSide(t *testing.T) {
	eachPair(t, sharedBed, `
		1.a lock 800ms
		w = 2.b lock
		w enters 800ms..10s   # the lease began somewhere while the lock command ran
		1.a unlock -> refused
		2.b state -> count=1
		2.b unlock`)
}

// A wait for the other side's lock ends on time and leaves nothing.
func TestWaitEndsAndLeavesNothing(t *testing.T) {
	eachPair(t, sharedBed, `
		1.a lock
		2.b trylock 400ms -> false 399ms..5400ms
		1.a unlock`)
}

// A wait that is interrupted lets the other waiters go on.
func TestInterruptedWaitLetsTheOthersGoOn(t *testing.T) {
	eachPair(t, sharedBed, `
		# An interrupted Java waiter leaves its place in the queue: TestDeadJavaWaitersAreSkippedByRedissonsRule.
		[fair go-java] stop
		1.a lock
		w = 2.b lock
		w waits
		next = 2.c lock
		next waits
		2.b interrupt
		w ends InterruptedException
		1.a unlock
		next enters
		2.c unlock
		2.b lock   # its thread lives on
		2.b unlock`)
}

// The second side takes the lock of the first away; a waiter of either side enters
// at once, and the former holder learns of it.
func TestForcedUnlockAcross(t *testing.T) {
	const steps = `
		1.a lock
		w = 2.c lock
		w waits
		2.b force -> true
		w enters
		1.a unlock -> refused
		2.c state -> count=1
		2.c unlock
		2.b force -> false`
	eachPair(t, sharedBed, steps+strings.ReplaceAll(steps, "2.c", "1.c"))
}

// A watchdog keeps the other side off for longer than a lease, and lengthens nothing. A process that is killed blocks
// the other side for its lease, no longer.
func TestWatchdogKeepsTheOtherSideOff(t *testing.T) {
	bothSides(t, shortBed, []string{""}, `
		1.* lock */*
		* = 2.* lock */*
		pass 7500ms
		ttl * 1ms..3s
		* waits

		1.* unlock */*
		* enters
		2.* unlock */*
		start 3 like 1
		3.* lock */*
		* = 2.* lock */*
		pass 3s   # it is renewed while it lives
		* waits
		kill 3
		* enters 1s..8s   # renewed a third of the lease ago at most, two thirds are left at least

		2.* unlock */*`)
}

// A holder that stands still for longer than its lease has lost the lock, and leaves the next one's hold alone.
func TestFrozenHolderLosesTheLock(t *testing.T) {
	bothSides(t, shortBed, []string{""}, `
		start 3 like 1
		3.* lock */*
		* = 2.* lock */*

		* waits
		freeze 3
		* enters 0s..8s
		thaw 3
		3.* unlock */* -> refused
		2.* state */* -> count=1
		2.* unlock */*`)
}

// A Go holder learns within a third of its lease that its lock was forced, expired
// or deleted; a Java holder never does before its unlock.
func TestGoHolderLearnsOfALossByJava(t *testing.T) {
	eachPair(t, shortBed, `
		[java-go] stop
		1.a lock
		w = 1.a lost
		2.b force -> true
		2.b lock
		w ends gone   # a look at the server tells it before its own deadline does
		2.b unlock`)
}

// Waiters that died don't stand in the way of the others of either side.
func TestKilledWaiterIsNotWaitedFor(t *testing.T) {
	bothSides(t, sharedBed, []string{"rlock"}, `
		start 3 like 1
		2.a lock
		dead = 3.a lock
		dead waits
		w = 2.b lock
		w waits
		kill 3
		2.a unlock
		w enters
		2.b unlock`)
}

// Both sides lock the same key under any name, whatever bytes that has.
func TestNamesOfAllSorts(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		for _, n := range []string{"a b", "50%", "x+y,z", "ümlaut/слово", "tab\tnew\nline"} {
			for _, sides := range [][2]*Driver{{b.java, b.golang}, {b.golang, b.java}} {
				s := b.scene(t, "rlock")
				s.names["n"], s.sides["1"], s.sides["2"] = n, sides[0], sides[1]
				s.run(`
					1.a lock
					redis EXISTS $n -> 1
					2.b trylock -> false
					1.a unlock
					2.b trylock -> true
					2.b unlock`)
			}
		}
	})
}

// Both sides at one name without pause exclude each other: each section is in a record.
func TestContendedLockExcludes(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		for _, kind := range exclusive {
			t.Run(kind, func(t *testing.T) {
				spec := []string{Spec(kind, name(t))}
				sharedBed(t, v).contend(t, 4, Loop{Rounds: 25, Twice: true}, spec, spec)
			})
		}
	})
}
