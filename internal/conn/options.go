package conn

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/lock"
)

func refuse(option, reason string) error {
	return &lock.InvalidOptionError{Option: "Redis." + option, Reason: reason}
}

// allowed refuses the options that would break a promise in any client: also in one that exists already.
func allowed(opt rueidis.ClientOption, leaseTime time.Duration) error {
	const endless = "without it a broken connection would never be noticed"
	third := leaseTime / 3
	slow := func(d time.Duration) string {
		return fmt.Sprintf("it is %v; a broken connection must be noticed within a third of the lease (%v)", d, third)
	}
	switch {
	case opt.ConnLifetime != 0:
		return refuse("ConnLifetime", "a connection that ages out repeats commands that may have run")
	case opt.Standalone.EnableRedirect:
		return refuse("Standalone.EnableRedirect", "it repeats commands that have run when one beside them is redirected")
	case opt.ReplicaOnly:
		return refuse("ReplicaOnly", "a replica can't decide who holds a lock")
	case opt.BlockingPoolSize == 1:
		return refuse("BlockingPoolSize", "the subscription would take the only connection; leave it 0 or set at least 2")
	case opt.RingScaleEachConn > 0 && opt.RingScaleEachConn < rueidis.DefaultRingScale:
		return refuse("RingScaleEachConn", "a server that is slow would hold up more than its own commands; leave it 0 or set at least 10")
	case opt.Dialer.KeepAlive < 0:
		return refuse("Dialer.KeepAlive", endless)
	case opt.ConnWriteTimeout < 0:
		return refuse("ConnWriteTimeout", endless)
	case opt.ConnWriteTimeout > third:
		return refuse("ConnWriteTimeout", slow(opt.ConnWriteTimeout))
	case opt.Dialer.KeepAlive > third:
		return refuse("Dialer.KeepAlive", slow(opt.Dialer.KeepAlive))
	}
	return nil
}

// complete refuses the options that would break a promise and fills in those
// that keep them.
func complete(opt rueidis.ClientOption, leaseTime time.Duration) (rueidis.ClientOption, error) {
	switch {
	case len(opt.InitAddress) == 0:
		return opt, refuse("InitAddress", "no address")
	case opt.SendToReplicas != nil, len(opt.Standalone.ReplicaAddress) > 0:
		return opt, refuse("SendToReplicas", "a replica can't decide who holds a lock")
	case opt.DisableAutoPipelining:
		return opt, refuse("DisableAutoPipelining", "one caller's deadline would close connections that others use")
	case opt.PipelineMultiplex != 0 && opt.PipelineMultiplex != -1:
		return opt, refuse("PipelineMultiplex", "commands of one lock would overtake each other on several connections; leave it 0 or set -1")
	case len(opt.ClientTrackingOptions) > 0, opt.OnInvalidations != nil:
		return opt, refuse("ClientTrackingOptions", "locks can't be read from a client-side cache")
	case opt.Sentinel.Dialer.KeepAlive < 0:
		return opt, refuse("Sentinel.Dialer.KeepAlive", "without it a frozen sentinel would keep the client at a dead master")
	}
	if err := allowed(opt, leaseTime); err != nil {
		return opt, err
	}
	third := leaseTime / 3

	// One connection per node for scripts, always pipelined: order is kept, and
	// no caller's deadline closes what others use.
	opt.PipelineMultiplex = -1
	opt.AlwaysPipelining = true
	opt.BlockingPipeline = -1 // no pipeline is so long that it gets a connection of its own
	// Without it, servers that lack CLIENT TRACKING, or whose ACL forbids it,
	// refuse the connection.
	opt.DisableCache = true

	// How long the answer to a PING may take before the connection counts as
	// broken. Short, and a network or a machine that is slow for a while loses
	// every lock on a healthy server: each connection is closed before it could
	// answer. Long, and a connection that is really dead takes the time in which to
	// renew on another one. A renewal that is sent at a third of the lease over a
	// dead connection fails at 62 % of it, and one more dead connection can follow.
	// Close waits for as long, plus a KeepAlive, for a server that is frozen: within
	// the default of UnlockTimeout.
	opt.ConnWriteTimeout = cmp.Or(opt.ConnWriteTimeout, min(max(leaseTime/4, 200*time.Millisecond), 4*time.Second, third))
	opt.Dialer.KeepAlive = cmp.Or(opt.Dialer.KeepAlive, min(max(leaseTime/30, 100*time.Millisecond), time.Second, third))
	if opt.Sentinel.MasterSet != "" {
		completeSentinel(&opt, leaseTime)
	}
	// The first answers of a new connection may be as late as those of an old one.
	opt.Dialer.Timeout = cmp.Or(opt.Dialer.Timeout, min(max(leaseTime/4, 500*time.Millisecond), rueidis.DefaultDialTimeout))
	return opt, nil
}

// completeSentinel makes the client follow the master in time: what is held must be
// renewed on a new master before the lease that it has from the old one ends there.
func completeSentinel(opt *rueidis.ClientOption, leaseTime time.Duration) {
	s := &opt.Sentinel
	// The sentinel that leads a failover names the new master a second or more before
	// it announces it, and an announcement can be missed.
	s.TopologyRefreshInterval = cmp.Or(s.TopologyRefreshInterval, min(max(leaseTime/10, 200*time.Millisecond), 2*time.Second))
	// The connections to sentinels have a dialler of their own. Without these a
	// sentinel that is cut off would hold the client for minutes, and one that is
	// frozen for ever, however many others could be asked.
	s.Dialer.KeepAlive = cmp.Or(s.Dialer.KeepAlive, opt.Dialer.KeepAlive)
	s.Dialer.Timeout = cmp.Or(s.Dialer.Timeout, opt.Dialer.Timeout, min(max(leaseTime/6, 500*time.Millisecond), rueidis.DefaultDialTimeout))
}
