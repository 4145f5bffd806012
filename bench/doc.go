// Command bench measures redlatch beside other lock libraries, and beside what
// a lock could reach at best, in one run. It writes a line for each round of
// each contender, in the format of Go's benchmarks, for benchstat to read:
//
//	make bench                              # everything but other systems, then the tables; takes an hour
//	make bench-all                          # with Redisson, etcd, ZooKeeper and MariaDB
//	make benchstat                          # the tables of the last run once more
//	make bench BENCH_FLAGS="-only '^handover' -contenders 'redlatch|floor' -rounds 9"
//	go run ./bench -list                    # the rows and the contenders
//
// The tables have a row for each kind of work and a column for each contender.
// Two builds are compared in one run, side by side in each round:
//
//	git worktree add ../before COMMIT
//	make bench BENCH_FLAGS='-against ../before -contenders ^redlatch' BENCH_BY='/build@(before now)'
//
// # What makes the figures comparable
//
// The program starts a private server, which needs redis-server or
// valkey-server on PATH. For each measurement it empties the server and starts
// itself again, once for each process that the row asks for. Contenders take
// turns: round 1 of each, then round 2; each round starts with another one, and
// every other round runs backwards, so that a machine that is slow for a while
// is slow for all. Before they count, processes open their connections, load
// their scripts and warm up.
//
// Critical sections are empty unless the row says otherwise. Where goroutines
// share a key, all processes note in shared memory who is inside: a contender of
// which two were inside at once fails. Each pair has a cancellable ctx of its
// own, like a request; what it costs to make is taken off the allocations.
// Where each goroutine has a key, the goroutines stand still before and after
// they count, so that the server's figures are exactly theirs.
//
// # The units
//
//	acq/s            acquisitions of all processes
//	wait-*-sec       time in Lock; a wait that the end cuts short counts with the time it had lasted. In the
//	                 row handover: from before Unlock in one process to after the return of Lock in another;
//	                 the holder unlocks 2 to 12 ms, at random, after the other one has said that it will lock
//	pair-p50-sec     from Lock to the end of Unlock
//	jain             Jain's index of how evenly the goroutines got the lock: 1 means all the same, 1/n one got all
//	cmds/acq         commands that clients sent, counted by the server, without those inside a script
//	exec-sec/acq     the server's time in them
//	srv-cpu-sec/acq  processor time of the server, sockets included
//	cli-cpu-sec/acq  processor time of the client processes
//	allocs, B        of the client processes, for each acquisition
//	heap-B, stack-B  for each lock that is held; cli-cores and srv-cores are what holding them all takes
//	renewals/cmd     how many leases one command renews
//
// # Where what is
//
// The rows, with what redlatch is to reach in each, are in rows.go; the
// contenders in redlatch.go, peers.go, marks.go and systems.go. Package
// internal/work is what one process does, in any program; systems and redisson
// are programs for what is not a Go library on Redis. The package is a module
// of its own, so that the libraries it compares with never become dependencies
// of the SDK.
//
// -cpuprofile writes a profile of each process. Micro-benchmarks for
// allocations, with all of Go's profiles, are ordinary ones:
//
//	cd bench && go test -run '^$' -bench LockUnlock/redlatch -benchmem -memprofile mem
package main
