package redlatch

import (
	"slices"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/lock"
)

// NewWithClient starts a Client on a rueidis client that the application already has.
// It never closes that client: call Close or Shutdown first, then close the
// application's client. It blocks until the server has answered two commands, for 5 s
// each at most.
//
// Errors: [ErrInvalidOption]; a [*ConnectError] if the server is too old; [ErrUnavailable]
// if it does not answer. After an error nothing is left behind, and the application's
// client stays open.
//
// Prefer [New] unless you must limit connections or have wrapped your client. New makes
// a client with options that suit locks, and the rest of the program can't delay its
// renewals.
//
// # What is checked
//
// The client must send scripts to a master; one that sends them to a replica is
// refused. Its other options can't be read from it. If you set cfg.Redis to the options
// that it was made with, they are checked, too, and these are refused:
//
//   - ConnLifetime: when a connection reaches that age, the client repeats commands that
//     may have run. The second answer to an Unlock would be "not held", and Unlock would
//     return a false ErrLeaseLost.
//   - ReplicaOnly, and a negative Dialer.KeepAlive or ConnWriteTimeout.
//   - Dialer.KeepAlive and ConnWriteTimeout above a third of LeaseTime. The client
//     library's default for ConnWriteTimeout is 10 s, so a LeaseTime below 30 s needs
//     a shorter one: otherwise a broken connection can cost every lock its lease.
//   - BlockingPoolSize 1: see below. RingScaleEachConn below the library's default of 10.
//   - Sentinel without Sentinel.TopologyRefreshInterval: a client that misses one
//     announcement would stay with the old master.
//
// cfg.Redis also says which database the client uses, so SelectDB must be right. Without it
// a [MultiLock] refuses two locks of one name on one server, even in two databases.
//
// # What is up to you
//
//   - Connections. Scripts share the application's connections. Subscriptions take
//     one connection per node from the blocking pool (BlockingPoolSize) while a
//     goroutine waits for a lock; [Config].ReplicaAcks takes up to 32 more.
//     While the pool is exhausted, waiters can't
//     subscribe: they ask every second, and after 10 s that is logged.
//   - AlwaysPipelining. Without it, the deadline of any of your commands can close the
//     connection that others share. Locks survive that, since the command is repeated,
//     but each time costs a new connection.
//   - PipelineMultiplex and DisableAutoPipelining. Several connections per node are
//     safe for locks. DisableAutoPipelining takes one connection of the pool per command, and a
//     command that gets no answer keeps it for ConnWriteTimeout.
//   - DisableCache, ClientTrackingOptions, SendToReplicas, DisableRetry: they don't
//     matter to locks, as long as scripts go to the master.
//   - Names. The connections keep the names that the application gave them. So
//     [Client.Inspect] and the command redlatch show an owner's client id, but neither
//     name nor address of its process, as if it were not connected.
//   - Instrumentation. A wrapped client sees every command of the locks. Set
//     [Telemetry].NoCommandSpans if it makes spans of them.
//   - The ends of subscriptions. rueidis v1.0.79 panics if a server answers MISCONF, MASTERDOWN
//     or BUSY behind an UNSUBSCRIBE, so redlatch sends none on the application's connections. A
//     channel that nobody waits on any more stays with its connection, which is closed 10 s after
//     the last waiter has gone, or replaced when there are 1,024 such channels. Your own UNSUBSCRIBE
//     is up to you; so is the release of a Dedicated client, which sends one. See docs/FAULTS.md.
//   - Broken connections. redlatch doesn't see one of the application's connections break
//     while no command of a lock is under way. So for up to [Config].Tenure it may pass on,
//     inside the process, a lock that the server has lost since its last answer.
//   - Failovers behind one address (a name, a virtual IP, a proxy) that close no connection. Your
//     client stays with the old master, a replica now, and no lock is granted until you end its
//     connections. A Client of [New] ends its own.
//   - Frozen servers. Close does not wait for commands that the server has not
//     answered; the application's client keeps waiting for their answers.
//
// Config.ClientBuilder can't be combined with it.
func NewWithClient(client rueidis.Client, cfg Config) (*Client, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if cfg.ClientBuilder != nil {
		return nil, &lock.InvalidOptionError{Option: "ClientBuilder", Reason: "NewWithClient already has a client; wrap that one"}
	}
	cn, err := conn.Borrow(client, cfg.Redis, cfg.LeaseTime, cfg.key())
	if err != nil {
		return nil, err
	}
	addrs := cfg.Redis.InitAddress
	if len(addrs) == 0 {
		for addr := range client.Nodes() {
			addrs = append(addrs, addr)
		}
		slices.Sort(addrs)
	}
	return start(cfg, cn, inspect.ClientID(cfg.Name), addrs)
}
