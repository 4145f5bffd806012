// Package redisson puts the real Redisson, a Java library, on the other side of
// redlatch's tests: the same lock names, taken by both.
//
// # The driver
//
// This folder is a Go package and a small Maven project. The Java half is a
// program that takes commands on its standard input and answers in lines
// (src/main/java, Driver); [Build] compiles it against a [Version] of Redisson and
// [Start] runs it. Redisson's owner of a lock is a thread, so an owner is a thread
// that the Java process keeps. A Go process takes the same commands.
//
// Most tests are scenes: text, which says who does what (scene_test.go).
//
// # What is needed
//
// A JDK (17 or later) and Maven on PATH; Maven fetches Redisson from Maven Central
// once and builds from its cache from then on. Without them the tests skip and say
// so; with REDLATCH_INTEROP=require in the environment they fail instead, with
// REDLATCH_INTEROP=skip they skip in any case.
//
// # What is tested
//
// For each exclusive kind (plain, fenced, fair, write), both versions, Java first and Go first:
//
//   - holder and remaining time of a busy lock; re-entry, fixed leases, forced unlock, both watchdogs, SIGKILL;
//   - an unlock wakes the other side by its message: 1 to 6 ms (median of ten) under 30 s leases;
//   - fencing tokens of both sides are one increasing sequence;
//   - of four Java and four Go processes that want one plain lock all the time neither side starves (the longest
//     wait of one is at most three times the other's, median of five runs);
//   - one fair queue of 20 Java and 20 Go waiters, with dead ones of either side;
//   - readers of both sides share, and enter together after a write unlock; mixed leases, downgrades, dead
//     readers;
//   - multi-locks of either side in opposite orders; a Cluster of three masters with sharded channels, all kinds;
//   - a soak of four Java and four Go processes, killed and replaced: no violation, nothing left behind.
package redisson
