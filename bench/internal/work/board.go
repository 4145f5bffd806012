package work

import "sync/atomic"

// BoardSize is the length of a board's file.
const BoardSize = 4096

// A board is memory that all processes of a measurement share. Its order is told in the package's comment.
type board struct {
	// inside adds up the weights of those who hold the shared key.
	// Invariant of a lock that excludes: one writer, or readers and no writer, or nobody.
	inside atomic.Int64
	// taken is how often the lock was taken, awaited the number of the turn that somebody is about to wait for. Both
	// only grow: taken is written by who holds the lock, awaited by who does not.
	taken, awaited atomic.Int64
	// over is 1 once a process has been told to end, and stays so. What it interrupts from then on, a library may leave
	// to the next one while its own caller is still inside.
	over atomic.Int64
}

// What those inside weigh.
const (
	reader int64 = 1
	writer int64 = 1 << 32
)

// enter notes that one more is inside and reports whether it may be.
func (b *board) enter(weight int64) bool {
	now := b.inside.Add(weight)
	return now < writer || now == writer && weight == writer || b.over.Load() != 0
}

func (b *board) leave(weight int64) { b.inside.Add(-weight) }
