package conn

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/lock"
)

// Open checks opt, completes it for a watchdog lease of leaseTime and connects.
// It blocks for at most the dial time-out per address. What a change of the
// configuration or of the server must mend is a *lock.ConnectError; only a server
// that can't be reached, or can't answer now, is lock.ErrUnavailable. With late set, a single
// address that is such is none: the Conn takes it for a single server and connects later. So it
// does with ForceSingleClient.
func Open(opt rueidis.ClientOption, leaseTime time.Duration, build func(rueidis.ClientOption) (rueidis.Client, error), late bool) (*Conn, error) {
	opt, err := complete(opt, leaseTime)
	if err != nil {
		return nil, err
	}
	d := follow(&opt)
	defer d.opening.Store(false)
	var watch *masterWatch
	if opt.Sentinel.MasterSet != "" {
		watch = watchMaster(d, &opt)
		if build != nil {
			watch.poll = pollEvery(leaseTime) // it may dial by itself
		}
	}
	built := build != nil
	if !built {
		build = rueidis.NewClient
	}
	client, err := build(opt)
	if client == nil && err == nil {
		return nil, &lock.InvalidOptionError{Option: "ClientBuilder", Reason: "it returned no client"}
	}
	if err != nil {
		final, told := d.explain(opt, err)
		if late && !final && !opt.ForceSingleClient && opt.Sentinel.MasterSet == "" && len(opt.InitAddress) == 1 {
			opt.ForceSingleClient = true
			d.later.Store(true) // it was asked just now
			client, err = build(opt)
			d.later.Store(false)
		}
		// A single client that could not connect yet is usable as soon as its
		// server is there: the members of a quorum must be able to start late.
		// No other is returned beside an error: there a builder's may be a wrapper around nothing.
		if client == nil || !opt.ForceSingleClient || final {
			if client != nil && opt.ForceSingleClient {
				client.Close()
			}
			d.close()
			return nil, told
		}
	}
	c := &Conn{client: client, silent: opt.ConnWriteTimeout, watch: watch, broke: &d.broke, dial: d, built: built, known: d.known}
	answered := false
	if err == nil {
		if c.topo, answered, err = d.look(opt, client); err != nil {
			client.Close()
			d.close()
			return nil, err
		}
	}
	if !answered {
		c.unknown = newStranger(d, opt, client)
	}
	return c, nil
}
