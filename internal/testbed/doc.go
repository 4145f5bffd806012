// Package testbed starts real servers for the tests, the benchmarks and the
// demos of redlatch, and breaks them on purpose.
//
// # Servers
//
// [Standalone], [Masters], [Replicas], [Sentinel] and [Cluster] start
// redis-server or valkey-server from PATH (or the program that the environment
// variable REDLATCH_TEST_SERVER names). Every server gets a free loopback port
// from the operating system and a temporary folder, never saves by itself, and
// is stopped by its own process id: a server that was already running is never
// touched. On Linux the kernel kills the servers when the process that started
// them dies, whatever it dies of.
//
// The functions take a [TB], which *testing.T and *testing.B are; they end the
// test when something can't be had, and clean up with it. A program that is no
// test (a demo) uses [Start] or a [Program]:
//
//	server, err := testbed.Start(ctx)
//	defer server.Stop()
//
// In a test:
//
//	server := testbed.Standalone(t)
//	testbed.LeakCheck(t, server)          // before the clients are made
//	client := ...(server.Addr())          // closed by t.Cleanup or in the test
//	server.Int(t, "PTTL", "orders:42")
//	server.Freeze(t); server.Thaw(t); server.Kill(t)
//	server.Restart(t, testbed.Empty)
//
// # Other versions, TLS
//
// [UseServer] has one test use another program, such as those of [FetchedServers],
// which scripts/ensure-servers.sh fetches. [ServerVersion] says what is started, and
// [Needs] skips, loudly, what a server is too old for. Where versions differ in what
// they call a thing, a method knows it: [Server.SetUser], [Server.LockChannels],
// [ClusterSet.LockChannels], [Server.DeniedCommands]. [UseTLS] has servers speak TLS, with
// clients and among themselves, whatever the topology.
//
// # Faults on the network
//
// [NewProxy] puts a TCP proxy in front of a server. Its switches (Cut, Refuse,
// Pause, Delay) work on all connections, and Lead says where new ones lead; its
// traps wait for one request, found by its content, and lose, hold or repeat it or
// its reply:
//
//	proxy := testbed.NewProxy(t, server.Addr())
//	trap := proxy.DropReply(testbed.Contains("EVALSHA", "orders:42"))
//	... the client, connected to proxy.Addr(), acquires ...
//	trap.Wait(t)                          // the script ran, its reply is lost
//
// No trap needs a sleep: Wait returns when the thing has happened.
//
// # Processes
//
// [Spawn] runs a role of the same program in a process of its own, to be
// talked to by lines, frozen and killed; see [Role] and [Main].
package testbed
