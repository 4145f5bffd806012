package redlatch

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rwlock"
)

// Client hands out locks on one Redis deployment. It is safe for concurrent use;
// a process needs one. Per node it has one connection for commands, one for subscriptions
// while goroutines wait, and with Config.ReplicaAcks some more. Its number of goroutines
// does not grow with the locks that are held.
type Client struct {
	core      *engine.Core
	conn      *conn.Conn
	inspector *inspect.Inspector
	name      string

	untold func() // takes it out of the gauges of its observer

	closeOnce sync.Once
	closed    chan struct{}
}

// New connects and starts a Client. It blocks for at most the dial time-out per
// address, and for 5 s more if a server accepts connections and then does not answer.
// Close ends the Client.
//
// Errors:
//   - [ErrInvalidOption];
//   - a [*ConnectError], at once, if only a change of the configuration or of the server can help: a wrong password, a
//     missing permission, TLS on one side only, an untrusted certificate, a server that is too old;
//   - [ErrUnavailable] if the server can't be reached or can't answer now. With Redis.ForceSingleClient, as in [Open]
//     with one address, that is no error: the Client connects as soon as it can.
//
// After an error nothing is left behind.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	id := inspect.ClientID(cfg.Name)
	cn, err := openNamed(cfg, id)
	if err != nil {
		return nil, err
	}
	return start(cfg, cn, id, cfg.Redis.InitAddress)
}

// start makes the Client on an open connection, which it closes when it fails.
func start(cfg Config, cn *conn.Conn, id string, addrs []string) (*Client, error) {
	var address string // of the server, where there is only one
	if cn.Client().Mode() == rueidis.ClientModeStandalone && len(addrs) == 1 {
		address = addrs[0]
	}
	guard := &observe.Guard{Log: cfg.Logger}
	observer, err := telemetry.New(telemetry.Options{
		TracerProvider: cfg.TracerProvider,
		MeterProvider:  cfg.MeterProvider,
		LockName:       cfg.Telemetry.LockName,
		NoLinks:        cfg.Telemetry.NoLinks,
		NoCommands:     cfg.Telemetry.NoCommandSpans,
		Renewals:       cfg.Telemetry.RenewalSpans,
		Client:         cfg.Name,
		LeaseTime:      cfg.LeaseTime,
		Server:         telemetry.Server(address),
		Guard:          guard,
	})
	if err != nil {
		cn.Close()
		return nil, err
	}
	var leave <-chan struct{} // nil: closing the connection ends every wait for one
	closing := make(chan struct{})
	if cn.Borrowed() {
		leave = closing
	}
	news := &observe.News{Guard: guard}
	hub := pubsub.NewHub(pubsub.NewDialer(pubsub.Redis{
		Client: cn.Client(), Sharded: cn.Topology().Sharded, Permanent: conn.IsPermanent, Clean: cn.Clean, Unsubscribes: cn.Unsubscribes, Closing: leave,
	}), func(msg string, args ...any) {
		for i := range args {
			if err, ok := args[i].(error); ok {
				args[i] = cn.Clean(err)
			}
		}
		news.Tell(func() { cfg.Logger.Warn(msg, observe.Resolve(args)...) })
	})
	var core *engine.Core
	cn.OnReplica(hub.Redial, func(err error, first bool) {
		core.Moved() // the next connection may be to another server
		if first {
			news.Tell(func() {
				cfg.Logger.Warn("redlatch: the server is a replica; connecting anew until a master answers", "server", strings.Join(addrs, ","), "error", err)
			})
		}
	})
	core = engine.NewCore(engine.Config{
		ID:            id,
		Addr:          strings.Join(addrs, ","),
		DB:            cfg.database(cn.Borrowed()),
		Tenure:        max(cfg.Tenure, 0),
		Alone:         cn.Borrowed() || cfg.ClientBuilder != nil,
		LeaseTime:     cfg.LeaseTime,
		UnlockTimeout: cfg.UnlockTimeout,
		FenceTTL:      cfg.FenceTTL,
		ReplicaAcks:   cfg.ReplicaAcks,
		AckTimeout:    cfg.ReplicaAckTimeout,
		Map:           cfg.key(),
		Closing:       closing,
		Log:           cfg.Logger,
		Observer:      observer,
		News:          news,
	}, cn, hub)
	untold, err := telemetry.Ages(observer, core.Ages)
	if err != nil {
		core.Close()
		cn.Close()
		return nil, fmt.Errorf("redlatch: create the instruments: %w", err)
	}
	cn.OnMove(core.Moved)
	cn.OnMasters(core.Masters)
	inspector := inspect.New(inspect.Config{
		Addr:     strings.Join(addrs, ","),
		Map:      cfg.key(),
		Prefix:   cfg.Prefix,
		Timeout:  cfg.UnlockTimeout,
		Observer: observer,
		News:     news,
		Log:      cfg.Logger,
		ID:       id,
		Name:     cfg.Name,
	}, cn)
	return &Client{
		core: core, conn: cn, inspector: inspector, name: cfg.Name, untold: untold, closed: make(chan struct{}),
	}, nil
}

// openNamed connects under the Client's name. Over RESP2 the name is a command of its own, and a
// server that does not permit or know it refuses the whole connection: then there is none.
func openNamed(cfg Config, id string) (*conn.Conn, error) {
	given := cfg.Redis.ClientName
	cfg.Redis.ClientName = inspect.ConnectionName(cfg.Name, id)
	cn, err := conn.Open(cfg.Redis, cfg.LeaseTime, cfg.ClientBuilder, cfg.late)
	if err == nil || given != "" {
		return cn, err
	}
	if said := err.Error(); !noClient.MatchString(said) && (!cfg.Redis.AlwaysRESP2 || !strings.Contains(said, "NOPERM")) {
		return cn, err
	}
	cfg.Redis.ClientName = ""
	return conn.Open(cfg.Redis, cfg.LeaseTime, cfg.ClientBuilder, cfg.late)
}

// noClient is what a server says that does not know the command CLIENT.
var noClient = regexp.MustCompile("unknown command .?CLIENT")

// ID is the Client's id: the first part of its owners, as State and Redis show them.
func (c *Client) ID() string { return c.core.ID() }

// Name is the Client's name: Config.Name or its default.
func (c *Client) Name() string { return c.name }

// RLock returns the re-entrant lock of this name, Redisson's RLock; for readers see [Client.ReadWriteLock].
// One owner holds it at a time. RLock never fails: a bad name is an error of the first call.
func (c *Client) RLock(name string, opts ...Option) *rlock.RLock {
	return engine.Open(new(rlock.RLock), c.core, name, opts...)
}

// FairLock returns the fair lock of this name: like an RLock, but it serves the waiters of all processes in order of
// arrival. It never fails: a bad name or option is an error of the first call.
func (c *Client) FairLock(name string, opts ...Option) *fairlock.FairLock {
	return engine.Open(new(fairlock.FairLock), c.core, name, opts...)
}

// ReadWriteLock returns the read-write lock of this name. Acquire its ReadLock or
// its WriteLock. It never fails: a bad name or option is an error of the first call.
func (c *Client) ReadWriteLock(name string, opts ...Option) *rwlock.ReadWriteLock {
	l := new(rwlock.ReadWriteLock)
	engine.Open(l.ReadLock(), c.core, name, opts...)
	engine.Open(l.WriteLock(), c.core, name, opts...)
	return l
}

// Held lists the locks that this Client holds now, the longest-held first. Look at it when a lock seems to have been
// forgotten. It sends no command: a lock that the server has lost is listed until the next check.
func (c *Client) Held() []HeldLock { return c.core.Held() }

// Shutdown stops new acquisitions (re-entry still works; waiters return
// ErrClosed), waits until every held lock has been unlocked or lost, and closes
// the Client. If ctx ends first, it returns a [*ShutdownError], which matches ctx.Err(),
// and the Client keeps renewing its locks: call Close to end it, or Shutdown again.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := c.core.Drain(ctx); err != nil {
		return &lock.ShutdownError{Held: c.Held(), Err: err}
	}
	c.Close()
	return nil
}

// Close ends the Client now. Waiters return ErrClosed and leave their queues, the contexts of holds end with cause
// ErrClosed, and renewal stops. Held keys stay on the server until their leases end.
//
// Close blocks until all goroutines and connections of the Client have ended and everything has been logged. That takes
// at most UnlockTimeout, as much again for subscriptions that don't end, and the time to close connections. Code of
// yours that does not return (a log handler, a span processor, a client that you made) can make it last longer: for up
// to twice UnlockTimeout more. Then Close leaves that code behind. Further calls wait for the first.
func (c *Client) Close() {
	c.closeOnce.Do(func() {
		defer close(c.closed)
		c.inspector.Close()
		c.core.Close()
		c.conn.Close()
		c.core.Wait(c.untold, c.inspector.Wait)
	})
	<-c.closed
}
