// Command bench measures redlatch beside other lock libraries, and beside what
// a lock could reach at best, in one run:
//
//	go run ./bench                          # everything; takes a while
//	go run ./bench -list                    # the rows and the contenders
//	go run ./bench -only '^contended/64$' -contenders 'redlatch|floor' -rounds 9
//	go run ./bench -peers all               # Redisson, etcd, ZooKeeper and MariaDB as well
//	go run ./bench -against ../before       # redlatch in two builds, side by side
//
// Each measurement starts the same program again, once for each process that
// the row asks for, against a private server that is empty; the contenders of
// a row take turns, round by round, so that a machine that is slower for a
// while is slower for all of them. The tables show medians over the rounds, and
// whether each goal is reached.
//
// The package is a module of its own, so that the libraries it compares with
// never become dependencies of the SDK. Package internal/work is what one
// process does, in any program; systems and redisson are programs for what
// is not a Go library on Redis. Micro-benchmarks for allocations are
// ordinary ones: go test -bench . -benchmem.
package main
