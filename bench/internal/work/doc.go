// Package work is what a process of a measurement does: it opens a contender, runs a workload with it and counts.
//
// The program that measures starts such processes and speaks with them by lines of JSON: the first line of a process's
// standard input is a [Spec]; when it could begin to count it answers with a [Message] that says Ready; at the line
// "go" it begins to count, at "stop" it ends and answers with a [Message] that holds a [Result]. It ends when its input
// ends, so that it never outlives its parent. Programs in other languages can speak the same lines.
//
// The processes of a measurement share a board, a file that each maps into its memory: four integers of 64 bits in the
// machine's byte order. The first one shows whether two are inside at once: a figure of a lock that does not exclude
// would mean nothing. By the next two, processes hand the lock over; the last one says that the end has begun.
package work
