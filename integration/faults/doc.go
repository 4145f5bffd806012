// Package faults combines faults at random and checks what the locks did
// meanwhile.
//
// An episode starts the servers of a profile and some worker processes, which take
// locks of all kinds. A plan, made from the seed alone, says which fault begins when,
// on what, and for how long. Each worker writes a line per operation into a file of its
// own, with the times of CLOCK_MONOTONIC, which all processes of a machine share. After
// the episode the lines of all processes are one history, and it is checked:
//
//   - Exclusion. A hold claims its lock from the return of its acquisition until its
//     release is called, or until its local deadline if it was lost. Claims that exclude each
//     other must not overlap, and porcupine must find an order of all operations that a lock
//     with owners, counts, leases and tokens allows. Operations without an answer stay open.
//     Pauses don't excuse anything here: the local deadline covers them.
//   - Fencing. Each section reads and writes a store that refuses tokens older than the
//     newest it has seen. No accepted write may rest on anything but the last accepted one.
//     What a section did after its deadline, or after its server forgot the lock, is
//     reported as a number: how many sections overlapped, and for how long.
//   - Telling. A hold that is lost is told so within the bound of its cause, and none is
//     lost without a cause that the plan or the machine can name. Who waits is served or
//     told, free locks are not left lying while somebody waits, and errors tell an outage
//     from a busy lock.
//   - Order. The waiters of a fair lock are served in the order in which they came.
//   - Leaving. Nothing stays behind: keys, queue entries, subscriptions, connections,
//     goroutines, descriptors.
//
// One seed gives one plan and one sequence of choices to each worker. How the processes
// interleave is the machine's business, so a repetition finds a violation again soon, not
// always at once. The mutations in this package measure how soon.
package faults
