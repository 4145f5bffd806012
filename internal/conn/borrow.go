package conn

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// probeLimit limits each of the first commands, by which New and NewWithClient find out what they talk to.
const probeLimit = 5 * time.Second

// Borrow makes a Conn of a client that belongs to the application: Close leaves
// it open. opt is what the client was made with, if the application tells; the
// zero value otherwise. key is any key that the client may use for locks.
//
// It blocks until a script was answered, for 5 s at most, and refuses a client
// that sends scripts to a replica.
func Borrow(client rueidis.Client, opt rueidis.ClientOption, leaseTime time.Duration, key func(string) string) (*Conn, error) {
	if client == nil {
		return nil, &lock.InvalidOptionError{Option: "client", Reason: "it is nil"}
	}
	told := !reflect.ValueOf(opt).IsZero()
	if told {
		if err := checkBorrowed(opt, client.Mode(), leaseTime); err != nil {
			return nil, err
		}
	}
	c := &Conn{
		client: client, known: secretsOf(&opt), silent: connWriteTimeout(opt), broke: new(Instant),
	}
	c.life, c.leave = context.WithCancel(context.Background())
	c.topo.Cluster = client.Mode() == rueidis.ClientModeCluster
	ctx, cancel := limited(context.Background(), probeLimit)
	defer cancel()
	if err := c.probe(ctx, key); err != nil {
		return nil, err
	}
	var err error
	if c.topo, _, err = (&dialler{known: c.known}).look(opt, client); err != nil {
		return nil, err
	}
	if client.Mode() == rueidis.ClientModeSentinel {
		// Its dialling can't be hooked: the master's address is looked at all the time, which costs no command.
		c.watch = &masterWatch{quit: make(chan struct{}), poll: pollEvery(leaseTime)}
	}
	return c, nil
}

// Borrowed reports whether the client belongs to the application.
func (c *Conn) Borrowed() bool { return c.leave != nil }

// Undated is ctx without its deadline, for commands: it ends when ctx does. The client
// library would give a deadline to the connection, and close it for all users when it passes.
func Undated(ctx context.Context) context.Context { return undated{ctx} }

type undated struct{ context.Context }

// Deadline implements context.Context.
func (undated) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// limited is context.WithTimeout for commands; see Undated.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	return Undated(ctx), cancel
}

// probe sends a script as the locks do. It writes nothing, but a replica refuses it.
func (c *Conn) probe(ctx context.Context, key func(string) string) error {
	name := "redlatch-probe-" + uuid.NewString()
	if key != nil {
		if mapped := key(name); mapped != "" {
			name = mapped
		}
	}
	cmd := Command{Script: luascript.Renew, Keys: []string{name}, Args: []string{"nobody", "0"}}
	r, err := c.answer(ctx, cmd, c.client.Do(ctx, c.evalsha(cmd)))
	switch _, answered := answerOf(err); {
	case err == nil && r.Int(0) == -1, answers(err, "READONLY"):
		return &lock.InvalidOptionError{Option: "client", Reason: "it sends scripts to a server that refuses writes: a replica can't decide who holds a lock"}
	case err != nil && !answered:
		return &lock.UnavailableError{Op: "connect", Nodes: []lock.NodeError{{Node: masterAddr(c.client), Err: err}}}
	}
	return nil // or no permission for this key, or a state that passes: the locks will tell
}

// checkBorrowed refuses options that would break a promise in a client that already
// exists. Some options that complete refuses are fine here, since only scripts go
// through the client and the application may want them: a probe has shown where
// scripts go.
func checkBorrowed(opt rueidis.ClientOption, mode rueidis.ClientMode, leaseTime time.Duration) error {
	if mode == rueidis.ClientModeSentinel && opt.Sentinel.TopologyRefreshInterval == 0 {
		return refuse("Sentinel.TopologyRefreshInterval", "without it a client that misses an announcement stays with a demoted master; 2s is a good value")
	}
	opt.ConnWriteTimeout = connWriteTimeout(opt)
	opt.Dialer.KeepAlive = cmp.Or(opt.Dialer.KeepAlive, rueidis.DefaultTCPKeepAlive)
	return allowed(opt, leaseTime)
}

// connWriteTimeout is what the client library makes of the option.
func connWriteTimeout(opt rueidis.ClientOption) time.Duration {
	return cmp.Or(opt.ConnWriteTimeout, 10*max(rueidis.DefaultTCPKeepAlive, opt.Dialer.KeepAlive))
}

// lasting is the ctx of a command: it keeps the values of ctx alone. A command
// through a borrowed client stops waiting at Close, since nobody closes its
// connection then.
func (c *Conn) lasting(ctx context.Context) context.Context {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	if c.leave == nil {
		return ctx
	}
	return untilLeft{c.life, ctx}
}

// untilLeft ends with a Conn, and has the values of a command.
type untilLeft struct {
	context.Context
	of context.Context
}

func (u untilLeft) Value(key any) any { return u.of.Value(key) }

// pollEvery is how often to look at the address of a client that nobody hears dialling.
func pollEvery(leaseTime time.Duration) time.Duration {
	return min(max(leaseTime/100, 10*time.Millisecond), lastLook)
}
