package redlatch

import (
	"context"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	rotel "github.com/redlatch/redlatch/otel"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rwlock"
)

// Client hands out locks on one Redis deployment. It is safe for concurrent use;
// a process needs one. It has a connection for scripts and one for
// subscriptions per node, and a fixed number of goroutines however many locks
// are held or waited for.
type Client struct {
	core *engine.Core
	conn *conn.Conn

	closeOnce sync.Once
	closed    chan struct{}
}

// New connects and starts a Client. It blocks for at most the dial time-out per
// address. It returns ErrInvalidOption; a *ConnectError, at once, where only a change
// of the configuration or of the server can help (a wrong password, a missing
// permission, TLS on one side alone, an untrusted certificate, a server that is too
// old); ErrUnavailable for a server that can't be reached or can't answer now. After an
// error nothing is left. Close ends the Client.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	cn, err := conn.Open(cfg.Redis, cfg.LeaseTime, cfg.ClientBuilder)
	if err != nil {
		return nil, err
	}
	var address string // of the server, where there is only one
	if cn.Client().Mode() == rueidis.ClientModeStandalone && len(cfg.Redis.InitAddress) == 1 {
		address = cfg.Redis.InitAddress[0]
	}
	observer, err := rotel.New(rotel.Options{
		TracerProvider: cfg.TracerProvider,
		MeterProvider:  cfg.MeterProvider,
		LockName:       cfg.Telemetry.LockName,
		NoLinks:        cfg.Telemetry.NoLinks,
		NoCommands:     cfg.Telemetry.NoCommandSpans,
		Renewals:       cfg.Telemetry.RenewalSpans,
		LeaseTime:      cfg.LeaseTime,
		Server:         rotel.Server(address),
	})
	if err != nil {
		cn.Close()
		return nil, err
	}
	hub := pubsub.NewHub(pubsub.NewDialer(cn.Client(), cn.Topology().Sharded, conn.IsPermanent), cfg.Logger.Warn)
	core := engine.NewCore(engine.Config{
		ID:            uuid.NewString(),
		Addr:          strings.Join(cfg.Redis.InitAddress, ","),
		LeaseTime:     cfg.LeaseTime,
		UnlockTimeout: cfg.UnlockTimeout,
		FenceTTL:      cfg.FenceTTL,
		ReplicaAcks:   cfg.ReplicaAcks,
		AckTimeout:    cfg.ReplicaAckTimeout,
		Map:           cfg.key(),
		Log:           cfg.Logger,
		Observer:      observer,
	}, cn, hub)
	cn.OnMove(core.Moved)
	return &Client{core: core, conn: cn, closed: make(chan struct{})}, nil
}

// Open is New for a URL: redis://[user:password@]host:port[/db], rediss:// for
// TLS, unix://[user:password@]/path for a Unix socket, with the parameters that
// rueidis.ParseURL knows (addr for further addresses, master_set for sentinels, whose
// own credentials can only be set with [WithConfig]). With rediss:// sentinels are
// spoken to over TLS too.
func Open(url string, opts ...ConfigOption) (*Client, error) {
	opt, err := conn.ParseURL(url)
	if err != nil {
		// The parser's message may contain the URL, and with it the password.
		return nil, &lock.InvalidOptionError{Option: "url", Reason: "it is not a redis:// or rediss:// URL"}
	}
	cfg := Config{Redis: opt}
	for _, o := range opts {
		if o != nil {
			o(&cfg)
		}
	}
	return New(cfg)
}

// ID is the Client's id, the first part of its owners on the wire.
func (c *Client) ID() string { return c.core.ID() }

// RLock returns the re-entrant lock of this name. It never fails: a bad name is
// an error of the first call.
func (c *Client) RLock(name string, opts ...Option) *rlock.RLock {
	return rlock.New(c.core, name, opts...)
}

// FairLock returns the fair lock of this name: waiters of all processes are
// served in the order of their arrival. It never fails: a bad name or option is
// an error of the first call.
func (c *Client) FairLock(name string, opts ...Option) *fairlock.FairLock {
	return fairlock.New(c.core, name, opts...)
}

// ReadWriteLock returns the read-write lock of this name; its modes are its
// ReadLock and its WriteLock. It never fails: a bad name is an error of the first
// call.
func (c *Client) ReadWriteLock(name string, opts ...Option) *rwlock.ReadWriteLock {
	return rwlock.New(c.core, name, opts...)
}

// Shutdown stops new acquisitions (re-entry still works; waiters return
// ErrClosed), waits until every held lock has been unlocked or lost, and closes
// the Client. When ctx ends first it returns ctx.Err() and the Client goes on
// renewing what is held: call Close to end it, or Shutdown again.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := c.core.Drain(ctx); err != nil {
		return err
	}
	c.Close()
	return nil
}

// Close ends the Client now: waiters return ErrClosed and leave their queues,
// hold contexts end with cause ErrClosed, renewal stops. Held keys are left to
// their leases. It blocks until nothing of the Client is left, at most for
// UnlockTimeout and the time in which connections close. Further calls wait for
// the first.
func (c *Client) Close() {
	c.closeOnce.Do(func() {
		defer close(c.closed)
		c.core.Close()
		c.conn.Close()
		c.core.Wait()
	})
	<-c.closed
}
