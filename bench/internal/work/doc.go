// Package work is what a process of a measurement does: it opens a contender, runs a workload with it and counts.
//
// The program that measures starts such processes and speaks with them by lines of JSON: the first line of a process's
// standard input is a [Spec]; it answers with a [Message] that holds a [Ready]; at the line "go" it begins to count, at
// "stop" it ends and answers with a [Message] that holds a [Result]. It ends when its input ends, so that it never
// outlives its parent. Programs in other languages can speak the same lines.
package work
