package redlatch

import (
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// The defaults of [Config].
const (
	DefaultLeaseTime         = 30 * time.Second
	DefaultUnlockTimeout     = 5 * time.Second
	DefaultFenceTTL          = 24 * time.Hour
	DefaultTenure            = 6 * time.Millisecond
	DefaultReplicaAckTimeout = time.Second
)

// Config is a Client's configuration. New needs Redis.InitAddress only; it checks the rest
// and fills in defaults.
type Config struct {
	// Redis says where the servers are: standalone, Sentinel (Sentinel.MasterSet)
	// or Cluster. Options that would break a promise of this package are refused
	// with ErrInvalidOption and the reason, among them ConnLifetime,
	// SendToReplicas, DisableAutoPipelining and time-outs above a third of
	// LeaseTime. Unless set, Dialer.KeepAlive and ConnWriteTimeout are chosen so
	// that a broken connection is noticed within a third of LeaseTime, and that an answer
	// may take a quarter of it, at most 4 s, before its connection counts as broken.
	//
	// With NewWithClient: the options that the client was made with, which are then
	// checked, or nothing.
	Redis rueidis.ClientOption

	// ClientBuilder makes the client from the completed options, in place of
	// rueidis.NewClient. Use it to wrap the client, for instance with rueidisotel.
	// It must keep SelectDB, by which a [MultiLock] tells databases apart, and the dial function: when
	// a master has become a replica behind its address, redlatch ends the connections that it has
	// dialled. The Client closes what it returns.
	ClientBuilder func(rueidis.ClientOption) (rueidis.Client, error)

	// Name tells people which program this is. With the Client's id it names the Client's
	// connections (CLIENT LIST: redlatch:<name>:<id>), so that the owner of a lock leads to a
	// process and an address; those of a client given to NewWithClient keep their names.
	// Every log line has it (client), and every span of a lock (lock.client.name).
	// Printable ASCII without spaces, at most 128 bytes.
	// Default: Redis.ClientName, else <host>/<process id>.
	Name string

	// LeaseTime is the lease of holds without a fixed one; the watchdog renews it at a
	// third. It is also how long a lock stays taken when its holder dies. Default 30 s, at
	// least 50 ms.
	LeaseTime time.Duration

	// Prefix is put in front of every lock name.
	Prefix string

	// NameMapper makes the key from a lock's name, before Prefix is put in front
	// of it. It must be pure, and give distinct keys for distinct locks.
	NameMapper func(name string) string

	// Tenure is how long an RLock may be passed on inside this process. While goroutines of
	// the process wait for it, Unlock passes it to the next of them without a command, until
	// Tenure has passed since the last command. Then it is released, and waiting processes
	// come first. Another process may wait longer by Tenure and one critical section.
	// Default 6 ms, or a tenth of LeaseTime if that is less; at most a third of LeaseTime.
	// Negative: never pass on. Fenced locks, fixed leases and other kinds are not passed on.
	// With [ShareReads] it is also how long a reader's hold admits other readers of this
	// process.
	Tenure time.Duration

	// FenceTTL is how long a fencing counter is kept after the last acquisition, and longer
	// while the server's clock is behind it.
	// Default 24 h, or LeaseTime if that is more; at least LeaseTime. Negative: for ever, as
	// in Redisson. Java services that take the same fenced locks need that: their counter
	// begins at 1 again when the key is gone.
	FenceTTL time.Duration

	// ReplicaAcks makes an acquisition count only after that many replicas have
	// acknowledged it within ReplicaAckTimeout (default 1 s, or a third of LeaseTime if that
	// is less; at most that third); otherwise it is undone and ErrReplicaAcks returned. It narrows the
	// window in which a failover loses a lock; it does not close it. Default 0: replicas
	// are not waited for.
	ReplicaAcks       int
	ReplicaAckTimeout time.Duration

	// UnlockTimeout limits Unlock, Extend, State, Inspect, ForceUnlock, Evictions, each batch of
	// Locks, the commands of a Once and the cleanup of Close. Default 5 s, at least 1 ms.
	UnlockTimeout time.Duration

	// TracerProvider and MeterProvider receive the spans and metrics; nil: the
	// global ones. With the API's no-op providers telemetry costs nothing.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider

	// Telemetry chooses what they receive.
	Telemetry Telemetry

	// Logger gets lost leases, failed renewals, lost subscriptions, locks given back late and forced
	// unlocks; docs/OBSERVABILITY.md lists the lines. Default slog.Default().
	Logger *slog.Logger

	late bool // Open: the server may come later
}

// Telemetry chooses what spans and metrics contain; docs/OBSERVABILITY.md lists
// them.
type Telemetry struct {
	// LockName makes the lock.name attribute from a lock's name, so that
	// "order:42" can become "order:*". Without it, spans carry the name unchanged,
	// and metrics carry none, since the number of names may be unbounded. With it,
	// metrics carry at most 200 names.
	LockName func(name string) string

	// NoLinks keeps the holder's trace context off the server. Otherwise a holder
	// whose trace is sampled stores it in a key beside the lock for the lifetime of the
	// lock, and a waiter's span links to the acquisition that it waited for.
	NoLinks bool

	// NoCommandSpans leaves out the span of each Redis command. Set it when
	// ClientBuilder returns a client that is instrumented already.
	NoCommandSpans bool

	// RenewalSpans adds a span for each renewal. Without it, a hold has one when its renewals begin
	// to fail and one when that ends.
	RenewalSpans bool
}

// ConfigOption changes the configuration that [Open] makes from a URL.
type ConfigOption func(*Config)

// WithConfig lets f change anything in the configuration, also what has no option of its own.
func WithConfig(f func(*Config)) ConfigOption { return f }

// MustConnect has [Open] return ErrUnavailable if its only server can't be reached or can't answer now, as
// [New] does without Redis.ForceSingleClient.
func MustConnect() ConfigOption { return func(c *Config) { c.late = false } }

// WithName sets Config.Name.
func WithName(name string) ConfigOption { return func(c *Config) { c.Name = name } }

// WithLeaseTime sets Config.LeaseTime.
func WithLeaseTime(d time.Duration) ConfigOption { return func(c *Config) { c.LeaseTime = d } }

// WithPrefix sets Config.Prefix.
func WithPrefix(prefix string) ConfigOption { return func(c *Config) { c.Prefix = prefix } }

// WithLogger sets Config.Logger.
func WithLogger(l *slog.Logger) ConfigOption { return func(c *Config) { c.Logger = l } }

// WithUnlockTimeout sets Config.UnlockTimeout.
func WithUnlockTimeout(d time.Duration) ConfigOption { return func(c *Config) { c.UnlockTimeout = d } }

// WithFenceTTL sets Config.FenceTTL.
func WithFenceTTL(d time.Duration) ConfigOption { return func(c *Config) { c.FenceTTL = d } }

// WithTenure sets Config.Tenure: 0 means the default, a negative one never to pass on.
func WithTenure(d time.Duration) ConfigOption { return func(c *Config) { c.Tenure = d } }

// WithReplicaAcks sets Config.ReplicaAcks and Config.ReplicaAckTimeout; a timeout of 0
// means the default.
func WithReplicaAcks(n int, timeout time.Duration) ConfigOption {
	return func(c *Config) { c.ReplicaAcks, c.ReplicaAckTimeout = n, timeout }
}

const minLeaseTime = 50 * time.Millisecond

// complete checks the configuration and fills in the defaults.
func (c Config) complete() (Config, error) {
	refuse := func(option, reason string) (Config, error) {
		return c, &lock.InvalidOptionError{Option: option, Reason: reason}
	}
	if c.LeaseTime == 0 {
		c.LeaseTime = DefaultLeaseTime
	}
	if c.UnlockTimeout == 0 {
		c.UnlockTimeout = DefaultUnlockTimeout
	}
	if c.FenceTTL == 0 {
		c.FenceTTL = max(DefaultFenceTTL, c.LeaseTime)
	}
	if c.Tenure == 0 {
		c.Tenure = min(DefaultTenure, c.LeaseTime/10)
	}
	if c.ReplicaAckTimeout == 0 {
		c.ReplicaAckTimeout = min(DefaultReplicaAckTimeout, max(c.LeaseTime/3, time.Millisecond))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Name == "" {
		c.Name = defaultName(c.Redis.ClientName)
	}
	c.Logger = slog.New(observe.Handler(c.Logger.Handler())).With("client", c.Name)
	switch {
	case !inspect.GoodName(c.Name):
		return refuse("Name", "it has more than 128 bytes, a space, or a character that is not printable ASCII")
	case c.LeaseTime < minLeaseTime:
		return refuse("LeaseTime", "it is below 50ms: a renewal could not come in time")
	case c.UnlockTimeout < time.Millisecond:
		return refuse("UnlockTimeout", "it is below 1ms")
	case c.Tenure > c.LeaseTime/3:
		return refuse("Tenure", "it is above a third of LeaseTime: the server would be asked too rarely")
	case c.FenceTTL > 0 && c.FenceTTL < c.LeaseTime:
		return refuse("FenceTTL", "the counter must outlive a lease, or tokens depend on the server's clock alone")
	case c.ReplicaAcks < 0:
		return refuse("ReplicaAcks", "it is negative")
	case c.ReplicaAckTimeout < time.Millisecond:
		return refuse("ReplicaAckTimeout", "it is below 1ms")
	case c.ReplicaAcks > 0 && c.ReplicaAckTimeout > c.LeaseTime/3:
		return refuse("ReplicaAckTimeout", "it is above a third of LeaseTime: the lease could run out while waiting")
	}
	return c, nil
}

// defaultName is what a Client without a name is called.
func defaultName(connections string) string {
	if connections != "" {
		return inspect.CleanName(connections)
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	pid := "/" + strconv.Itoa(os.Getpid())
	name := inspect.CleanName(host)
	return name[:min(len(name), inspect.MaxName-len(pid))] + pid
}

// database is the number of the client's database, -1 if nobody told with which options a borrowed
// client was made.
func (c Config) database(borrowed bool) int {
	if borrowed && reflect.ValueOf(c.Redis).IsZero() {
		return -1
	}
	return c.Redis.SelectDB
}

// key maps a lock's name; nil when names are keys.
func (c Config) key() func(string) string {
	switch mapper, prefix := c.NameMapper, c.Prefix; {
	case mapper == nil && prefix == "":
		return nil
	case mapper == nil:
		return func(name string) string { return prefix + name }
	default:
		return func(name string) string {
			key := mapper(name)
			if key == "" {
				return ""
			}
			return prefix + key
		}
	}
}
